// The film: iterations loaded in the browser. It steps through them without Python and reports where it stopped.

import { markWanted, paintStrip, paintText } from "./panels.js";
import { drawFrame, paintSelection } from "./scope.js";
import { recallZoom } from "./tree.js";

const REPORT_MS = 150;
const EDGE_MS = 600; // while a key is held down, more frames are requested from Python at most this often

// Loads what Python sent; unchanged frames keep their parsed data. Returns whether it is another run.
function loadFilm(view, film) {
  const old = view.film?.key === film.key ? view.film : null;
  const frames = new Map();
  film.frames.forEach((text, place) => {
    const index = film.first + place;
    const known = old?.frames.get(index);
    const version = film.versions[place];
    frames.set(index, known?.version === version ? known : { version, text, data: null });
  });
  const sameRun = old && old.sharedVersion === film.shared_version;
  view.film = {
    key: film.key,
    count: film.count,
    first: film.first,
    last: film.first + film.frames.length - 1,
    frames,
    shared: sameRun ? old.shared : JSON.parse(film.shared),
    sharedVersion: film.shared_version,
  };
  return !old;
}

function frameAt(view, index) {
  const frame = view.film.frames.get(index);
  if (!frame) return null;
  if (!frame.data) {
    frame.data = JSON.parse(frame.text);
    const { names, rows } = frame.data.scene.nodes;
    frame.data.scene.nodes = rows.map((row) => Object.fromEntries(names.map((name, place) => [name, row[place]])));
  }
  return frame;
}

// New data from Python. It never moves the browser back: only an `ask` with a new serial, or another run, moves it.
export function updateFilm(view, data) {
  const { ask } = data;
  const newRun = loadFilm(view, data.film);
  const obey = newRun || ask.serial !== view.serial;
  view.serial = ask.serial;
  view.askedForMore = false;
  if (obey) {
    cancelReport(view);
    view.wanted = null;
    if (newRun) recallZoom(view);
    if (ask.phase || newRun) view.phaseKey = ask.phase || "select"; // phases of another method are others
    showFrame(view, ask.iteration ?? view.index ?? view.film.first, ask.node);
    return;
  }
  if (view.wanted !== null && view.film.frames.has(view.wanted)) {
    const { wanted } = view;
    view.wanted = null;
    showFrame(view, wanted);
  } else if (view.film.frames.has(view.index)) {
    refreshFrame(view);
  } else {
    reportIteration(view, 0);
  }
}

// The same iteration: redrawn only where it changed (a fold was opened, the run has grown).
function refreshFrame(view) {
  const frame = frameAt(view, view.index);
  if (frame.version !== view.drawnVersion) {
    showFrame(view, view.index, view.selectedNode ?? view.selected, true);
  } else if (view.film.sharedVersion !== view.drawnShared) {
    view.data = frameData(view, frame);
    view.drawnShared = view.film.sharedVersion;
    paintStrip(view);
    paintText(view);
    paintSelection(view);
  }
}

function frameData(view, frame) {
  return { mode: view.mode, ...view.film.shared, ...frame.data };
}

function showFrame(view, index, node, same) {
  const frame = frameAt(view, index);
  if (!frame) {
    // Python sends the requested iteration with every ask; only a film without it keeps the old picture.
    view.wanted = index;
    return;
  }
  const { scene } = frame.data;
  const known = new Set(scene.nodes.map((one) => one.node_id));
  view.index = index;
  view.data = frameData(view, frame);
  view.drawnVersion = frame.version;
  view.drawnShared = view.film.sharedVersion;
  if (!same) view.second = null;
  view.absent = null;
  view.selected = known.has(node) ? node : same && node === null ? null : scene.default_selected;
  view.selectedNode = null;
  if (view.second !== null && !known.has(view.second)) view.second = null;
  drawFrame(view);
}

// Steps to an iteration: at once if it is at hand, else as soon as Python has sent it.
export function goTo(view, index) {
  if (index < 0 || index >= view.film.count) return false;
  if (index === view.index && view.wanted === null) return false;
  if (!view.film.frames.has(index)) {
    view.wanted = index;
    markWanted(view);
    reportIteration(view, 0);
    return true;
  }
  view.wanted = null;
  showFrame(view, index);
  reportIteration(view, nearEdge(view, index) ? EDGE_MS : REPORT_MS);
  return true;
}

function nearEdge(view, index) {
  const { first, last, count } = view.film;
  const margin = Math.min(8, Math.max(1, Math.floor((last - first + 1) / 4)));
  return (first > 0 && index - first < margin) || (last < count - 1 && last - index < margin);
}

// Reports when stepping has stopped; near an edge of the film at once, so that more frames arrive in time.
function reportIteration(view, delay) {
  cancelReport(view);
  if (delay === 0) return send(view);
  if (delay === EDGE_MS && !view.askedForMore) {
    view.askedForMore = true;
    return send(view);
  }
  view.reportTimer = setTimeout(send, REPORT_MS, view);
}

function send(view) {
  cancelReport(view);
  report(view, "iteration", { iteration: view.wanted ?? view.index });
}

// What is pressed next may lead away from the page: where stepping has come to is reported before.
export function reportAtOnce(view) {
  if (view.reportTimer) send(view);
}

export function cancelReport(view) {
  clearTimeout(view.reportTimer);
  view.reportTimer = null;
}

// Streamlit forgets a state that it has not yet dealt with when another page is asked for: the page listens for the event
// and follows a link of its menu only after that.
export function report(view, name, value) {
  view.component.setStateValue(name, { ...placeOf(view), ...value });
  window.dispatchEvent(new Event("draftscope-report"));
}

// What a report is about: the scene, and in a film the iteration, which Python may not have heard of yet. The serial is
// the last ask that was heard: Python, which may have sent another ask since, recognises an outdated report by it.
// Reports are counted, as Streamlit passes on no value that equals the one before.
export function placeOf(view) {
  view.reports = (view.reports ?? 0) + 1;
  const place = { scene: view.data.scene.scene_id, report: view.reports };
  return view.film ? { ...place, iteration: view.index, serial: view.serial } : place;
}
