// The tree: laid out once per scene and panel size; phases only change classes, so nothing jumps. The marks of one
// iteration become those of the next: creating hundreds of elements again would take longer than a frame.

import { button, clamp, html, set, svg, watchSize, write } from "../components/dom.js";
import { count } from "../components/formats.js";
import { legendItem, marker, shapeOf } from "../components/marks.js";
import { barLegend, buildOverview, drawOverview, resetBars } from "./overview.js";
import { savePicture } from "./picture.js";
import { link } from "./scope.js";
import { stateAt } from "./steps.js";

const ROW_MIN = 13;
const ROW_MAX = 56;
const DETAIL_ROW = 22;
const BELOW_ROW = 25; // rows closer than this lay the numbers below a label on the next one: they go beside it or closer
const EASY_ROW = 30; // rows that need not be further apart where there is room
const LABEL_FIT = 0.7; // labels are readable down to this scale
const SMALLEST_TEXT = 0.85;
const MANY = 30; // from this many nodes on, the note is long
const HIT = 10; // radius in which the pointer finds a mark
const PAD = { left: 22, right: 14, top: 30, bottom: 12 };
const DETAIL_LETTER = 0.8; // width of a letter of the numbers below a label, in those of the label
const TIGHT = 0.6; // columns closer than this would lay labels on the marks after them: labels are cut
const SHORT_COLUMN = 36; // pixels between columns that leave a few letters to a label
const LEAST_COLUMN = 26; // pixels between columns that a tree is never squeezed below by itself
const HEAD_WIDTH = 54; // pixels that "depth 10" takes with a gap
const MARK_ROW = 11; // rows closer than this get smaller marks
const COMMITTED = new Set(["accepted", "recovered", "bonus", "fallback"]);
const LABEL_RANKS = { root: 80, accepted: 70, recovered: 75, bonus: 75, fallback: 75, rejected: 50, fold: 10 };
const CHANGED = 60; // rank of a framed node: what changed is labelled before what was rejected
const ZOOMS = new Map(); // by run

export function buildTreePanel(view, parent) {
  const tree = { box: html("section", "panel tree", parent) };
  tree.box.id = "tree-panel";
  tree.box.setAttribute("role", view.mode === "scope" ? "tabpanel" : "group");
  if (view.mode === "compact") tree.title = html("h3", "tree-title", tree.box);
  tree.stage = html("div", "stage", tree.box);
  tree.svg = svg("svg", { class: "tree-svg", role: "img" }, tree.stage);
  tree.guides = svg("g", { class: "guides" }, tree.svg);
  tree.world = svg("g", { class: "world" }, tree.svg);
  tree.edges = svg("g", {}, tree.world);
  tree.nodes = svg("g", {}, tree.world);
  tree.heads = svg("g", { class: "heads" }, tree.svg);
  tree.empty = html("div", "empty", tree.stage);
  tree.foot = html("footer", "", tree.box);
  tree.legend = html("div", "legend", tree.foot);
  tree.note = html("div", "note", tree.foot);
  const tools = html("div", "tools", tree.foot);
  buildOverview(view, tree, tools);
  button("tool tree-only", tools, "+", "Zoom in", () => zoomBy(view, 1.3));
  button("tool tree-only", tools, "−", "Zoom out", () => zoomBy(view, 1 / 1.3));
  button("tool", tools, "⤢", "Show the whole tree (double-click)", () => resetZoom(view));
  if (view.mode === "scope")
    button("tool words tree-only", tools, "svg", "Save this picture as SVG", () => savePicture(view, "svg"));
  button("tool words", tools, "png", "Save this picture as PNG", () => savePicture(view, "png"));
  tree.zoom = { kx: 1, ky: 1, x: 0, y: 0, user: false };
  tree.pool = [];
  view.tree = tree;
  listenZoom(view);
  tree.size = watchSize(tree.stage, () => {
    if (!view.drawn) return;
    placeTree(view);
    drawOverview(view);
  });
}

export function drawTree(view) {
  const { tree } = view;
  const { scene } = view.data;
  if (tree.title) tree.title.textContent = tree.title.title = scene.title;
  tree.svg.setAttribute("aria-label", scene.summary);
  tree.box.classList.toggle("many", scene.total > MANY);
  tree.box.setAttribute("aria-label", `Draft tree: ${scene.note}`);
  tree.pool.splice(scene.nodes.length).forEach(({ group, edge }) => {
    group.remove();
    edge.remove();
  });
  tree.marks = new Map();
  scene.nodes.forEach((node, place) => {
    tree.pool[place] ??= buildMark(tree, place);
    const mark = tree.pool[place];
    mark.node = node;
    drawMark(mark, Boolean(view.marks[node.node_id]));
    tree.marks.set(node.node_id, mark);
  });
  tree.empty.textContent = view.data.recorded
    ? ""
    : "This iteration was recorded as a summary, without its tree. Record the run in full, or step to it live, to see the tree.";
  placeTree(view, true);
  drawOverview(view);
}

// The root comes first; it has no edge.
function buildMark(tree, place) {
  const edge = place ? svg("path", { class: "e" }, tree.edges) : null;
  const group = svg("g", { class: "n" }, tree.nodes);
  const title = svg("title", {}, group);
  const shape = marker("", group);
  svg("circle", { class: "hit", r: HIT }, group);
  const label = svg("text", { class: "label", x: 14 }, group);
  const detail = svg("text", { class: "detail", x: 14, y: 12 }, group);
  return { edge, group, title, shape, label, detail, numbers: "", diff: null, state: null };
}

// What a mark shows of its node in every phase.
function drawMark(mark, framed) {
  const { node, edge } = mark;
  link(mark.group, node.node_id);
  write(mark.title, node.title);
  mark.words = node.label + (node.multiplicity > 1 ? " ×" + node.multiplicity : ""); // `cutLabels` writes them
  if (framed && !mark.diff) {
    mark.diff = svg("rect", { class: "diff", x: -9, y: -9, width: 18, height: 18, rx: 4 });
    mark.shape.before(mark.diff);
  } else if (!framed && mark.diff) {
    mark.diff.remove();
    mark.diff = null;
  }
  if (!edge) return;
  link(edge, node.node_id);
  set(edge, "stroke-width", (0.9 + 5.1 * node.width).toFixed(2));
}

// Positions in pixels at zoom 1: columns as wide as their widest text, edges fan out only in the gutters between them.
function placeTree(view, force) {
  const { tree } = view;
  const { scene } = view.data;
  const { width, height } = tree.size.now();
  if (!width || !height || (!force && width === tree.width && height === tree.height)) return;
  Object.assign(tree, { width, height });
  tree.svg.setAttribute("width", width);
  tree.svg.setAttribute("height", height);
  const charWidth = view.charWidth;
  const availableX = width - PAD.left - PAD.right;
  const availableY = height - PAD.top - PAD.bottom;
  const texts = scene.column_chars.map((chars) => 17 + chars * charWidth);
  const textSum = texts.reduce((a, b) => a + b, 0);
  const gaps = Math.max(texts.length - 1, 1);
  const gutter = clamp((availableX - textSum) / gaps, 34, 170);
  const natural = textSum + gutter * (texts.length - 1);
  const fitX = Math.min(1, availableX / natural);
  // A tree with unlabelled nodes may be squeezed to fit; one whose labels are all shown keeps room for them.
  tree.crowded = scene.unlabelled > 0 || scene.rows * ROW_MIN * LABEL_FIT > availableY * 1.25;
  const row = clamp(availableY / fitX / Math.max(scene.rows, 1), tree.crowded ? 0.4 : ROW_MIN, ROW_MAX);
  const fit = Math.min(fitX, availableY / (scene.rows * row));
  tree.columns = [];
  let x = 0;
  for (const text of texts) {
    tree.columns.push({ x, right: x + text });
    x += text + gutter;
  }
  tree.row = row;
  tree.extent = { width: natural, height: scene.rows * row };
  tree.fit = fit;
  spreadColumns(tree);
  for (const mark of tree.marks.values()) placeMark(tree, mark, charWidth);
  if (!tree.zoom.user) fitView(view, tree.crowded ? 0 : LABEL_FIT, TIGHT);
  applyZoom(view, !force);
}

// The fullest column makes rows close; the others use the height that is left, so that their labels and numbers find
// room. Each column keeps its order, so no edges cross.
function spreadColumns(tree) {
  const { height } = tree.extent;
  tree.columns.forEach((column, depth) => {
    const marks = [...tree.marks.values()].filter(({ node }) => node.depth === depth);
    marks.sort((a, b) => a.node.row - b.node.row);
    column.gap = Math.min(EASY_ROW / tree.fit, height / marks.length);
    const rows = marks.map(({ node }) => node.row * tree.row);
    for (const [place, y] of apart(rows, column.gap, height).entries()) marks[place].y = y;
  });
}

// The places between 0 and `height` nearest to ascending ones (least squares) that are at least `gap` apart: where two
// are closer, they and all that they push form a block around their mean.
function apart(places, gap, height) {
  const blocks = [];
  places.forEach((place, index) => {
    let block = { sum: place - index * gap, count: 1 };
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).count > block.sum / block.count) {
      const { sum, count } = blocks.pop();
      block = { sum: sum + block.sum, count: count + block.count };
    }
    blocks.push(block);
  });
  const last = height - gap * (places.length - 0.5);
  const firsts = blocks.flatMap(({ sum, count }) => Array(count).fill(clamp(sum / count, gap / 2, last)));
  return firsts.map((first, index) => first + index * gap);
}

function placeMark(tree, mark, charWidth) {
  const { node } = mark;
  const column = tree.columns[node.depth];
  mark.x = column.x;
  mark.wide = 17 + node.chars * charWidth;
  if (!mark.edge) return;
  const parent = tree.marks.get(node.parent_id);
  const start = parent.x + (parent.node.labelled || parent.node.folded ? parent.wide + 2 : 8);
  const turn = Math.max(tree.columns[parent.node.depth].right, start);
  const end = mark.x - 9;
  const middle = (turn + end) / 2;
  set(mark.edge, "d", `M${start},${parent.y}H${turn}C${middle},${parent.y} ${middle},${mark.y} ${end},${mark.y}`);
}

const textSize = (tree) => clamp(tree.zoom.kx, SMALLEST_TEXT, 1.5);

function drawHeads(view) {
  const { tree } = view;
  const { kx, x } = tree.zoom;
  tree.heads.replaceChildren();
  tree.guides.replaceChildren();
  const places = tree.columns.map((column) => x + column.x * kx);
  svg("rect", { width: tree.width, height: 20 }, tree.heads); // what a large tree has there stays behind the headings
  places.forEach((at, depth) => {
    svg("line", { x1: at, x2: at, y1: 24, y2: tree.height - 4 }, tree.guides);
    if (at < 0 || at > tree.width) return;
    // The number alone where more would touch the next heading or the edge.
    const fits = Math.min(places[depth + 1] ?? Infinity, tree.width + 6) - at >= HEAD_WIDTH;
    const text = svg("text", { x: Math.min(at - 6, tree.width - 16), y: 15 }, tree.heads);
    text.textContent = depth ? (fits ? "depth " : "") + depth : "root";
  });
}

// Where columns are squeezed, which text is less than they are, a label ends before the next column begins, in the last
// one at the edge of the panel. Numbers beside a label begin where it ends.
function cutLabels(view) {
  const { tree } = view;
  const { kx, x: left, user } = tree.zoom;
  const tight = kx < SMALLEST_TEXT;
  const letter = view.charWidth * textSize(tree);
  const rooms = tree.columns.map(({ x }, depth) => {
    const next = tree.columns[depth + 1];
    if (!tight || (!next && user)) return Infinity;
    return next ? (next.x - x) * kx - 24 : tree.width - left - x * kx - 16;
  });
  for (const { label, words, detail, numbers, node } of tree.marks.values()) {
    const room = Math.floor((rooms[node.depth] - 2) / letter);
    write(label, words.length <= room ? words : room < 2 ? "" : words.slice(0, room - 1) + "…");
    const column = tree.columns[node.depth];
    const before = column.beside ? (label.textContent.length + 1) * view.charWidth : 0;
    const edge = column.beside ? tree.width - left - column.x * kx - 16 : rooms[node.depth];
    const fits = (text) => before * textSize(tree) + text.length * letter * DETAIL_LETTER <= edge;
    set(detail, "x", 14 + before);
    const close = numbers.replaceAll(" ", "");
    write(detail, fits(numbers) ? numbers : fits(close) ? close : "");
  }
}

// Where labels would overlap, the less important ones stay hidden; what a phase does not have yet takes no room.
export function showLabels(view) {
  const { tree } = view;
  const { kx, ky } = tree.zoom;
  const half = 6.5 * textSize(tree);
  const crowded = tree.crowded || Math.min(kx, ky) < 0.8;
  const taken = new Map();
  const marks = [...tree.marks.values()].filter(({ state }) => state !== "hidden");
  const named = marks.filter(({ node }) => node.node_id > 0);
  let quiet = 0;
  if (crowded) marks.sort((a, b) => labelRank(view, b) - labelRank(view, a));
  for (const mark of marks) {
    let free = mark.node.labelled || mark.node.folded || labelRank(view, mark) >= CHANGED || ky * tree.row * 0.5 >= 11;
    if (free && crowded) {
      const boxes = taken.get(mark.node.depth) || [];
      const [top, bottom] = [mark.y * ky - half, mark.y * ky + half];
      free = boxes.every((box) => bottom <= box[0] || top >= box[1]);
      if (free) taken.set(mark.node.depth, boxes.concat([[top, bottom]]));
    }
    mark.group.classList.toggle("quiet", !free);
    if (mark.node.node_id > 0 && !(free && mark.label.textContent)) quiet += 1;
  }
  tree.svg.classList.toggle("crowded", crowded);
  tree.labels = quiet ? ` · ${named.length - quiet} of ${named.length} labels shown` : "";
  paintNote(view);
}

function labelRank(view, mark) {
  const id = mark.node.node_id;
  if (id === view.selected || id === view.second) return 100;
  if (id === view.hovered) return 95;
  return Math.max(LABEL_RANKS[mark.node.state] || 20, mark.diff ? CHANGED : 0) + mark.node.width;
}

// Legend and note below the tree, or below the bars where those are shown.
export function paintFoot(view) {
  const { legend, note, there } = view.tree;
  if (view.showBars && view.data.overview) {
    barLegend(view, legend);
    note.textContent = `all ${count(view.data.overview.count)} nodes · height = path probability`;
    note.title =
      "Each bar lies inside its parent's; empty space is draft probability of tokens not drafted. Ctrl and the wheel zoom.";
    return;
  }
  legend.replaceChildren();
  for (const item of view.data.legend) if (there?.has(item.state)) legendItem(legend, item);
  paintNote(view);
}

function paintNote(view) {
  const { note, labels, part = "" } = view.tree;
  if (view.showBars && view.data.overview) return;
  const marked = Object.keys(view.marks).length;
  const diff = marked ? " · " + marked + " framed: " + Object.values(view.marks)[0] : "";
  const cut = view.tree.cut ? " · part is out of view: drag it, or double-click" : "";
  // Little more fits beside the buttons.
  const last = diff || (cut ? "" : " · width = path probability");
  write(note, part + view.data.scene.note + cut + (labels || "") + last);
  set(
    note,
    "title",
    note.textContent + ". Click a fold to open it, point at a node to read it, zoom in for more labels.",
  );
}

export function paintTree(view) {
  const phase = view.data.scene.phases[view.phase];
  const states = phase.states.map((_, place) => stateAt(view, place));
  const there = new Set(states);
  view.tree.there = there;
  view.tree.part = growing(view.data.scene.nodes, states);
  paintFoot(view);
  view.data.scene.nodes.forEach((node, place) => {
    const mark = view.tree.marks.get(node.node_id);
    const state = states[place];
    mark.numbers = { draft: node.draft, row: node.position, both: node.both }[phase.detail] || "";
    if (mark.state === state) return;
    for (const element of mark.edge ? [mark.group, mark.edge] : [mark.group]) {
      element.classList.remove("s-" + mark.state);
      element.classList.add("s-" + state);
    }
    set(mark.shape, "d", shapeOf(state));
    mark.state = state;
  });
  if (view.tree.columns) nameNodes(view);
}

function nameNodes(view) {
  cutLabels(view);
  showLabels(view);
}

// "3 of " before "9 nodes" while the tree grows; the nodes in a fold are not counted one by one.
function growing(nodes, states) {
  const drafted = states.filter((_, place) => nodes[place].node_id > 0);
  const there = drafted.filter((state) => state !== "hidden").length;
  return there === drafted.length || nodes.some(({ folded }) => folded) ? "" : `${there} of `;
}

// Zoom and drag: what the user set stays across phases and iterations, and with its run when pages change.
export function recallZoom(view) {
  view.tree.zoom = ZOOMS.get(view.film.key) || { kx: 1, ky: 1, x: 0, y: 0, user: false };
}

// The whole tree if its labels stay readable, else the root and what was committed, squeezed as far as that needs;
// where even that is too wide, the end of it.
function fitView(view, floor, floorX) {
  const { tree } = view;
  const path = committedBox(view);
  const roomX = tree.width - PAD.left - PAD.right;
  const roomY = tree.height - PAD.top - PAD.bottom;
  const readable = Math.max(tree.fit, floor);
  const near = clamp((roomY - 16) / Math.max(path.bottom - path.top, 1), tree.fit, readable);
  // Rows are closed up so that all of them stand, as long as one line of text does not touch the next.
  const wholeY = roomY / tree.extent.height;
  const standing = tree.row * wholeY >= SMALLEST_TEXT * (tree.row < DETAIL_ROW ? ROW_MIN : DETAIL_ROW);
  const ky = standing ? Math.min(near, wholeY) : near;
  const step = Math.min(...tree.columns.slice(1).map((column, depth) => column.x - tree.columns[depth].x));
  const whole = roomX / tree.extent.width;
  // A lone tree stands whole where that leaves a few letters to its labels.
  const most = view.mode === "compact" && whole * step >= SHORT_COLUMN ? whole : Infinity;
  const kx = Math.min(Math.max(readable, floorX), Math.max(path.widest(roomX), LEAST_COLUMN / step), most);
  const hidden = path.right(kx) - roomX;
  const x = PAD.left - (hidden > 1 ? hidden : 0);
  const spanY = tree.extent.height * ky;
  const middle = (path.bottom - path.top) * ky <= roomY ? (path.top + path.bottom) / 2 : path.end;
  const y =
    spanY <= roomY + 1 ? PAD.top + (roomY - spanY) / 2 : PAD.top - clamp(middle * ky - roomY / 2, 0, spanY - roomY);
  tree.zoom = { kx, ky, x, y, user: false };
}

// The room that root, accepted nodes and final token take with their labels: `right` at a zoom, `widest` the zoom at
// which they fit a width; `end` is the height of the last of them. Text never gets smaller than `SMALLEST_TEXT`.
function committedBox(view) {
  const marks = [...view.tree.marks.values()].filter(({ node }) => !node.node_id || COMMITTED.has(node.state));
  const heights = marks.map((mark) => mark.y);
  const last = marks.reduce((best, mark) => (mark.x > best.x ? mark : best));
  const right = (kx) => Math.max(...marks.map((mark) => mark.x * kx + mark.wide * Math.max(kx, SMALLEST_TEXT)));
  const widest = (room) => {
    const scaled = Math.min(...marks.map((mark) => room / (mark.x + mark.wide)));
    if (scaled >= SMALLEST_TEXT) return scaled;
    return Math.min(...marks.map((mark) => (room - mark.wide * SMALLEST_TEXT) / Math.max(mark.x, 1)));
  };
  return { right, widest, top: Math.min(...heights), bottom: Math.max(...heights), end: last.y };
}

// Marks and text keep a readable size at any zoom: they are scaled back by what the world is scaled.
function applyZoom(view, labels = true) {
  const { tree } = view;
  const { kx, ky, x, y } = tree.zoom;
  if (view.film) ZOOMS.set(view.film.key, tree.zoom);
  const size = textSize(tree);
  set(tree.world, "transform", `translate(${x},${y}) scale(${kx},${ky})`);
  for (const column of tree.columns) {
    const row = column.gap * ky;
    const pin = tree.crowded || row < MARK_ROW ? clamp(row / 12, 0.42, size) : size;
    // Behind the labels of the last column nothing begins.
    const close = row < BELOW_ROW * Math.min(size, 1);
    column.beside = column === tree.columns.at(-1) && close && row >= MARK_ROW;
    column.detailed = !column.beside && row >= DETAIL_ROW * Math.min(size, 1) - 0.5;
    column.lines = !column.detailed ? [4, 4] : close ? [-0.5, 10.5] : [1, 12];
    // Where marks are close, the pointer finds the nearest: hit areas end halfway to the next one.
    const hit = row < 2 * HIT * size ? `scale(${Math.max(row / 2, 2.5) / HIT / size})` : "none";
    column.style = `--pin: ${pin === size ? "none" : `scale(${pin / size})`}; --hit: ${hit}`;
  }
  for (const { group, label, detail, node, x, y } of tree.marks.values()) {
    const { detailed, beside, lines, style } = tree.columns[node.depth];
    set(group, "transform", `translate(${x},${y}) scale(${size / kx},${size / ky})`);
    set(group, "style", style);
    set(label, "y", lines[0]);
    set(detail, "y", lines[1]);
    group.classList.toggle("no-detail", !detailed && !beside);
  }
  const right = x + tree.extent.width * kx > tree.width + 4;
  const below = y + tree.extent.height * ky > tree.height + 4;
  tree.cut = right || below || x < 0 || y < PAD.top - 24;
  drawHeads(view);
  if (labels) nameNodes(view); // those of a new tree wait for its phase
}

function listenZoom(view) {
  const { tree } = view;
  tree.svg.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the wheel scrolls the page, as everywhere else
      event.preventDefault();
      const box = tree.svg.getBoundingClientRect();
      zoomBy(view, Math.exp(-event.deltaY * 0.0016), event.clientX - box.left, event.clientY - box.top);
    },
    { passive: false },
  );
  tree.svg.addEventListener("dblclick", () => resetZoom(view));
  tree.svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    tree.drag = { x: event.clientX, y: event.clientY, from: { ...tree.zoom }, moved: false, id: event.pointerId };
  });
  tree.svg.addEventListener("pointermove", (event) => {
    const { drag } = tree;
    if (!drag || !(event.buttons & 1)) return;
    const dx = event.clientX - drag.x;
    const dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    // Captured only once it is a drag: a captured pointer would take the click away from the node.
    if (!drag.moved) tree.svg.setPointerCapture(drag.id);
    drag.moved = true;
    tree.zoom = { ...drag.from, x: drag.from.x + dx, y: drag.from.y + dy, user: true };
    applyZoom(view);
  });
  tree.svg.addEventListener("pointerup", () => {
    view.dragged = Boolean(tree.drag?.moved);
    tree.drag = null;
  });
}

export function zoomBy(view, factor, atX, atY) {
  const { tree } = view;
  const px = atX === undefined ? tree.width / 2 : atX;
  const py = atY === undefined ? tree.height / 2 : atY;
  const { kx, ky, x, y } = tree.zoom;
  const nextY = clamp(ky * factor, Math.min(tree.fit, 1) * 0.6, Math.max(4, 30 / tree.row));
  // A squeezed tree needs height more than width when one looks closer.
  const nextX = tree.crowded ? kx * (nextY / ky) ** 0.4 : (kx * nextY) / ky;
  tree.zoom = { kx: nextX, ky: nextY, x: px - ((px - x) * nextX) / kx, y: py - ((py - y) * nextY) / ky, user: true };
  applyZoom(view);
}

export function resetZoom(view) {
  if (view.showBars && view.data.overview) return resetBars(view);
  fitView(view, 0, 0);
  applyZoom(view);
}
