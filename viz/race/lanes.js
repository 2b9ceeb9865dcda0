// One lane per recorded call: counters, text as it appeared, and the strip of its iterations.

import { focusable, html, svg, write } from "../components/dom.js";
import { duration } from "../components/formats.js";
import { PROVENANCE, tokenElements } from "../components/marks.js";

const STRIP_WIDTH = 1000; // units; the strip is stretched to its place
const BLOCKS_HEIGHT = 24;
const PHASES_TOP = 27;
const PHASES_HEIGHT = 6;
const TALLEST_BLOCK = 9;

export function buildLane(view, data) {
  const box = html("section", "lane", view.lanesBox);
  box.setAttribute("aria-label", `${data.label}, ${data.note}`);
  const head = html("div", "head", box);
  const title = html("div", "title", head);
  const label = html("strong", "", title, data.label);
  label.title = data.settings ? `${data.label}: ${data.settings}` : data.label;
  if (data.fastest) html("span", "place", title, "fastest");
  html("span", "note", head, data.note).title = data.note;
  const counters = html("dl", "counters", head);
  const lane = { data, box, steps: data.steps, shown: 0, tokens: 0 };
  for (const [name, words] of [
    ["count", "tokens"],
    ["rate", "tokens/s"],
    ["time", "recorded time"],
  ]) {
    const cell = html("div", name, counters);
    cell.title = view.data.terms[words];
    lane[name] = html("dd", "", cell);
    html("dt", "", cell, words);
  }
  const body = html("div", "body", box);
  lane.text = focusable(html("div", "text", body), `Text of ${data.label}`, "region");
  lane.track = html("div", "track", body);
  const viewBox = `0 0 ${STRIP_WIDTH} ${PHASES_TOP + PHASES_HEIGHT}`;
  const attributes = { class: "strip", viewBox, preserveAspectRatio: "none", role: "img" };
  lane.strip = svg("svg", attributes, lane.track);
  lane.cursor = html("i", "cursor", lane.track);
  lane.flag = svg("svg", { class: "flag", viewBox: "0 0 12 20", "aria-hidden": "true" }, lane.track);
  svg("path", { d: "M2,19V1L11,5L2,9" }, lane.flag);
  lane.facts = html("p", "facts", body);
  lane.spans = data.steps.map(spansOf);
  // The last line stays in view when the lane gets another height, as when it is first laid out.
  new ResizeObserver(() => scrollDown(lane)).observe(lane.text);
  return lane;
}

// The elements of one iteration's tokens.
function spansOf(step, index) {
  return step.tokens.flatMap(([text, provenance, breaks]) => {
    const [span, end] = tokenElements(text, breaks);
    span.classList.add("p-" + provenance);
    span.title = `${PROVENANCE[provenance]}, iteration ${index + 1}, at ${duration(step.end)}`;
    return [span, end];
  });
}

// Paths by colour, so that a thousand iterations are still a dozen elements.
export function drawStrip(view, lane) {
  const paths = {};
  const add = (name, x, y, width, height) => {
    paths[name] =
      (paths[name] || "") +
      `M${x.toFixed(2)},${y.toFixed(2)}h${width.toFixed(2)}v${height.toFixed(2)}h${(-width).toFixed(2)}z`;
  };
  const block = Math.min(BLOCKS_HEIGHT / view.data.tallest, TALLEST_BLOCK);
  const prefill = lane.steps.length && view.mode === "time" ? stripX(view, 0, lane.steps[0].start) : 0;
  if (prefill > 0) add("prefill", 0, PHASES_TOP, prefill, PHASES_HEIGHT);
  lane.steps.forEach((step, index) => {
    const left = stripX(view, index, step.start, step);
    const right =
      view.mode === "time" ? stripX(view, index, step.end, step) : (STRIP_WIDTH * (index + 1)) / view.data.iterations;
    const width = Math.max(right - left - Math.min(1.6, (right - left) * 0.2), 0.4);
    step.tokens.forEach(([, provenance], place) => {
      add("p-" + provenance, left, BLOCKS_HEIGHT - (place + 1) * block + 0.5, width, Math.max(block - 0.8, 0.5));
    });
    let at = step.start;
    for (const [name, seconds] of step.phases) {
      const x = stripX(view, index, at, step);
      add(
        name === "prefill" ? name : "ph-" + name,
        x,
        PHASES_TOP,
        Math.max(stripX(view, index, at + seconds, step) - x, 0.05),
        PHASES_HEIGHT,
      );
      at += seconds;
    }
  });
  lane.strip.replaceChildren();
  for (const name in paths) {
    const path = svg("path", { class: name, d: paths[name] }, lane.strip);
    const phase = view.data.phases.find(([key]) => "ph-" + key === name);
    if (phase) path.style.fill = phase[2];
  }
  lane.strip.setAttribute("aria-label", `${lane.steps.length} iterations of ${lane.data.label}: ${lane.data.facts}`);
}

// By time all lanes share one axis in seconds; by iteration each has a cell, as wide as a long iteration: longer
// ones, such as the pass that reads the prompt, are cut there.
function stripX(view, index, seconds, step) {
  if (view.mode === "time") return (STRIP_WIDTH * seconds) / view.data.end_s;
  const share = step ? Math.min((seconds - step.start) / view.data.cell_s, 1) : 0;
  return (STRIP_WIDTH * (index + share)) / view.data.iterations;
}

// How many iterations of a lane have ended at a position of the replay, and its recorded time.
function laneAt(view, lane, position) {
  const { steps } = lane;
  if (view.mode === "iteration") {
    const shown = Math.min(Math.floor(position + 1e-6), steps.length);
    return {
      shown,
      seconds: shown ? steps[shown - 1].end : 0,
      along: Math.min(position, steps.length) / view.data.iterations,
    };
  }
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].end <= position + 1e-9) low = middle + 1;
    else high = middle;
  }
  const seconds = Math.min(position, lane.data.end_s);
  return { shown: low, seconds, along: seconds / view.data.end_s };
}

export function paintLane(view, lane, position) {
  const { shown, seconds, along } = laneAt(view, lane, position);
  reveal(lane, shown);
  const finished = shown === lane.steps.length;
  lane.box.classList.toggle("finished", finished);
  lane.box.dataset.tokens = lane.tokens;
  lane.strip.style.clipPath = `inset(0 ${(100 * (1 - along)).toFixed(3)}% 0 0)`;
  lane.cursor.style.left = lane.flag.style.left = (100 * along).toFixed(3) + "%";
  write(lane.count, `${lane.tokens} / ${lane.data.count}`);
  write(lane.rate, lane.tokens && seconds ? (lane.tokens / seconds).toFixed(1) : "–");
  write(lane.time, elapsed(seconds));
  write(lane.facts, finished ? lane.data.facts : shown ? soFar(lane, shown) : "");
}

const soFar = (lane, shown) => {
  const unit = lane.data.has_phases ? (shown === 1 ? "pass" : "passes") : shown === 1 ? "arrival" : "arrivals";
  return `${shown} ${unit} · ${(lane.tokens / shown).toFixed(2)} tokens each so far`;
};

// A time that may still be 0.
export const elapsed = (seconds) => (seconds ? duration(seconds) : "0 ms");

function scrollDown(lane) {
  lane.text.scrollTop = lane.text.scrollHeight;
}

function reveal(lane, shown) {
  if (shown === lane.shown) return;
  if (lane.shown) markNow(lane, lane.shown - 1, false);
  for (; lane.shown < shown; lane.shown++) {
    lane.text.append(...lane.spans[lane.shown]);
    lane.tokens += lane.steps[lane.shown].tokens.length;
  }
  for (; lane.shown > shown; lane.shown--) {
    for (const element of lane.spans[lane.shown - 1]) element.remove();
    lane.tokens -= lane.steps[lane.shown - 1].tokens.length;
  }
  if (lane.shown) markNow(lane, lane.shown - 1, true);
  scrollDown(lane);
}

function markNow(lane, index, on) {
  for (const element of lane.spans[index]) if (element.classList.contains("t")) element.classList.toggle("now", on);
}
