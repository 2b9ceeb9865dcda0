// The scope: one selection, one phase, many views. Python sends what to draw; phases and pointing need no round trip.

const VIEWS = new WeakMap();
const STAGES = ["draft", "prune", "mask", "verify", "select", "commit", "history"];

export default function scope(component) {
  const { data, parentElement } = component;
  if (!data || !data.scene) return;
  let view = VIEWS.get(parentElement);
  if (!view || view.mode !== data.mode || !parentElement.contains(view.root)) {
    view = buildView(parentElement, data);
    VIEWS.set(parentElement, view);
  }
  view.component = component;
  update(view, data);
}

function buildView(parentElement, data) {
  parentElement.querySelectorAll(".ds-root").forEach((old) => old.remove());
  const root = html("div", "ds-root ds-" + data.mode);
  parentElement.appendChild(root);
  const shadow = root.getRootNode();
  const view = { root, shadow, mode: data.mode, data, links: new Map(), marks: {}, selected: null, hovered: null };
  view.phaseKey = data.phase || "select";
  root.tabIndex = 0;
  root.setAttribute("role", "application");
  root.setAttribute("aria-roledescription", "decoding scope");
  const full = data.mode === "scope";
  const inner = html("div", "inner", root);
  if (full) buildStrip(view, inner);
  if (full) buildPhases(view, inner);
  const middle = html("div", "middle", inner);
  buildTreePanel(view, middle);
  if (full) buildCard(view, middle);
  if (full) {
    const lower = html("div", "lower", inner);
    buildMask(view, lower);
    buildCache(view, lower);
    buildText(view, lower);
    buildTimes(view, lower);
  }
  view.charWidth = measure(view);
  listen(view);
  return view;
}

function measure(view) {
  const probe = svg("text", { class: "label" }, view.tree.svg);
  probe.textContent = "M".repeat(40);
  const width = probe.getComputedTextLength() / 40;
  probe.remove();
  return width || 7.3;
}

function update(view, data) {
  const sameScene = view.data.scene.scene_id === data.scene.scene_id && view.drawn;
  // The same answer again (a rerun for another reason) draws nothing.
  const fingerprint = JSON.stringify(data);
  const asked = data.selected;
  const askedAnew = asked !== null && asked !== undefined && asked !== view.asked && asked !== view.reported;
  if (view.fingerprint === fingerprint) return;
  const started = performance.now();
  const hadFocus = view.root.contains(view.shadow.activeElement);
  const moved = !sameScene;
  view.fingerprint = fingerprint;
  view.data = data;
  view.asked = asked;
  view.links = new Map();
  view.marks = data.marks || {};
  view.hovered = null;
  if (view.requested === (data.strip && data.strip.current)) view.requested = null;
  const known = new Set(data.scene.nodes.map((node) => node.node_id));
  if (moved) view.selected = asked === null || asked === undefined ? data.scene.default_selected : asked;
  else if (askedAnew) view.selected = asked;
  if (!known.has(view.selected)) view.selected = data.mode === "compact" ? null : data.scene.default_selected;
  if (data.mode === "compact" && moved && (asked === null || asked === undefined)) view.selected = null;
  if (moved && data.phase && data.phase !== view.askedPhase) view.phaseKey = view.askedPhase = data.phase;
  view.root.setAttribute("aria-label", data.scene.summary);
  drawTree(view);
  if (data.mode === "scope") {
    paintStrip(view);
    drawPhases(view);
    paintCache(view);
    paintText(view);
    paintTimes(view);
    paintMask(view);
  }
  setPhase(view, phaseIndex(view));
  paintSelection(view);
  view.drawn = true;
  // What had the focus may just have been drawn anew; the keys must go on working.
  if (hadFocus && !view.root.contains(view.shadow.activeElement)) view.root.focus({ preventScroll: true });
  requestAnimationFrame(() => {
    view.root.dataset.drawMs = (performance.now() - started).toFixed(1);
    view.root.dataset.drawnScene = data.scene.scene_id;
  });
}

// The phase stays the same across iterations; one that this iteration lacks becomes the nearest before it.
function phaseIndex(view) {
  const keys = view.data.scene.phases.map((phase) => phase.key);
  const exact = keys.indexOf(view.phaseKey);
  if (exact >= 0) return exact;
  const stage = STAGES.indexOf(view.phaseKey.split("-")[0]);
  let best = 0;
  keys.forEach((key, place) => {
    if (STAGES.indexOf(key.split("-")[0]) <= stage) best = place;
  });
  return best;
}

function buildPhases(view, parent) {
  const box = html("div", "phases", parent);
  view.steps = html("div", "steps", box);
  view.steps.setAttribute("role", "tablist");
  const line = html("div", "caption-line", parent);
  view.caption = html("p", "caption", line);
  view.caption.setAttribute("aria-live", "polite");
  html("span", "hint", line, "← → phase · ↑ ↓ iteration · ⇧ arrows node · space plays");
}

function drawPhases(view) {
  view.steps.replaceChildren();
  view.data.scene.phases.forEach((phase, place) => {
    const step = button("step", view.steps, "", null, () => choosePhase(view, place));
    html("span", "step-title", step, phase.title);
    html("span", "step-time", step, phase.seconds === null ? "" : duration(phase.seconds));
    step.setAttribute("role", "tab");
    step.tabIndex = -1;
    step.title = phase.caption;
  });
}

function choosePhase(view, place) {
  setPhase(view, place);
  if (view.data.report_phase) view.component.setStateValue("phase", view.phaseKey);
}

function setPhase(view, place) {
  const { phases } = view.data.scene;
  view.phase = clamp(place, 0, phases.length - 1);
  const phase = phases[view.phase];
  view.phaseKey = phase.key;
  const stage = phase.key.split("-")[0];
  view.root.dataset.phase = phase.key;
  for (const name of STAGES) view.root.classList.toggle("past-" + name, STAGES.indexOf(stage) >= STAGES.indexOf(name));
  view.root.dataset.stage = stage;
  paintTree(view);
  if (view.mode !== "scope") return;
  view.caption.textContent = view.caption.title = phase.caption;
  [...view.steps.children].forEach((step, index) => {
    step.classList.toggle("current", index === view.phase);
    step.classList.toggle("done", index < view.phase);
    step.setAttribute("aria-selected", index === view.phase);
  });
  const now = { history: "adapt" }[stage] || stage;
  for (const line of view.times.body.children) line.classList.toggle("current", line.dataset.phase === now);
}

function lightAll(view, id, className, on) {
  for (const element of view.links.get(id) || []) element.classList.toggle(className, on);
}

function hover(view, id) {
  if (view.hovered === id) return;
  if (view.hovered !== null) lightAll(view, view.hovered, "lit", false);
  view.hovered = id;
  if (id !== null) lightAll(view, id, "lit", true);
  lightMask(view);
}

// A choice of the user: shown at once, then reported to Python.
function select(view, id) {
  const mark = view.tree.marks.get(id);
  if (mark && mark.node.folded) {
    view.component.setTriggerValue("unfold", -10 - id);
    return;
  }
  setSelected(view, id);
  view.reported = id;
  view.component.setStateValue("selected", { scene: view.data.scene.scene_id, node: id });
}

function setSelected(view, id) {
  if (view.selected !== null) lightAll(view, view.selected, "sel", false);
  view.selected = id;
  paintSelection(view);
}

function paintSelection(view) {
  if (view.selected !== null) lightAll(view, view.selected, "sel", true);
  view.root.dataset.selected = view.selected === null ? "" : view.selected;
  showLabels(view);
  if (view.mode !== "scope") return;
  paintCard(view);
  lightMask(view);
}

function requestIteration(view, index) {
  const { strip } = view.data;
  if (!strip || index < 0 || index >= strip.count || index === strip.current) return;
  view.requested = index;
  view.component.setTriggerValue("iteration", index);
}

function listen(view) {
  const nodeOf = (event) => {
    const found = event.target.closest && event.target.closest("[data-node]");
    return found ? Number(found.dataset.node) : null;
  };
  view.root.addEventListener("pointerover", (event) => {
    if (!event.target.closest || !event.target.closest(".mask-svg")) hover(view, nodeOf(event));
  });
  view.root.addEventListener("pointerleave", () => hover(view, null));
  view.root.addEventListener("click", (event) => {
    const id = nodeOf(event);
    if (id !== null && !view.dragged) select(view, id);
    const past = event.target.closest && event.target.closest("[data-iteration]");
    if (past) requestIteration(view, Number(past.dataset.iteration));
    view.dragged = false;
  });
  // A mouse click on a button leaves the focus on the scope, so that arrows and space keep their meaning.
  view.root.addEventListener("mousedown", (event) => {
    if (!event.target.closest || !event.target.closest("button")) return;
    event.preventDefault();
    view.root.focus({ preventScroll: true });
  });
  view.root.addEventListener("keydown", (event) => pressKey(view, event));
}

function pressKey(view, event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === " " && event.target.closest("button")) return;
  const at = view.requested ?? (view.data.strip ? view.data.strip.current : 0);
  const actions = event.shiftKey
    ? {
        ArrowLeft: () => walk(view, "parent"),
        ArrowRight: () => walk(view, "child"),
        ArrowUp: () => walk(view, "up"),
        ArrowDown: () => walk(view, "down"),
      }
    : {
        ArrowLeft: () => choosePhase(view, view.phase - 1),
        ArrowRight: () => choosePhase(view, view.phase + 1),
        ArrowUp: () => requestIteration(view, at - 1),
        ArrowDown: () => requestIteration(view, at + 1),
        Home: () => choosePhase(view, 0),
        End: () => choosePhase(view, view.data.scene.phases.length - 1),
        " ": () => play(view),
        0: () => resetZoom(view),
      };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  if (event.key !== " ") stopPlaying(view);
  action();
}

// Moves the selection through the tree: parent, first child, neighbours in the same column.
function walk(view, direction) {
  const marks = [...view.tree.marks.values()].filter((mark) => !mark.node.folded);
  const from = view.tree.marks.get(view.selected) || marks[0];
  let to = null;
  if (direction === "parent") to = view.tree.marks.get(from.node.parent_id);
  if (direction === "child") to = marks.find((mark) => mark.node.parent_id === from.node.node_id);
  if (direction === "up" || direction === "down") {
    const sign = direction === "up" ? -1 : 1;
    const column = marks.filter((mark) => mark.node.depth === from.node.depth && sign * (mark.node.row - from.node.row) > 0);
    column.sort((a, b) => sign * (a.node.row - b.node.row));
    to = column[0];
  }
  if (to) select(view, to.node.node_id);
}

function play(view) {
  if (view.playing) return stopPlaying(view);
  if (view.phase === view.data.scene.phases.length - 1) setPhase(view, 0);
  view.playing = setInterval(() => {
    const last = view.phase >= view.data.scene.phases.length - 1;
    if (last || !view.root.isConnected) stopPlaying(view);
    else setPhase(view, view.phase + 1);
  }, 1100);
}

function stopPlaying(view) {
  clearInterval(view.playing);
  view.playing = null;
}
