"""Charts of a training: one panel per family of figures, from log records alone, and what its trees were worth.

    for panel in panels(records):                      # records: plain dicts with `phase`, `step`, `trained_s`, figures
        figure = training_figure(panel, records, by_time=True, planned=10)
    figure = moments_figure(moments, chosen=3)

Ranges are fixed to round numbers and to what is planned, so that a chart that is drawn again as figures come in stays
where it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from viz.theme import SERIES, SERIES_DASHES, SERIES_SYMBOLS, palette, style
from viz.training_panels import Family, Panel, Record, family_of, is_number
from viz.tokens import for_plotly_keep

HEIGHT = 250
MOST_POINTS = 400  # of a series; more are averaged in groups
MOST_MARKED = 60
STARTS = 0.05  # share of the figures at the beginning that may leave the panel: the first losses dwarf all others


@dataclass(frozen=True, slots=True)
class Moment:
    """The held-out prompt drafted at one moment of a training.

    Attributes:
        place: step or minute at which. words: the moment in words. tokens_per_pass: committed per pass of the target.
    """

    place: float
    words: str
    tokens_per_pass: float


def training_figure(
    panel: Panel,
    records: Sequence[Record],
    by_time: bool = False,
    planned: float | None = None,
    dark: bool = False,
) -> go.Figure:
    """One panel over the steps of a phase, or over its minutes.

    Args:
        records: of one phase, in their order.
        by_time: whether the phase is planned by time, so that it is drawn over its minutes instead of its steps.
        planned: minutes or steps that it is planned to take; the x axis reaches that far.
    """
    figure, shown, first = go.Figure(), [], []
    for place, name in enumerate(panel.names):
        points = series(records, name, by_time, 100 if panel.family.percent else 1)
        figure.add_scatter(**_line(points, panel.words(name), place, by_time, panel.family.percent))
        values = [value for _, value in points]
        shown += values[int(STARTS * len(values)) :]
        first += values[:1]
    figure.update_layout(height=HEIGHT, showlegend=len(panel.names) > 1)
    style(figure, dark).update_layout(legend_font_size=11)
    low, high = _range(panel.family, shown)
    reached = max((_place(record, by_time) for record in records), default=0.0)
    most = max(planned or round_range([0.0, reached])[1], reached)
    figure.update_xaxes(title_text=x_title(by_time), range=[-0.01 * most, 1.02 * most])
    figure.update_yaxes(title_text=panel.family.axis, range=[low, high + 0.02 * (high - low)], nticks=6)
    if first and max(first) > high + 0.05 * (high - low):
        figure.add_annotation(
            text=f"begins at {max(first):.3g}, above this panel", showarrow=False, xref="paper", yref="paper",
            x=1, y=1, xanchor="right", yanchor="top", font={"size": 11, "color": palette(dark).muted},
        )  # fmt: skip
    return figure.update_layout(margin={"l": 56, "r": 16, "t": 34 if len(panel.names) > 1 else 14, "b": 44})


def moments_figure(
    moments: Sequence[Moment], chosen: int, by_time: bool, planned: float | None = None, dark: bool = False
) -> go.Figure:
    """Tokens per target pass of the held-out prompt, moment by moment; the chosen one is framed.

    Args:
        chosen: index of the moment that is looked at.
        by_time, planned: whether places are minutes instead of steps, and how far the phase is planned to go.
    """
    values = [moment.tokens_per_pass for moment in moments]
    places = [moment.place for moment in moments]
    figure = go.Figure()
    figure.add_scatter(
        x=places, y=values, mode="lines+markers", name="held-out prompt", showlegend=False,
        line={"color": SERIES[0], "width": 2}, marker={"symbol": SERIES_SYMBOLS[0], "size": 7},
        hovertext=[for_plotly_keep(moment.words) for moment in moments],
        hovertemplate="%{hovertext}: %{y:.2f} tokens per target pass<extra></extra>",
    )  # fmt: skip
    if moments:
        figure.add_scatter(
            x=[places[chosen]], y=[values[chosen]], mode="markers", hoverinfo="skip", showlegend=False,
            cliponaxis=False,
            marker={"symbol": "circle-open", "size": 16, "color": palette(dark).select, "line": {"width": 2.5}},
        )  # fmt: skip
    figure.update_layout(height=HEIGHT)
    style(figure, dark)
    reached = max(places, default=0.0)
    most = max(planned or round_range([0.0, reached])[1], reached)
    figure.update_xaxes(title_text=x_title(by_time), range=[-0.02 * most, 1.02 * most])
    per_pass = family_of("tokens_per_pass")
    figure.update_yaxes(title_text=per_pass.axis, range=list(_range(per_pass, values)), nticks=6)
    return figure.update_layout(margin={"l": 56, "r": 16, "t": 14, "b": 44})


def series(records: Sequence[Record], name: str, by_time: bool = False, scale: float = 1) -> list[tuple[float, float]]:
    """Places and values of a figure; where there are more than `MOST_POINTS`, means of neighbours."""
    points = [(_place(record, by_time), scale * record[name]) for record in records if is_number(record.get(name))]
    together = math.ceil(len(points) / MOST_POINTS)
    if together <= 1:
        return points
    groups = [points[start : start + together] for start in range(0, len(points), together)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def x_title(by_time: bool) -> str:
    """What the x axis says: places are minutes of training or steps, both of one phase."""
    return "minutes of training" if by_time else "training step"


def round_range(values: Sequence[float]) -> tuple[float, float]:
    """A range of round numbers around some values, which changes seldom while values come in."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    spread = high - low or abs(high) or 1.0
    unit = 10 ** math.floor(math.log10(spread))
    step = next(unit * share for share in (0.2, 0.5, 1.0, 2.0) if spread / (unit * share) <= 6)
    bottom = math.floor(low / step - 1e-9) * step
    return (max(bottom, 0.0) if low >= 0 else bottom), math.ceil(high / step + 1e-9) * step


def _range(family: Family, values: Sequence[float]) -> tuple[float, float]:
    """What the y axis of a family shows of some values."""
    highest = max(values, default=0.0)
    if family.percent:
        return 0.0, next((top for top in (10.0, 25.0, 50.0) if highest <= 0.9 * top), 100.0)
    if family.least is not None:  # plain decoding has exactly 1 token per pass
        return family.least - 0.1, max(family.least + 1.0, math.ceil(2 * highest + 0.2) / 2)
    return round_range(values)


def _place(record: Record, by_time: bool) -> float:
    return record["trained_s"] / 60 if by_time else record["step"]


def _line(points: list[tuple[float, float]], words: str, place: int, by_time: bool, percent: bool) -> dict:
    """One series; where its points are few each has a mark."""
    color, unit = SERIES[place % len(SERIES)], "%" if percent else ""
    at = "minute %{x:.1f}" if by_time else "step %{x:,}"
    return {
        "x": [x for x, _ in points], "y": [y for _, y in points], "name": for_plotly_keep(words),
        "mode": "lines+markers" if len(points) <= MOST_MARKED else "lines",
        "line": {"color": color, "width": 1.8, "dash": SERIES_DASHES[place % len(SERIES_DASHES)]},
        "marker": {"symbol": SERIES_SYMBOLS[place % len(SERIES_SYMBOLS)], "size": 6},
        "hovertemplate": f"{for_plotly_keep(words)}, {at}: %{{y:.4~g}}{unit}<extra></extra>",
    }  # fmt: skip
