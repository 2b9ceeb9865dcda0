// The card of a node: what it is, why it got its verdict, both distributions at its place; or two nodes side by side.

import { button, clamp, focusable, html, labelled, svg } from "../components/dom.js";
import { probability, signed } from "../components/formats.js";
import { marker, markPicture } from "../components/marks.js";
import { report } from "./film.js";
import { lightAll, link, paintSelection, select, setSelected } from "./scope.js";
import { stateAt } from "./steps.js";

const AFTER = ["select", "commit", "history"]; // phases in which every verdict is there
const EARLY = new Set(["path probability", "drafted", "times drawn", "expansion", "byte"]); // known once drafted
const ASK = "Which setting would have included it?";
const ASK_HELP = `${ASK} The answer stands below, under Why`;
const PROBS_ROWS = 10;
const PROBS_ROWS_LEAST = 6;
const ROW_HEIGHT = 18;
const ROW_HEIGHT_LEAST = 13;
const PROBS_SURROUNDINGS = 68; // padding, gaps and the line with the heads

export function buildCard(view, parent) {
  const box = html("section", "panel card", parent);
  focusable(box, "The selected node");
  const head = html("header", "", box);
  const picture = svg("svg", { width: 20, height: 20, viewBox: "-10 -10 20 20", "aria-hidden": "true" }, head);
  const token = html("h2", "token", head);
  const kind = html("span", "side", head);
  const why = html("p", "why", box);
  why.setAttribute("aria-live", "polite");
  const probs = html("div", "probs", box);
  const absent = labelled(html("p", "absent", box), "status");
  const facts = html("dl", "facts", box);
  const gates = html("dl", "facts gates", box);
  const tests = html("div", "tests", box);
  const residuals = html("div", "tests residuals", box);
  const compare = html("div", "compare", box);
  view.card = { box, picture, token, kind, why, probs, absent, facts, gates, tests, residuals, compare };
  let height = 0;
  new ResizeObserver(() => {
    if (view.drawn && Math.abs(box.clientHeight - height) > 8) paintCard(view);
    height = box.clientHeight;
  }).observe(box);
}

// Draws the card; a button in it that had the focus gives it to the one in its place.
export function paintCard(view) {
  const { box } = view.card;
  const buttons = () => [...box.querySelectorAll("button:not(:disabled)")];
  const place = buttons().indexOf(view.shadow.activeElement);
  fillCard(view);
  if (place >= 0) (buttons()[place] || box).focus({ preventScroll: true });
  lightAll(view);
}

function fillCard(view) {
  const { card } = view;
  const shown = presentNode(view, view.selected ?? view.hovered);
  const entry = asOfPhase(view, shown);
  for (const part of [card.probs, card.facts, card.gates, card.tests, card.residuals, card.picture, card.compare])
    part.replaceChildren();
  card.absent.textContent = "";
  const comparing = view.second !== null && view.second !== shown && entry !== undefined;
  card.box.classList.toggle("none", !entry);
  card.box.classList.toggle("comparing", comparing);
  card.box.setAttribute("aria-label", entry ? `${entry.token}: ${entry.kind}` : "The selected node");
  if (comparing) return paintCompare(view);
  if (!entry) {
    card.token.textContent = "";
    card.kind.textContent = "";
    card.why.textContent =
      "Point at a node to highlight it in every view; click to pin it and see the reason for its verdict.";
    return;
  }
  card.picture.setAttribute("class", "n s-" + entry.state);
  marker(entry.state, card.picture);
  card.token.textContent = card.token.title = entry.token;
  card.kind.textContent = card.kind.title = entry.kind;
  card.why.textContent = entry.why;
  const pinned = view.data.cards[view.selected];
  if (pinned && shown !== view.selected)
    card.why.append(` The pinned ${pinned.token} comes in a later phase; “Why”, below the views, stays with it.`);
  if (entry.asks && !entry.undecided) button("tool words asks", card.why, ASK, ASK_HELP, askSetting);
  if (view.absent) {
    html("b", "", card.absent, view.absent.token);
    card.absent.append(": " + view.absent.words);
  }
  const gates = entry.gates || [];
  for (const [name, value] of entry.facts) {
    if (name === "expansion" && gates.length) continue;
    const pair = html("div", "", card.facts);
    html("dt", "", pair, name);
    html("dd", "", pair, value);
  }
  if (gates.length) html("dt", "whose", html("div", "", card.gates), "Gates before its own children");
  for (const [outcome, name, words] of gates) {
    const pair = html("div", "", card.gates);
    html("dt", outcome, pair, name);
    html("dd", outcome, pair, words);
  }
  const probs = probsOf(view, entry);
  if (!probs) return;
  if (entry.undecided) probs.tests = [];
  // The tests only where the distributions still get their rows: the sentence above has the node's own test anyway.
  paintTests(view, probs.tests);
  const lines = Math.min(PROBS_ROWS, probs.rows.length) + (probs.has_draft && probs.has_target ? 0 : 1);
  if (lawRoom(card) < lines * ROW_HEIGHT) card.tests.replaceChildren();
  paintResiduals(view, entry.residuals || []);
  if (lawRoom(card) < lines * ROW_HEIGHT) card.residuals.replaceChildren();
  // Where the panel is short the rows move closer together, then the least likely ones are dropped.
  const room = lawRoom(card);
  const height = clamp(Math.floor(room / lines), ROW_HEIGHT_LEAST, ROW_HEIGHT);
  card.probs.style.setProperty("--row", height + "px");
  paintProbs(
    view,
    probs,
    entry,
    clamp(PROBS_ROWS + Math.floor((room - lines * height) / height), PROBS_ROWS_LEAST, PROBS_ROWS),
  );
}

// The question is answered below the scope, on the page that holds it: its button is pressed and brought into view.
function askSetting() {
  document.querySelector(".st-key-why_change button")?.click();
  document.querySelector(".st-key-why")?.scrollIntoView({ block: "start" });
}

function probsOf(view, entry) {
  const probs = entry.probs === null ? null : view.data.distributions?.[entry.probs] || null;
  if (!probs || !entry.unseen) return probs;
  // Before the target's pass the draft's order, without what only the target likes.
  const known = probs.rows.filter((row) => row.draft !== null || row.token_id === entry.token_id);
  const rows = known.sort((a, b) => b.draft - a.draft).map((row) => ({ ...row, drawn: false }));
  return { ...probs, rows, has_target: false };
}

function stateOf(view, id) {
  const place = view.data.scene.nodes.findIndex((node) => node.node_id === id);
  return place < 0 ? undefined : stateAt(view, place);
}

// The node to show: where the selected one is not there yet, the likeliest of those that the phase adds, or the root.
function presentNode(view, id) {
  if (id === null || stateOf(view, id) !== "hidden") return id;
  const added = view.data.scene.nodes.filter((node) => stateOf(view, node.node_id) === "new" && !node.folded);
  return added.reduce((best, node) => (node.width > best.width ? node : best), { node_id: 0, width: -1 }).node_id;
}

// A node's card with what is known of it in the phase shown: no verdict before the verifier's, nothing of the target's
// before its pass.
function asOfPhase(view, id) {
  const entry = view.data.cards[id];
  const stage = view.root.dataset.stage;
  if (!entry || entry.state === "fold" || AFTER.includes(stage)) return entry;
  const state = stateOf(view, id);
  const place = entry.kind.split(" · ").slice(0, -1).join(" · ");
  const early = { ...entry, undecided: true, unseen: stage !== "verify", residuals: [] };
  const facts = stage === "verify" && state === "root" ? entry.facts : entry.facts.filter(([name]) => EARLY.has(name));
  if (state === "root") return { ...early, why: "", facts };
  if (entry.state === state) return early;
  return { ...early, state, why: "Drafted; the verifier has not decided yet.", kind: place + " · drafted", facts };
}

// The verifier's tests at this place in their order, so that a draw can be followed.
function paintTests(view, tests) {
  if (!tests.length) return;
  const box = view.card.tests;
  html("h3", "", box, "tests at this node, in order").title = view.terms.tests || "";
  for (const test of tests) {
    const line = button("test", box, "", null, () => {});
    line.disabled = test.node === null;
    markPicture(line, test.state);
    html("span", "name", line, test.token);
    html("span", "numbers", line, test.words);
    link(line, test.node);
  }
}

// The residual of the target's distribution after each rejection at this position.
function paintResiduals(view, residuals) {
  const box = view.card.residuals;
  for (const { after, rows } of residuals) {
    html("h3", "", box, after).title = view.terms.residual || "";
    const line = html("p", "residual", box);
    for (const [text, value] of rows) {
      const one = html("span", "", line);
      html("b", "", one, text);
      one.append(" " + probability(value));
    }
  }
}

// Pixels left for the rows of the distributions after everything else, without scrolling.
function lawRoom(card) {
  const beside = [card.facts, card.gates, card.why, card.token, card.tests, card.residuals, card.absent];
  return card.box.clientHeight - beside.reduce((sum, part) => sum + part.offsetHeight, 0) - PROBS_SURROUNDINGS;
}

function paintProbs(view, probs, entry, room) {
  const grid = view.card.probs;
  html("span", "head left", grid, probs.has_draft ? "draft" : "").title = view.terms.draft || "";
  const middle = html("span", "head", grid, "after " + probs.after);
  middle.title = middle.textContent;
  html("span", "head right", grid, probs.has_target ? probs.target_head : "").title = probs.target_help;
  // The node's own token and those drawn here always have their rows, even far down the list; the last row is the rest.
  const must = (row) => row.drawn || row.token_id === entry.token_id;
  let spare = room - probs.rows.filter(must).length - 1;
  const rows = probs.rows.filter((row) => must(row) || spare-- > 0);
  const rest = (side) => Math.max(1 - rows.reduce((sum, row) => sum + (row[side] || 0), 0), 0);
  const most = Math.max(0.01, ...rows.map((row) => Math.max(row.draft || 0, row.target || 0)));
  for (const row of rows) {
    const mark = row.token_id === entry.token_id ? " mine s-" + entry.state : "";
    probsSide(grid, "left" + mark, probs.has_draft, row.draft, probs.draft_floor, most);
    distributionToken(view, grid, entry, row, mark);
    probsSide(grid, "right" + mark, probs.has_target, row.target, probs.target_floor, most);
  }
  const left = { draft: probs.has_draft ? rest("draft") : 0, target: probs.has_target ? rest("target") : 0 };
  if (rows.length && (left.draft || left.target)) {
    const scale = Math.max(most, left.draft, left.target);
    probsSide(grid, "left", probs.has_draft, left.draft, 0, scale);
    html("span", "name no-node", grid, "all others").title = "The rest of each distribution, over all other tokens.";
    probsSide(grid, "right", probs.has_target, left.target, 0, scale);
  }
  if (!probs.has_draft || !probs.has_target) {
    const missing = probs.has_draft ? "The target" : "The draft";
    const yet = entry.unseen && probs.has_draft ? " has not run yet." : " computed nothing at this position.";
    html("span", "missing", grid, missing + yet);
  }
}

// A token of the distributions: a click goes to its node; if it has none, the card says why.
function distributionToken(view, grid, entry, row, mark) {
  const there = row.node !== null && row.node !== undefined;
  const name = button("name" + mark + (there ? "" : " no-node"), grid, row.text, null, () => {
    const { token_id, text, absent } = row;
    if (!there && absent) showAbsent(view, { parent: entry.probs, token_id, token: text, words: absent });
  });
  name.title = there ? `${row.text}: node ${row.node < 0 ? "of the final token" : row.node}` : row.absent || row.text;
  if (there) link(name, row.node);
  else if (!row.absent) name.disabled = true;
}

// Why a token of the distributions has no node; it is reported to Python, which may know more.
export function showAbsent(view, absent) {
  view.absent = absent;
  paintCard(view);
  if (!absent) return;
  const { parent, token_id } = absent;
  report(view, "absent", { parent, token_id });
}

function probsSide(grid, className, there, value, floor, most) {
  const cell = html("span", "side-bar " + className, grid);
  const number = html("span", "value", cell, there ? probability(value, floor) : "");
  const lane = html("span", "lane", cell);
  if (!there) return;
  const bar = html("span", "bar", lane);
  bar.style.width = (100 * (value || 0)) / most + "%";
  if (value) number.title = String(value);
}

// Marks a second node everywhere; null, or the same node again, clears it. A mask cell sets both nodes.
export function compareWith(view, id, first) {
  const known = (node) => view.data.cards[node] && !(view.tree.marks.get(node) || { node: {} }).node.folded;
  if (id !== null && !known(id)) return;
  if (first !== undefined && first !== id && known(first)) setSelected(view, first);
  if (view.selected === null && id !== null) return select(view, id);
  view.second = id === view.selected || id === view.second ? null : id;
  paintSelection(view);
}

// By keyboard: what the focus or the pointer is on; else the pinned node is held, and the next ones are compared with it.
export function compareHere(view) {
  if (view.hovered !== null) return compareWith(view, view.hovered);
  view.second = view.second === null ? view.selected : null;
  paintSelection(view);
}

function paintCompare(view) {
  const box = view.card.compare;
  const sides = [view.selected, view.second].map((id) => sideOf(view, id));
  const head = html("div", "compare-head", box);
  html("h2", "", head, "Compared");
  button("tool", head, "×", "End the comparison (Escape)", () => compareWith(view, null));
  const names = [...new Set(sides.flatMap((side) => [...side.facts.keys()]))];
  const isNumber = (name) =>
    sides.every((side) => !side.facts.has(name) || !Number.isNaN(Number(side.facts.get(name))));
  const body = compareTable(box, sides, true);
  compareRow(body, "node", sides, (side) => side.name);
  compareRow(body, "path", sides, (side) => side.path);
  compareRow(body, "verdict", sides, (side) => side.verdict);
  numberRow(body, "draft", sides, (side) => side.draft);
  numberRow(body, "target", sides, (side) => side.target);
  for (const name of names.filter(isNumber)) {
    const value = (side) => side.facts.get(name);
    numberRow(body, name, sides, (side) => (side.facts.has(name) ? Number(value(side)) : null), value);
  }
  for (const side of sides) {
    const why = html("p", "why", box);
    html("b", "", why, side.token + " ");
    why.append(side.why);
  }
  const rest = compareTable(box, sides, false);
  for (const name of names.filter((one) => !isNumber(one)))
    compareRow(rest, name, sides, (side) => side.facts.get(name) ?? "–");
}

function compareTable(box, sides, headed) {
  const table = html("table", "", box);
  table.setAttribute("aria-label", `${sides[0].token} compared with ${sides[1].token}`);
  if (headed) {
    const top = html("tr", "", html("thead", "", table));
    html("td", "", top);
    for (const side of sides) tokenHead(top, side);
    html("th", "", top, "difference").scope = "col";
  }
  return html("tbody", "", table);
}

// Everything that is compared, read from the card of the node and the distributions at its place.
function sideOf(view, id) {
  const entry = view.data.cards[id];
  const probs = probsOf(view, entry);
  const row = probs && entry.token_id !== null ? probs.rows.find((one) => one.token_id === entry.token_id) : null;
  const words = [];
  for (let at = id; view.tree.marks.has(at); at = view.tree.marks.get(at).node.parent_id)
    words.unshift(view.tree.marks.get(at).node.label);
  const verdict = entry.kind.split(" · ").pop();
  return {
    token: entry.token,
    state: entry.state,
    name: entry.kind.replace(" · " + verdict, ""),
    path: words.join(" › "),
    verdict,
    why: entry.why,
    draft: row ? row.draft : null,
    target: row ? row.target : null,
    facts: new Map(entry.facts),
  };
}

function tokenHead(row, side) {
  const cell = html("th", "", row);
  cell.scope = "col";
  markPicture(cell, side.state);
  html("span", "name", cell, side.token).title = side.token;
}

function compareRow(body, name, sides, value) {
  const row = html("tr", "", body);
  html("th", "", row, name).scope = "row";
  for (const side of sides) html("td", "words", row, value(side));
  html("td", "", row);
}

function numberRow(body, name, sides, value, shown) {
  const row = html("tr", "", body);
  html("th", "", row, name).scope = "row";
  const values = sides.map(value);
  sides.forEach((side, place) => html("td", "", row, shown ? (shown(side) ?? "–") : probability(values[place])));
  const both = values.every((one) => one !== null && one !== undefined);
  // As many decimals as the numbers next to it.
  const decimals = shown ? Math.max(...sides.map((side) => (String(shown(side)).split(".")[1] || "").length)) : 2;
  html("td", "difference", row, both ? signed(values[1] - values[0], decimals) : "");
}
