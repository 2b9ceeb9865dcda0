// Small helpers that every part of the scope draws with. Token text only ever goes through textContent.

const SVG_NS = "http://www.w3.org/2000/svg";

function svg(tag, attributes, parent) {
  const element = document.createElementNS(SVG_NS, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (parent) parent.appendChild(element);
  return element;
}

function html(tag, className, parent, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

function button(className, parent, text, title, onClick) {
  const element = html("button", className, parent, text);
  element.type = "button";
  if (title) {
    element.title = title;
    element.setAttribute("aria-label", title);
  }
  element.addEventListener("click", onClick);
  return element;
}

// A panel with a head; the pointer is told what its term means.
function panel(view, parent, className, title, term) {
  const box = html("section", "panel " + className, parent);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", title);
  const head = html("header", "", box);
  const name = html("h3", "", head, title);
  if (term) name.title = view.terms[term] || "";
  const side = html("span", "side", head);
  const body = html("div", "body", box);
  return { box, head, side, body };
}

// Size of an element without asking the layout for it: asking in the middle of drawing would lay everything out anew.
function watchSize(element, onChange) {
  const size = { width: 0, height: 0, known: false };
  new ResizeObserver(([entry]) => {
    const { width, height } = entry.contentRect;
    const same = size.known && Math.abs(width - size.width) < 1 && Math.abs(height - size.height) < 1;
    if (same) return;
    Object.assign(size, { width, height, known: true });
    onChange();
  }).observe(element);
  size.now = () => {
    const { clientWidth: width, clientHeight: height } = size.known ? {} : element;
    if (width && height) Object.assign(size, { width, height, known: true });
    return size;
  };
  return size;
}

// A part that may scroll must be reachable by the keyboard.
function focusable(element, label) {
  element.tabIndex = 0;
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", label);
}

// Ties an element to a node: pointing at it or clicking it lights the node everywhere. No node unties it.
function link(element, nodeId) {
  if (nodeId === null || nodeId === undefined) delete element.dataset.node;
  else if (element.dataset.node !== String(nodeId)) element.dataset.node = nodeId;
}

// Writes only what changes: the same value again would make the browser lay out and paint the element anew.
function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The children of an element, brought to `count`: made where they are missing, taken away where there are too many.
function reuse(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) make(parent.children.length);
  return parent.children;
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

const probability = (value, floor) => {
  if (value === null || value === undefined) return floor > 0 ? "<" + shortNumber(floor) : "–";
  return value > 0 && value < 0.005 ? "<0.01" : value.toFixed(2);
};

const shortNumber = (value) => (value >= 0.01 ? value.toFixed(2) : value >= 0.001 ? value.toFixed(3) : "0.001");

function duration(seconds) {
  if (seconds >= 1) return seconds.toFixed(2) + " s";
  return seconds >= 1e-3 ? (seconds * 1e3).toFixed(1) + " ms" : Math.round(seconds * 1e6) + " µs";
}

const STAR = (() => {
  const points = [];
  for (let i = 0; i < 10; i++) {
    const radius = i % 2 ? 3.4 : 8;
    const angle = (Math.PI * i) / 5 - Math.PI / 2;
    points.push((radius * Math.cos(angle)).toFixed(2) + "," + (radius * Math.sin(angle)).toFixed(2));
  }
  return "M" + points.join("L") + "Z";
})();
const DISC = "M-5.5,0a5.5,5.5 0 1,0 11,0a5.5,5.5 0 1,0 -11,0Z";

// One shape per state, so that nothing depends on colour alone.
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

function marker(state, parent) {
  return svg("path", { class: "mk", d: SHAPES[state] || DISC }, parent);
}

// A mark on its own, beside a token's text.
function markPicture(parent, state) {
  const box = { width: 16, height: 16, viewBox: "-10 -10 20 20", class: "n s-" + state, "aria-hidden": "true" };
  marker(state, svg("svg", box, parent));
}

function legendItem(parent, { state, words, told }) {
  const item = html("span", "legend-item", parent);
  const picture = svg("svg", { width: 18, height: 16, viewBox: "-9 -8 18 16", class: "n s-" + state }, item);
  picture.setAttribute("aria-hidden", "true");
  marker(state, picture);
  html("span", "", item, words);
  if (told) item.title = told;
}
