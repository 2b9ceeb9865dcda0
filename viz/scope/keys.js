// The keyboard: phases, iterations, nodes, playing, and unpinning.

import { actOn, prefersStillness, pressesButton } from "../components/dom.js";
import { compareHere, compareWith, showAbsent } from "./card.js";
import { goTo, reportAtOnce } from "./film.js";
import { zoomBars } from "./overview.js";
import { select, setPhase, setSelected, unfold } from "./scope.js";
import { goStep } from "./steps.js";
import { resetZoom, zoomBy } from "./tree.js";

const PLAY_MS = 1100;
const FIRST_PHASE = "first"; // no phase has this key, so the first one is taken
export const HINT = "← → phase · ↑ ↓ iteration";
export const HINT_MORE =
  "Left and right arrow: phase; [ and ]: first and last phase. Comma and full stop: one " +
  "pop or round of a heap or search that is stepped. Up and down: iteration; Home and End: first and last. " +
  "Space: play through phases and iterations, or one step if reduced motion is requested. Shift and arrows: " +
  "walk the tree. Enter: open the fold below the pinned node. Shift and click: compare with a second node; Shift " +
  "and Enter: compare the pinned node with the ones you move to. Escape: end the comparison, then unpin the node. " +
  "+ and −: zoom; 0: whole tree.";

export function pressKey(view, event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (pressesButton(event) && !event.shiftKey) return;
  const goesOn = event.key === " " || (view.playing && (event.key === "ArrowRight" || event.key === "ArrowLeft"));
  actOn(event, event.shiftKey ? shiftedKeys(view) : plainKeys(view), () => goesOn || stopPlaying(view));
}

// Where the focus does not use these keys itself: no focus, the whole page, a plain button or a link.
const IDLE = "body, html, section[data-testid=stMain], button:not([role]):not([aria-haspopup]), a[href]";
// Elements with keys of their own while open, or around a button.
const BUSY = "[role=dialog], [role=menu], [role=listbox], [data-testid=stPopoverBody]";
const GROUPS = "[role=radiogroup], [role=tablist], [role=toolbar], [role=grid]";

// The keys of the linked scope work for the page it fills, as long as it is in view and nothing else uses them.
export function listenToPage(view) {
  if (view.mode !== "scope") return;
  if (!view.onPageKey) {
    const look = ([entry]) => {
      view.inView = entry.intersectionRatio >= 0.4;
    };
    new IntersectionObserver(look, { threshold: 0.4 }).observe(view.root);
    view.onPageKey = (event) => {
      const { target } = event;
      if (event.defaultPrevented || !view.inView || !view.root.isConnected || !target.matches) return;
      if (!target.matches(IDLE) || target.shadowRoot || target.closest(GROUPS) || document.querySelector(BUSY)) return;
      if ((event.key === " " || event.key === "Enter") && target.matches("a")) return;
      pressKey(view, event);
    };
    view.onPagePress = () => reportAtOnce(view);
  }
  document.addEventListener("keydown", view.onPageKey);
  document.addEventListener("pointerdown", view.onPagePress, true);
}

export function leavePage(view) {
  document.removeEventListener("keydown", view.onPageKey);
  document.removeEventListener("pointerdown", view.onPagePress, true);
}

const foldBelow = (node) => -10 - node;

function zoomHere(view, factor) {
  if (view.showBars && view.data.overview) zoomBars(view, 1 / factor, view.tree.size.height / 2);
  else zoomBy(view, factor);
}

function shiftedKeys(view) {
  return {
    ArrowLeft: () => walk(view, "parent"),
    ArrowRight: () => walk(view, "child"),
    ArrowUp: () => walk(view, "up"),
    ArrowDown: () => walk(view, "down"),
    Enter: () => view.mode === "scope" && compareHere(view),
    "+": () => zoomHere(view, 1.3),
  };
}

function plainKeys(view) {
  const keys = {
    ArrowLeft: () => setPhase(view, view.phase - 1),
    ArrowRight: () => (view.playing ? nextStep(view) : setPhase(view, view.phase + 1)),
    ",": () => goStep(view, -1),
    ".": () => goStep(view, 1),
    "[": () => setPhase(view, 0),
    "]": () => setPhase(view, Infinity),
    Escape: () => letGo(view),
    " ": () => play(view),
    0: () => resetZoom(view),
    "+": () => zoomHere(view, 1.3),
    "-": () => zoomHere(view, 1 / 1.3),
    Enter: () => view.selected !== null && view.tree.marks.has(foldBelow(view.selected)) && unfold(view, view.selected),
  };
  if (view.mode !== "scope") return { ...keys, Home: keys["["], End: keys["]"] };
  const at = view.wanted ?? view.index;
  return {
    ...keys,
    ArrowUp: () => goTo(view, at - 1),
    ArrowDown: () => goTo(view, at + 1),
    Home: () => goTo(view, 0),
    End: () => goTo(view, view.film.count - 1),
  };
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
    const column = marks.filter(
      (mark) => mark.node.depth === from.node.depth && sign * (mark.node.row - from.node.row) > 0,
    );
    column.sort((a, b) => sign * (a.node.row - b.node.row));
    to = column[0];
  }
  if (to) select(view, to.node.node_id);
}

// Escape: first the comparison goes, then the pinned node; the card then follows the pointer.
function letGo(view) {
  if (view.second !== null) return compareWith(view, null);
  if (view.absent) return showAbsent(view, null);
  if (view.selected !== null) setSelected(view, null);
}

// One step on: the next phase, after the last one the first phase of the next iteration. False at the end of the run.
function nextStep(view) {
  if (view.wanted !== null && view.wanted !== undefined) return true; // on its way from Python
  if (view.phase < view.data.scene.phases.length - 1) {
    setPhase(view, view.phase + 1);
    return true;
  }
  if (view.mode !== "scope" || view.index >= view.film.count - 1) return false;
  view.phaseKey = FIRST_PHASE;
  return goTo(view, view.index + 1);
}

function play(view) {
  if (view.playing) return stopPlaying(view);
  // At the very end a tree alone, or the last iteration, starts over.
  const last = view.phase === view.data.scene.phases.length - 1;
  if (last && (view.mode !== "scope" || view.index >= view.film.count - 1)) setPhase(view, 0);
  else nextStep(view);
  if (prefersStillness()) return;
  const tick = () => {
    if (!view.root.isConnected || !nextStep(view)) return stopPlaying(view);
    view.playing = setTimeout(tick, PLAY_MS);
  };
  view.playing = setTimeout(tick, PLAY_MS);
  view.root.dataset.playing = "";
}

export function stopPlaying(view) {
  clearTimeout(view.playing);
  view.playing = null;
  delete view.root.dataset.playing;
}
