// The linked panels: run strip, text, phase times.

const STRIP_COLUMNS = 160;
const TEXT_TOKENS = 240;

function buildStrip(view, parent) {
  const box = html("section", "panel strip", parent);
  box.setAttribute("role", "group");
  const left = html("div", "words", box);
  const title = html("strong", "", left);
  const position = html("span", "", left);
  const about = html("span", "about", left);
  const columns = html("div", "columns", box);
  const right = html("div", "words end", box);
  const [efficiency, totals] = [html("strong", "", right), html("span", "", right)];
  const room = watchSize(columns, () => {
    if (!view.drawn) return;
    view.strip.painted = "";
    paintStrip(view);
  });
  view.strip = { box, title, position, about, columns, room, efficiency, totals, from: 0, painted: "" };
}

function paintStrip(view) {
  const { strip } = view;
  const { columns, about, efficiency, totals } = view.data.strip;
  strip.title.textContent = strip.title.title = view.data.scene.title;
  const before = view.data.position.toLocaleString("en");
  strip.position.textContent = `iteration ${view.index + 1} of ${columns.length} · ${before} tokens before it`;
  [strip.about.textContent, strip.about.title] = about;
  strip.efficiency.textContent = efficiency;
  strip.totals.textContent = totals;
  strip.efficiency.title = view.data.terms.efficiency;
  strip.columns.title = view.data.terms.strip;
  strip.box.setAttribute("aria-label", `${about[1]}, ${strip.position.textContent}, ${efficiency}, ${totals}`);
  // The columns shown stay while the iteration is well inside them, so that they do not slide at every step.
  const slack = Math.min(20, Math.floor(STRIP_COLUMNS / 4));
  const inside = view.index >= strip.from + slack && view.index < strip.from + STRIP_COLUMNS - slack;
  const whole = columns.length <= STRIP_COLUMNS;
  if (whole || !inside) strip.from = whole ? 0 : clamp(view.index - STRIP_COLUMNS / 2, 0, columns.length - STRIP_COLUMNS);
  const painted = view.film.key + view.film.sharedVersion + strip.from;
  if (strip.painted !== painted) drawColumns(view, columns.slice(strip.from, strip.from + STRIP_COLUMNS));
  strip.painted = painted;
  markWanted(view);
}

function drawColumns(view, columns) {
  const { strip } = view;
  strip.columns.replaceChildren();
  const tallest = Math.max(2, ...columns.map((column) => column[0] + 1));
  const block = clamp(Math.floor(44 / tallest) - 1, 1, 8);
  strip.columns.classList.toggle("narrow", columns.length * 9 > strip.room.now().width);
  columns.forEach(([accepted, kind, inLoop], place) => {
    const index = strip.from + place;
    const final = kind === "none" ? "no final token" : kind;
    const words = `Iteration ${index + 1}: ${accepted} accepted, ${final}${inLoop ? ", inside a loop" : ""}`;
    const column = button("column", strip.columns, "", words, () => goTo(view, index));
    column.tabIndex = -1;
    if (inLoop) column.classList.add("loop");
    if (kind !== "none") html("i", "block s-" + kind, column).style.height = block + "px";
    for (let i = 0; i < accepted; i++) html("i", "block s-accepted", column).style.height = block + "px";
  });
}

// The iteration on screen, and the one that is on its way from Python.
function markWanted(view) {
  [...view.strip.columns.children].forEach((column, place) => {
    const index = view.strip.from + place;
    column.classList.toggle("current", index === view.index);
    column.classList.toggle("wanted", index === view.wanted);
    column.setAttribute("aria-current", index === view.index ? "step" : "false");
  });
}

function buildText(view, parent) {
  view.text = panel(view, parent, "text", "Text", "text");
  focusable(view.text.body, "Text of the run up to this iteration");
  const words = { drafted: "drafted", bonus: "bonus", recovered: "recovered", fallback: "fallback" };
  const foot = html("footer", "", view.text.box);
  for (const name in words) html("span", "key p-" + name, foot, words[name]).title = view.terms[name] || "";
}

// All tokens of the film are there; a step only shows more or fewer of them.
function paintText(view) {
  const { text } = view;
  const painted = view.film.key + view.film.sharedVersion;
  if (text.painted !== painted) drawText(view);
  text.painted = painted;
  const position = view.data.position.toLocaleString("en");
  text.side.textContent = "position " + position;
  let shown = text.tokens.length;
  while (shown > 0 && text.tokens[shown - 1].iteration > view.index) shown -= 1;
  const from = Math.max(0, shown - TEXT_TOKENS);
  const before = view.data.text.before + from;
  text.before.textContent = before ? `… ${before.toLocaleString("en")} earlier tokens ` : "";
  const committed = [];
  text.tokens.forEach((token, place) => {
    const { span, end, node, iteration } = token;
    span.hidden = end.hidden = place < from || place >= shown;
    const now = iteration === view.index;
    if (now) {
      committed.push(token.shown);
    }
    link(span, now ? node : null);
    const className = `t p-${token.provenance}${now ? " now" : ""}`;
    if (span.className !== className) span.className = className;
  });
  text.box.setAttribute("aria-label", `Text. This iteration stands at position ${position} and adds ${committed.join(" ")}`);
  // After the layout of the frame, so as not to ask for one of its own.
  requestAnimationFrame(() => (text.body.scrollTop = text.body.scrollHeight));
}

function drawText(view) {
  const { text } = view;
  text.body.replaceChildren();
  text.before = html("span", "t-before", text.body);
  text.tokens = view.data.text.spans.map(([shown, provenance, node, iteration, breaks]) => {
    const span = html("span", "t", text.body, shown);
    span.title = iteration === null ? "prompt" : `${provenance}, iteration ${iteration + 1}`;
    if (iteration !== null) span.dataset.iteration = iteration;
    const end = html(breaks ? "br" : "wbr", "", text.body);
    return { span, end, node, iteration: iteration ?? -1, provenance, shown };
  });
}

function buildTimes(view, parent) {
  view.times = panel(view, parent, "times", "Time of this iteration", "times");
  view.times.room = watchSize(view.times.body, () => view.drawn && paintTimes(view));
}

function markTime(view) {
  const { stage } = view.root.dataset;
  const now = { history: "adapt" }[stage] || stage;
  for (const line of view.times.body.children) line.classList.toggle("current", line.dataset.phase === now);
}

// A waterfall: each phase begins where the one before it ended; the draft shows its forwards one by one.
function paintTimes(view) {
  const { times } = view;
  const rows = view.data.times;
  times.body.replaceChildren();
  if (!rows.length) { // replayed from stored rows
    times.side.textContent = "not measured";
    times.box.setAttribute("aria-label", "Time of this iteration: not measured");
    return;
  }
  const total = rows.reduce((sum, row) => sum + row.seconds, 0);
  times.side.textContent = duration(total);
  const told = rows.map((row) => `${row.words} ${row.shown}`).join(", ");
  times.box.setAttribute("aria-label", `Time of this iteration, measured: ${duration(total)}: ${told}`);
  const laneWidth = Math.max(times.room.now().width - 170, 40); // beside name and value
  let start = 0;
  for (const row of rows) {
    const line = html("div", "time", times.body);
    line.dataset.phase = row.key;
    const percent = (100 * row.seconds) / total;
    line.title = `${row.words}: ${row.shown}, ${percent < 0.5 ? "<1" : percent.toFixed(0)}% of the iteration. ${row.told}`;
    html("span", "time-name", line, row.words);
    const lane = html("span", "time-lane", line);
    const bar = html("span", "time-bar", lane);
    bar.style.left = (100 * start) / total + "%";
    bar.style.width = (100 * row.seconds) / total + "%";
    bar.style.background = row.color;
    let at = 0;
    // Cuts between forwards only where the bar is wide enough to stay a bar.
    const wide = (laneWidth * row.seconds) / total > 5 * row.parts.length;
    for (const part of wide ? row.parts.slice(0, -1) : []) {
      at += part;
      html("i", "cut", bar).style.left = (100 * at) / row.seconds + "%";
    }
    html("span", "time-value", line, row.shown);
    start += row.seconds;
  }
  markTime(view);
}
