// The linked panels: run strip, text, phase times, and the KV slots of both models.

import { button, clamp, focusable, html, labelled, reuse, set, watchSize, write } from "../components/dom.js";
import { count, duration } from "../components/formats.js";
import { PROVENANCE, tokenElements } from "../components/marks.js";
import { goTo } from "./film.js";
import { link } from "./scope.js";

const STRIP_COLUMNS = 160;
const TEXT_TOKENS = 240;
const PIECE = "‥";
const COMMITTED_AS = ["drafted", "bonus", "recovered", "fallback"];
const KV_NUMBERED = 20; // with more slots than this the squares are small and have no number
const KV_SMALL = 48; // with more than this they are smaller still
const KV_KEY = [
  ["kept", "kept"],
  ["kept moved", "moved"],
  ["freed", "freed"],
];
const KV_MEANINGS = {
  kept: "Square, filled: the slot stays where the pass wrote it",
  "kept moved": "Round, filled: the slot is kept and moved next to the slots before it",
  freed: "Dashed: the slot is freed, its node is not in the text",
};
const KV_HINT = "first box: earlier slots · in a box its node, below its slot";
const KV_HINT_DENSE = "first box: earlier slots · then a box per slot";
const REST_NOTE = "chosen after the pass, or a leaf that the draft never read: a next pass would write these slots";
const END_NOTE = "no pass follows the last token: its slot is freed although it was accepted";

// A panel with a heading; its tooltip explains the term.
export function panel(view, parent, className, title, term) {
  const box = labelled(html("section", "panel " + className, parent), "group", title);
  const head = html("header", "", box);
  html("h3", "", head, title).title = view.terms[term] || "";
  const side = html("span", "side", head);
  const body = html("div", "body", box);
  return { box, head, side, body };
}

export function buildStrip(view, parent) {
  const box = labelled(html("section", "panel strip", parent), "group");
  const left = html("div", "words", box);
  const title = html("strong", "", left);
  const position = html("span", "", left);
  const about = html("span", "about", left);
  const axis = html("div", "axis", box);
  for (const _ of ["highest", "lowest"]) html("span", "", axis);
  const columns = html("div", "columns", box);
  const right = html("div", "words end", box);
  const [efficiency, totals] = [html("strong", "", right), html("span", "", right)];
  const room = watchSize(columns, () => {
    if (!view.drawn) return;
    view.strip.painted = "";
    paintStrip(view);
  });
  view.strip = { box, title, position, about, axis, columns, room, efficiency, totals, from: 0, painted: "" };
}

export function paintStrip(view) {
  const { strip } = view;
  const { columns, about, efficiency, totals } = view.data.strip;
  strip.title.textContent = strip.title.title = view.data.scene.title;
  const before = count(view.data.position);
  strip.position.textContent = `iteration ${view.index + 1} of ${columns.length} · ${before} tokens before it`;
  [strip.about.textContent, strip.about.title] = about;
  strip.efficiency.textContent = efficiency;
  strip.totals.textContent = totals;
  strip.efficiency.title = view.data.terms.efficiency;
  strip.totals.title = view.data.terms.totals;
  strip.columns.title = view.data.terms.strip;
  strip.box.setAttribute("aria-label", `${about[1]}, ${strip.position.textContent}, ${efficiency}, ${totals}`);
  // The visible columns stay while the iteration is well inside them, so that they do not slide at every step.
  const slack = Math.min(20, Math.floor(STRIP_COLUMNS / 4));
  const inside = view.index >= strip.from + slack && view.index < strip.from + STRIP_COLUMNS - slack;
  const whole = columns.length <= STRIP_COLUMNS;
  if (whole || !inside)
    strip.from = whole ? 0 : clamp(view.index - STRIP_COLUMNS / 2, 0, columns.length - STRIP_COLUMNS);
  const painted = view.film.key + view.film.sharedVersion + strip.from;
  if (strip.painted !== painted) drawColumns(view, columns.slice(strip.from, strip.from + STRIP_COLUMNS));
  strip.painted = painted;
  markWanted(view);
}

function drawColumns(view, columns) {
  const { strip } = view;
  strip.columns.replaceChildren();
  const tallest = Math.max(2, ...columns.map((column) => column[0] + 1));
  const most = Math.max(...columns.map(([n, kind]) => n + (kind !== "none")));
  strip.axis.firstChild.textContent = most === 1 ? "1 token" : `${most} tokens`;
  strip.axis.lastChild.textContent = "0";
  const block = clamp(Math.floor(44 / tallest) - 1, 1, 8);
  strip.columns.classList.toggle("narrow", columns.length * 9 > strip.room.now().width);
  columns.forEach(([accepted, kind, inLoop, changed], place) => {
    const index = strip.from + place;
    const final = kind === "none" ? "no final token" : kind;
    const moved = changed && `; history adaptation after it: ${changed}`;
    const words = `Iteration ${index + 1}: ${accepted} accepted, ${final}${inLoop ? ", inside a loop" : ""}${moved}`;
    const column = button("column", strip.columns, "", words, () => goTo(view, index));
    column.tabIndex = -1;
    if (inLoop) column.classList.add("loop");
    if (changed) html("i", "moved", column, "▾");
    if (kind !== "none") html("i", "block s-" + kind, column).style.height = block + "px";
    for (let i = 0; i < accepted; i++) html("i", "block s-accepted", column).style.height = block + "px";
  });
}

// The iteration on screen, and the one requested from Python.
export function markWanted(view) {
  [...view.strip.columns.children].forEach((column, place) => {
    const index = view.strip.from + place;
    column.classList.toggle("current", index === view.index);
    column.classList.toggle("wanted", index === view.wanted);
    column.setAttribute("aria-current", index === view.index ? "step" : "false");
  });
}

export function buildText(view, parent) {
  view.text = panel(view, parent, "text", "Text", "text");
  focusable(view.text.body, "Text of the run up to this iteration");
  view.text.all = html("div", "tokens", view.text.body);
  const foot = html("footer", "", view.text.box);
  for (const name of COMMITTED_AS) html("span", "key p-" + name, foot, PROVENANCE[name]).title = view.terms[name] || "";
}

// All tokens of the film are in the page; a step only shows more or fewer of them.
export function paintText(view) {
  const { text } = view;
  const painted = view.film.key + view.film.sharedVersion;
  if (text.painted !== painted) drawText(view);
  text.painted = painted;
  const position = count(view.data.position);
  text.side.textContent = "position " + position;
  let shown = text.tokens.length;
  while (shown > 0 && text.tokens[shown - 1].iteration > view.index) shown -= 1;
  const from = Math.max(0, shown - TEXT_TOKENS);
  const before = view.data.text.before + from;
  text.before.textContent = before ? `… ${count(before)} earlier tokens ` : "";
  const committed = [];
  text.tokens.forEach((token, place) => {
    const { span, end, node, iteration } = token;
    span.hidden = end.hidden = place < from || place >= shown;
    const now = iteration === view.index;
    if (now) committed.push(token.shown);
    link(span, now ? node : null);
    const className = `t p-${token.provenance}${now ? " now" : ""}`;
    if (span.className !== className) span.className = className;
  });
  text.box.setAttribute(
    "aria-label",
    `Text. This iteration is at position ${position} and adds ${committed.join(" ")}`,
  );
  // To the end, after the layout of the frame, so as not to force another one.
  requestAnimationFrame(() => {
    text.body.scrollTop = 0;
  });
}

function drawText(view) {
  const { text } = view;
  text.all.replaceChildren();
  text.before = html("span", "t-before", text.all);
  text.tokens = view.data.text.spans.map(([shown, provenance, node, iteration, breaks]) => {
    const [span, end] = tokenElements(shown, breaks);
    span.title = iteration === null ? "prompt" : `${provenance}, iteration ${iteration + 1}`;
    if (shown === PIECE) span.title += ": part of the next character";
    if (iteration !== null) span.dataset.iteration = iteration;
    text.all.append(span, end);
    return { span, end, node, iteration: iteration ?? -1, provenance, shown };
  });
}

export function buildTimes(view, parent) {
  view.times = panel(view, parent, "times", "Time", "times");
  view.times.room = watchSize(view.times.body, () => view.drawn && paintTimes(view));
}

export function markTime(view) {
  const { stage } = view.root.dataset;
  const now = { history: "adapt" }[stage] || stage;
  for (const line of view.times.body.children) line.classList.toggle("current", line.dataset.phase === now);
}

// A waterfall: each phase begins where the previous one ended; the draft shows its forwards one by one.
export function paintTimes(view) {
  const { times } = view;
  const rows = view.data.times;
  times.body.replaceChildren();
  if (!rows.length) {
    // replayed from recorded logits
    times.side.textContent = "not measured";
    times.box.setAttribute("aria-label", "Time of this iteration: not measured");
    return;
  }
  const total = rows.reduce((sum, row) => sum + row.seconds, 0);
  const inPart = (keys) => rows.filter((row) => keys.includes(row.key)).reduce((sum, row) => sum + row.seconds, 0);
  const [drafting, verifying] = [inPart(["draft", "tree"]), inPart(["verify"])].map((s) =>
    Math.round((100 * s) / total),
  );
  const rest = 100 - drafting - verifying;
  times.side.textContent = `${duration(total)} · draft ${drafting}% verify ${verifying}% rest ${rest}%`;
  const shares = rows.map((row) => `${row.words} ${row.shown}`).join(", ");
  times.box.setAttribute("aria-label", `Time of this iteration, measured: ${duration(total)}: ${shares}`);
  const laneWidth = Math.max(times.room.now().width - 206, 40); // next to name and value
  let start = 0;
  for (const row of rows) {
    const line = html("div", "time", times.body);
    line.dataset.phase = row.key;
    const percent = (100 * row.seconds) / total;
    const share = percent < 0.5 ? "<1%" : `${percent.toFixed(0)}%`;
    line.title = `${row.words}: ${row.shown}, ${share} of the iteration. ${row.help}`;
    html("span", "time-name", line, row.words);
    const lane = html("span", "time-lane", line);
    const bar = html("span", "time-bar", lane);
    bar.style.left = (100 * start) / total + "%";
    bar.style.width = percent + "%";
    bar.style.background = row.color;
    let at = 0;
    // Cuts between forwards only where the bar is wide enough to stay a bar.
    const wide = (laneWidth * row.seconds) / total > 5 * row.parts.length;
    for (const part of wide ? row.parts.slice(0, -1) : []) {
      at += part;
      html("i", "cut", bar).style.left = (100 * at) / row.seconds + "%";
    }
    html("span", "time-value", line, row.shown);
    html("span", "time-share", line, share);
    start += row.seconds;
  }
  markTime(view);
}

export function buildCache(view, parent) {
  view.cache = panel(view, parent, "kv", "KV slots", "kv");
  const { side, body, box } = view.cache;
  for (const [state, words] of KV_KEY) html("span", "kv-key " + state, side, words).title = KV_MEANINGS[state];
  view.cache.strips = html("div", "kv-strips", body);
  view.cache.foot = html("footer", "", box);
  focusable(body, "Key/value (KV) slots");
  // The footer shows what is pointed at immediately: the browser's tooltips are slow.
  body.addEventListener("pointerover", ({ target }) => write(view.cache.foot, target.title || view.cache.hint));
  body.addEventListener("pointerleave", () => write(view.cache.foot, view.cache.hint));
}

export function paintCache(view) {
  const { cache } = view;
  cache.decided = isPast(view, "commit");
  const boxes = reuse(cache.strips, view.data.kv.length, () => buildCacheStrip(cache.strips));
  const most = Math.max(...view.data.kv.map((strip) => strip.written.length));
  const size = most > KV_SMALL ? "dense tiny" : most > KV_NUMBERED ? "dense" : "";
  view.data.kv.forEach((strip, place) => {
    const [head, written, after] = boxes[place].children;
    write(head.firstChild, strip.model);
    boxes[place].classList.toggle("of-draft", strip.model === "draft");
    paintRows(view, written, strip, true, size);
    paintRows(view, after, strip, false, size);
  });
  const late = !size && view.data.kv.some((strip) => strip.written.some(([, node]) => node < 0));
  cache.hint = (size ? KV_HINT_DENSE : KV_HINT) + (late ? " · c: committed earlier, cached only now" : "");
  write(cache.foot, cache.hint);
  const note = (strip) => `${strip.model}: ${strip.note}${strip.rest && ", " + strip.rest}`;
  const notes = cache.decided ? view.data.kv.map(note) : [];
  cache.box.setAttribute("aria-label", ["Key/value (KV) slots", ...notes].join("; "));
}

const isPast = (view, stage) => view.root.classList.contains("past-" + stage);

// What a cache holds in the phase shown: nothing is kept or freed before the commit.
export function noteCache(view) {
  const past = (stage) => isPast(view, stage);
  if (view.cache.decided !== past("commit")) paintCache(view);
  view.data.kv.forEach((strip, place) => {
    const there = past(strip.model === "draft" ? "tree" : "verify");
    const slots = there ? strip.written.length + strip.not_drawn : 0;
    const held = `${count(strip.slots_before)} slots` + (there ? ` and ${count(slots)} new` : "");
    write(view.cache.strips.children[place].firstChild.lastChild, past("commit") ? strip.note : held);
  });
}

function buildCacheStrip(parent) {
  const box = html("div", "kv-strip", parent);
  const head = html("div", "kv-head", box);
  html("b", "", head);
  html("span", "", head);
  for (const name of ["written", "after"]) {
    const line = html("div", "kv-line " + name, box);
    html("span", "kv-name", line);
    html("div", "kv-lane", line);
  }
}

function earlierSlots({ slots_before: before }) {
  return before > 1 ? `0–${before - 1}` : before ? "0" : "none";
}

// A line of slots: how many were there before, one square per slot, then how many freed ones did not fit, or which
// tokens of the text have no slot yet.
function paintRows(view, line, strip, asWritten, size) {
  const [name, lane] = line.children;
  const rows = asWritten ? strip.written : strip.after;
  const { decided } = view.cache;
  const rest = asWritten ? strip.not_drawn && `+${strip.not_drawn} ${decided ? "freed" : "more"}` : strip.rest;
  write(name, asWritten ? "written" : strip.rebuilt ? "rebuilt" : "after");
  set(lane, "class", "kv-lane " + size);
  const parts = reuse(lane, 1 + rows.length + (rest ? 1 : 0), () => html("span", "", lane));
  const before = `${count(strip.slots_before)} earlier slots, untouched`;
  paintPart(parts[0], "kv-before", earlierSlots(strip), before, null);
  let at = parts[0];
  for (const [row, node, kept, moved] of rows) {
    at = at.nextSibling;
    const state = !decided ? "" : kept ? (moved ? "kept moved" : "kept") : "freed";
    const label = `slot ${row}: ${rowWords(view, node, kept)}${moved && decided ? movedWords(strip, node, asWritten) : ""}`;
    paintPart(at, "kv-cell " + state, node < 0 ? "c" : String(node), label, node < 0 ? null : node);
    set(at, "data-slot", row);
  }
  if (rest)
    paintPart(
      at.nextSibling,
      "kv-more",
      rest,
      asWritten ? rest : rest.endsWith("the text ends") ? END_NOTE : REST_NOTE,
      null,
    );
}

function rowWords(view, node, kept) {
  const { decided } = view.cache;
  if (node < 0) return `c: text this model had not read yet${decided ? `, ${kept ? "kept" : "freed"}` : ""}`;
  const card = view.data.cards[node];
  const what = `node ${node}${card ? " " + card.token : ""}`;
  if (!decided) return what;
  if (kept) return what + ", kept";
  return what + (card?.state === "accepted" ? ", freed although accepted: the text ends with it" : ", freed");
}

function movedWords(strip, node, asWritten) {
  const [other] = (asWritten ? strip.after : strip.written).filter((row) => row[1] === node);
  return !other || node < 0 ? ", moved" : `, moved ${asWritten ? "to" : "from"} slot ${other[0]}`;
}

function paintPart(element, className, text, title, node) {
  if (element.className !== className) element.className = className;
  write(element, text);
  set(element, "title", title);
  link(element, node);
}
