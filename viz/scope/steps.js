// Drafting step by step: the pops of a heap, the rounds of a search. The panel takes the place of mask and KV slots, of
// which nothing is there yet; the tree shows the nodes made so far.

import { button, clamp, focusable, html, labelled, reuse, write } from "../components/dom.js";
import { number } from "../components/formats.js";
import { panel } from "./panels.js";
import { lightAll, link, setPhase } from "./scope.js";

const VALUE_DIGITS = 3;

export function buildSearch(view, parent) {
  const made = panel(view, parent, "search", "", "");
  const { head, side, body } = made;
  made.title = head.firstChild;
  made.back = button("tool", side, "‹", "Previous step of the search ( , )", () => goStep(view, -1));
  made.slider = html("input", "", side);
  Object.assign(made.slider, { type: "range", min: 0, step: 1 });
  made.slider.addEventListener("input", () => showStep(view, Number(made.slider.value)));
  // The slider's own keys, not those of the scope.
  made.slider.addEventListener(
    "keydown",
    (event) => /^(Arrow|Home|End|Page)/.test(event.key) && event.stopPropagation(),
  );
  made.next = button("tool", side, "›", "Next step of the search ( . )", () => goStep(view, 1));
  made.place = html("span", "step-place", side);
  focusable(body, "The search, step by step");
  made.about = html("p", "about", body);
  made.said = html("p", "said", body);
  made.said.setAttribute("aria-live", "polite");
  made.figures = html("dl", "figures", body);
  made.lists = html("div", "lists", body);
  view.search = made;
}

// The step to show in a phase: the one asked for, else its last; null where drafting is not stepped.
export function stepOf(view, phase, asked) {
  const [first, after] = phase.steps;
  return view.data.search && after > first ? clamp(asked ?? after - 1, first, after - 1) : null;
}

// Of a step of the search, the phase that it belongs to is shown as well.
function showStep(view, step) {
  const place = view.data.scene.phases.findIndex(({ steps: [first, after] }) => step >= first && step < after);
  if (place >= 0) setPhase(view, place, step);
}

// By one step from the one shown; from a later phase back to the last one.
export function goStep(view, by) {
  if (view.data.search) showStep(view, (view.step ?? view.data.search.steps.length) + by);
}

// State of a scene node, by its place, in the phase and step shown.
export function stateAt(view, place) {
  const { phases, appears } = view.data.scene;
  const state = phases[view.phase].states[place];
  if (view.step === null || appears[place] < 0) return state;
  if (appears[place] > view.step) return "hidden";
  return state === "fold" ? state : appears[place] === view.step ? "new" : "drafted";
}

// The ring around the nodes that a step draws below or expands.
export function markAsked(view) {
  const asked = new Set(view.step === null ? [] : view.data.search.steps[view.step].asked);
  for (const [node, { group }] of view.tree.marks) group.classList.toggle("asked", asked.has(node));
}

export function paintSearch(view) {
  view.root.classList.toggle("stepped", view.step !== null);
  view.root.dataset.step = view.step ?? "";
  if (view.step === null) return;
  const { search } = view;
  const { title, about, help, figures, texts, steps } = view.data.search;
  const { said, values, lists } = steps[view.step];
  write(search.title, title);
  search.title.title = help;
  write(search.about, about);
  search.about.title = help;
  write(search.said, said);
  search.box.setAttribute("aria-label", `${title}: ${said}`);
  Object.assign(search.slider, { max: steps.length - 1, value: view.step });
  search.slider.setAttribute("aria-label", `${title}: step`);
  search.slider.setAttribute("aria-valuetext", said);
  write(search.place, `${view.step + 1} of ${steps.length}`);
  search.back.disabled = view.step === 0;
  search.next.disabled = view.step === steps.length - 1;
  const boxes = reuse(search.figures, figures.length, () => {
    const box = html("div", "", search.figures);
    html("dt", "", box);
    html("dd", "", box);
  });
  figures.forEach(([name, meaning], place) => {
    write(boxes[place].firstChild, name);
    write(boxes[place].lastChild, values[place]);
    boxes[place].title = meaning;
  });
  search.lists.replaceChildren();
  for (const [head, rows, more] of lists) paintList(search.lists, texts[head], rows, more, texts);
  lightAll(view);
}

function paintList(parent, head, rows, more, texts) {
  const titled = more ? `${head} (${rows.length} of ${rows.length + more})` : head;
  const box = labelled(html("div", "list", parent), "group", titled);
  html("h4", "", box, titled).title = titled;
  const most = Math.max(...rows.map((row) => row[1]), 1e-9);
  for (const [text, value, node] of rows) {
    const line = html("div", "list-row", box);
    link(line, node);
    line.style.setProperty("--share", `${(100 * value) / most}%`);
    html("span", "name", line, texts[text]).title = texts[text];
    html("span", "", line, number(value, VALUE_DIGITS));
  }
  if (!rows.length) html("span", "list-more", box, "none");
}
