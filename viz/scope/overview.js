// Overview of a tree that folds: all of its nodes as bars on a canvas; height = path probability, inside the parent's.

import { button, clamp, html, labelled } from "../components/dom.js";
import { count, number } from "../components/formats.js";
import { compareWith } from "./card.js";
import { hover, select } from "./scope.js";
import { paintFoot, showLabels } from "./tree.js";

const BAR_COLORS = {
  o: "--text",
  a: "--accepted",
  r: "--rejected",
  n: "--grey",
  v: "--line",
  p: "--line",
  f: "--line",
};
const BAR_WORDS = {
  o: "root",
  a: "accepted",
  r: "rejected",
  n: "not reached",
  v: "not verified",
  p: "pruned",
  f: "forced out",
};

export function buildOverview(view, tree, tools) {
  const toggle = button("tool words", tools, "all", "Show all nodes as bars, or go back to the tree", () => {
    view.showBars = !view.showBars;
    drawOverview(view);
    showLabels(view);
  });
  const canvas = labelled(html("canvas", "bars", tree.stage), "img");
  tree.bars = { toggle, canvas, from: 0, span: 1 };
  canvas.addEventListener("pointermove", (event) => {
    const node = barAt(view, event);
    canvas.title = node === null ? "" : barWords(view, node);
    hover(view, node);
  });
  canvas.addEventListener("pointerleave", () => hover(view, null));
  // A click selects the highlighted bar: clicks are rounded to whole pixels, and many bars are thinner.
  canvas.addEventListener("click", (event) => {
    const node = view.hovered ?? barAt(view, event);
    if (node === null) return;
    if (event.shiftKey) compareWith(view, node);
    else select(view, node);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoomBars(view, Math.exp(event.deltaY * 0.0016), event.offsetY);
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", () => resetBars(view));
}

export function drawOverview(view) {
  const { overview } = view.data;
  const { bars, size } = view.tree;
  const shown = Boolean(overview && view.showBars);
  bars.toggle.hidden = !overview;
  if (overview) bars.toggle.textContent = shown ? "tree" : "all " + count(overview.count);
  bars.toggle.setAttribute("aria-pressed", shown);
  bars.canvas.hidden = !shown;
  view.tree.svg.style.visibility = shown ? "hidden" : "";
  view.root.dataset.bars = shown ? "on" : "off";
  paintFoot(view);
  if (!shown || !size.width) return;
  const scale = window.devicePixelRatio || 1;
  bars.canvas.width = size.width * scale;
  bars.canvas.height = size.height * scale;
  bars.canvas.setAttribute("aria-label", barsSummary(view));
  overview.deepest = Math.max(...overview.depths);
  paintBars(view);
}

function barsSummary(view) {
  const { count: all, states } = view.data.overview;
  const parts = Object.entries(BAR_WORDS).map(([code, words]) => [states.split(code).length - 1, words]);
  const counted = parts
    .filter(([found, words]) => found && words !== "root")
    .map(([found, words]) => `${found} ${words}`);
  return `All ${all} nodes as bars, column = depth, height = path probability: ${counted.join(", ")}.`;
}

// Legend of the bars: the same colours and textures as on the canvas.
export function barLegend(view, legend) {
  legend.replaceChildren();
  const { states } = view.data.overview;
  for (const code of "arnvp") {
    if (!states.includes(code)) continue;
    const item = html("span", "legend-item", legend);
    html("i", "swatch b-" + code, item).setAttribute("aria-hidden", "true");
    html("span", "", item, BAR_WORDS[code]);
  }
}

// Where a bar lies on the canvas, in pixels of the page.
function barBox(view, node) {
  const { overview } = view.data;
  const { from, span } = view.tree.bars;
  const { width, height } = view.tree.size;
  const column = (width - 8) / (overview.deepest + 1);
  const room = height - 34;
  return {
    x: 4 + overview.depths[node] * column,
    y: 24 + ((overview.tops[node] - from) / span) * room,
    width: column - 2,
    height: (overview.heights[node] / span) * room,
  };
}

function paintBars(view) {
  const { overview } = view.data;
  const { canvas } = view.tree.bars;
  const context = canvas.getContext("2d");
  const scale = window.devicePixelRatio || 1;
  const { width, height } = view.tree.size;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(view.root);
  const colors = barColors(view, style.color);
  context.save();
  context.beginPath();
  context.rect(0, 22, width, height - 30);
  context.clip();
  overview.depths.forEach((_, node) => paintBar(context, colors, overview.states[node], barBox(view, node)));
  labelBars(view, context, colors);
  markBar(view, context, view.hovered, colors.grey, 1.5);
  markBar(view, context, view.second, colors.second, 2.5);
  markBar(view, context, view.selected, colors.select, 2.5);
  context.restore();
  context.fillStyle = colors.muted;
  context.font = "11.5px " + style.fontFamily;
  for (let depth = 0; depth <= overview.deepest; depth++) {
    const column = (width - 8) / (overview.deepest + 1);
    context.fillText(depth ? "depth " + depth : "root", 6 + depth * column, 15);
  }
}

// A canvas takes no mixed colours from variables: an element styled with them gives the resolved colour, once per theme.
function barColors(view, text) {
  const { bars } = view.tree;
  if (bars.text === text) return bars.colors;
  const probe = html("span", "", view.root);
  const colors = {};
  for (const name of ["text", "accepted", "rejected", "grey", "line", "paper", "muted", "select", "second"]) {
    probe.style.color = `var(--${name})`;
    colors[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return Object.assign(bars, { text, colors }).colors;
}

// Accepted is full, rejected struck out, not reached an outline with a light fill, pruned and not verified dashed.
function paintBar(context, colors, state, box) {
  const color = colors[BAR_COLORS[state].slice(2)];
  const height = Math.max(box.height - 0.6, 0.6);
  context.fillStyle = color;
  context.globalAlpha = state === "a" || state === "o" ? 1 : state === "r" ? 0.75 : 0.3;
  context.fillRect(box.x, box.y, box.width, height);
  context.globalAlpha = 1;
  if (box.height < 4) return;
  context.strokeStyle = state === "r" ? colors.paper : color;
  context.lineWidth = state === "r" ? 1.2 : 1;
  context.setLineDash("pvf".includes(state) ? [2, 2] : []);
  if (state === "r") {
    context.save();
    context.beginPath();
    context.rect(box.x, box.y, box.width, height);
    context.clip();
    context.beginPath();
    for (let at = box.x - height; at < box.x + box.width; at += 7) {
      context.moveTo(at, box.y + height);
      context.lineTo(at + height, box.y);
    }
    context.stroke();
    context.restore();
  } else if (state !== "a" && state !== "o") context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, height - 1);
  context.setLineDash([]);
}

function labelBars(view, context, colors) {
  const { overview } = view.data;
  context.font = `11.5px ${getComputedStyle(view.tree.legend).fontFamily}`;
  overview.tokens.forEach((token, node) => {
    const box = barBox(view, node);
    const [top, bottom] = [Math.max(box.y, 22), Math.min(box.y + box.height, view.tree.size.height - 8)];
    if (bottom - top < 13) return;
    const y = (top + bottom) / 2 + 4;
    const width = Math.min(context.measureText(token).width, box.width - 8);
    // Page background under the text: it stays readable on every colour and stripe.
    context.fillStyle = colors.paper;
    context.fillRect(box.x + 3, y - 10, width + 4, 13);
    context.fillStyle = colors.text;
    context.fillText(token, box.x + 5, y, box.width - 8);
  });
}

function markBar(view, context, node, color, width) {
  if (node === null || node === undefined || !(view.data.overview.depths[node] >= 0)) return;
  const box = barBox(view, node);
  context.strokeStyle = color;
  context.lineWidth = width;
  const height = Math.max(box.height, 3);
  context.strokeRect(box.x, box.y - (height - box.height) / 2, box.width, height);
}

export function lightOverview(view) {
  if (view.drawn && view.showBars && view.data.overview) paintBars(view);
}

function barWords(view, node) {
  const { overview } = view.data;
  return `${overview.tokens[node]}: node ${node}, ${BAR_WORDS[overview.states[node]]}, path probability ${number(overview.heights[node], 3)}`;
}

// The bar under the pointer, or the nearest one of its column: most bars are thinner than a pixel.
function barAt(view, event) {
  const { overview } = view.data;
  const x = event.offsetX;
  const depth = Math.floor((x - 4) / ((view.tree.size.width - 8) / (overview.deepest + 1)));
  let [best, least] = [null, 12];
  overview.depths.forEach((one, node) => {
    if (one !== depth) return;
    const box = barBox(view, node);
    const away = Math.max(box.y - event.offsetY, event.offsetY - box.y - box.height, 0);
    if (away < least) [best, least] = [node, away];
  });
  return best;
}

export function resetBars(view) {
  Object.assign(view.tree.bars, { from: 0, span: 1 });
  paintBars(view);
}

// Shows `factor` times as much, with what lies at a height in pixels kept there.
export function zoomBars(view, factor, atY) {
  const { bars, size } = view.tree;
  const at = bars.from + (bars.span * (atY - 24)) / (size.height - 34);
  const span = clamp(bars.span * factor, 0.002, 1);
  bars.from = clamp(at - ((at - bars.from) * span) / bars.span, 0, 1 - span);
  bars.span = span;
  paintBars(view);
}
