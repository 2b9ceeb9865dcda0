"""Charts of the papers' tables and figures: our estimates with their intervals, the paper's numbers beside them.

figure = exhibit_figure(outcome, outcome.exhibit.figures[0])
"""

import plotly.graph_objects as go

from decoding.papers.exhibit import Figure
from decoding.papers.judge import Outcome
from viz.theme import GREY, SERIES, SERIES_DASHES, SERIES_SYMBOLS, palette, style
from viz.tokens import for_plotly

ROW_HEIGHT, MARGIN = 34, 92
AXIS_WORDS = {"asked_tokens": "generated tokens", "cut": "prompt tokens at most"}


def exhibit_figure(outcome: Outcome, figure: Figure, dark: bool = False) -> go.Figure:
    """One column of an exhibit: a dot and its interval per way, or a line per way over the axis of a figure."""
    return _lines(outcome, figure, dark) if outcome.exhibit.by else _dots(outcome, figure, dark)


def _dots(outcome: Outcome, figure: Figure, dark: bool) -> go.Figure:
    ways = outcome.exhibit.ways
    chart = go.Figure()
    theirs = [(way.words, way.paper[figure.column]) for way in ways if figure.column in way.paper]
    ours = [(way.words, found) for way in ways if (found := outcome.ours.get(((way.words, None), figure.column)))]
    if theirs:
        chart.add_scatter(
            x=[value for _, value in theirs], y=[for_plotly(words) for words, _ in theirs], mode="markers",
            name="paper", marker={"symbol": "diamond-open", "size": 11, "color": GREY, "line": {"width": 2}},
            hovertemplate="%{y}: %{x:.4g} in the paper<extra></extra>",
        )  # fmt: skip
    if ours:
        chart.add_scatter(
            x=[found.value for _, found in ours], y=[for_plotly(words) for words, _ in ours], mode="markers",
            name="here, 95% interval", marker={"symbol": "circle", "size": 10, "color": SERIES[0]},
            error_x={
                "array": [found.high - found.value for _, found in ours],
                "arrayminus": [found.value - found.low for _, found in ours], "width": 5, "color": SERIES[0],
            },
            hovertemplate="%{y}: %{x:.4g} here<extra></extra>",
        )  # fmt: skip
    chart.update_layout(showlegend=True)
    style(chart, dark).update_layout(height=MARGIN + ROW_HEIGHT * len(ways), margin={"l": 8, "r": 16, "t": 34, "b": 48})
    chart.update_xaxes(title_text=figure.words, rangemode="tozero")
    chart.update_yaxes(categoryorder="array", categoryarray=[for_plotly(way.words) for way in reversed(ways)])
    return chart


def _lines(outcome: Outcome, figure: Figure, dark: bool) -> go.Figure:
    chart = go.Figure()
    for place, way in enumerate(outcome.exhibit.ways):
        color, dash = SERIES[place % len(SERIES)], SERIES_DASHES[place % len(SERIES_DASHES)]
        symbol = SERIES_SYMBOLS[place % len(SERIES_SYMBOLS)]
        found = [(value, each) for value in outcome.values
                 if (each := outcome.ours.get(((way.words, value), figure.column)))]  # fmt: skip
        if found:
            chart.add_scatter(
                x=[value for value, _ in found], y=[each.value for _, each in found], mode="lines+markers",
                name=for_plotly(way.words), line={"color": color, "dash": dash, "width": 2},
                marker={"symbol": symbol, "size": 8},
                error_y={
                    "array": [each.high - each.value for _, each in found],
                    "arrayminus": [each.value - each.low for _, each in found], "width": 4, "thickness": 1.2,
                },
                hovertemplate="%{fullData.name} at %{x}: %{y:.4g} here<extra></extra>",
            )  # fmt: skip
        theirs = sorted((key[1], value) for key, value in way.paper.items() if key[0] == figure.column)
        if theirs:
            chart.add_scatter(
                x=[at for at, _ in theirs], y=[value for _, value in theirs], mode="markers", showlegend=False,
                marker={"symbol": f"{symbol}-open", "size": 10, "color": color, "line": {"width": 1.5}},
                hovertemplate=f"{for_plotly(way.words)} at %{{x}}: %{{y:.4g}} in the paper<extra></extra>",
            )  # fmt: skip
    style(chart, dark).update_layout(height=330, margin={"l": 56, "r": 16, "t": 56, "b": 48})
    chart.update_xaxes(title_text=AXIS_WORDS.get(outcome.exhibit.by, outcome.exhibit.by))
    chart.update_yaxes(title_text=figure.words, rangemode="tozero")
    if any(way.paper for way in outcome.exhibit.ways):
        chart.add_annotation(
            text="open marks: the paper", showarrow=False, xref="paper", yref="paper", x=1, y=0, xanchor="right",
            yanchor="bottom", font={"size": 11, "color": palette(dark).muted},
        )  # fmt: skip
    return chart
