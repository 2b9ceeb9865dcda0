"""Trees drafted on the Verifiers page: the same prefix again, or the whole prompt with all logits stored."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

import decoding
from decoding.common.errors import SettingsError
from decoding.common.interruption import pause_point
from decoding.common.settings import ENGINE, GROUPS, VERIFICATION
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.state import Run, decode_ids, own_pair
from pages.ui.common.worker import ModelTask, is_busy, start_job
from pages.ui.tune.controls import tree_methods
from pages.ui.verify.state import Looked
from pages.ui.widgets.controls import SAMPLING, as_widget_holds, error_key, picked_settings, seed, settings_form

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.sampling.sampling import Sampling

SLOT = "verify"
KEY = "verify_method"
FIRST_METHOD = "iid_paths"
DEEPEST = 64
TREE_GROUPS = tuple(group for group in GROUPS if group not in (VERIFICATION, ENGINE))


def draft_popover(looked: Looked) -> None:
    """Another tree on this prefix: method, its settings, the draft's temperature, a seed."""
    # Never disabled: one that is closed and disabled at once opens again when it is enabled.
    with st.popover("Draft again", key="verify_draft_open", icon=":material/park:", on_change="rerun") as place:
        if not place.open:
            return
        with st.container(width=640):
            st.caption(
                escape_markdown(
                    f"Drafts another tree after the same {looked.iteration.prefix_length:,} tokens: both models read "
                    "them, then one iteration is drafted and verified. The run itself does not change."
                )
            )
            head = st.container()  # above the settings, so that the button is always in view
            method = tree_picker()
            left, middle, right = head.columns([1.3, 1, 1.2], vertical_alignment="bottom")
    _, low, high, step, *_ = SAMPLING["draft_temperature"]
    seed("verify_draft_temperature", as_widget_holds("draft_temperature", looked.sampling.draft_temperature))
    left.slider(
        "Draft temperature", low, high, step=step, key="verify_draft_temperature", persist_state="session",
        help="The tree is sampled from the draft at this temperature, so a new value needs a new tree.",
    )  # fmt: skip
    seed("verify_draft_seed", 0)
    middle.number_input("Seed", 0, 2**31 - 1, key="verify_draft_seed", persist_state="session")

    def begin() -> None:  # the popover closes only here; the page may have been drawn with older values
        state = st.session_state
        picked = decoding.METHODS[state[KEY]]
        values = {"draft_temperature": state["verify_draft_temperature"], "seed": int(state["verify_draft_seed"])}
        with suppress(SettingsError):  # which is shown next to the widgets
            picked = picked.with_settings(**picked_settings(picked, KEY))
            state["verify_draft_open"] = False
            start_job(SLOT, "Drafting", partial(draft_again, looked, picked, replace(looked.sampling, **values)))

    right.button(
        "Draft this prefix again", type="primary", key="verify_draft", disabled=method is None or is_busy(SLOT),
        on_click=begin, width="stretch", icon=":material/play_arrow:",
    )  # fmt: skip


def tree_picker() -> "Method | None":
    """A method that drafts and its tree settings; a contradiction is shown as a sentence and gives None."""
    drafting = tree_methods()
    seed(KEY, FIRST_METHOD)
    name = st.selectbox(
        "Method", drafting, key=KEY, format_func=lambda name: decoding.METHODS[name].label, persist_state="session"
    )
    st.caption(escape_markdown(f"{decoding.METHODS[name].summary} {decoding.METHODS[name].paper}."))
    place = st.empty()
    values = settings_form(decoding.METHODS[name], KEY, columns=3, groups=TREE_GROUPS)
    st.session_state[error_key(KEY)] = None
    try:
        return decoding.METHODS[name].with_settings(**values)
    except SettingsError as error:
        show_error(error, place)
        return None


def draft_again(looked: Looked, method: "Method", sampling: "Sampling", job: ModelTask) -> Looked:
    """One iteration after the same prefix, with all logits; call it in the worker.

    Raises:
        DraftscopeError: another pair is in memory, or the prefix leaves no room.
    """
    from decoding.methods.method import fitted
    from decoding.session.session import DecodeSession, Limits

    trace = looked.run.trace
    pair = own_pair(trace, job)
    prefix = (trace.prompt_ids + trace.output_ids)[: looked.iteration.prefix_length]
    room = min(pair.context - len(prefix), DEEPEST)
    limits = Limits(max(room, 1), ignore_end_of_text=True, rows="full")
    # Only the tree and its logits matter, so a verifier that does not fit may be replaced.
    session = DecodeSession(pair, fitted(method, sampling), list(prefix), sampling, limits)
    pause_point()  # the method's own measurements may have taken seconds
    return replace(
        looked,
        key=(*looked.key[:2], uuid.uuid4().hex[:8]),
        iteration=session.step(),
        label=decoding.method_label(session.method),
        verifier=session.method.verifier.name,
        sampling=sampling,
        drafted_here=True,
    )


def decode_buttons(run: Run) -> None:
    """Buttons that decode the run's prompt with all logits stored: with sampled trees, or as the run was decoded."""
    from decoding.replay.stored_state import method_of, sampling_of

    sampled, trace = decoding.METHODS[FIRST_METHOD], run.trace
    at_one = (sampled, decoding.Sampling(1.0))
    with st.container(horizontal=True, gap="small"):
        for key, label, choose in (
            ("verify_sampled", f"Decode with {sampled.label}, temperature 1", lambda: at_one),
            ("verify_as_it_was", f"Decode as before: {trace.label}", lambda: (method_of(trace), sampling_of(trace))),
        ):
            if st.button(
                escape_markdown(label), key=key, icon=":material/play_arrow:", disabled=is_busy(SLOT),
                type="primary" if key == "verify_sampled" else "secondary",
            ):  # fmt: skip
                start_job(SLOT, "Decoding", partial(decode_prompt, run, choose))
                st.rerun()


def decode_prompt(run: Run, choose: Callable[[], tuple["Method", "Sampling"]], job: ModelTask) -> Run:
    """The run's prompt decoded again to the same length, with all logits; call it in the worker.

    Raises:
        DraftscopeError: another pair is in memory, or the run's settings are unknown to this version.
    """
    method, sampling = choose()
    trace, pair = run.trace, own_pair(run.trace, job)
    return decode_ids(pair, trace.prompt_ids, method, sampling, trace.max_new_tokens, None, job)
