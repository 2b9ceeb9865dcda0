"""The address bar follows the view, and an address restores it: see `links` for what it may hold.

    restore(SLOT)                            # first call on Step through: widgets, the run, or the place to decode to
    go_there(asked, SLOT)                    # after the widgets: decodes to that place in the worker
    arrive(run, goal)                        # once the worker has it
    keep_address(link_here(asked))           # last call on the page
    keep_open_run("What if", entered)        # on any other page, whose address only names the run and the place in it

An address is applied once, when the page is entered, by Back and Forward too; it never undoes what the user does
afterwards. A run that it names is looked for among those of the server and its files; where it is unknown, the rest of
the address decodes it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qs

import streamlit as st

import decoding
from decoding.common.errors import NEEDS_TORCH, SettingsError, TraceFileError
from decoding.common.formats import plural
from decoding.recorded import recorded_run, recorded_runs
from decoding.trace.records import PairInfo
from pages.ui import PAGES
from pages.ui.app.links import Link, RunName, View, decode, encode, split_run, with_run
from pages.ui.common.errors import escape_markdown, torch_there
from pages.ui.common.models import manager
from pages.ui.common.state import (
    Run,
    RunRequest,
    ask_view,
    current_run,
    decode_asked,
    keep_run,
    known_run,
    selected_iteration,
    selected_node,
    set_aside,
)
from pages.ui.common.worker import address_is, address_parameters, found_again, start_job
from pages.ui.widgets.controls import DEFAULT_NEW_TOKENS, SAMPLING, set_method, setting_key, start_method
from pages.ui.widgets.prompts import DEFAULT_PROMPT, OWN_TEXT, prompt_of, sample_prompts
from pages.ui.widgets.trained import EMBEDDED_NAME
from viz.scope.phases import FINAL_ID

OBEYED, GOAL, SAID, AGAIN = "address_obeyed", "address_goal", "address_said", "address_again"
PLACE = ("run", "iteration", "node")  # parameters that say what is on screen, on every page
# The path is checked: a view drawn while the user leaves must not rewrite the next page's address. What widgets keep in
# the address Streamlit adds by a second entry of the same page, on which Back would end: it takes the first's place.
# A popover that closes by a click on a link reports its value after the link's page has been asked for, under the page
# before, which brings that page back: the popover is closed first, and the link followed after its report. A place in
# the run that the scope has just reported is lost if the script has not begun with it when the page changes: `waiting`
# is the state of the app which shows that it has.
SCRIPT = """
let shown = null;
const show = () => {
  if (!shown || !window.location.pathname.endsWith("/" + shown.page)) return;
  let query = shown.query;
  if (shown.only.length) {
    const here = new URLSearchParams(window.location.search);
    for (const name of shown.only) here.delete(name);
    for (const [name, value] of new URLSearchParams(query)) here.append(name, value);
    query = here.toString();
  }
  const search = query ? "?" + query : "";
  if (window.location.search === search) return;
  window.history.replaceState(window.history.state, "", window.location.pathname + search + window.location.hash);
};
const push = window.history.pushState;
window.history.pushState = function (state, title, address) {
  const same = new URL(address, window.location).pathname === window.location.pathname;
  (same ? window.history.replaceState : push).call(window.history, state, title, address);
  if (same) show();
};
const OPEN = "[data-testid=stPopoverBody]";
let following = false;
let waiting = null;
const state = () => document.querySelector("[data-testid=stApp]")?.dataset.testScriptState;
window.addEventListener("draftscope-report", () => {
  waiting = state() === "running" ? "notRunning" : "running";
});
new MutationObserver(() => {
  if (state() === waiting) waiting = null;
}).observe(document.body, { subtree: true, attributeFilter: ["data-test-script-state"] });
const busy = () => waiting || document.querySelector(OPEN);
const follow = (link, tries) => {
  if (tries && busy()) return setTimeout(() => follow(link, tries - 1), 20);
  setTimeout(() => {
    waiting = null;
    following = true;
    link.click();
    following = false;
  }, 60);
};
window.addEventListener("click", (event) => {
  const link = event.target.closest("[data-testid=stPageLink-NavLink]");
  if (!link || following || link.closest(OPEN) || !busy()) return;
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  if (document.querySelector(OPEN)) document.body.click();
  follow(link, 50);
}, true);
export default function ({ data }) {
  shown = data;
  show();
}
"""
HIDDEN = "<style>[data-testid=stLayoutWrapper]:has(> .st-key-address_area) { display: none; }</style>"
_component = st.components.v2.component("draftscope_address", js=SCRIPT)


@dataclass(frozen=True)
class Goal:
    """What an address wants decoded: the view to end at, after how many iterations (None: all), and the run that it
    named.
    """

    view: View
    iterations: int | None
    name: RunName | None = None


def restore(slot: str) -> None:
    """Apply the address the page was entered with: set the widgets, show the run, or note where to decode to.

    A page reloaded while the job of `slot` was working continues with that job.
    """
    if st.session_state.get(OBEYED):
        return
    st.session_state[OBEYED] = True
    going = found_again(slot)
    name, asked = split_run(address_parameters())
    run, lost = _named(name)
    if not torch_there():  # there are no widgets to set: only a link to a run that is there can be followed
        if run is None and asked and "recorded" not in asked:
            st.session_state[SAID] = f"This link needs a run to be decoded. {NEEDS_TORCH}"
            return
        asked = {name: asked[name] for name in ("recorded", "iteration", "node") if name in asked}
    view, said = decode(asked, recorded_runs())
    st.session_state[SAID] = said
    if run is not None:
        decoded = request_of(run)
        if decoded is None and run is not current_run():
            _set_widgets(view)
        elif decoded is not None and going:  # its job has put it on screen, in a session whose widgets are new
            take_over(decoded)
        _show(run, view)
        return
    if name is not None and not going:
        st.session_state[SAID] = f"{lost} {said}".strip()
        view = view if name.iterations else replace(view, iteration=None, node=None)
    if view == View():
        return
    _set_widgets(view)
    if view.recorded is not None:
        keep_run(Run(recorded_run(view.recorded), "recorded"))
        _look_at(current_run(), view)
    elif view.iteration is not None and not going:
        had = name.iterations if name is not None else 0
        st.session_state[GOAL] = Goal(view, max(view.iteration, had), name)


def go_there(asked: RunRequest | None, slot: str) -> None:
    """Decode to the place that an address named, with the values of the widgets; does nothing without one."""
    goal = st.session_state.pop(GOAL, None)
    if goal is None or asked is None:  # contradicting settings are reported next to their widgets
        return
    title = "The whole run" if goal.iterations is None else f"To iteration {goal.iterations} of the link"
    start_job(slot, title, lambda job: (decode_asked(asked, goal.iterations, job), goal))
    st.rerun()


def arrive(run: Run, goal: Goal) -> None:
    """Show the place that was decoded to; says so if the run does not have it."""
    if run.trace.iterations:
        if goal.name is not None:  # other entries of the browser's history name the run that is gone
            st.session_state.setdefault(AGAIN, {})[goal.name.id] = run.id
        keep_run(run)
        _look_at(run, goal.view)


def keep_open_run(title: str, entered: bool) -> None:
    """Keep the name of the open run, and the place in it, in the address of a page; once `entered`, open it first."""
    if entered:
        name, asked = split_run(address_parameters())
        run, lost = _named(name)
        view, _ = decode({name: asked[name] for name in (*PLACE, "prompt", "text") if name in asked}, ())
        _set_widgets(View(prompt=view.prompt, text=view.text))
        if run is not None and (run is not current_run() or view.iteration is not None):
            _show(run, view)
        elif lost:
            st.toast(escape_markdown(lost), icon=":material/link_off:", duration="long")
    run, query = current_run(), ""
    if run is not None and run.source != "recorded":
        place = View(iteration=selected_iteration() + 1, node=selected_node())
        query = with_run(encode(place), RunName(run.id)).query
    others = {name: values for name, values in address_parameters().items() if name not in PLACE}
    _write(query, others | parse_qs(query), "" if title == "Home" else Path(PAGES[title]).stem, PLACE)


def _named(name: RunName | None) -> tuple[Run | None, str]:
    """The run that an address names, and else a sentence on what follows; nothing where it names none."""
    if name is None:
        return None, ""
    again = name.iterations and f"decoded again from the link, {plural(name.iterations, 'iteration')}"
    again = f"so it is {again}" if again else "and this address cannot decode it again"
    try:
        run = known_run(st.session_state.get(AGAIN, {}).get(name.id, name.id))
    except TraceFileError as error:
        return None, f"{str(error).rpartition(':')[0]}, {again}."  # without what one does with a file of one's own
    return run, "" if run is not None else f"The run of this link is not kept here, {again}."


def _show(run: Run, view: View) -> None:
    """Put a run that an address names on screen, at its place; the widgets get what it was decoded with."""
    if run is not current_run() and (asked := request_of(run)) is not None:
        take_over(asked)
    keep_run(run)
    _look_at(run, view)


def forget_message() -> None:
    """Clear the message about the address once the user has moved on."""
    st.session_state[SAID] = ""


def link_here(asked: RunRequest | None) -> Link:
    """The link to the view on screen; `asked` is what the widgets hold, for a run not decoded in this session."""
    run = current_run()
    place = {"iteration": selected_iteration() + 1, "node": selected_node()}
    if run.source == "decoded" and run.asked is not None:
        link = encode(View(**_asked_for(run.asked), **place, pair=_pair_word(run.trace.pair)))
        if link.query:
            return with_run(link, RunName(run.id, len(run.trace.iterations) or None))
        return with_run(Link(encode(View(**place)).query, link.lacks), RunName(run.id))
    picks = {} if asked is None else _asked_for(asked)
    # Settings changed and not yet decoded; what a link need not say is left out.
    if picks and picks["prompt"] == DEFAULT_PROMPT:
        picks["prompt"] = None
    if picks and picks["text"] is not None and not picks["text"].strip():
        picks["text"] = None
    if asked is not None and decoding.method_label(asked.method) == decoding.method_label(start_method()):
        picks |= {"method": None, "settings": {}}
    if run.source == "recorded":
        name = next((name for name in recorded_runs() if recorded_run(name) is run.trace), None)
        if name is not None:
            return encode(View(recorded=name, **picks, **place))
    reason = (
        "because its prompt is known only as tokens"
        if run.source == "decoded"
        else "because it comes from a file or was changed by hand"
    )
    lacks = f"No link can hold this run, {reason}: save it and share the file."
    if run.source == "recorded":
        return Link(encode(View(**picks)).query, lacks)
    link = encode(View(**picks, **place))
    return with_run(Link(link.query or encode(View(**place)).query, lacks), RunName(run.id))


def keep_address(link: Link) -> None:
    """Show a link in the address bar, without a new entry in the browser's history."""
    _write(link.query, parse_qs(link.query), "step_through")


def _write(query: str, parameters: Mapping[str, list[str]], page: str, only: tuple[str, ...] = ()) -> None:
    """Show parameters in the address bar, in place of all or only some of those there; `parameters` are then all."""
    address_is(parameters)
    st.html(HIDDEN)
    drawn = st.session_state["address_drawn"] = st.session_state.get("address_drawn", 0) + 1
    with st.container(key="address_area"):
        # Drawn anew each time: the same query may have to be put into the address of the same page again.
        _component(key="address", data={"query": query, "page": page, "only": list(only), "drawn": drawn})


def go_to(asked: RunRequest, iteration: int) -> None:
    """Have Step through decode a request to its end and show an iteration (0-based); call it in a callback.

    A run of the user's own that is on screen is set aside.
    """
    set_aside(current_run(), selected_iteration())
    view = View(**_asked_for(asked), iteration=iteration + 1)
    st.session_state[GOAL] = Goal(view, None)
    st.session_state[OBEYED] = True
    _set_widgets(view)


def request_of(run: Run) -> RunRequest | None:
    """What a run was decoded with, else as its record has it; None where this program cannot make it."""
    if run.asked is not None or not torch_there():
        return run.asked
    from decoding.replay.stored_state import method_of, sampling_of

    try:
        method = method_of(run.trace)
    except SettingsError:
        return None
    return RunRequest(prompt_of(run.trace), method, sampling_of(run.trace), run.trace.max_new_tokens)


def take_over(asked: RunRequest) -> None:
    """Put the request of a run into the widgets of Step through; only where they are not drawn."""
    _set_widgets(View(**_asked_for(asked), iteration=1))


def _set_widgets(view: View) -> None:
    """Put the values of an address into the widgets; only before they are drawn."""
    state = st.session_state
    if view.text is not None:
        state.setdefault("prompt", OWN_TEXT)  # any other choice is known by its text not to be what is meant
        state["prompt_text"] = view.text
    elif view.prompt is not None:
        state["prompt"], state["prompt_text"] = view.prompt, sample_prompts()[view.prompt].text
    if view.chat is not None:
        state["prompt_chat"] = view.chat
    if view.method is not None:
        set_method("method", decoding.METHODS[view.method])
        state[setting_key("method", view.method, "verifier")] = None  # left to the sampling unless the link has one
        for name, value in view.settings.items():
            state[setting_key("method", view.method, name)] = value
    for name in SAMPLING:
        if name in view.sampling or view.iteration is not None:
            state[f"sampling_{name}"] = view.sampling.get(name, SAMPLING[name][4])
    if view.max_new_tokens is not None or view.iteration is not None:
        state["max_new_tokens"] = view.max_new_tokens or DEFAULT_NEW_TOKENS


def _look_at(run: Run, view: View) -> None:
    """Go to iteration and node; says so where the run does not have them."""
    count = len(run.trace.iterations)
    wanted = view.iteration if view.iteration is not None else count
    index = min(wanted, count) - 1
    said = []
    ended = run.session is None or run.session.finished
    if wanted > count and ended:
        said.append(f"The link asks for iteration {wanted:,}, but the run has {plural(count, 'iteration')}.")
    iteration, node = run.trace.iterations[index], view.node
    has_node = iteration.final_kind != "none" if node == FINAL_ID else node is not None and node < len(iteration.nodes)
    there = wanted <= count and has_node
    if wanted <= count and not there and view.node is not None:
        said.append(f"The link asks for node {view.node}, which iteration {wanted} does not have.")
    if view.recorded is None and (view.pair or EMBEDDED_NAME) != (_pair_word(run.trace.pair) or EMBEDDED_NAME):
        said.append(f"The link was made with another pair of models, {view.pair or EMBEDDED_NAME}: this run uses its "
                    "prompt and settings on the pair in memory.")  # fmt: skip
    st.session_state[SAID] = " ".join([st.session_state.get(SAID) or "", *said]).strip()
    ask_view(index, view.node if there else None)


def _asked_for(asked: RunRequest) -> dict:
    """The part of a view that says what was decoded."""
    defaults = decoding.METHODS[asked.method.name].settings()
    sample = sample_prompts().get(asked.prompt.name)
    own = sample is None or sample.text != asked.prompt.text
    sampling = {name: getattr(asked.sampling, name) for name in SAMPLING}
    return {
        "prompt": None if own else asked.prompt.name,
        "text": asked.prompt.text if own else None,
        "chat": asked.prompt.chat if manager().settings.chat else None,
        "method": asked.method.name,
        "settings": {name: value for name, value in asked.method.settings().items() if defaults.get(name) != value},
        "sampling": {name: value for name, value in sampling.items() if value != SAMPLING[name][4]},
        "max_new_tokens": None if asked.max_new_tokens == DEFAULT_NEW_TOKENS else asked.max_new_tokens,
    }


def _pair_word(pair: PairInfo) -> str | None:
    """How a link names the pair: the last part of its target's name, no folder of this machine; None if embedded."""
    return None if pair.name == EMBEDDED_NAME else pair.target.name.rstrip("/").rsplit("/", 1)[-1][:100]
