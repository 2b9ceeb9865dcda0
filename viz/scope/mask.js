// The attention mask. Its rows can be shown in other orders; everything else keeps the order of the pass.

import { button, html, labelled, reuse, svg, watchSize, write } from "../components/dom.js";
import { count } from "../components/formats.js";
import { compareWith } from "./card.js";
import { panel } from "./panels.js";
import { hover, select } from "./scope.js";

export function buildMask(view, parent) {
  const made = panel(view, parent, "mask", "Attention mask", "mask");
  made.orders = html("div", "orders", made.head);
  labelled(made.orders, "group", "Order of the mask's rows, with its number of non-empty blocks");
  made.canvas = html("canvas", "pixels", made.body);
  made.canvas.setAttribute("aria-hidden", "true");
  made.svg = svg("svg", { class: "mask-svg", role: "img" }, made.body);
  made.words = html("footer", "", made.box);
  view.mask = made;
  made.svg.addEventListener("pointermove", (event) => pointAtCell(view, cellAt(view, event)));
  made.svg.addEventListener("pointerleave", () => pointAtCell(view, null));
  made.svg.addEventListener("click", (event) => {
    const cell = cellAt(view, event);
    if (!cell || view.dragged) return;
    if (event.shiftKey && cell.column !== null) compareWith(view, cell.column, cell.row);
    else select(view, cell.row);
  });
  made.room = watchSize(made.body, () => view.drawn && paintMask(view));
}

// Row and column under the pointer as node ids; the column is null in the prefix.
function cellAt(view, event) {
  const { mask } = view;
  if (!mask.rows) return null;
  const box = mask.svg.getBoundingClientRect();
  const row = mask.rows[Math.floor((event.clientY - box.top - 1) / mask.cell)];
  if (row === undefined) return null;
  const x = event.clientX - box.left - mask.left;
  const column = x < 0 ? null : mask.rows[Math.floor(x / mask.cell)];
  return column === undefined ? null : { row, column };
}

function pointAtCell(view, cell) {
  const [row, column] = cell ? [cell.row, cell.column] : [null, null];
  if (view.hovered === row && view.hoveredColumn === column) return;
  view.mask.pointed = cell;
  hover(view, row, column);
}

// The order shown: the last chosen one if this tree has it, else that of the pass.
function shownOrder(view) {
  const { orders } = view.data.mask;
  return orders.find((order) => order.name === view.maskOrder) || orders.find((order) => order.rows === null) || null;
}

export function paintMask(view) {
  const { mask } = view;
  const { order, parents, prefix, stats, orders } = view.data.mask;
  mask.svg.replaceChildren();
  mask.light = mask.rows = null;
  const shown = shownOrder(view);
  paintOrders(view, orders, shown);
  mask.canvas.style.display = order.length ? "" : "none";
  mask.box.setAttribute("aria-label", "Attention mask. " + stats);
  if (!order.length) {
    mask.words.textContent = stats;
    return;
  }
  const rows = shown?.rows || order;
  const { width, height } = mask.room.now();
  const size = Math.min(height, width * 0.72) - 2;
  if (size <= 0) return;
  mask.rows = rows;
  mask.place = new Map(rows.map((node, row) => [node, row]));
  mask.parent = new Map(order.map((node, row) => [node, parents[row]]));
  mask.cell = Math.min(size / rows.length, 20);
  mask.size = mask.cell * rows.length;
  mask.left = Math.max(Math.min(width - mask.size - 8, 92), 30);
  mask.svg.setAttribute("width", mask.left + mask.size + 4);
  mask.svg.setAttribute("height", mask.size + 2);
  mask.svg.setAttribute("aria-label", stats);
  const block = mask.left - 6;
  svg("rect", { class: "prefix", x: 0, y: 1, width: block, height: mask.size, rx: 3 }, mask.svg);
  fillCells(view);
  if (mask.cell >= 6) {
    let rules = "";
    for (let i = 1; i < rows.length; i++) {
      const at = i * mask.cell;
      rules += `M${mask.left},${1 + at}h${mask.size}M${mask.left + at},1v${mask.size}`;
    }
    svg("path", { class: "rule", d: rules }, mask.svg);
  }
  mask.light = svg("g", {}, mask.svg);
  const tall = mask.size > 34;
  const at = { class: "prefix-text", x: block / 2 };
  const words = count(prefix) + (block > 62 ? " columns" : "");
  svg("text", { ...at, y: mask.size / 2 + (tall ? 12 : 5) }, mask.svg).textContent = words;
  if (tall) svg("text", { ...at, y: mask.size / 2 - 3 }, mask.svg).textContent = "prefix";
  lightMask(view);
}

// One pixel per cell, enlarged without smoothing; cells smaller than a pixel share one, which is full if any is.
function fillCells(view) {
  const { mask } = view;
  const { canvas } = mask;
  const side = Math.min(mask.rows.length, Math.floor(mask.size * (window.devicePixelRatio || 1)));
  const pixel = (row) => Math.floor((row * side) / mask.rows.length);
  canvas.width = canvas.height = side;
  Object.assign(canvas.style, {
    left: mask.left + "px",
    top: "1px",
    width: mask.size + "px",
    height: mask.size + "px",
  });
  const context = canvas.getContext("2d");
  const image = context.createImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer);
  mask.color ??= cellColor(view);
  mask.rows.forEach((node, row) => {
    for (let seen = node; mask.place.has(seen); seen = mask.parent.get(seen)) {
      pixels[pixel(row) * side + pixel(mask.place.get(seen))] = mask.color;
    }
  });
  context.putImageData(image, 0, 0);
}

// The colour of accepted nodes, which is the same in every theme, as the canvas stores a pixel.
function cellColor(view) {
  const color = getComputedStyle(view.root).getPropertyValue("--accepted").trim();
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
  return (255 << 24) | (blue << 16) | (green << 8) | red;
}

function paintOrders(view, orders, shown) {
  const made = reuse(view.mask.orders, orders.length, (place) => {
    const one = button("order", view.mask.orders, "", null, () => {
      view.maskOrder = view.data.mask.orders[place].name;
      paintMask(view);
    });
    html("span", "", one);
    html("b", "", one);
  });
  orders.forEach((order, place) => {
    const [words, blocks] = made[place].children;
    write(words, order.words + (order.rows === null ? " (run)" : ""));
    write(blocks, count(order.blocks) + (order === shown ? (order.blocks === 1 ? " block" : " blocks") : ""));
    made[place].title = order.help + " The KV strip and the row numbers keep the order of the pass.";
    made[place].setAttribute("aria-pressed", order === shown);
  });
}

// Why a cell is open or closed.
function cellWords(view, row, column) {
  const { parent } = view.mask;
  const above = (node, other) => {
    for (let at = parent.get(node); at !== undefined && at >= 0; at = parent.get(at)) if (at === other) return true;
    return false;
  };
  if (row === column) return `${row} attends to itself`;
  if (above(row, column)) return `${row} attends to ${column}: ancestor`;
  return `${row} does not attend to ${column}: ${above(column, row) ? "its descendant" : "another branch"}`;
}

// The nodes of a cell with their tokens, for the tooltip.
function cellTokens(view, nodes) {
  return nodes
    .map((node) => (view.tree.marks.has(node) ? `, ${node} = ${view.tree.marks.get(node).node.label}` : ""))
    .join("");
}

// Highlights the row of the current node - the prefix, its ancestors and itself - and the column pointed at.
export function lightMask(view) {
  const { mask } = view;
  if (!mask?.light) return;
  const { prefix, short, stats, block } = view.data.mask;
  mask.light.replaceChildren();
  const node = mask.place.has(view.hovered) ? view.hovered : view.selected;
  const row = mask.place.get(node);
  if (row === undefined) {
    const blocks = shownOrder(view)?.blocks;
    mask.words.textContent = blocks
      ? `${short} · ${count(blocks)} ${blocks === 1 ? "block" : "blocks"} of ${block} × ${block}`
      : short;
    mask.words.title = stats;
    return;
  }
  const { cell, left, size } = mask;
  const y = 1 + row * cell;
  svg("rect", { class: "lit-row", x: 0, y, width: left + size, height: cell }, mask.light);
  if (view.second !== null && mask.place.has(view.second)) {
    svg(
      "rect",
      { class: "second-row", x: 0, y: 1 + mask.place.get(view.second) * cell, width: left + size, height: cell },
      mask.light,
    );
  }
  const seen = [];
  const side = Math.max(cell - 1, 1);
  for (let at = node; mask.place.has(at); at = mask.parent.get(at)) {
    seen.unshift(at);
    const x = left + mask.place.get(at) * cell;
    svg("rect", { class: "lit-cell", x: x + 0.5, y: y + 0.5, width: side, height: side }, mask.light);
  }
  const column = view.hoveredColumn;
  const other = column ?? (view.hovered === null ? view.second : null); // two compared nodes are a cell as well
  const above = seen.slice(0, -1);
  const ancestors = above.length ? `${above.length > 1 ? "nodes" : "node"} ${above.join(", ")} and ` : "";
  let words = `node ${node} attends to ${count(prefix)} prefix tokens, ${ancestors}itself`;
  if (mask.pointed && column === null) words = `${node} attends to all ${count(prefix)} prefix tokens`;
  if (column !== null && mask.place.has(column)) {
    const x = left + mask.place.get(column) * cell;
    svg("rect", { class: "lit-column", x, y: 1, width: cell, height: size }, mask.light);
    svg("rect", { class: "lit-cross", x, y, width: cell, height: cell }, mask.light);
  }
  if (other !== null && mask.place.has(other)) words = cellWords(view, node, other);
  mask.words.textContent = words;
  mask.words.title = words + cellTokens(view, other === null || other === node ? [node] : [node, other]);
}
