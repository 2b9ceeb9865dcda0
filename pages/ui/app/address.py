"""The address bar follows the view, and an address restores it: see `links` for what it may hold.

    restore(SLOT)                            # first call on a page: widgets, recorded run, the place to decode to
    go_there(asked, SLOT)                    # after the widgets: decodes to that place in the worker
    arrive(run, view)                        # once the worker has it
    keep_address(link_here(asked))           # last call on a page

An address is applied once, when the page is entered; it never undoes what the user does afterwards.
"""

from urllib.parse import parse_qs

import streamlit as st

import decoding
from decoding.common.errors import NEEDS_TORCH
from decoding.recorded import recorded_run, recorded_runs
from decoding.trace.records import PairInfo
from pages.ui.app.links import Link, View, decode, encode
from pages.ui.common.errors import torch_there
from pages.ui.common.models import manager
from pages.ui.common.state import (
    Run,
    RunRequest,
    ask_view,
    current_run,
    decode_asked,
    keep_run,
    selected_iteration,
    selected_node,
    set_aside,
)
from pages.ui.common.worker import address_is, found_again, start_job
from pages.ui.widgets.controls import (
    DEFAULT_METHOD,
    DEFAULT_NEW_TOKENS,
    DEFAULT_PROMPT,
    OWN_TEXT,
    SAMPLING,
    sample_prompts,
    set_method,
    setting_key,
)
from pages.ui.widgets.trained import EMBEDDED_NAME
from viz.formats import plural
from viz.scope.phases import FINAL_ID

OBEYED, GOAL, SAID = "address_obeyed", "address_goal", "address_said"
# The path is checked: a view drawn while the user leaves must not rewrite the next page's address.
SCRIPT = """
export default function ({ data }) {
  if (!window.location.pathname.endsWith("/" + data.page)) return;
  const search = data.query ? "?" + data.query : "";
  if (window.location.search === search) return;
  window.history.replaceState(window.history.state, "", window.location.pathname + search + window.location.hash);
}
"""
HIDDEN = "<style>.st-key-address_area { display: none; }</style>"
_component = st.components.v2.component("draftscope_address", js=SCRIPT)


def restore(slot: str) -> None:
    """Apply the address the page was entered with: set the widgets, show a recorded run, note where to decode to.

    A page reloaded while the job of `slot` was working continues with that job.
    """
    if st.session_state.get(OBEYED):
        return
    st.session_state[OBEYED] = True
    going = found_again(slot)
    asked = {name: st.query_params.get_all(name) for name in st.query_params}
    if not torch_there():  # there are no widgets to set: only a link to a recorded run can be followed
        if asked and "recorded" not in asked:
            st.session_state[SAID] = f"This link needs a run to be decoded. {NEEDS_TORCH}"
            return
        asked = {name: asked[name] for name in ("recorded", "iteration", "node") if name in asked}
    view, said = decode(asked, recorded_runs())
    st.session_state[SAID] = said
    if view == View():
        return
    _set_widgets(view)
    if view.recorded is not None:
        keep_run(Run(recorded_run(view.recorded), "recorded"))
        _look_at(current_run(), view)
    elif view.iteration is not None and not going:
        st.session_state[GOAL] = view


def go_there(asked: RunRequest | None, slot: str) -> None:
    """Decode to the place that an address named, with the values of the widgets; does nothing without one."""
    view = st.session_state.pop(GOAL, None)
    if view is None or asked is None:  # contradicting settings are reported next to their widgets
        return
    title = f"To iteration {view.iteration} of the link"
    start_job(slot, title, lambda job: (decode_asked(asked, view.iteration, job), view))
    st.rerun()


def arrive(run: Run, view: View) -> None:
    """Show the place that was decoded to; says so if the run does not have it."""
    if run.trace.iterations:
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
        return encode(View(**_asked_for(run.asked), **place, pair=_pair_word(run.trace.pair)))
    picks = {} if asked is None else _asked_for(asked)
    # Settings changed and not yet decoded; what a link need not say is left out.
    if picks and picks["prompt"] == DEFAULT_PROMPT:
        picks["prompt"] = None
    if picks and picks["text"] is not None and not picks["text"].strip():
        picks["text"] = None
    if picks and picks["method"] == DEFAULT_METHOD and not picks["settings"]:
        picks["method"] = None
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
    return Link(encode(View(**picks)).query, lacks)


def keep_address(link: Link) -> None:
    """Show a link in the address bar, without a new entry in the browser's history."""
    address_is(parse_qs(link.query))
    st.html(HIDDEN)
    with st.container(key="address_area"):
        _component(key="address", data={"query": link.query, "page": "step_through"})


def go_to(asked: RunRequest, iteration: int) -> None:
    """Have Step through decode a request up to an iteration (0-based), as a link to it does; call it in a callback.

    A run of the user's own that is on screen is set aside.
    """
    set_aside(current_run(), selected_iteration())
    view = st.session_state[GOAL] = View(**_asked_for(asked), iteration=iteration + 1)
    st.session_state[OBEYED] = True
    _set_widgets(view)


def take_over(asked: RunRequest) -> None:
    """Put the request of a run into the widgets of Step through; only where they are not drawn."""
    _set_widgets(View(**_asked_for(asked), iteration=1))


def _set_widgets(view: View) -> None:
    """Put the values of an address into the widgets; only before they are drawn."""
    state = st.session_state
    if view.text is not None:
        state["prompt"], state["prompt_text"] = OWN_TEXT, view.text
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
