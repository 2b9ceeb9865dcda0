"""What the pinned and the current tree gain over plain decoding, by batch size.

Seconds are modelled from measured passes over batches, tokens are those that both iterations committed here.
"""

import streamlit as st

from decoding.analysis.batch import iterations_speedup
from decoding.common.cost_model import CostModel
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown
from pages.ui.common.models import manager
from pages.ui.tune.work import Bench, Trial
from pages.ui.widgets.costs import ASK, draw_disturbed_batches, measure_batches_button, measured_on
from viz.charts.engines import speedup_by_batch_figure
from viz.formats import plural

SIZE = "tune_batch"


def pick_batch(bench: Bench) -> int | None:
    """The batch size looked at, None where batches are not measured."""
    if bench.shown is None or _missing(bench):
        return None
    sizes = list(manager().batch_costs[bench.shown[1].method.draft_head])
    return st.select_slider(
        "Batch size", sizes, key=SIZE, persist_state="session", width=200, format_func=lambda size: f"batch of {size}",
        label_visibility="collapsed",
    )  # fmt: skip


def draw_batches(bench: Bench, batch: int | None, height: int) -> None:
    """The chart, and what it rests on; a button where batches are not measured."""
    if bench.shown is None:
        return
    if batch is None:
        st.caption(ASK)
        measure_batches_button(_missing(bench))
        return
    figure = speedup_by_batch_figure(_series(bench, batch), (), "modelled", dark=is_dark())
    figure.update_yaxes(title_text="× plain")
    chart(figure, key="tune_batches", height=height)
    head = bench.shown[1].method.draft_head
    draw_disturbed_batches(manager().batch_costs[head], head)
    costs = manager().batch_costs[head][batch]
    rate = batch / costs.plain_iteration_s
    st.caption(
        escape_markdown(
            f"Modelled from {measured_on(costs)}, for the tokens of this one iteration. Plain decoding of "
            f"{plural(batch, 'sequence')} at once: {rate:,.0f} tokens/s in all."
        )
    )


def _series(bench: Bench, batch: int) -> dict[str, list[tuple[int, float, str]]]:
    """Both trees by batch size, named with what they gain at one."""
    found = {}
    for word, trial in zip(("pinned", "now"), bench.shown, strict=True):
        points = _gains(trial, manager().batch_costs[trial.method.draft_head])
        found[f"{word}{''.join(f' {gain:.2f}×' for size, gain, _ in points if size == batch)}"] = points
    return found


def _missing(bench: Bench) -> list[str]:
    """Draft heads ("" for none) of the two trees whose batches are not measured."""
    return sorted({trial.method.draft_head for trial in bench.shown} - manager().batch_costs.keys())


def _gains(trial: Trial, costs: dict[int, CostModel]) -> list[tuple[int, float, str]]:
    """Batch size, speed-up and its words for each batch measured."""
    gains = ((batch, iterations_speedup([trial.iteration], each)) for batch, each in costs.items())
    nodes = plural(trial.iteration.verified, "node")
    return [(batch, gain, f"{nodes} verified in each sequence") for batch, gain in gains if gain is not None]
