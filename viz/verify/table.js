// The table of all verifiers on one tree. Python sends what to draw; token text only ever goes through textContent.

const TABLES = new WeakMap();
const LEAST_TICK = 0.005;

export default function verifierTable(component) {
  const { data, parentElement } = component;
  if (!data || !data.rows) return;
  let table = TABLES.get(parentElement);
  if (!table || !parentElement.contains(table.root)) {
    parentElement.querySelectorAll(".vt-root").forEach((old) => old.remove());
    const root = add("div", "vt-root", parentElement);
    root.setAttribute("role", "grid");
    root.setAttribute("aria-label", "Verifiers on this tree");
    table = { root };
    TABLES.set(parentElement, table);
    listen(table);
  }
  table.component = component;
  const fingerprint = JSON.stringify(data);
  if (table.fingerprint === fingerprint) return;
  const focused = table.root.getRootNode().activeElement;
  const name = focused && table.root.contains(focused) ? focused.dataset.name : null;
  table.fingerprint = fingerprint;
  table.data = data;
  table.selected = data.selected;
  draw(table);
  if (name) table.rows.get(name)?.focus({ preventScroll: true });
}

function draw(table) {
  const { root, data } = table;
  root.replaceChildren();
  const head = add("div", "vt-head", root);
  head.setAttribute("role", "row");
  for (const { title, said, about, key } of data.heads) {
    const cell = add("div", "", head);
    cell.setAttribute("role", "columnheader");
    cell.title = about;
    add("b", "", cell, title);
    const line = add("span", key ? "key" : "", cell, said);
    for (const words of key || []) add("span", "", line, words);
  }
  table.rows = new Map();
  for (const row of data.rows) table.rows.set(row.name, drawRow(table, row));
  paintSelection(table);
}

function drawRow(table, row) {
  const line = add("div", row.refusal ? "vt-row refused" : "vt-row", table.root);
  line.setAttribute("role", "row");
  line.dataset.name = row.name;
  line.title = row.about;
  const name = cell("name", line);
  add("span", "", name, row.label);
  if (row.own) add("i", "", name, "run").title = "The verifier that this tree was verified with when it was decoded";
  if (row.refusal) {
    cell("reason", line).textContent = row.refusal;
    line.setAttribute("aria-disabled", "true");
    return line;
  }
  line.tabIndex = 0;
  const expected = cell("expected", line);
  add("b", row.best ? "best" : "", expected, row.expected.toFixed(2));
  const lane = add("span", "lane", expected);
  add("span", "bar", lane).style.width = (100 * row.expected) / table.data.most + "%";
  const seed = cell("seed", line);
  add("b", "", seed, String(row.path.length + 1));
  const text = add("span", "tokens", seed);
  for (const token of row.path) add("span", "t accepted", text, token);
  add("span", "t " + row.kind, text, row.final).title = row.kind + " token";
  add("small", "", seed, row.stop);
  seed.title = row.walk;
  spread(line, row, table.data.longest);
  return line;
}

// Share of the re-rolled seeds as bars, the exact probability as a tick over each.
function spread(line, row, longest) {
  const box = cell("spread", line);
  const most = Math.max(...row.exact, ...(row.rolled || []), 0.01);
  for (let place = 0; place < longest; place++) {
    const column = add("span", "column", box);
    const exact = row.exact[place] || 0;
    const rolled = row.rolled ? row.rolled[place] || 0 : null;
    if (rolled) add("span", "bar", column).style.height = (100 * rolled) / most + "%";
    if (exact >= LEAST_TICK) add("span", "tick", column).style.bottom = (100 * exact) / most + "%";
    const words = [`${place + 1} ${place ? "tokens" : "token"}: exact ${exact.toFixed(3)}`];
    if (rolled !== null) words.push(`re-rolled ${rolled.toFixed(3)}`);
    column.title = words.join(", ");
  }
}

function listen(table) {
  const rowOf = (event) => event.target.closest(".vt-row:not(.refused)");
  table.root.addEventListener("click", (event) => {
    const row = rowOf(event);
    if (row) select(table, row.dataset.name);
  });
  table.root.addEventListener("keydown", (event) => {
    const names = [...table.rows.keys()].filter((name) => !table.rows.get(name).classList.contains("refused"));
    const row = rowOf(event);
    const step = { ArrowDown: 1, ArrowUp: -1, Enter: 0, " ": 0 }[event.key];
    if (!row || step === undefined) return;
    event.preventDefault();
    const next = names[Math.min(Math.max(names.indexOf(row.dataset.name) + step, 0), names.length - 1)];
    table.rows.get(next).focus();
    select(table, next);
  });
}

function select(table, name) {
  if (table.selected === name) return;
  table.selected = name;
  paintSelection(table);
  table.component.setStateValue("selected", name);
}

function paintSelection(table) {
  for (const [name, row] of table.rows) {
    row.classList.toggle("selected", name === table.selected);
    row.setAttribute("aria-selected", name === table.selected);
  }
  table.root.dataset.selected = table.selected || "";
}

function cell(className, line) {
  const box = add("div", className, line);
  box.setAttribute("role", "gridcell");
  return box;
}

function add(tag, className, parent, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}
