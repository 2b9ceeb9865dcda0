// The tree: laid out once per scene and panel size; phases only change classes, so nothing jumps. The marks of one
// iteration become those of the next: making some hundreds of elements anew would take longer than a frame.

const ROW_MIN = 13;
const ROW_MAX = 56;
const DETAIL_ROW = 22;
const LABEL_FIT = 0.7; // labels are readable down to this scale
const SMALLEST_TEXT = 0.85;
const MANY = 30; // from this many nodes on the note is long
const HIT = 10; // radius in which the pointer finds a mark
const PAD = { left: 22, right: 14, top: 30, bottom: 12 };

function buildTreePanel(view, parent) {
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
  tree.more = html("div", "more", tree.stage, "part of the tree is out of view: drag it, or double click to see all");
  tree.foot = html("footer", "", tree.box);
  tree.legend = html("div", "legend", tree.foot);
  tree.note = html("div", "note", tree.foot);
  const tools = html("div", "tools", tree.foot);
  buildOverview(view, tree, tools);
  button("tool tree-only", tools, "+", "Zoom in", () => zoomBy(view, 1.3));
  button("tool tree-only", tools, "−", "Zoom out", () => zoomBy(view, 1 / 1.3));
  button("tool", tools, "⤢", "Show the whole tree (double click)", () => resetZoom(view));
  if (view.mode === "scope") button("tool words tree-only", tools, "svg", "Save this picture as SVG", () => savePicture(view, "svg"));
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

function drawTree(view) {
  const { tree } = view;
  const { scene } = view.data;
  if (tree.title) tree.title.textContent = tree.title.title = scene.title;
  tree.svg.setAttribute("aria-label", scene.summary);
  tree.box.classList.toggle("many", scene.total > MANY);
  tree.box.setAttribute("aria-label", `Draft tree: ${scene.note}`);
  tree.pool.splice(scene.nodes.length).forEach(({ group, edge }) => (group.remove(), edge.remove()));
  tree.marks = new Map();
  scene.nodes.forEach((node, place) => {
    const mark = (tree.pool[place] ??= buildMark(tree, place));
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

// The root comes first, and it alone has no edge.
function buildMark(tree, place) {
  const edge = place ? svg("path", { class: "e" }, tree.edges) : null;
  const group = svg("g", { class: "n" }, tree.nodes);
  const title = svg("title", {}, group);
  const shape = marker("", group);
  svg("circle", { class: "hit", r: HIT }, group);
  const label = svg("text", { class: "label", x: 14 }, group);
  const detail = svg("text", { class: "detail", x: 14, y: 12 }, group);
  return { edge, group, title, shape, label, detail, diff: null, state: null };
}

// What a mark says of its node in every phase.
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
  view.root.classList.toggle("no-detail", row < DETAIL_ROW);
  for (const mark of tree.marks.values()) placeMark(tree, mark, row, charWidth);
  if (!tree.zoom.user) fitView(view, tree.crowded ? 0 : LABEL_FIT, TIGHT);
  applyZoom(view);
}

function placeMark(tree, mark, row, charWidth) {
  const { node } = mark;
  const column = tree.columns[node.depth];
  mark.x = column.x;
  mark.y = node.row * row;
  set(mark.label, "y", row < DETAIL_ROW ? 4 : 1);
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
  let free = -Infinity;
  tree.columns.forEach((column, depth) => {
    const at = x + column.x * kx;
    svg("line", { x1: at, x2: at, y1: 24, y2: tree.height - 4 }, tree.guides);
    const words = depth ? "depth " + depth : "root";
    if (at < free || at < 0 || at > tree.width) return;
    const text = svg("text", { x: Math.min(at - 6, tree.width - words.length * 6.4 - 2), y: 15 }, tree.heads);
    text.textContent = words;
    free = at + words.length * 6.6 + 8;
  });
}

// Where columns are squeezed a label ends before the next column begins, except in the last one.
function cutLabels(view) {
  const { tree } = view;
  const { kx } = tree.zoom;
  const tight = kx < TIGHT;
  const letter = view.charWidth * textSize(tree);
  const rooms = tree.columns.map(({ x }, depth) => {
    const next = tree.columns[depth + 1];
    return tight && next ? Math.floor(((next.x - x) * kx - 26) / letter) : Infinity;
  });
  for (const { label, words, node } of tree.marks.values()) {
    const room = rooms[node.depth];
    write(label, words.length <= room ? words : room < 2 ? "" : words.slice(0, room - 1) + "…");
  }
  tree.svg.classList.toggle("tight", tight);
}

// Of labels that would lie on each other the less important wait for more room.
function showLabels(view) {
  const { tree } = view;
  const { kx, ky } = tree.zoom;
  const half = 6.5 * textSize(tree);
  const crowded = tree.crowded || Math.min(kx, ky) < 0.8;
  const taken = new Map();
  const marks = [...tree.marks.values()];
  const named = marks.filter(({ node }) => node.node_id > 0 && !node.folded);
  let quiet = 0;
  if (crowded) marks.sort((a, b) => labelRank(view, b) - labelRank(view, a));
  for (const mark of marks) {
    let free = mark.node.labelled || mark.node.folded || labelRank(view, mark) >= 90 || ky * tree.row * 0.5 >= 11;
    if (free && crowded) {
      const boxes = taken.get(mark.node.depth) || [];
      const [top, bottom] = [mark.y * ky - half, mark.y * ky + half];
      free = boxes.every((box) => bottom <= box[0] || top >= box[1]);
      if (free) taken.set(mark.node.depth, boxes.concat([[top, bottom]]));
    }
    mark.group.classList.toggle("quiet", !free);
    if (!free && mark.node.node_id > 0) quiet += 1;
  }
  tree.svg.classList.toggle("crowded", crowded);
  tree.labels = quiet ? ` · ${named.length - quiet} of ${named.length} labels shown` : "";
  paintNote(view);
}

function labelRank(view, mark) {
  const id = mark.node.node_id;
  if (id === view.selected || id === view.second) return 100;
  if (id === view.hovered) return 95;
  const order = { root: 80, accepted: 70, recovered: 75, bonus: 75, fallback: 75, rejected: 50, fold: 10 };
  return (order[mark.node.state] || 20) + mark.node.width;
}

// Legend and note below the tree, or below the bars where those are shown.
function paintFoot(view) {
  const { legend, note, there } = view.tree;
  if (view.showBars && view.data.overview) {
    barLegend(view, legend);
    note.textContent = `all ${view.data.overview.count.toLocaleString("en")} nodes · height = path probability`;
    note.title = "Each bar lies inside its parent's; what stays empty the draft left to other tokens. The wheel zooms.";
    return;
  }
  legend.replaceChildren();
  for (const item of view.data.legend) if (there && there.has(item.state)) legendItem(legend, item);
  paintNote(view);
}

function paintNote(view) {
  const { note, labels } = view.tree;
  if (view.showBars && view.data.overview) return;
  const marked = Object.keys(view.marks).length;
  const diff = marked ? " · " + marked + " framed: " + Object.values(view.marks)[0] : "";
  write(note, view.data.scene.note + (labels || "") + diff + " · width = path probability");
  set(note, "title", note.textContent + ". Click a fold to open it, point at a node to read it, zoom in for more labels.");
}

function paintTree(view) {
  const phase = view.data.scene.phases[view.phase];
  const there = new Set(phase.states);
  view.tree.there = there;
  paintFoot(view);
  view.data.scene.nodes.forEach((node, place) => {
    const mark = view.tree.marks.get(node.node_id);
    const state = phase.states[place];
    write(mark.detail, { draft: node.draft, row: node.position, both: node.both }[phase.detail] || "");
    if (mark.state === state) return;
    for (const element of mark.edge ? [mark.group, mark.edge] : [mark.group]) {
      element.classList.remove("s-" + mark.state);
      element.classList.add("s-" + state);
    }
    set(mark.shape, "d", SHAPES[state] || DISC);
    mark.state = state;
  });
}
