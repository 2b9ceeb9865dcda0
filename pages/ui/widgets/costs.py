"""What passes cost on this machine: both curves of the pair in memory, when and how they were measured, and again."""

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from decoding.common.errors import DraftscopeError
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.models import manager
from pages.ui.common.worker import run_now
from viz.charts.costs import HEIGHT, CostLine, cost_figure
from viz.tokens import milliseconds, plural

if TYPE_CHECKING:
    from decoding.common.cost_model import CostCurve, CostModel

MEASURE_HELP = "Takes a second or two. Whiskers that reach far up say that the machine was busy with other things."


def draw_costs() -> None:
    """The curves of the pair in memory and a button that measures them anew; without any, how to get them."""
    models = manager()
    shown = st.container()
    if st.button("Measure now", key="costs_measure", icon=":material/timer:", help=MEASURE_HELP):
        with shown:
            _measure()
    with shown:
        if models.costs is None:
            st.info(
                "Nothing is measured yet: load a pair, or press Measure now, which loads the one named above right."
            )
            return
        st.caption(
            "What a pass takes by the number of nodes in it decides how large a tree pays. The method *Hardware-aware* "
            "reads its depth, width and size off these lines."
        )
        chart(cost_figure(cost_line(models.costs.target), cost_line(models.costs.draft), is_dark()), "costs", HEIGHT)
        st.caption(escape_markdown(measured_words(models.costs)))


def cost_line(curve: "CostCurve") -> CostLine:
    """A curve as the chart draws it."""
    points = curve.points
    every = np.arange(1, points[-1].size + 1)
    return CostLine(
        sizes=tuple(point.size for point in points),
        medians=tuple(1000 * point.seconds for point in points),
        lows=tuple(1000 * point.low_s for point in points),
        highs=tuple(1000 * point.high_s for point in points),
        line=tuple((1000 * curve.seconds(every)).tolist()),
    )


def measured_words(costs: "CostModel") -> str:
    """When, where and how the costs were measured, and what goes on beside the passes."""
    day, clock = costs.measured[:10], costs.measured[11:16]
    words = (
        f"Measured on {day} at {clock} UTC behind {plural(costs.prefix_length, 'token')}: points are medians of the "
        "quietest stretch, whiskers quartiles of all repeats; the line joins them, where no pass counts longer than a "
        f"larger one. {costs.machine}."
    )
    if not costs.iterations:
        return f"{words} Passes are so slow that nothing beside them counts."
    return (
        f"{words} Beside its passes an iteration takes {milliseconds(costs.iteration_s)} and each draft level "
        f"{milliseconds(costs.level_s)}, medians of {plural(costs.iterations, 'real iteration')}."
    )


def _measure() -> None:
    models = manager()
    try:
        run_now("Measuring what passes cost", lambda job: models.measure_costs())
    except DraftscopeError as error:
        show_error(error)
