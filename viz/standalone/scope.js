// A page of its own: no Python answers here, so the page says what it does not hold.

import { labelled } from "../components/dom.js";
import scope from "../scope/scope.js";

{
  const { scope: data, first, last } = JSON.parse(document.getElementById("data").textContent);
  const parentElement = document.getElementById("scope");
  const told = labelled(document.getElementById("told"), "status");

  const show = () => scope({ data, parentElement, setStateValue, setTriggerValue });
  const setStateValue = (name, value) => {
    if (name !== "iteration") return;
    const { iteration } = value;
    const here = iteration >= first && iteration <= last;
    told.textContent = here ? "" : `This page holds iterations ${first + 1} to ${last + 1}.`;
    if (here) return;
    // Back to the nearest one that is here, as if it had been asked for.
    data.ask = { serial: data.ask.serial + 1, iteration: iteration < first ? first : last, node: null, phase: null };
    data.version += ".";
    show();
  };
  const setTriggerValue = (name) => {
    if (name === "unfold") told.textContent = "Folded nodes stay folded here: open them in Draftscope and save again.";
  };
  show();
}
