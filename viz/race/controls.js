// Buttons, axis, slider and legend of the race.

const ICONS = {
  play: "M4,2.5L13.5,8L4,13.5Z",
  pause: "M4,3H7V13H4ZM9.5,3H12.5V13H9.5Z",
  restart: "M3,3H5V13H3ZM13,3V13L6,8Z",
  end: "M11,3H13V13H11ZM3,3L10,8L3,13Z",
};

function buildControls(view, parent) {
  const bar = html("div", "controls", parent);
  const tool = (name, words, action) => {
    const made = button("tool " + name, bar, "", words, action);
    const picture = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, made);
    made.icon = svg("path", { d: ICONS[name] }, picture);
    return made;
  };
  tool("restart", "Restart (Home)", () => restart(view));
  view.play = tool("play", "Play (Space)", () => toggle(view));
  view.play.words = html("span", "", view.play, "Play");
  tool("end", "Jump to the end (End)", () => seek(view, endOf(view)));
  const modes = group(bar, "Replay by");
  view.modes = {};
  for (const [mode, words] of [["time", "By time"], ["iteration", "By iteration"]]) {
    view.modes[mode] = button("choice", modes, words, null, () => setMode(view, mode));
  }
  view.speedBox = group(bar, "Speed of the replay");
  view.clock = html("output", "clock", bar);
  view.clock.setAttribute("aria-live", "off");
  html("span", "hint", bar, "space plays · ← → next token · Home · End");
}

function group(parent, words) {
  const box = html("div", "choices", parent);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", words);
  return box;
}

function buildAxis(view, parent) {
  const box = html("div", "axis", parent);
  view.axisWords = html("span", "axis-words", box);
  const lane = html("div", "axis-lane", box);
  view.slider = html("input", "slider", lane);
  view.slider.type = "range";
  view.slider.min = 0;
  view.slider.max = SLIDER_STEPS;
  view.slider.setAttribute("aria-label", "Place in the replay");
  view.ticks = html("div", "ticks", lane);
  view.ticks.setAttribute("aria-hidden", "true");
}

// Before the first iteration, or as its pass where there is no draft.
const hasPrefill = ({ steps: [first] }) => first.start > 0 || first.phases.some(([name]) => name === "prefill");

function drawLegend(view) {
  view.legend.replaceChildren();
  const seen = new Set(view.data.lanes.flatMap((lane) => lane.steps.flatMap((step) => step.tokens.map((token) => token[1]))));
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
