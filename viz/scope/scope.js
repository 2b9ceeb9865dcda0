// The scope: one selection, one phase, many views. Python sends what to draw; iterations, phases and pointing need no
// round trip.

const VIEWS = new WeakMap();
const STAGES = ["draft", "tree", "prune", "mask", "verify", "select", "commit", "history"];
const FIRST_PHASE = "first"; // no phase has this key, so the first one is taken

export default function scope(component) {
  const { data, parentElement } = component;
  if (!data || !(data.scene || data.film)) return;
  let view = VIEWS.get(parentElement);
  if (!view || view.mode !== data.mode || !parentElement.contains(view.root)) {
    view = buildView(parentElement, data);
    VIEWS.set(parentElement, view);
  }
  view.component = component;
  listenToPage(view);
  // The same answer again (a rerun for another reason) draws nothing.
  const version = data.version || JSON.stringify(data);
  if (view.version !== version) {
    view.version = version;
    if (data.film || data.mode === "scope") updateFilm(view, data);
    else updateTree(view, data);
  }
  return () => {
    stopPlaying(view);
    cancelReport(view);
    document.removeEventListener("keydown", view.onPageKey);
  };
}

function buildView(parentElement, data) {
  parentElement.querySelectorAll(".ds-root").forEach((old) => old.remove());
  const root = html("div", "ds-root ds-" + data.mode);
  parentElement.appendChild(root);
  const terms = (data.film ? JSON.parse(data.film.shared).terms : data.terms) || {};
  const view = {
    root, terms, shadow: root.getRootNode(), mode: data.mode, marks: {},
    selected: null, second: null, hovered: null, hoveredColumn: null, wanted: null, absent: null, playing: null,
  };
  view.phaseKey = data.phase || "select";
  root.tabIndex = 0;
  root.setAttribute("role", "group");
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

// A tree alone: `selected` and `phase` of the data count where a new scene starts, or where Python changed them.
function updateTree(view, data) {
  const asked = data.selected ?? null;
  const moved = !view.drawn || view.data.scene.scene_id !== data.scene.scene_id;
  const askedAnew = asked !== null && asked !== view.asked && asked !== view.reported;
  view.data = data;
  view.asked = asked;
  view.marks = data.marks || {};
  if (moved || askedAnew) view.selected = asked;
  if (!data.scene.nodes.some((node) => node.node_id === view.selected)) view.selected = null;
  if (moved && data.phase && data.phase !== view.askedPhase) view.phaseKey = view.askedPhase = data.phase;
  drawFrame(view);
}

// Draws everything of the iteration in `view.data`.
function drawFrame(view) {
  const { data } = view;
  const hadFocus = view.root.contains(view.shadow.activeElement);
  view.hovered = view.hoveredColumn = null;
  if (view.mask) view.mask.pointed = null;
  view.root.setAttribute("aria-label", data.scene.summary);
  drawTree(view);
  if (view.mode === "scope") {
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
  view.root.dataset.drawnScene = data.scene.scene_id;
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
  view.steps.setAttribute("aria-label", "Phases of the iteration");
  const line = html("div", "caption-line", parent);
  view.caption = html("p", "caption", line);
  view.caption.setAttribute("aria-live", "polite");
  html("span", "hint", line, HINT).title = HINT_MORE;
}

function drawPhases(view) {
  const { phases } = view.data.scene;
  const steps = reuse(view.steps, phases.length, (place) => buildStep(view, place));
  phases.forEach((phase, place) => {
    const [title, time] = steps[place].children;
    write(title, phase.title);
    write(time, phase.seconds === null ? "" : duration(phase.seconds));
    steps[place].title = phase.caption;
  });
}

function buildStep(view, place) {
  const step = button("step", view.steps, "", null, () => choosePhase(view, place));
  html("span", "step-title", step);
  html("span", "step-time", step);
  step.setAttribute("role", "tab");
  step.setAttribute("aria-controls", "tree-panel");
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
  const moveFocus = view.steps.contains(view.shadow.activeElement);
  [...view.steps.children].forEach((step, index) => {
    const current = index === view.phase;
    step.classList.toggle("current", current);
    step.classList.toggle("done", index < view.phase);
    step.setAttribute("aria-selected", current);
    step.tabIndex = current ? 0 : -1;
    if (current && moveFocus) step.focus({ preventScroll: true });
  });
  markTime(view);
}

function listen(view) {
  const nodeOf = (event) => {
    const found = event.target.closest && event.target.closest("[data-node]");
    return found ? Number(found.dataset.node) : null;
  };
  view.root.addEventListener("pointerover", (event) => {
    if (event.target.closest && event.target.closest(".mask-svg, .bars")) return;
    if (view.mask) view.mask.pointed = null;
    hover(view, nodeOf(event));
  });
  view.root.addEventListener("pointerleave", () => hover(view, null));
  // With the keyboard the focus points; the scope itself gets the focus from every click and points at nothing.
  view.root.addEventListener("focusin", (event) => event.target !== view.root && hover(view, nodeOf(event)));
  // A card drawn anew takes the focus from a button for a moment: what it points at goes only where it stays away.
  view.root.addEventListener("focusout", (event) => {
    const left = nodeOf(event);
    if (left === null) return;
    setTimeout(() => {
      const at = view.shadow.activeElement;
      const away = at === null || at === view.root || !view.root.contains(at);
      if (away && left === view.hovered && !view.root.matches(":hover")) hover(view, null);
    });
  });
  view.root.addEventListener("pointerdown", () => (view.dragged = false), true);
  view.root.addEventListener("click", (event) => {
    const id = nodeOf(event);
    const dragged = view.dragged;
    view.dragged = false;
    if (dragged) return;
    if (id !== null) return event.shiftKey && view.mode === "scope" ? compareWith(view, id) : select(view, id);
    const past = event.target.closest && event.target.closest("[data-iteration]");
    if (past) goTo(view, Number(past.dataset.iteration));
  });
  // A mouse click on a button leaves the focus on the scope, so that arrows and space keep their meaning.
  view.root.addEventListener("mousedown", (event) => {
    if (!event.target.closest || !event.target.closest("button, [data-node]")) return;
    event.preventDefault();
    view.root.focus({ preventScroll: true });
  });
  view.root.addEventListener("keydown", (event) => pressKey(view, event));
}
