// A standalone page: there is no Python, so the page says what it does not contain.

import { labelled } from "../components/dom.js";
import scope from "../scope/scope.js";

{
  const { scope: data, first, last } = JSON.parse(document.getElementById("data").textContent);
  const parentElement = document.getElementById("scope");
  const note = labelled(document.getElementById("note"), "status");

  const show = () => scope({ data, parentElement, setStateValue, setTriggerValue });
  const setStateValue = (name, value) => {
    if (name !== "iteration") return;
    const { iteration } = value;
    const here = iteration >= first && iteration <= last;
    note.textContent = here ? "" : `This page contains iterations ${first + 1} to ${last + 1}.`;
    if (here) return;
    // Back to the nearest iteration in the page, as if it had been requested.
    data.ask = { serial: data.ask.serial + 1, iteration: iteration < first ? first : last, node: null, phase: null };
    data.version += ".";
    show();
  };
  const setTriggerValue = (name) => {
    if (name === "unfold") note.textContent = "This page cannot open folds: open them in Draftscope and save again.";
  };
  show();
}
