"""The chart of Tune live: every setting tried as a point, the pinned and the present one framed."""

from collections.abc import Sequence

import plotly.graph_objects as go

from viz.compare_charts import Tried, tried_settings_figure
from viz.theme import palette

ITERATION, WHOLE = "one iteration on this prefix", "whole generation"


def tuning_figure(tried: Sequence[Tried], current: str, pinned: str, dark: bool = False) -> go.Figure:
    """Throughput over acceptance; `current` and `pinned` are labels of iteration points."""
    # Iterations first: the symbol goes by the order of the groups and must not change when points come and go.
    ordered = sorted(tried, key=lambda entry: entry.group == WHOLE)
    figure = tried_settings_figure(ordered, current, dark)
    framed = next((entry for entry in ordered if entry.label == pinned and entry.group == ITERATION), None)
    if framed is not None:
        figure.add_scatter(
            x=[100 * framed.acceptance], y=[framed.throughput], mode="markers", name="pinned", hoverinfo="skip",
            marker={"size": 16, "symbol": "square-open", "color": palette(dark).text, "line": {"width": 1.5}},
        )  # fmt: skip
    # Few points make a wide room: from zero on, a small difference looks small.
    most = max((100 * entry.acceptance for entry in ordered), default=0.0)
    fastest = max((entry.throughput for entry in ordered), default=0.0)
    figure.update_layout(
        showlegend=bool(ordered),
        legend={"y": 1.02, "yanchor": "bottom", "itemclick": False, "itemdoubleclick": False},
        margin={"l": 56, "r": 16, "t": 30, "b": 40},
    )
    figure.update_xaxes(range=[-2, max(most * 1.12, 20)])
    return figure.update_yaxes(range=[0, max(fastest * 1.15, 1)])
