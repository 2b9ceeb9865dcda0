// The scope: one selection, one phase, many views. Python sends what to draw; iterations, phases and hovering need no
// round trip.

import {
  button,
  clamp,
  focusable,
  focusStaysOn,
  html,
  isNew,
  labelled,
  reuse,
  set,
  svg,
  viewOf,
  watchSize,
  write,
} from "../components/dom.js";
import { duration } from "../components/formats.js";
import { buildCard, compareWith, paintCard } from "./card.js";
import { cancelReport, goTo, placeOf, report, updateFilm } from "./film.js";
import { HINT, HINT_MORE, leavePage, listenToPage, pressKey, stopPlaying } from "./keys.js";
import { buildMask, lightMask, paintMask } from "./mask.js";
import { lightOverview } from "./overview.js";
import {
  buildCache,
  buildStrip,
  buildText,
  buildTimes,
  markTime,
  noteCache,
  paintCache,
  paintStrip,
  paintText,
  paintTimes,
} from "./panels.js";
import { buildSearch, markAsked, paintSearch, stepOf } from "./steps.js";
import { buildTreePanel, drawTree, paintTree, showLabels } from "./tree.js";

const STAGES = ["draft", "tree", "prune", "mask", "verify", "select", "commit", "history"];

export default function scope(component) {
  const { data } = component;
  if (!data?.mode) return;
  const view = viewOf(component, `ds-root ds-${data.mode}`, buildView);
  listenToPage(view);
  if (isNew(view, data)) {
    if (data.film) updateFilm(view, data);
    else updateTree(view, data);
  }
  return () => {
    stopPlaying(view);
    cancelReport(view);
    leavePage(view);
  };
}

function buildView(root, data) {
  focusable(root);
  root.setAttribute("aria-roledescription", "decoding scope");
  const terms = data.film ? JSON.parse(data.film.shared).terms : {};
  const view = {
    root,
    terms,
    shadow: root.getRootNode(),
    mode: data.mode,
    marks: {},
    selected: null,
    second: null,
    hovered: null,
    hoveredColumn: null,
    wanted: null,
    absent: null,
    playing: null,
    step: null,
  };
  view.phaseKey = data.phase || "select";
  const full = data.mode === "scope";
  const inner = html("div", "inner", root);
  if (full) buildStrip(view, inner);
  if (full) buildPhases(view, inner);
  const middle = html("div", "middle", inner);
  buildTreePanel(view, middle);
  if (full) buildCard(view, middle);
  if (full) {
    const lower = html("div", "lower", inner);
    buildSearch(view, lower);
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
export function drawFrame(view) {
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
  // The focused element may just have been redrawn; the keys must still work.
  if (hadFocus && !view.root.contains(view.shadow.activeElement)) view.root.focus({ preventScroll: true });
  view.root.dataset.drawnScene = data.scene.scene_id;
}

// The phase stays the same across iterations; one that this iteration lacks becomes the last of its kind, or verify:
// the tree and its card are whole there.
function phaseIndex(view) {
  const keys = view.data.scene.phases.map((phase) => phase.key);
  const exact = keys.indexOf(view.phaseKey);
  if (exact >= 0) return exact;
  const kind = view.phaseKey.split("-")[0];
  if (!STAGES.includes(kind)) return 0; // playing goes on with the first one
  const alike = keys.findLastIndex((key) => key.split("-")[0] === kind);
  return Math.max(alike >= 0 ? alike : keys.indexOf("verify"), 0);
}

function buildPhases(view, parent) {
  const box = html("div", "phases", parent);
  view.steps = labelled(html("div", "steps", box), "tablist", "Phases of the iteration");
  const line = html("div", "caption-line", parent);
  const captions = html("div", "captions", line);
  view.caption = html("p", "caption", captions);
  view.caption.setAttribute("aria-live", "polite");
  view.captions = html("div", "others", captions);
  html("span", "hint", line, HINT).title = HINT_MORE;
  // The captions of all phases lie on one another, so the line is as high as the longest. It gets no lower in the next
  // iteration: what is below would move.
  let wide = null;
  const size = watchSize(line, () => {
    if (size.now().width !== wide) line.style.minHeight = "";
    wide = size.now().width;
    line.style.minHeight = line.offsetHeight + "px";
  });
}

function drawPhases(view) {
  const { phases } = view.data.scene;
  const steps = reuse(view.steps, phases.length, (place) => buildStep(view, place));
  const others = reuse(view.captions, phases.length, () => html("p", "caption", view.captions));
  phases.forEach((phase, place) => {
    const [title, time] = steps[place].children;
    write(title, phase.title);
    write(time, phase.seconds === null ? "" : duration(phase.seconds));
    steps[place].title = phase.caption;
    set(others[place], "data-words", phase.caption);
  });
}

function buildStep(view, place) {
  const step = button("step", view.steps, "", null, () => setPhase(view, place));
  html("span", "step-title", step);
  html("span", "step-time", step);
  labelled(step, "tab").setAttribute("aria-controls", "tree-panel");
}

// Shows a phase, and of a search that is stepped one of its steps in it: the last one if none is given.
export function setPhase(view, place, step = null) {
  const { phases } = view.data.scene;
  view.phase = clamp(place, 0, phases.length - 1);
  const phase = phases[view.phase];
  view.phaseKey = phase.key;
  view.step = stepOf(view, phase, step);
  const stage = phase.key.split("-")[0];
  view.root.dataset.phase = phase.key;
  for (const name of STAGES) view.root.classList.toggle("past-" + name, STAGES.indexOf(stage) >= STAGES.indexOf(name));
  view.root.dataset.stage = stage;
  paintTree(view);
  if (view.mode !== "scope") return;
  markAsked(view);
  paintSearch(view);
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
  noteCache(view);
  if (view.drawn) paintCard(view);
}

function listen(view) {
  const nodeOf = (event) => {
    const found = event.target.closest?.("[data-node]");
    return found ? Number(found.dataset.node) : null;
  };
  // What is drawn anew below a pointer at rest is not pointed at: only its movement counts.
  view.root.addEventListener("pointermove", (event) => {
    if (event.target.closest?.(".mask-svg, .bars")) return;
    if (view.mask) view.mask.pointed = null;
    hover(view, nodeOf(event));
  });
  view.root.addEventListener("pointerleave", () => hover(view, null));
  // With the keyboard the focus points; the scope itself gets the focus from every click and points at nothing.
  view.root.addEventListener("focusin", (event) => event.target !== view.root && hover(view, nodeOf(event)));
  // Redrawing a card briefly takes the focus from a button: the highlight is cleared only if it does not return.
  view.root.addEventListener("focusout", (event) => {
    const left = nodeOf(event);
    if (left === null) return;
    setTimeout(() => {
      const at = view.shadow.activeElement;
      const away = at === null || at === view.root || !view.root.contains(at);
      if (away && left === view.hovered && !view.root.matches(":hover")) hover(view, null);
    });
  });
  const settle = () => {
    view.dragged = false;
  };
  view.root.addEventListener("pointerdown", settle, true);
  view.root.addEventListener("click", (event) => {
    const id = nodeOf(event);
    const dragged = view.dragged;
    view.dragged = false;
    if (dragged) return;
    if (id !== null) return event.shiftKey && view.mode === "scope" ? compareWith(view, id) : select(view, id);
    const past = event.target.closest?.("[data-iteration]");
    if (past) goTo(view, Number(past.dataset.iteration));
  });
  focusStaysOn(view.root, "button, [data-node]");
  view.root.addEventListener("keydown", (event) => pressKey(view, event));
}

// Links an element to a node: pointing at it or clicking it highlights the node everywhere. No node unlinks it.
export function link(element, nodeId) {
  if (nodeId === null || nodeId === undefined) delete element.dataset.node;
  else if (element.dataset.node !== String(nodeId)) element.dataset.node = nodeId;
}

// Gives everything of a node this class and removes it elsewhere.
function light(view, className, id) {
  for (const element of view.root.querySelectorAll("." + className)) {
    if (element.dataset.node !== String(id)) element.classList.remove(className);
  }
  if (id === null) return;
  for (const element of view.root.querySelectorAll(`[data-node="${id}"]`)) element.classList.add(className);
}

// Highlights what is pointed at, the mask column pointed at, the pinned node and its comparison. Redrawn parts are found
// by their node, so nothing has to remember them.
export function lightAll(view) {
  light(view, "lit", view.hovered);
  light(view, "lit-too", view.hoveredColumn === view.hovered ? null : view.hoveredColumn);
  light(view, "sel", view.selected);
  light(view, "second", view.second);
}

// Points at a node, and in the mask at the node of a column as well.
export function hover(view, id, column = null) {
  if (view.hovered === id && view.hoveredColumn === column) return;
  view.hovered = id;
  view.hoveredColumn = column;
  view.root.dataset.hovered = id ?? "";
  if (view.mode === "scope" && view.selected === null) paintCard(view);
  else lightAll(view);
  lightMask(view);
  lightOverview(view);
}

// A selection by the user: shown at once, then reported to Python.
export function select(view, id) {
  const mark = view.tree.marks.get(id);
  if (mark?.node.folded) return unfold(view, mark.node.parent_id);
  if (!mark && view.data.overview) {
    // Inside a fold: selected as soon as Python has opened it.
    view.selectedNode = id;
    return unfold(view, view.data.overview.parents[id]);
  }
  setSelected(view, id);
  view.reported = id;
  report(view, "selected", { node: id });
}

export function unfold(view, node) {
  view.component.setTriggerValue("unfold", { ...placeOf(view), node });
}

export function setSelected(view, id) {
  view.selected = id;
  view.absent = null;
  paintSelection(view);
}

export function paintSelection(view) {
  view.root.dataset.selected = view.selected ?? "";
  view.root.dataset.second = view.second ?? "";
  showLabels(view);
  if (view.mode === "scope") paintCard(view);
  else lightAll(view);
  lightMask(view);
  lightOverview(view);
}
