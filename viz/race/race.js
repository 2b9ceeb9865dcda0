// The race: recorded calls replayed on one clock. Nothing here is measured: the clock only decides what is shown.

// Iterations per second of a replay by iteration.
const PACES = [[1, "1 per s"], [2, "2 per s"], [5, "5 per s"], [10, "10 per s"], [30, "30 per s"]];
const USUAL_PACE = 2;
const SLIDER_STEPS = 10000;

export default function race(component) {
  const { data } = component;
  if (!data || !data.lanes) return;
  const view = viewOf(component, "race-root", buildRace);
  if (!view) return;
  const another = !view.data || view.data.key !== data.key;
  view.data = data;
  if (another) begin(view);
  setHold(view, data.hold);
}

function buildRace(parentElement) {
  const root = html("div", "race-root", parentElement);
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Race: recorded runs replayed side by side. Space plays, arrow keys go token by token.");
  const view = { root, mode: "time", speeds: { time: 0, iteration: USUAL_PACE }, base: 0, since: 0, playing: false };
  buildControls(view, root);
  view.prompt = html("span", "", html("span", "", html("p", "prompt", root)));
  view.lanesBox = html("div", "lanes", root);
  buildAxis(view, root);
  view.legend = html("div", "legend", root);
  const finish = html("section", "finish", root);
  finish.setAttribute("aria-label", "Result");
  view.waiting = html("p", "waiting", finish, "The result appears here once every lane is in.");
  // The only live region: it is filled once, when the replay has ended.
  view.told = html("div", "told", finish);
  view.told.setAttribute("role", "status");
  view.told.setAttribute("aria-live", "polite");
  listenRace(view);
  return view;
}

// Another race: its lanes from the start, playing at once unless motion is unwelcome.
function begin(view) {
  const { data } = view;
  view.root.dataset.race = data.key;
  view.lanesBox.replaceChildren();
  view.lanesBox.style.setProperty("--lanes", data.lanes.length);
  view.lanes = data.lanes.map((lane) => buildLane(view, lane));
  view.prompt.textContent = data.prompt;
  view.prompt.title = "The end of the prompt that all lanes continue";
  view.speeds.time = data.speed;
  view.moments = [...new Set(data.lanes.flatMap((lane) => lane.steps.map((step) => step.end)))].sort((a, b) => a - b);
  drawLegend(view);
  pause(view);
  view.base = 0;
  setMode(view, "time");
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) seek(view, endOf(view));
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
    made.setAttribute("aria-label", mode === "time" ? `${words === "real speed" ? words : words + " of real speed"}` : `${words.replace("per s", "iterations per second")}`);
  });
  setSpeed(view, view.speeds[mode]);
  view.axisWords.textContent = mode === "time" ? "time since the call" : "iteration";
  view.ticks.replaceChildren();
  for (const [at, words] of view.data.ticks[mode]) html("span", "", view.ticks, words).style.left = (100 * at) / endOf(view) + "%";
  for (const lane of view.lanes) drawStrip(view, lane);
  view.root.dataset.mode = mode;
  paintRace(view);
}

function setSpeed(view, index) {
  const at = placeOf(view);
  view.speeds[view.mode] = index;
  [...view.speedBox.children].forEach((choice, place) => choice.setAttribute("aria-pressed", place === index));
  view.base = at;
  view.since = performance.now();
}

// Where the replay is: recorded seconds, or iterations.
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

function restart(view) {
  seek(view, 0);
}

// To the next or the last moment at which a token appeared in any lane.
function stepTo(view, sign) {
  const at = placeOf(view);
  const moments = view.mode === "time" ? view.moments : [...Array(view.data.iterations + 1).keys()];
  const wanted = sign > 0 ? moments.find((moment) => moment > at + 1e-9) : moments.findLast((moment) => moment < at - 1e-9);
  seek(view, wanted ?? (sign > 0 ? endOf(view) : 0));
}

function setHold(view, hold) {
  if (hold) pause(view);
  view.play.disabled = hold;
  view.play.title = hold ? "A race is being recorded: replaying meanwhile would disturb its times" : "";
  paintButtons(view);
}

function paintButtons(view) {
  view.play.icon.setAttribute("d", view.playing ? ICONS.pause : ICONS.play);
  setText(view.play.words, view.playing ? "Pause" : "Play");
  view.play.setAttribute("aria-label", view.playing ? "Pause (Space)" : "Play (Space)");
  view.root.dataset.playing = view.playing;
}

function paintRace(view) {
  const at = placeOf(view);
  const { data } = view;
  for (const lane of view.lanes) paintLane(view, lane, at);
  const end = endOf(view);
  const words = view.mode === "time" ? `${at ? duration(at) : "0 ms"} of ${duration(end)}` : `iteration ${Math.floor(at + 1e-6)} of ${end}`;
  setText(view.clock, words);
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
  view.told.replaceChildren();
  if (!done) return;
  const { headline, doubt, identity, same, why } = data.finish;
  const left = html("div", "", view.told);
  html("p", "headline", left, headline);
  html("p", same === false ? "identity differs" : same ? "identity same" : "identity", left, identity);
  const right = html("div", "", view.told);
  html("p", "why", right, why);
  if (doubt) html("p", "doubt", right, doubt);
}

function listenRace(view) {
  view.slider.addEventListener("input", () => seek(view, (endOf(view) * view.slider.value) / SLIDER_STEPS));
  // A mouse click on a button leaves the focus on the race, so that space and arrows keep their meaning.
  view.root.addEventListener("mousedown", (event) => {
    if (!event.target.closest || !event.target.closest("button")) return;
    event.preventDefault();
    view.root.focus({ preventScroll: true });
  });
  view.root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if ((event.key === " " || event.key === "Enter") && event.target.closest("button")) return;
    // In a lane's text, arrows up and down and the page keys scroll.
    const onSlider = event.target === view.slider;
    const tenth = endOf(view) / 10;
    const actions = {
      " ": () => toggle(view),
      Home: () => restart(view),
      End: () => seek(view, endOf(view)),
      ArrowLeft: () => stepTo(view, -1),
      ArrowRight: () => stepTo(view, 1),
      ...(onSlider && {
        ArrowDown: () => stepTo(view, -1),
        ArrowUp: () => stepTo(view, 1),
        PageDown: () => seek(view, placeOf(view) - tenth),
        PageUp: () => seek(view, placeOf(view) + tenth),
      }),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
}
