// One view per place on the page: kept while Streamlit hands over new data, and left alone by the same data again.

const VIEWS = new WeakMap();

// The view of a component, the first time made by `build(parentElement)`, which gives at least its `root`; null where
// it shows these data already.
function viewOf(component, className, build) {
  const { data, parentElement } = component;
  let view = VIEWS.get(parentElement);
  if (!view || !parentElement.contains(view.root)) {
    parentElement.querySelectorAll("." + className).forEach((old) => old.remove());
    view = build(parentElement);
    VIEWS.set(parentElement, view);
  }
  view.component = component;
  const fingerprint = JSON.stringify(data);
  if (view.fingerprint === fingerprint) return null;
  view.fingerprint = fingerprint;
  return view;
}

// Draws anew, and gives the focus back to the element that is called the same in the data attribute `key`.
function keepingFocus(root, key, draw) {
  const focused = root.getRootNode().activeElement;
  const name = focused && root.contains(focused) ? focused.dataset[key] : null;
  draw();
  if (name) root.querySelector(`[data-${key}="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
}
