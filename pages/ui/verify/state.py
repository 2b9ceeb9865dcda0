"""State of the Verifiers page: one tree with its logits, how it is replayed, and the results.

Results are cached by tree and sampling, so that returning to a setting is free.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from decoding.trace.records import IterationTrace
from pages.ui.common.models import manager
from pages.ui.common.state import Run, current_run, kept, known_results, select_iteration, selected_iteration, trace_at
from pages.ui.widgets.controls import SAMPLING, as_widget_holds

if TYPE_CHECKING:
    from decoding.replay.replay import Refused, Replayed
    from decoding.sampling.sampling import Sampling


@dataclass(frozen=True, eq=False)
class Looked:
    """A tree to verify again.

    Attributes:
        key: identifies the tree.
        label: the method that drafted it. verifier: its original verifier.
        sampling: under which it was drafted; only the target's part can be replayed differently.
        drafted_here: drafted on this page, not part of the run.
    """

    key: tuple
    run: Run
    iteration: IterationTrace
    label: str
    verifier: str
    sampling: "Sampling"
    drafted_here: bool = False

    @property
    def stops(self) -> Collection[int]:
        """Tokens that end the text; a tree drafted here goes on beyond them."""
        return () if self.drafted_here else self.run.trace.ending_ids

    @property
    def scene(self) -> str:
        """Names its tree on the screen."""
        return "verify:" + ":".join(map(str, self.key))


def tree_in_view() -> Looked:
    """The tree drafted on this page for the iteration on screen, else the iteration's own."""
    run, index = current_run(), selected_iteration()
    drafted = st.session_state.get("verify_drafted")
    if drafted is not None and drafted.key[:2] == (run.key, index):
        return drafted
    from decoding.replay.stored_state import sampling_of  # brings torch

    made = trace_at(run, index)
    return Looked(
        key=(run.key, index),
        run=run,
        iteration=run.trace.iterations[index],
        label=made.label,
        verifier=str(made.settings.get("verifier", "greedy")),
        sampling=sampling_of(made),
    )


def text_reader(looked: Looked) -> Callable[[int], str]:
    """Text of any token id: from the models' vocabulary if in memory, else from the trace."""
    run, models = looked.run, manager()
    if run.session is not None:
        return run.session.pair.vocabulary.text
    if models.info is not None and models.info.name == run.trace.pair.name:
        return models.pair().vocabulary.text
    texts, iterations = looked.iteration.texts, run.trace.iterations

    def recorded() -> dict[int, str]:
        return {token: text for each in iterations for token, text in each.texts.items()}

    key = ("texts", run.key, len(iterations))
    return lambda token: texts[token] if token in texts else kept(key, recorded).get(token, f"<{token}>")


def replay_all(looked: Looked, sampling: "Sampling") -> tuple["Replayed | Refused", ...]:
    """Every verifier on the tree, without re-rolled seeds: tens of milliseconds for 64 nodes."""
    from decoding.replay.replay import replay

    return kept(
        ("exact", looked.key, sampling), lambda: replay(looked.iteration, sampling, rerolls=0, stops=looked.stops)
    )


def own_walk(looked: Looked) -> "Replayed | None":
    """The original verification of the tree, with its recorded draws; None if the verifier refuses or is unknown."""
    from decoding.replay.replay import recorded_outcome

    trace, session = looked.run.trace, looked.run.session
    if not looked.drafted_here and session is None and looked.iteration.index < trace.own_from:
        return None  # decoded by the run this one was forked from, whose verifier is not recorded
    own = next(each for each in replay_all(looked, looked.sampling) if each.verifier.name == looked.verifier)
    return None if own.refusal is not None else replace(own, outcome=recorded_outcome(looked.iteration))


def rolled_tokens(looked: Looked, sampling: "Sampling", rerolls: int, compute: bool = False) -> dict | None:
    """Number of re-rolled seeds by committed tokens, per verifier; None if not yet computed.

    `compute` computes it now: up to a second for 1,000 seeds, so better after everything else is drawn.
    """
    from decoding.replay.replay import replay

    # The re-rolled seeds are 0, 1, 2, ..., independent of the seed on screen.
    key = ("rolled", looked.key, replace(sampling, seed=0), rerolls)
    if key not in known_results() and not compute:
        return None

    def roll() -> dict[str, dict[int, int]]:
        results = replay(looked.iteration, sampling, rerolls=rerolls, stops=looked.stops)
        return {replayed.verifier.name: replayed.tokens for replayed in results if replayed.refusal is None}

    return kept(key, roll)


REROLLS = (100, 1000, 5000)
DRAWN_ANEW = (
    "The verifier's draws start with this seed. In the run, sampling the tree came first, so the same seed gave other "
    "numbers there: the first row shows the original verification."
)
REPLAYED = "The tree does not depend on it, so the same tree is replayed without running a model."


def replay_controls(looked: Looked, ready: bool) -> "tuple[Sampling, int]":
    """The iteration (shared with Step through), and of a tree that can be verified again the target's sampling and the
    number of re-rolled seeds."""
    count = len(current_run().trace.iterations)
    st.session_state["verify_iteration"] = selected_iteration() + 1
    st.number_input(
        f"Iteration of {count}", 1, count, key="verify_iteration", width=126,
        on_change=lambda: select_iteration(st.session_state["verify_iteration"] - 1),
    )  # fmt: skip
    if not ready:
        return looked.sampling, 0
    if st.session_state.get("verify_sampling_of") != looked.run.key:
        st.session_state["verify_sampling_of"] = looked.run.key
        for name in ("temperature", "top_p", "seed"):
            st.session_state[f"verify_{name}"] = as_widget_holds(name, getattr(looked.sampling, name))
    _, low, high, step, _, meaning = SAMPLING["temperature"]
    temperature = st.slider(
        "Target temperature · replayed", low, high, step=step, key="verify_temperature", persist_state="session",
        width=214, help=f"{meaning} {REPLAYED}",
    )  # fmt: skip
    _, low, high, step, _, meaning = SAMPLING["top_p"]
    top_p = st.slider(
        "Top-p · replayed", low, high, step=step, key="verify_top_p", persist_state="session", width=160,
        disabled=temperature == 0, help=f"{meaning} {REPLAYED}",
    )  # fmt: skip
    seed = st.number_input(
        "Seed · re-drawn", 0, 2**31 - 1, key="verify_seed", persist_state="session", width=140,
        help=DRAWN_ANEW,
    )  # fmt: skip
    rerolls = st.selectbox(
        "Re-rolled seeds", REROLLS, index=1, key="verify_rerolls", persist_state="session", width=116,
        format_func=lambda count: f"{count:,}",
    )  # fmt: skip
    return replace(looked.sampling, temperature=temperature, top_p=top_p, seed=int(seed)), rerolls
