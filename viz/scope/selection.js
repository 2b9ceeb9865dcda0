// One selection: what is pointed at, pinned or compared is lit in every part of the scope at once.

// Lights everything of a node with this class, and puts out what else had it.
function light(view, className, id) {
  for (const element of view.root.querySelectorAll("." + className)) {
    if (element.dataset.node !== String(id)) element.classList.remove(className);
  }
  if (id === null) return;
  for (const element of view.root.querySelectorAll(`[data-node="${id}"]`)) element.classList.add(className);
}

// Lights what is pointed at, the column pointed at in the mask, what is pinned and what it is compared with. Parts that
// were drawn anew are found by their node, so nobody need remember them.
function lightAll(view) {
  light(view, "lit", view.hovered);
  light(view, "lit-too", view.hoveredColumn === view.hovered ? null : view.hoveredColumn);
  light(view, "sel", view.selected);
  light(view, "second", view.second);
}

// Points at a node, and in the mask at the node of a column as well.
function hover(view, id, column = null) {
  if (view.hovered === id && view.hoveredColumn === column) return;
  view.hovered = id;
  view.hoveredColumn = column;
  view.root.dataset.hovered = id ?? "";
  if (view.mode === "scope" && view.selected === null) paintCard(view);
  else lightAll(view);
  lightMask(view);
  lightOverview(view);
}

// A choice of the user: shown at once, then reported to Python.
function select(view, id) {
  const mark = view.tree.marks.get(id);
  if (mark && mark.node.folded) return unfold(view, mark.node.parent_id);
  if (!mark && view.data.overview) {
    // Folded away: it is chosen as soon as Python has opened its place.
    view.selectedNode = id;
    return unfold(view, view.data.overview.parents[id]);
  }
  setSelected(view, id);
  view.reported = id;
  view.component.setStateValue("selected", { ...placeOf(view), node: id });
}

function unfold(view, node) {
  view.component.setTriggerValue("unfold", { ...placeOf(view), node });
}

function setSelected(view, id) {
  view.selected = id;
  view.absent = null;
  paintSelection(view);
}

function paintSelection(view) {
  view.root.dataset.selected = view.selected ?? "";
  view.root.dataset.second = view.second ?? "";
  showLabels(view);
  if (view.mode === "scope") paintCard(view);
  else lightAll(view);
  lightMask(view);
  lightOverview(view);
}
