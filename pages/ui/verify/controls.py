"""The toolbar of the Verifiers page: which tree, the target's sampling, the seed, how many seeds are re-rolled."""

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from pages.ui.common.state import current_run, select_iteration, selected_iteration
from pages.ui.verify.state import Looked, tree_in_view
from pages.ui.widgets.settings import SAMPLING, as_widget_holds

if TYPE_CHECKING:
    from decoding.sampling.sampling import Sampling

REROLLS = (100, 1000, 5000)
DRAWN_ANEW = (
    "The verifier's draws begin here with this seed. The run drew its tree from its seed first, so the same seed gives "
    "other numbers there: what the run did stands in the first row."
)
REPLAYED = "The tree does not depend on it, so the same tree is replayed: no model is run."


def iteration_control() -> None:
    """The iteration looked at; Step through shows the same one."""
    count = len(current_run().trace.iterations)
    st.session_state["verify_iteration"] = selected_iteration() + 1
    st.number_input(
        f"Iteration of {count}", 1, count, key="verify_iteration", width=126,
        on_change=lambda: select_iteration(st.session_state["verify_iteration"] - 1),
    )  # fmt: skip


def replay_controls(looked: Looked, disabled: bool) -> "Sampling":
    """Temperature and top-p of the target and the seed; they begin as the tree was verified."""
    if st.session_state.get("verify_sampling_of") != looked.run.key:
        st.session_state["verify_sampling_of"] = looked.run.key
        for name in ("temperature", "top_p", "seed"):
            st.session_state[f"verify_{name}"] = as_widget_holds(name, getattr(looked.sampling, name))
    _, low, high, step, _, meaning = SAMPLING["temperature"]
    temperature = st.slider(
        "Target temperature · replayed", low, high, step=step, key="verify_temperature", persist_state="session",
        width=214, disabled=disabled, help=f"{meaning} {REPLAYED}",
    )  # fmt: skip
    _, low, high, step, _, meaning = SAMPLING["top_p"]
    top_p = st.slider(
        "Top-p · replayed", low, high, step=step, key="verify_top_p", persist_state="session", width=160,
        disabled=disabled or temperature == 0, help=f"{meaning} {REPLAYED}",
    )  # fmt: skip
    seed = st.number_input(
        "Seed · drawn anew", 0, 2**31 - 1, key="verify_seed", persist_state="session", width=140, disabled=disabled,
        help=DRAWN_ANEW,
    )  # fmt: skip
    return replace(looked.sampling, temperature=temperature, top_p=top_p, seed=int(seed))


def rerolls_control(disabled: bool) -> int:
    """How many seeds are re-rolled for the spread."""
    return st.selectbox(
        "Re-rolled seeds", REROLLS, index=1, key="verify_rerolls", persist_state="session", width=116,
        format_func=lambda count: f"{count:,}", disabled=disabled,
    )  # fmt: skip


def back_button(looked: Looked) -> None:
    """From a tree drafted here back to the run's own."""

    def back() -> None:
        st.session_state["verify_drafted"] = None

    if looked.drafted_here:
        st.button("The run's tree", key="verify_back", on_click=back, icon=":material/undo:")


def show_drafted(looked: Looked) -> None:
    """Look at a tree that was drafted here, unless another iteration is on screen by now."""
    here = tree_in_view()
    if here is not None and here.key[:2] == looked.key[:2]:
        st.session_state["verify_drafted"] = looked
