// The race: recorded calls replayed on one clock. Nothing here is measured: the clock only decides what is shown.

import {
  actOn,
  button,
  clamp,
  focusable,
  focusStaysOn,
  html,
  isNew,
  labelled,
  prefersStillness,
  pressesButton,
  svg,
  viewOf,
  write,
} from "../components/dom.js";
import { duration } from "../components/formats.js";
import { PROVENANCE } from "../components/marks.js";
import { buildLane, drawStrip, elapsed, paintLane } from "./lanes.js";

// Iterations per second of a replay by iteration.
const PACES = [
  [1, "1 per s"],
  [2, "2 per s"],
  [5, "5 per s"],
  [10, "10 per s"],
  [30, "30 per s"],
];
const USUAL_PACE = 2;
const SLIDER_STEPS = 10000;
const ICONS = {
  play: "M4,2.5L13.5,8L4,13.5Z",
  pause: "M4,3H7V13H4ZM9.5,3H12.5V13H9.5Z",
  restart: "M3,3H5V13H3ZM13,3V13L6,8Z",
  end: "M11,3H13V13H11ZM3,3L10,8L3,13Z",
  part: "M7,14V9L3,5L4.4,3.6L8,7.2L11.6,3.6L13,5L9,9V14Z",
};

export default function race(component) {
  const { data } = component;
  if (!data?.lanes) return;
  const view = viewOf(component, "race-root", buildRace);
  if (!isNew(view, data)) return;
  const another = !view.data || view.data.key !== data.key;
  view.data = data;
  if (another) begin(view);
  setHold(view, data.hold);
}

function buildRace(root) {
  focusable(root, "Race: recorded runs replayed side by side. Space plays, arrow keys step token by token.");
  const view = { root, mode: "time", speeds: { time: 0, iteration: USUAL_PACE }, base: 0, since: 0, playing: false };
  buildControls(view, root);
  view.prompt = html("span", "", html("span", "", html("p", "prompt", root)));
  view.lanesBox = html("div", "lanes", root);
  buildAxis(view, root);
  view.legend = html("div", "legend", root);
  const finish = html("section", "finish", root);
  finish.tabIndex = 0; // it scrolls where the window is narrow
  finish.setAttribute("aria-label", "Result");
  view.waiting = html("p", "waiting", finish, "The result appears when every lane has finished.");
  // The only live region: it is filled once, when the replay has ended.
  view.verdict = labelled(html("div", "verdict", finish), "status");
  view.verdict.setAttribute("aria-live", "polite");
  listenRace(view);
  return view;
}

// Another race: its lanes from the start, playing at once unless reduced motion is requested.
function begin(view) {
  const { data } = view;
  view.root.dataset.race = data.key;
  view.lanesBox.replaceChildren();
  view.lanesBox.style.setProperty("--lanes", data.lanes.length);
  view.lanes = data.lanes.map((lane) => buildLane(view, lane));
  view.prompt.textContent = data.prompt;
  view.part.disabled = !data.partings.time.length;
  view.prompt.title = "The end of the prompt that all lanes continue";
  view.speeds.time = data.speed;
  view.moments = [...new Set(data.lanes.flatMap((lane) => lane.steps.map((step) => step.end)))].sort((a, b) => a - b);
  drawLegend(view);
  pause(view);
  view.base = 0;
  setMode(view, "time");
  if (prefersStillness()) seek(view, endOf(view));
  else if (!data.hold) play(view);
}

const endOf = (view) => (view.mode === "time" ? view.data.end_s : view.data.iterations);
const speedsOf = (view) => (view.mode === "time" ? view.data.speeds : PACES);

function setMode(view, mode) {
  const share = view.mode === mode ? null : placeOf(view) / endOf(view);
  pause(view);
  view.mode = mode;
  if (share !== null) view.base = share * endOf(view);
  for (const name in view.modes) view.modes[name].setAttribute("aria-pressed", name === mode);
  view.speedBox.replaceChildren();
  speedsOf(view).forEach(([, words], index) => {
    const made = button("choice", view.speedBox, words, null, () => setSpeed(view, index));
    const timed = words === "real speed" ? words : `${words} of real speed`;
    made.setAttribute("aria-label", mode === "time" ? timed : words.replace("per s", "iterations per second"));
  });
  setSpeed(view, view.speeds[mode]);
  view.axisWords.textContent = mode === "time" ? "time since start" : "iteration";
  view.ticks.replaceChildren();
  for (const [at, words] of view.data.ticks[mode])
    html("span", "", view.ticks, words).style.left = (100 * at) / endOf(view) + "%";
  for (const lane of view.lanes) drawStrip(view, lane);
  view.root.dataset.mode = mode;
  paintRace(view);
}

function setSpeed(view, index) {
  const at = placeOf(view);
  view.speeds[view.mode] = index;
  [...view.speedBox.children].forEach((choice, place) => {
    choice.setAttribute("aria-pressed", place === index);
  });
  view.base = at;
  view.since = performance.now();
}

// Position of the replay: recorded seconds, or iterations.
function placeOf(view) {
  if (!view.playing) return view.base;
  const rate = speedsOf(view)[view.speeds[view.mode]][0];
  return clamp(view.base + ((performance.now() - view.since) / 1000) * rate, 0, endOf(view));
}

function toggle(view) {
  if (view.playing) pause(view);
  else play(view);
}

function play(view) {
  if (view.playing || view.data.hold) return;
  if (view.base >= endOf(view)) view.base = 0;
  view.since = performance.now();
  view.playing = true;
  paintButtons(view);
  requestAnimationFrame(() => frame(view));
}

function pause(view) {
  view.base = view.data ? placeOf(view) : 0;
  view.playing = false;
  paintButtons(view);
}

function frame(view) {
  if (!view.playing || !view.root.isConnected) return;
  if (placeOf(view) >= endOf(view)) pause(view);
  paintRace(view);
  if (view.playing) requestAnimationFrame(() => frame(view));
}

function seek(view, place) {
  pause(view);
  view.base = clamp(place, 0, endOf(view));
  paintRace(view);
}

// To the next or previous time at which a token appeared in any lane.
function stepTo(view, sign) {
  const at = placeOf(view);
  const moments = view.mode === "time" ? view.moments : [...Array(view.data.iterations + 1).keys()];
  const wanted =
    sign > 0 ? moments.find((moment) => moment > at + 1e-9) : moments.findLast((moment) => moment < at - 1e-9);
  seek(view, wanted ?? (sign > 0 ? endOf(view) : 0));
}

// To the next time at which two lanes have taken different steps; behind the last one from the start.
function partNext(view) {
  const at = placeOf(view);
  const { [view.mode]: moments } = view.data.partings;
  seek(view, moments.find((moment) => moment > at + 1e-9) ?? moments[0] ?? at);
}

function setHold(view, hold) {
  if (hold) pause(view);
  view.play.disabled = hold;
  view.play.title = hold ? "A race is being recorded: replaying now would disturb its times" : "";
  paintButtons(view);
}

function paintButtons(view) {
  view.play.icon.setAttribute("d", view.playing ? ICONS.pause : ICONS.play);
  write(view.play.words, view.playing ? "Pause" : "Play");
  view.play.setAttribute("aria-label", view.playing ? "Pause (Space)" : "Play (Space)");
  view.root.dataset.playing = view.playing;
}

function paintRace(view) {
  const at = placeOf(view);
  const { data } = view;
  for (const lane of view.lanes) paintLane(view, lane, at);
  const end = endOf(view);
  const words =
    view.mode === "time" ? `${elapsed(at)} of ${duration(end)}` : `iteration ${Math.floor(at + 1e-6)} of ${end}`;
  write(view.clock, words);
  view.slider.value = Math.round((SLIDER_STEPS * at) / end);
  view.slider.style.setProperty("--share", (100 * at) / end + "%");
  view.slider.setAttribute("aria-valuetext", words);
  view.root.dataset.at = at;
  const done = at >= end;
  if (view.done === done && view.toldKey === data.key) return;
  view.done = done;
  view.toldKey = data.key;
  view.root.dataset.done = done;
  view.waiting.hidden = done;
  view.verdict.replaceChildren();
  if (!done) return;
  const { headline, doubt, identity, same, why } = data.finish;
  const left = html("div", "", view.verdict);
  html("p", "headline", left, headline);
  html("p", same === false ? "identity differs" : same ? "identity same" : "identity", left, identity);
  const right = html("div", "", view.verdict);
  html("p", "why", right, why);
  if (doubt) html("p", "doubt", right, doubt);
}

function listenRace(view) {
  view.slider.addEventListener("input", () => seek(view, (endOf(view) * view.slider.value) / SLIDER_STEPS));
  focusStaysOn(view.root, "button");
  view.root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (pressesButton(event)) return;
    // In a lane's text, arrows up and down and the page keys scroll.
    const onSlider = event.target === view.slider;
    const tenth = endOf(view) / 10;
    const actions = {
      " ": () => toggle(view),
      Home: () => seek(view, 0),
      End: () => seek(view, endOf(view)),
      ArrowLeft: () => stepTo(view, -1),
      ArrowRight: () => stepTo(view, 1),
      n: () => partNext(view),
      ...(onSlider && {
        ArrowDown: () => stepTo(view, -1),
        ArrowUp: () => stepTo(view, 1),
        PageDown: () => seek(view, placeOf(view) - tenth),
        PageUp: () => seek(view, placeOf(view) + tenth),
      }),
    };
    actOn(event, actions);
  });
}

function buildControls(view, parent) {
  const bar = html("div", "controls", parent);
  const tool = (name, words, action) => {
    const made = button("tool " + name, bar, "", words, action);
    const picture = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, made);
    made.icon = svg("path", { d: ICONS[name] }, picture);
    return made;
  };
  tool("restart", "Restart (Home)", () => seek(view, 0));
  view.play = tool("play", "Play (Space)", () => toggle(view));
  view.play.words = html("span", "", view.play, "Play");
  tool("end", "Jump to the end (End)", () => seek(view, endOf(view)));
  view.part = tool("part", "Next place where the methods part (N)", () => partNext(view));
  const modes = labelled(html("div", "choices", bar), "group", "Replay by");
  view.modes = {};
  for (const [mode, words] of [
    ["time", "By time"],
    ["iteration", "By iteration"],
  ]) {
    view.modes[mode] = button("choice", modes, words, null, () => setMode(view, mode));
  }
  view.speedBox = labelled(html("div", "choices", bar), "group", "Speed of the replay");
  view.clock = html("output", "clock", bar);
  view.clock.setAttribute("aria-live", "off");
  html("span", "hint", bar, "space plays · ← → next token · N next parting · Home · End");
}

function buildAxis(view, parent) {
  const box = html("div", "axis", parent);
  view.axisWords = html("span", "axis-words", box);
  const lane = html("div", "axis-lane", box);
  view.slider = html("input", "slider", lane);
  view.slider.type = "range";
  view.slider.min = 0;
  view.slider.max = SLIDER_STEPS;
  view.slider.setAttribute("aria-label", "Position in the replay");
  view.ticks = html("div", "ticks", lane);
  view.ticks.setAttribute("aria-hidden", "true");
}

// Before the first iteration, or as its pass where there is no draft.
const hasPrefill = ({ steps: [first] }) => first.start > 0 || first.phases.some(([name]) => name === "prefill");

function drawLegend(view) {
  view.legend.replaceChildren();
  const seen = new Set(
    view.data.lanes.flatMap((lane) => lane.steps.flatMap((step) => step.tokens.map((token) => token[1]))),
  );
  const item = (className, name, term) => {
    const made = html("span", "key", view.legend);
    made.title = view.data.terms[term] || "";
    const mark = html("i", className, made);
    html("span", "", made, name);
    return mark;
  };
  html("b", "", view.legend, "Tokens");
  for (const name in PROVENANCE) if (seen.has(name)) item("mark m-" + name, PROVENANCE[name], name);
  html("b", "", view.legend, "Time");
  if (view.data.lanes.some(hasPrefill)) item("mark m-prefill", "prefill", "prefill");
  for (const [key, name, color] of view.data.phases) item("mark", name, key).style.background = color;
}
