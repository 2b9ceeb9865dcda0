"""Whose costs a modelled figure uses, when they were measured, whether other work disturbs them; measuring them again.

measured_on(costs)                              # "passes measured on this machine on 2026-11-25 at 02:40 UTC"
if said := doubt_words(run, costs): ...         # nothing is concluded from them
if said := slow_words(run.trace.iterations, costs):
    draw_warning(said, "step")                  # with a button that measures again
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from decoding.analysis.budgets import SLOW, misfit
from decoding.common.cost_model import CostModel
from decoding.common.other_work import OtherWork
from decoding.trace.metrics import slowdown
from decoding.trace.records import IterationTrace
from pages.ui.common.errors import escape_markdown, guarded
from pages.ui.common.models import manager
from pages.ui.common.state import Run
from pages.ui.common.worker import run_now

BUSY = 0.25  # share of all processors that others use
LOOK_S, WINDOW_S = 0.15, 20.0  # the shortest and the longest time that is looked at
ASK = (
    "In a batch the target is busy without speculation, too, so that verifying more tokens gains less. What "
    "passes over several sequences cost on this machine is measured once, in about half a minute."
)
DISTURBED_FROM = 0.15  # of all processors, used by other programs while batches were measured
UNREST = 1.5  # repeats of the same work whose quartiles are further apart are disturbed


def measured_on(costs: CostModel) -> str:
    """Which times a modelled figure was computed from."""
    again = f" (again, because {costs.corrected})" if costs.corrected else ""
    beside = " while other work disturbed it" if costs.disturbed else ""
    return f"passes measured on this machine{beside} on {costs.when}{again}"


def own_costs(run: Run) -> CostModel | None:
    """The measured costs of the pair that decoded a run here, None where it was decoded elsewhere or is gone."""
    models = manager()
    here = run.source == "decoded" and run.has_models and models.info is not None
    return models.costs_of(run.trace) if here else None


def slow_words(iterations: Sequence[IterationTrace], costs: CostModel | None) -> str:
    """A warning where target passes took much longer than measured; empty where they did not, or too few are known."""
    ratio = None if costs is None else slowdown(iterations, costs)
    if ratio is None or ratio < SLOW:
        return ""
    return f"Other work slows this machine: target passes take {ratio:.1f}× as long as measured on {costs.when}."


def doubt_words(run: Run, costs: CostModel) -> str:
    """Why nothing is concluded for a run from modelled times; empty where they may be believed.

    They are where they agree with what the run measured here, and do not contradict each other.
    """
    here = own_costs(run) is not None
    found = misfit(run.trace.iterations, costs) if here else None
    if found is not None:
        what, ratio = found
        times = f"{ratio:.2g} times as long as modelled from passes measured on {costs.when}"
        return f"Budgets are not compared: {what} of this run took {times}."
    if costs.disturbed and (costs.target.uneven or not here):
        return f"Budgets are not compared: when passes were measured on {costs.when}, {costs.disturbed}."
    return ""


def busy_words(spread: float) -> str:
    """A warning where repeats of the same call differ so much that the machine is too busy to measure, else empty."""
    if spread < UNREST:
        return ""
    return (
        f"This machine is busy: repeats of the same call differ by up to {spread:.1f}×. Stop other work or add repeats "
        "before you trust small differences."
    )


_counting: list[tuple[float, OtherWork]] = []  # what counts the work of other processes, and since when


def other_words() -> str:
    """That other work uses the processors, so that an estimate is too short; empty where most of them are free."""
    if not _counting or time.monotonic() - _counting[0][0] > WINDOW_S:
        _counting[:] = [(time.monotonic(), OtherWork())]
        time.sleep(LOOK_S)
    share = _counting[0][1].share()
    return "" if share < BUSY else f"longer now, because other programs use {share:.0%} of the processors"


DISTURBED = (
    "Other work, or a machine that has changed, explains it. Times and speeds shown are those measured meanwhile."
)


def draw_warning(words: str, key: str, head: str = "") -> None:
    """A warning about disturbed times with a button that measures the passes again."""
    with st.container(key=f"{key}_disturbed", horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(f":material/warning: {escape_markdown(words)}", width="content", help=DISTURBED)
        measure_button("Measure again", f"{key}_measure_again", head)


def measure_button(label: str, key: str, head: str) -> None:
    """A button that measures the passes of the pair in memory, or loads the pair, and draws the page again."""
    hint = f"{'Measures the passes of the pair' if manager().loaded else 'Loads the pair'}; takes a few seconds"
    if st.button(label, key=key, icon=":material/timer:", help=hint):
        with guarded():
            run_now("Measuring passes", lambda job: manager().measure_costs(head))
            st.rerun(scope="app")


def measure_batches_button(heads: Sequence[str], again: bool = False) -> None:
    """A button that measures passes over batches of the pair in memory, or loads it, and draws the page again.

    Args:
        heads: draft heads with which the pair is measured, "" for its draft model.
        again: though they are kept.
    """
    label = "Measure again" if again else "Measure batches"
    if st.button(label, key="measure_batches", icon=":material/timer:"):
        with guarded():
            for head in heads:
                run_now("Measuring batches", partial(manager().measure_batches, head, again))
            st.rerun(scope="app")


def draw_disturbed_batches(costs: Mapping[int, CostModel], head: str) -> None:
    """That other work ran while batches were measured with a draft head ("": without one), with a button that measures
    again; nothing where none did.
    """
    disturbed = {batch: each.others for batch, each in costs.items() if each.others > DISTURBED_FROM}
    if not disturbed:
        return
    with st.container(key="batches_disturbed", horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(
            f":material/warning: Other programs used up to {max(disturbed.values()):.0%} of the processors while these "
            "passes were measured: measure again once they have ended.",
            width="content",
        )
        measure_batches_button([head], again=True)
