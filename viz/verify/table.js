// The table of all verifiers on one tree. Python sends what to draw; token text is only ever set as textContent.

import { button, clamp, html, isNew, keepingFocus, labelled, viewOf } from "../components/dom.js";
import { number } from "../components/formats.js";

const LEAST_TICK = 0.005;

export default function verifierTable(component) {
  const { data } = component;
  if (!data?.rows) return;
  const table = viewOf(component, "vt-root", buildTable);
  if (!isNew(table, data)) return;
  table.data = data;
  table.selected = data.selected;
  keepingFocus(table.root, "name", () => draw(table));
}

function buildTable(root) {
  const table = { root: labelled(root, "grid", "Verifiers on this tree") };
  listen(table);
  return table;
}

function draw(table) {
  const { root, data } = table;
  root.replaceChildren();
  const head = labelled(html("div", "vt-head", root), "row");
  for (const { title, said, about, key } of data.heads) {
    const box = labelled(html("div", "", head), "columnheader");
    box.title = about;
    html("b", "", box, title);
    const line = html("span", key ? "key" : "", box, said);
    for (const words of key || []) html("span", "", line, words);
  }
  table.rows = new Map();
  const folded = (row) => data.refused && row.refusal;
  for (const row of data.rows.filter((row) => !folded(row))) table.rows.set(row.name, drawRow(table, row));
  if (data.refused) drawRefused(table, data.rows.filter(folded));
  paintSelection(table);
}

// One line for all verifiers that do not fit; a click shows each with its own reason.
function drawRefused(table, rows) {
  const line = labelled(html("div", "vt-row refused", table.root), "row");
  const fold = button("vt-fold", cell("reason", line), "", null, () => {
    table.open = !table.open;
    keepingFocus(table.root, "name", () => draw(table));
  });
  fold.dataset.name = "refused";
  fold.setAttribute("aria-expanded", Boolean(table.open));
  fold.textContent = `${table.open ? "▾" : "▸"} ${table.data.refused}: ${rows.map((row) => row.label).join(", ")}`;
  if (table.open) for (const row of rows) table.rows.set(row.name, drawRow(table, row));
}

function drawRow(table, row) {
  const className = "vt-row" + (row.refusal ? " refused" : "") + (row.own ? " own" : "");
  const line = labelled(html("div", className, table.root), "row");
  line.dataset.name = row.name;
  line.title = row.about;
  const name = cell("name", line);
  html("span", "", name, row.label);
  if (row.own)
    html("i", "", name, row.own).title = "The verifier that verified this tree in the run, with its recorded draws";
  if (row.refusal) {
    cell("reason", line).textContent = row.refusal;
    line.setAttribute("aria-disabled", "true");
    return line;
  }
  line.tabIndex = 0;
  const expected = cell("expected", line);
  html("b", row.best ? "best" : "", expected, number(row.expected, 2));
  const lane = html("span", "lane", expected);
  html("span", "bar", lane).style.width = (100 * row.expected) / table.data.most + "%";
  const seed = cell("seed", line);
  html("b", "", seed, String(row.tokens));
  // Rows differ in what comes last: where there is no room, the beginning is cut off.
  const text = html("span", "line", html("span", "tokens", seed));
  for (const token of row.path) html("span", "t p-drafted", text, token);
  if (row.final) html("span", "t p-" + row.kind, text, row.final).title = row.kind + " token";
  html("small", "", seed, row.stop);
  seed.title = row.walk;
  spread(line, row, table.data.longest);
  return line;
}

// Share of the re-rolled seeds as bars, the exact probability as a tick on each.
function spread(line, row, longest) {
  const box = cell("spread", line);
  const most = Math.max(...row.exact, ...(row.rolled || []), 0.01);
  for (let place = 0; place < longest; place++) {
    const column = html("span", "column", box);
    const exact = row.exact[place] || 0;
    const rolled = row.rolled ? row.rolled[place] || 0 : null;
    if (rolled) html("span", "bar", column).style.height = (100 * rolled) / most + "%";
    if (exact >= LEAST_TICK) html("span", "tick", column).style.bottom = (100 * exact) / most + "%";
    const words = [`${place + 1} ${place ? "tokens" : "token"}: exact ${number(exact, 3)}`];
    if (rolled !== null) words.push(`re-rolled ${number(rolled, 3)}`);
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
    const next = names[clamp(names.indexOf(row.dataset.name) + step, 0, names.length - 1)];
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
  return labelled(html("div", className, line), "gridcell");
}
