"""Charts of the papers' tables and figures: our estimates with intervals next to the paper's numbers.

marks = [PaperMark("DynaTree", ours=1.42, low=1.30, high=1.55, paper=1.64), ...]
figure = table_figure(marks, "speed-up")
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from viz.charts.methods import beside
from viz.charts.sweeps import SCALES, color_bar
from viz.theme import GREY, SERIES, SERIES_DASHES, SERIES_SYMBOLS, palette, style
from viz.tokens import escaped

FACTOR = 8.0  # further apart than this, the smaller ones would all be at 0 on one axis
ROW_HEIGHT, AROUND, LINES_HEIGHT, LEGEND_ROW = 30, 96, 330, 20
MOST_TICKS, LEAST_GAP = 8, 14  # most ticks, and the least share of the axis between two of them
HERE, PAPER = "Draftscope", "paper"
SECOND = {"row": 1, "col": 2}  # the panel of the paper's numbers, where one axis cannot show both


@dataclass(frozen=True, slots=True)
class PaperMark:
    """A method at one position of the axis: what Draftscope measured, and the paper's number.

    Attributes:
        way: name of the method.
        at: position on the axis of a figure; None in a table.
        ours, low, high: our estimate with its interval; None where not run; no interval for a single prompt.
        paper: the paper's number; None where it gives none.
    """

    way: str
    at: float | str | None = None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None


def far_apart(marks: Sequence[PaperMark]) -> bool:
    """Whether the paper's numbers are so much larger or smaller than ours that one axis cannot show both."""
    pairs = [(mark.ours, mark.paper) for mark in marks]
    both = [ours / paper for ours, paper in pairs if ours and paper and ours > 0 and paper > 0]
    if not both:
        ours = [each for each, _ in pairs if each and each > 0]
        theirs = [each for _, each in pairs if each and each > 0]
        both = [statistics.median(ours) / statistics.median(theirs)] if ours and theirs else [1.0]
    return not 1 / FACTOR <= statistics.median(both) <= FACTOR


def table_figure(marks: Sequence[PaperMark], words: str, dark: bool = False) -> go.Figure:
    """A row per method: a dot with its interval for ours, an open diamond for the paper's; two panels where far apart.

    Args:
        words: what is measured, with its unit.
    """
    ways = [escaped(way) for way in dict.fromkeys(mark.way for mark in marks)]
    theirs = [mark for mark in marks if mark.paper is not None]
    ours = [mark for mark in marks if mark.ours is not None]
    apart = far_apart(marks)
    figure = make_subplots(1, 1 + apart, shared_yaxes=True, horizontal_spacing=0.04)
    if theirs:
        figure.add_scatter(
            x=[mark.paper for mark in theirs], y=[escaped(mark.way) for mark in theirs], mode="markers",
            orientation="h", name=PAPER, marker={"symbol": "diamond-open", "size": 11, "color": GREY, "line_width": 2},
            hovertemplate="%{y}: %{x:.4g} in the paper<extra></extra>", **(SECOND if apart else {}),
        )  # fmt: skip
    if ours:
        figure.add_scatter(
            x=[mark.ours for mark in ours], y=[escaped(mark.way) for mark in ours], mode="markers",
            orientation="h", marker={"symbol": "circle", "size": 10, "color": SERIES[0]},
            name=f"{HERE}, 95% interval" if any(mark.low is not None for mark in ours) else HERE,
            error_x=_bars(ours, SERIES[0]), customdata=[_interval(mark) for mark in ours],
            hovertemplate="%{y}: %{x:.4g}%{customdata} in Draftscope<extra></extra>",
        )  # fmt: skip
    style(figure, dark, height=AROUND + ROW_HEIGHT * len(ways), margin={"l": 8, "r": 16, "t": 34, "b": 44})
    figure.update_layout(showlegend=True, legend={"itemclick": False})
    figure.update_xaxes(title_text=f"{words}, {HERE}" if apart else words, rangemode="tozero", nticks=8)
    if apart:
        figure.update_xaxes(title_text=f"{words}, {PAPER}", col=2)
    return figure.update_yaxes(
        categoryorder="array", categoryarray=ways[::-1], range=[-0.6, len(ways) - 0.4], ticks="", showgrid=True
    )


def lines_figure(marks: Sequence[PaperMark], words: str, axis: str, dark: bool = False) -> go.Figure:
    """A line per method over an axis, ours filled with intervals, the paper's open; two panels where far apart.

    Over names, such as kinds of text, marks are placed side by side without a line. With more methods than colours,
    those whose names are alike up to a comma share one.

    Args:
        words: what is measured, with its unit. axis: what it is measured over.
    """
    apart, named = far_apart(marks), any(isinstance(mark.at, str) for mark in marks)
    figure = make_subplots(1, 1 + apart, horizontal_spacing=0.1)
    numbers = [mark.at for mark in marks if mark.at is not None and not isinstance(mark.at, str)]
    ways, intervals = list(dict.fromkeys(mark.way for mark in marks)), any(mark.low is not None for mark in marks)
    for number, (way, look) in enumerate(zip(ways, _looks(ways), strict=True)):
        aside = beside(numbers, number, len(ways)) if intervals and not named else 0.0
        mine = [mark for mark in marks if mark.way == way]
        _add_line(figure, mine, look, "markers" if named else "lines+markers", aside)
    figure.update_traces(cliponaxis=False)  # do not clip marks at 0
    height = max(LINES_HEIGHT, AROUND + LEGEND_ROW * len(ways))  # a legend that scrolls hides names
    style(figure, dark, height=height, showlegend=True, margin={"l": 56, "r": 16, "t": 26, "b": 46})
    figure.update_layout(legend={"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top"})
    if named:
        places = list(dict.fromkeys(str(mark.at) for mark in marks))
        figure.update_layout(scattermode="group", scattergap=0.3)
        figure.update_xaxes(categoryorder="array", categoryarray=places, type="category")
    else:
        # The positions themselves as ticks, where they are few and far enough apart.
        ticks = sorted(set(numbers))
        gaps = [after - before for before, after in pairwise(ticks)]
        if gaps and len(ticks) <= MOST_TICKS and min(gaps) * LEAST_GAP >= ticks[-1] - ticks[0]:
            figure.update_xaxes(tickvals=ticks)
    figure.update_xaxes(title_text=axis)
    figure.update_yaxes(title_text=f"{words}, {HERE}" if apart else words, rangemode="tozero")
    if apart:
        figure.update_yaxes(title_text=f"{words}, {PAPER}", col=2)
    if any(mark.paper is not None for mark in marks):
        figure.add_annotation(
            text="open marks: paper", showarrow=False, xref="paper", yref="paper", x=1, y=1, xanchor="right",
            yanchor="bottom", font={"size": 11, "color": palette(dark).muted},
        )  # fmt: skip
    return figure


def places_figure(
    marks: Sequence[PaperMark], up: Mapping[str, float], words: str, axis: str, across: str, dark: bool = False
) -> go.Figure:
    """A mark per place of two settings, coloured by what we measured; ways without a place stand in a line above.

    Args:
        up: by method, its value on the vertical axis; `axis` and `across` are the titles of both.
    """
    there = [mark for mark in marks if mark.way in up and mark.ours is not None]
    levels = {mark.way: mark.ours for mark in marks if mark.way not in up and mark.ours is not None}
    figure = go.Figure()
    figure.add_scatter(
        x=[mark.at for mark in there], y=[up[mark.way] for mark in there], mode="markers+text", showlegend=False,
        text=[f"{mark.ours:.4g}" for mark in there], textposition="top center",
        marker={"size": 18, "color": [mark.ours for mark in there], "colorscale": SCALES[dark], "showscale": True,
                "line": {"width": 1, "color": palette(dark).muted},
                "colorbar": color_bar(words)},
        customdata=[_interval(mark) for mark in there], name=words,
        hovertemplate=f"{axis} %{{x}}, {across} %{{y}}: %{{marker.color:.4g}}%{{customdata}}<extra></extra>",
    )  # fmt: skip
    if levels:
        figure.add_annotation(
            text=escaped(" · ".join(f"{way}: {value:.4g}" for way, value in levels.items())), showarrow=False,
            xref="paper", yref="paper", x=0, y=1, xanchor="left", yanchor="bottom",
            font={"size": 11, "color": palette(dark).muted},
        )  # fmt: skip
    style(figure, dark, height=LINES_HEIGHT, margin={"l": 56, "r": 16, "t": 26, "b": 46})
    places = sorted({mark.at for mark in there if isinstance(mark.at, int | float)})
    figure.update_xaxes(title_text=axis, tickvals=places)
    return figure.update_yaxes(title_text=across, tickvals=sorted(set(up.values())), automargin=True)


def _looks(ways: Sequence[str]) -> list[tuple[str, str, str]]:
    """Colour, dash and symbol of each method, which all differ while there are colours enough."""
    if len(ways) <= len(SERIES):
        return list(zip(SERIES, SERIES_DASHES, SERIES_SYMBOLS, strict=False))[: len(ways)]
    kin = [way.partition(",")[0] for way in ways]
    colors = list(dict.fromkeys(kin))
    looks = []
    for number, family in enumerate(kin):
        color, member = colors.index(family), kin[:number].count(family)
        looks.append((
            SERIES[color % len(SERIES)], SERIES_DASHES[member % len(SERIES_DASHES)],
            SERIES_SYMBOLS[(color + member) % len(SERIES_SYMBOLS)],
        ))  # fmt: skip
    return looks


def _add_line(
    figure: go.Figure, mine: Sequence[PaperMark], look: tuple[str, str, str], mode: str, aside: float
) -> None:
    """The marks of one method, ours shifted by `aside` so that intervals do not overlap.

    The paper's are in the second panel if there is one, else without a line next to ours.
    """
    ours = [mark for mark in mine if mark.ours is not None]
    theirs = [mark for mark in mine if mark.paper is not None]
    (color, dash, symbol), name = look, escaped(mine[0].way)
    apart = len(list(figure.select_xaxes())) > 1
    if ours:
        figure.add_scatter(
            x=[mark.at if isinstance(mark.at, str | None) or not aside else mark.at + aside for mark in ours],
            y=[mark.ours for mark in ours], mode=mode, name=name, legendgroup=name, offsetgroup=name,
            line={"color": color, "dash": dash, "width": 2}, marker={"symbol": symbol, "size": 8},
            error_y=_bars(ours, color), customdata=[[mark.at, _interval(mark)] for mark in ours],
            hovertemplate="%{fullData.name} at %{customdata[0]}: %{y:.4g}%{customdata[1]} in Draftscope<extra></extra>",
        )  # fmt: skip
    if theirs:
        figure.add_scatter(
            x=[mark.at for mark in theirs], y=[mark.paper for mark in theirs],
            mode=mode if apart or not ours else "markers", name=f"{name}, {PAPER}" if ours else name, legendgroup=name,
            offsetgroup=name, showlegend=not ours, line={"color": color, "dash": dash, "width": 1.2},
            marker={"symbol": f"{symbol}-open", "size": 9, "color": color, "line": {"width": 1.5}},
            hovertemplate=f"{name} at %{{x}}: %{{y:.4g}} in the paper<extra></extra>", **(SECOND if apart else {}),
        )  # fmt: skip


def _bars(marks: Sequence[PaperMark], color: str) -> dict:
    return {
        "array": [0 if mark.high is None or mark.ours is None else mark.high - mark.ours for mark in marks],
        "arrayminus": [0 if mark.low is None or mark.ours is None else mark.ours - mark.low for mark in marks],
        "width": 4, "thickness": 1.4, "color": color,
    }  # fmt: skip


def _interval(mark: PaperMark) -> str:
    return "" if mark.low is None else f" ({mark.low:.4g} to {mark.high:.4g})"
