// Zoom and drag of the tree: what the user set stays across phases and iterations, and with its run when pages change.

const ZOOMS = new Map(); // by run
const COMMITTED = new Set(["accepted", "recovered", "bonus", "fallback"]);
const TIGHT = 0.6; // columns closer than this would lay labels on the marks after them: labels are cut
const LEAST_COLUMN = 26; // pixels between columns that a tree is never squeezed below by itself
const MARK_ROW = 11; // rows closer than this get smaller marks

function recallZoom(view) {
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
  const ky = clamp((roomY - 16) / Math.max(path.bottom - path.top, 1), tree.fit, readable);
  const step = Math.min(...tree.columns.slice(1).map((column, depth) => column.x - tree.columns[depth].x));
  const kx = Math.min(Math.max(readable, floorX), Math.max(path.widest(roomX), LEAST_COLUMN / step));
  const hidden = path.right(kx) - roomX;
  const x = PAD.left - (hidden > 1 ? hidden : 0);
  const spanY = tree.extent.height * ky;
  const middle = (path.bottom - path.top) * ky <= roomY ? (path.top + path.bottom) / 2 : path.end;
  const y =
    spanY <= roomY + 1
      ? PAD.top + (roomY - spanY) / 2
      : PAD.top - clamp(middle * ky - roomY / 2, 0, spanY - roomY);
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
function applyZoom(view) {
  const { tree } = view;
  const { kx, ky, x, y } = tree.zoom;
  if (view.film) ZOOMS.set(view.film.key, tree.zoom);
  const size = textSize(tree);
  const row = tree.row * ky;
  const pin = tree.crowded || row < MARK_ROW ? clamp(row / 12, 0.42, size) : size;
  set(tree.world, "transform", `translate(${x},${y}) scale(${kx},${ky})`);
  for (const mark of tree.marks.values()) {
    set(mark.group, "transform", `translate(${mark.x},${mark.y}) scale(${size / kx},${size / ky})`);
  }
  tree.world.style.setProperty("--pin", pin === size ? "none" : `scale(${pin / size})`);
  // Where marks stand close the pointer finds the nearest: what it hits ends halfway to the next one.
  tree.world.style.setProperty("--hit", row < 2 * HIT * size ? `scale(${Math.max(row / 2, 2.5) / HIT / size})` : "none");
  const right = x + tree.extent.width * kx > tree.width + 4;
  const below = y + tree.extent.height * ky > tree.height + 4;
  tree.more.classList.toggle("shown", right || below || x < 0 || y < PAD.top - 24);
  drawHeads(view);
  cutLabels(view);
  showLabels(view);
}

function listenZoom(view) {
  const { tree } = view;
  tree.svg.addEventListener(
    "wheel",
    (event) => {
      // Trees that stand in a scrolling page leave the wheel to the page unless they have the focus.
      if (view.data.mode === "compact" && !event.ctrlKey && !view.root.contains(view.shadow.activeElement)) return;
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
    view.dragged = Boolean(tree.drag && tree.drag.moved);
    tree.drag = null;
  });
}

function zoomBy(view, factor, atX, atY) {
  const { tree } = view;
  const px = atX === undefined ? tree.width / 2 : atX;
  const py = atY === undefined ? tree.height / 2 : atY;
  const { kx, ky, x, y } = tree.zoom;
  const nextY = clamp(ky * factor, Math.min(tree.fit, 1) * 0.6, Math.max(4, 30 / tree.row));
  // A squeezed tree needs height more than width when one looks closer.
  const nextX = tree.crowded ? kx * Math.pow(nextY / ky, 0.4) : (kx * nextY) / ky;
  tree.zoom = { kx: nextX, ky: nextY, x: px - ((px - x) * nextX) / kx, y: py - ((py - y) * nextY) / ky, user: true };
  applyZoom(view);
}

function resetZoom(view) {
  if (view.showBars && view.data.overview) return resetBars(view);
  fitView(view, 0, 0);
  applyZoom(view);
}
