// Two nodes side by side: the pinned one and a second one, with the difference of every number that both have.

// Marks a second node everywhere; null, or the same one again, lets go of it. From the mask both nodes of a cell come.
function compareWith(view, id, first) {
  const known = (node) => view.data.cards[node] && !(view.tree.marks.get(node) || { node: {} }).node.folded;
  if (id !== null && !known(id)) return;
  if (first !== undefined && first !== id && known(first)) setSelected(view, first);
  if (view.selected === null && id !== null) return select(view, id);
  view.second = id === view.selected || id === view.second ? null : id;
  paintSelection(view);
}

// By keyboard: what the focus or the pointer is on; else the pinned node is held, and the next ones stand beside it.
function compareHere(view) {
  if (view.hovered !== null) return compareWith(view, view.hovered);
  view.second = view.second === null ? view.selected : null;
  paintSelection(view);
}

function paintCompare(view) {
  const box = view.card.compare;
  const sides = [view.selected, view.second].map((id) => sideOf(view, id));
  const head = html("div", "compare-head", box);
  html("h2", "", head, "Compared");
  button("tool", head, "×", "Let go of the comparison (Escape)", () => compareWith(view, null));
  const names = [...new Set(sides.flatMap((side) => [...side.facts.keys()]))];
  const isNumber = (name) => sides.every((side) => !side.facts.has(name) || !Number.isNaN(Number(side.facts.get(name))));
  const body = compareTable(box, sides, true);
  compareRow(body, "node", sides, (side) => side.name);
  compareRow(body, "path", sides, (side) => side.path);
  compareRow(body, "verdict", sides, (side) => side.verdict);
  numberRow(body, "draft", sides, (side) => side.draft);
  numberRow(body, "target", sides, (side) => side.target);
  for (const name of names.filter(isNumber)) {
    const value = (side) => side.facts.get(name);
    numberRow(body, name, sides, (side) => (side.facts.has(name) ? Number(value(side)) : null), value);
  }
  for (const side of sides) {
    const why = html("p", "why", box);
    html("b", "", why, side.token + " ");
    why.append(side.why);
  }
  const rest = compareTable(box, sides, false);
  for (const name of names.filter((one) => !isNumber(one))) compareRow(rest, name, sides, (side) => side.facts.get(name) ?? "–");
}

function compareTable(box, sides, headed) {
  const table = html("table", "", box);
  table.setAttribute("aria-label", `${sides[0].token} beside ${sides[1].token}`);
  if (headed) {
    const top = html("tr", "", html("thead", "", table));
    html("td", "", top);
    for (const side of sides) tokenHead(top, side);
    html("th", "", top, "difference").scope = "col";
  }
  return html("tbody", "", table);
}

// Everything that is compared, read from the card of the node and the laws at its place.
function sideOf(view, id) {
  const told = view.data.cards[id];
  const law = lawOf(view, told);
  const row = law && told.token_id !== null ? law.rows.find((one) => one.token_id === told.token_id) : null;
  const words = [];
  for (let at = id; view.tree.marks.has(at); at = view.tree.marks.get(at).node.parent_id) words.unshift(view.tree.marks.get(at).node.label);
  const verdict = told.kind.split(" · ").pop();
  return {
    token: told.token,
    state: told.state,
    name: told.kind.replace(" · " + verdict, ""),
    path: words.join(" › "),
    verdict,
    why: told.why,
    draft: row ? row.draft : null,
    target: row ? row.target : null,
    facts: new Map(told.facts),
  };
}

function tokenHead(row, side) {
  const cell = html("th", "", row);
  cell.scope = "col";
  markPicture(cell, side.state);
  html("span", "name", cell, side.token).title = side.token;
}

function compareRow(body, name, sides, value) {
  const row = html("tr", "", body);
  html("th", "", row, name).scope = "row";
  for (const side of sides) html("td", "words", row, value(side));
  html("td", "", row);
}

function numberRow(body, name, sides, value, shown) {
  const row = html("tr", "", body);
  html("th", "", row, name).scope = "row";
  const values = sides.map(value);
  sides.forEach((side, place) => html("td", "", row, shown ? (shown(side) ?? "–") : probability(values[place], 0)));
  const both = values.every((one) => one !== null && one !== undefined);
  // As many decimals as the numbers beside it have.
  const decimals = shown ? Math.max(...sides.map((side) => (String(shown(side)).split(".")[1] || "").length)) : 2;
  html("td", "difference", row, both ? signed(values[1] - values[0], decimals) : "");
}

function signed(difference, decimals) {
  if (difference === 0) return "0";
  const size = Math.abs(difference);
  const least = 10 ** -decimals;
  return (difference > 0 ? "+" : "−") + (size < least / 2 ? "<" + least.toFixed(decimals) : size.toFixed(decimals));
}
