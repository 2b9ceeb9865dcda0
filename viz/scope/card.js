// The card of the selected node: what it is, why it got its verdict, and both laws at its place.

const LAW_ROWS = 10;
const ROW_HEIGHT = 18;
const ROW_HEIGHT_LEAST = 13;
const LAW_SURROUNDINGS = 68; // padding, gaps and the line with the heads

function buildCard(view, parent) {
  const box = html("section", "panel card", parent);
  const head = html("header", "", box);
  const picture = svg("svg", { width: 20, height: 20, viewBox: "-10 -10 20 20" }, head);
  const token = html("h2", "token", head);
  const kind = html("span", "side", head);
  const why = html("p", "why", box);
  const law = html("div", "law", box);
  const facts = html("dl", "facts", box);
  const tests = html("div", "tests", box);
  view.card = { box, picture, token, kind, why, law, facts, tests };
  let height = 0;
  new ResizeObserver(() => {
    if (view.drawn && Math.abs(box.clientHeight - height) > 8) paintCard(view);
    height = box.clientHeight;
  }).observe(box);
}

function paintCard(view) {
  const { card } = view;
  const told = view.data.cards[view.selected];
  card.box.classList.toggle("none", !told);
  card.law.replaceChildren();
  card.facts.replaceChildren();
  card.tests.replaceChildren();
  card.picture.replaceChildren();
  if (!told) {
    card.token.textContent = "";
    card.kind.textContent = "";
    card.why.textContent = "Point at a node to light it everywhere; click it to see why it got its verdict.";
    return;
  }
  card.picture.setAttribute("class", "n s-" + told.state);
  marker(told.state, card.picture);
  card.token.textContent = card.token.title = told.token;
  card.kind.textContent = card.kind.title = told.kind;
  card.why.textContent = told.why;
  for (const [name, value] of told.facts) {
    html("dt", "", card.facts, name);
    html("dd", "", card.facts, value);
  }
  const law = told.law === null ? null : view.data.laws && view.data.laws[told.law];
  if (!law) return;
  // The tests only where the laws still get their rows: the sentence above tells the node's own test anyway.
  paintTests(view, law.tests);
  const lines = Math.min(LAW_ROWS, law.rows.length) + (law.has_draft && law.has_target ? 0 : 1);
  if (lawRoom(card) < lines * ROW_HEIGHT) card.tests.replaceChildren();
  // All ten rows always: where the panel is short they stand closer together.
  const height = clamp(Math.floor(lawRoom(card) / lines), ROW_HEIGHT_LEAST, ROW_HEIGHT);
  card.law.style.setProperty("--row", height + "px");
  paintLaw(view, law, told, LAW_ROWS);
}

// The verifier's tests at this place in their order, so that a draw can be followed.
function paintTests(view, tests) {
  if (!tests.length) return;
  const box = view.card.tests;
  html("h4", "", box, "tests at this place, in order");
  for (const test of tests) {
    const line = button("test", box, "", null, () => {});
    const picture = svg("svg", { width: 16, height: 16, viewBox: "-10 -10 20 20", class: "n s-" + test.state }, line);
    marker(test.state, picture);
    html("span", "name", line, test.token);
    html("span", "numbers", line, test.words);
    link(view, line, test.node);
    if (test.node === view.selected) line.classList.add("sel");
  }
}

// Pixels left for the rows of the laws beside everything else, without scrolling.
function lawRoom(card) {
  const used = card.facts.offsetHeight + card.why.offsetHeight + card.token.offsetHeight + card.tests.offsetHeight;
  return card.box.clientHeight - used - LAW_SURROUNDINGS;
}

function paintLaw(view, law, told, room) {
  const grid = view.card.law;
  html("span", "head left", grid, law.has_draft ? "draft" : "");
  const middle = html("span", "head", grid, "after " + law.after);
  middle.title = middle.textContent;
  html("span", "head right", grid, law.has_target ? "target" : "");
  const own = law.rows.findIndex((row) => row[0] === told.token_id);
  // The node's own token always has its row, even far down the list.
  const rows = law.rows.filter((row, place) => place < room || place === own);
  if (rows.length > room) rows.splice(room - 1, 1);
  const most = Math.max(0.01, ...rows.map((row) => Math.max(row[2] || 0, row[3] || 0)));
  for (const [tokenId, text, draft, target] of rows) {
    const mine = tokenId === told.token_id;
    const mark = mine ? " mine s-" + told.state : "";
    lawSide(grid, "left" + mark, law.has_draft, draft, law.draft_floor, most);
    const name = html("span", "name" + mark, grid, text);
    name.title = text;
    lawSide(grid, "right" + mark, law.has_target, target, law.target_floor, most);
  }
  if (!law.has_draft || !law.has_target) {
    const missing = law.has_draft ? "The target" : "The draft";
    html("span", "missing", grid, missing + " has computed nothing at this place.");
  }
}

function lawSide(grid, className, there, value, floor, most) {
  const cell = html("span", "side-bar " + className, grid);
  const number = html("span", "value", cell, there ? probability(value, floor) : "");
  const lane = html("span", "lane", cell);
  if (!there) return;
  const bar = html("span", "bar", lane);
  bar.style.width = (100 * (value || 0)) / most + "%";
  if (value) number.title = String(value);
}
