// Zoom and drag of the tree: what the user set stays across phases and iterations.

// The whole tree if its labels stay readable, else the accepted path at a readable size.
function fitView(view, floor) {
  const { tree } = view;
  const k = Math.max(tree.fit, floor);
  const focus = focusPoint(view);
  const spanX = tree.extent.width * k;
  const spanY = tree.extent.height * k;
  const roomX = tree.width - PAD.left - PAD.right;
  const roomY = tree.height - PAD.top - PAD.bottom;
  const x = spanX <= roomX + 1 ? PAD.left : PAD.left - clamp(focus.x * k - roomX * 0.7, 0, spanX - roomX);
  const y =
    spanY <= roomY + 1
      ? PAD.top + (roomY - spanY) / 2
      : PAD.top - clamp(focus.y * k - roomY / 2, 0, spanY - roomY);
  tree.zoom = { kx: k, ky: k, x, y, user: false };
}

function focusPoint(view) {
  const points = [...view.tree.marks.values()].filter((mark) => mark.node.state === "accepted" || mark.node.node_id < 1);
  const last = points.reduce((best, mark) => (mark.x > best.x ? mark : best), points[0] || { x: 0, y: 0 });
  return { x: last.x, y: last.y };
}

// Marks and text keep a readable size at any zoom: they are scaled back by what the world is scaled.
function applyZoom(view) {
  const { tree } = view;
  const { kx, ky, x, y } = tree.zoom;
  const size = textSize(tree);
  const pin = tree.crowded ? clamp((tree.row * ky) / 12, 0.42, size) : size;
  tree.world.setAttribute("transform", `translate(${x},${y}) scale(${kx},${ky})`);
  tree.svg.style.setProperty("--scaled-x", size / kx);
  tree.svg.style.setProperty("--scaled-y", size / ky);
  tree.svg.style.setProperty("--pin", pin / size);
  const right = x + tree.extent.width * kx > tree.width + 4;
  const below = y + tree.extent.height * ky > tree.height + 4;
  tree.more.classList.toggle("shown", right || below || x < 0 || y < PAD.top - 24);
  drawHeads(view);
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
  fitView(view, 0);
  applyZoom(view);
}
