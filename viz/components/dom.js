// Helpers shared by all components. Token text is only ever set as textContent.

export const SVG_NS = "http://www.w3.org/2000/svg";
const VIEWS = new WeakMap(); // one view per place on the page

// The view of a component, built once by `build(root, data)`, which returns at least `root`. Streamlit sends new data
// repeatedly: the view stays as long as its class does.
export function viewOf(component, className, build) {
  const { data, parentElement } = component;
  let view = VIEWS.get(parentElement);
  if (view?.className !== className || !parentElement.contains(view.root)) {
    for (const old of parentElement.querySelectorAll("[data-view]")) old.remove();
    const root = html("div", className, parentElement);
    root.dataset.view = "";
    view = Object.assign(build(root, data), { className });
    VIEWS.set(parentElement, view);
  }
  view.component = component;
  return view;
}

// Whether these data are new to a view; the same data again (a rerun for another reason) draw nothing.
export function isNew(view, data) {
  const version = data.version || JSON.stringify(data);
  if (view.version === version) return false;
  view.version = version;
  return true;
}

export function svg(tag, attributes, parent) {
  const element = document.createElementNS(SVG_NS, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (parent) parent.appendChild(element);
  return element;
}

export function html(tag, className, parent, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

export function button(className, parent, text, title, onClick) {
  const element = html("button", className, parent, text);
  element.type = "button";
  if (title) {
    element.title = title;
    element.setAttribute("aria-label", title);
  }
  element.addEventListener("click", onClick);
  return element;
}

// Role and name of an element for screen readers.
export function labelled(element, role, label) {
  element.setAttribute("role", role);
  if (label) element.setAttribute("aria-label", label);
  return element;
}

// A part that scrolls or handles keys must be reachable by keyboard.
export function focusable(element, label, role = "group") {
  element.tabIndex = 0;
  return labelled(element, role, label);
}

// Writes only changes: setting the same value would make the browser lay out and paint the element again.
export function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The children of an element, adjusted to `count`: missing ones are created, surplus ones removed.
export function reuse(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) make(parent.children.length);
  return parent.children;
}

// Redraws, and returns the focus to the element with the same data attribute `key`.
export function keepingFocus(root, key, draw) {
  const focused = root.getRootNode().activeElement;
  const name = focused && root.contains(focused) ? focused.dataset[key] : null;
  draw();
  if (name) root.querySelector(`[data-${key}="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
}

// A mouse click on a match leaves the focus on the root, so that space and arrows keep their meaning.
export function focusStaysOn(root, selector) {
  root.addEventListener("mousedown", (event) => {
    if (!event.target.closest?.(selector)) return;
    event.preventDefault();
    root.focus({ preventScroll: true });
  });
}

// Whether a key press activates the button it was pressed on.
export const pressesButton = ({ key, target }) =>
  (key === " " || key === "Enter") && Boolean(target.closest?.("button"));

// Runs the action of a key and stops the event; `before` runs first.
export function actOn(event, actions, before) {
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  before?.();
  action();
}

export const prefersStillness = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Size of an element without querying the layout, which would force a new layout in the middle of drawing.
export function watchSize(element, onChange) {
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

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
