// How states and tokens look: a shape per state, so that nothing depends on colour alone, and an underline per provenance.

import { html, svg } from "./dom.js";

const STAR = (() => {
  const points = [];
  for (let i = 0; i < 10; i++) {
    const radius = i % 2 ? 3.4 : 8;
    const angle = (Math.PI * i) / 5 - Math.PI / 2;
    points.push(`${(radius * Math.cos(angle)).toFixed(2)},${(radius * Math.sin(angle)).toFixed(2)}`);
  }
  return `M${points.join("L")}Z`;
})();
const DISC = "M-5.5,0a5.5,5.5 0 1,0 11,0a5.5,5.5 0 1,0 -11,0Z";
const SHAPES = {
  root: "M-5.5,-5.5H5.5V5.5H-5.5Z",
  accepted: DISC,
  rejected: "M-5,-5L5,5M-5,5L5,-5",
  not_reached: DISC,
  not_verified: DISC,
  pruned: DISC,
  forced_out: DISC,
  drafted: DISC,
  new: DISC,
  recovered: "M0,-7.5L7.5,0L0,7.5L-7.5,0Z",
  bonus: STAR,
  fallback: "M0,-7L7,5.5L-7,5.5Z",
  fold: "M-5.5,-5.5H5.5V5.5H-5.5ZM-3,0H3M0,-3V3",
};
// Where a token of the text came from.
export const PROVENANCE = {
  drafted: "drafted",
  bonus: "bonus",
  recovered: "recovered",
  fallback: "fallback",
  own: "target's own",
  unknown: "not reported",
};

export const shapeOf = (state) => SHAPES[state] || DISC;

export function marker(state, parent) {
  return svg("path", { class: "mk", d: shapeOf(state) }, parent);
}

// A mark on its own, next to text.
export function markPicture(parent, state) {
  const box = { width: 16, height: 16, viewBox: "-10 -10 20 20", class: `n s-${state}`, "aria-hidden": "true" };
  marker(state, svg("svg", box, parent));
}

export function legendItem(parent, { state, words, help }) {
  const item = html("span", "legend-item", parent);
  const box = { width: 18, height: 16, viewBox: "-9 -8 18 16", class: `n s-${state}`, "aria-hidden": "true" };
  marker(state, svg("svg", box, item));
  html("span", "", item, words);
  if (help) item.title = help;
}

// A token of a text and the break after it: a line break in the text also breaks the line.
export function tokenElements(text, breaks) {
  return [html("span", "t", null, text), document.createElement(breaks ? "br" : "wbr")];
}
