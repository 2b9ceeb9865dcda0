// The tree: laid out once per scene and panel size; phases only change classes, so nothing jumps.

const ROW_MIN = 13;
const ROW_MAX = 56;
const DETAIL_ROW = 25;
const LABEL_FIT = 0.7; // labels are readable down to this scale
const PAD = { left: 22, right: 14, top: 30, bottom: 12 };

function buildTreePanel(view, parent) {
  const tree = { box: html("section", "panel tree", parent) };
  tree.box.id = "tree-panel";
  tree.box.setAttribute("role", view.mode === "scope" ? "tabpanel" : "group");
  if (view.mode === "compact") tree.title = html("h3", "tree-title", tree.box);
  tree.stage = html("div", "stage", tree.box);
  tree.svg = svg("svg", { class: "tree-svg", role: "img" }, tree.stage);
  tree.guides = svg("g", { class: "guides" }, tree.svg);
  tree.world = svg("g", {}, tree.svg);
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
  tree.box.setAttribute("aria-label", `Draft tree: ${scene.note}`);
  tree.edges.replaceChildren();
  tree.nodes.replaceChildren();
  tree.marks = new Map();
  for (const node of scene.nodes) {
    const thick = (0.9 + 5.1 * node.width).toFixed(2);
    const edge = node.parent_id === -1 ? null : svg("path", { class: "e", "stroke-width": thick }, tree.edges);
    const group = svg("g", { class: "n" }, tree.nodes);
    const inner = svg("g", { class: "scaled" }, group);
    svg("title", {}, group).textContent = node.title;
    const pin = svg("g", { class: "pin" }, inner);
    svg("circle", { class: "ring", r: 10 }, pin);
    if (view.marks[node.node_id]) svg("rect", { class: "diff", x: -9, y: -9, width: 18, height: 18, rx: 4 }, pin);
    const mark = marker(node.state, pin);
    svg("circle", { class: "hit", r: 11 }, pin);
    const label = svg("text", { class: "label", x: 14 }, inner);
    label.textContent = node.label + (node.multiplicity > 1 ? " ×" + node.multiplicity : "");
    const detail = svg("text", { class: "detail", x: 14, y: 12 }, inner);
    link(view, group, node.node_id);
    if (edge) link(view, edge, node.node_id);
    tree.marks.set(node.node_id, { node, edge, group, mark, label, detail });
  }
  tree.empty.textContent = view.data.recorded
    ? ""
    : "This iteration was recorded as a summary, without its tree. Record the run in full, or step to it live, to see the tree.";
  placeTree(view, true);
  drawOverview(view);
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
  if (!tree.zoom.user) fitView(view, tree.crowded ? 0 : LABEL_FIT);
  applyZoom(view);
}

function placeMark(tree, mark, row, charWidth) {
  const { node } = mark;
  const column = tree.columns[node.depth];
  mark.x = column.x;
  mark.y = node.row * row;
  mark.group.setAttribute("transform", `translate(${mark.x},${mark.y})`);
  mark.label.setAttribute("y", row < DETAIL_ROW ? 4 : 1);
  mark.wide = 17 + node.chars * charWidth;
  if (!mark.edge) return;
  const parent = tree.marks.get(node.parent_id);
  const start = parent.x + (parent.node.labelled || parent.node.folded ? parent.wide + 2 : 8);
  const turn = Math.max(tree.columns[parent.node.depth].right, start);
  const end = mark.x - 9;
  const middle = (turn + end) / 2;
  mark.edge.setAttribute(
    "d",
    `M${start},${parent.y}H${turn}C${middle},${parent.y} ${middle},${mark.y} ${end},${mark.y}`,
  );
}

const textSize = (tree) => clamp(tree.zoom.kx, 0.85, 1.5);

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

// Of labels that would lie on each other the less important wait for more room.
function showLabels(view) {
  const { tree } = view;
  const { kx, ky } = tree.zoom;
  const half = 6.5 * textSize(tree);
  const crowded = tree.crowded || Math.min(kx, ky) < 0.8;
  const taken = new Map();
  const marks = [...tree.marks.values()];
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
  }
  tree.svg.classList.toggle("crowded", crowded);
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
  const marked = Object.keys(view.marks).length;
  const diff = marked ? " · " + marked + " framed: " + Object.values(view.marks)[0] : "";
  note.textContent = view.data.scene.note + diff + " · width = path probability";
  note.title = note.textContent + ". Click a fold to open it, point at a node to read it.";
}

function paintTree(view) {
  const phase = view.data.scene.phases[view.phase];
  const there = new Set(phase.states);
  view.tree.there = there;
  paintFoot(view);
  view.data.scene.nodes.forEach((node, place) => {
    const mark = view.tree.marks.get(node.node_id);
    const state = phase.states[place];
    mark.state = state;
    const keep = ["quiet", "lit", "lit-too", "sel", "second"].filter((name) => mark.group.classList.contains(name)).join(" ");
    mark.group.setAttribute("class", `n s-${state} ${keep}`);
    mark.mark.setAttribute("d", SHAPES[state] || DISC);
    const detail = { draft: node.draft, row: node.position, both: node.both }[phase.detail] || "";
    if (mark.detail.textContent !== detail) mark.detail.textContent = detail;
    if (mark.edge) mark.edge.setAttribute("class", "e s-" + state);
  });
}
