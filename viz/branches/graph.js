// The history of branches: a row per branch, its dots on a common axis of iterations.

import { button, html, isNew, keepingFocus, svg, viewOf } from "../components/dom.js";

const DOT_ROW = 11; // Height of a lane's line inside its row.
const EDGE = 9;
const WIDEST_STEP = 19;

export default function branches(component) {
  const { data } = component;
  if (!data?.lanes) return;
  const graph = viewOf(component, "bg-root", buildGraph);
  if (!isNew(graph, data)) return;
  graph.data = data;
  graph.rows.setAttribute("aria-label", data.summary);
  keepingFocus(graph.root, "id", () => {
    graph.rows.replaceChildren(...data.lanes.map((lane) => row(graph, lane)));
    drawLines(graph);
  });
  graph.root.dataset.lanes = data.lanes.length;
  const shown = graph.root.querySelector(".row.b");
  // Inside its own box: `scrollIntoView` would scroll the page, too.
  if (shown) graph.root.scrollTop = shown.offsetTop - Math.max(graph.root.clientHeight - shown.offsetHeight, 0) / 2;
}

function buildGraph(root) {
  const graph = { root };
  graph.svg = svg("svg", { class: "lines", "aria-hidden": "true" }, graph.root);
  graph.rows = html("ul", "rows", graph.root);
  new ResizeObserver(() => drawLines(graph)).observe(graph.root);
  return graph;
}

function row(graph, lane) {
  const item = html("li", `row ${lane.side.toLowerCase()} ${lane.kind}`);
  item.dataset.branch = lane.number;
  const line = html("div", "title", item);
  const show = (side) => () => report(graph, lane.number, side, null);
  for (const side of ["A", "B"]) {
    const chip = button(`chip ${side.toLowerCase()}`, line, side, `Show ${name(lane)} as ${side}`, show(side));
    chip.dataset.id = `${lane.number}${side}`;
    chip.setAttribute("aria-pressed", lane.side === side);
  }
  const words = button("words", line, null, `${name(lane)}: ${lane.words}`, show(lane.side || "B"));
  words.dataset.id = `${lane.number}`;
  if (lane.parent !== null) html("b", "", words, `${lane.number} `);
  words.append(lane.words);
  const facts = html("div", "facts", item);
  html("span", `kind ${lane.kind}`, facts, lane.kind).title = graph.data.kinds[lane.kind];
  html("span", "", facts, lane.note);
  if (lane.bias) html("div", "bias", item, lane.bias);
  return item;
}

const name = (lane) => (lane.parent === null ? "the run" : `branch ${lane.number}`);

function report(graph, branch, side, iteration) {
  graph.component.setTriggerValue("pick", { branch, side, iteration });
}

function drawLines(graph) {
  const { svg: canvas, data, rows } = graph;
  if (!data) return;
  const width = graph.root.clientWidth;
  const step = Math.min(WIDEST_STEP, (width - 2 * EDGE) / Math.max(data.columns.length - 1, 1));
  const x = (place) => EDGE + place * step;
  const y = (place) => rows.children[place].offsetTop + DOT_ROW;
  canvas.replaceChildren();
  canvas.setAttribute("width", width);
  canvas.setAttribute("height", rows.offsetHeight);
  const half = Math.min(8, step / 2 + 2);
  data.lanes.forEach((lane, place) => {
    if (!lane.columns.includes(data.here)) return;
    svg("rect", { class: "here", x: x(data.here) - half, width: 2 * half, y: y(place) - 9, height: 18, rx: 4 }, canvas);
  });
  data.lanes.forEach((lane, place) => drawLane(graph, lane, x, y, place));
}

function drawLane(graph, lane, x, y, place) {
  const group = svg("g", { class: `lane ${lane.side.toLowerCase()} ${lane.kind}` }, graph.svg);
  const own = [...lane.columns, ...lane.gaps].sort((one, other) => one - other);
  const here = y(place);
  if (lane.leaves) {
    const [from, column] = lane.leaves;
    const bend = Math.min(6, x(own[0]) - x(column));
    const path = `M${x(column)},${y(from)}V${here - bend}q0,${bend} ${bend},${bend}H${x(own[0])}`;
    svg("path", { class: "line", d: path }, group);
  }
  svg("path", { class: "line", d: `M${x(own[0])},${here}H${x(own[own.length - 1])}` }, group);
  for (const column of own) {
    const [iteration, skipped] = graph.data.columns[column];
    if (skipped) drawGap(group, x(column), here, skipped);
    else drawDot(graph, group, lane, column, x(column), here, iteration);
  }
}

function drawGap(group, x, y, skipped) {
  svg("rect", { class: "gap", x: x - 6, y: y - 4, width: 12, height: 8 }, group);
  for (const shift of [-4, 0, 4]) svg("circle", { class: "ellipsis", cx: x + shift, cy: y, r: 1.3 }, group);
  const mark = svg("rect", { class: "hit", x: x - 7, y: y - 8, width: 14, height: 16 }, group);
  svg("title", {}, mark).textContent = `${skipped} iterations`;
}

function drawDot(graph, group, lane, column, x, y, iteration) {
  const first = iteration < 0;
  const current = column === graph.data.here && lane.side;
  const shape = first
    ? svg("rect", { class: "dot prompt", x: x - 4, y: y - 4, width: 8, height: 8 }, group)
    : svg("circle", { class: "dot", cx: x, cy: y, r: current ? 5.5 : 4 }, group);
  svg("title", {}, shape).textContent = first ? "the prompt" : `iteration ${iteration + 1} of ${name(lane)}`;
  if (first) return;
  const pick = () => report(graph, lane.number, lane.side || "B", iteration);
  shape.dataset.iteration = iteration;
  shape.addEventListener("click", pick);
}
