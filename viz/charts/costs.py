"""What passes cost here: measured times of target passes and draft levels, and the line that methods read off them."""

from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from viz.theme import PHASE_COLORS, SERIES_DASHES, SERIES_SYMBOLS, palette, style

HEIGHT = 300


@dataclass(frozen=True, slots=True)
class CostLine:
    """Times of one kind of pass in milliseconds.

    Attributes:
        sizes, medians, lows, highs: what was measured: number of nodes, median and quartiles of the repeats.
        line: milliseconds of every size from 1 to the largest measured one.
    """

    sizes: tuple[int, ...]
    medians: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    line: tuple[float, ...]


def cost_figure(target: CostLine | None, draft: CostLine | None, dark: bool = False) -> go.Figure:
    """Two panels, target passes by nodes and draft levels by width; points with whiskers are measured."""
    figure = make_subplots(1, 2, horizontal_spacing=0.12)
    panels = (
        (target, "target pass", "nodes in the pass, with the root", PHASE_COLORS["verify"]),
        (draft, "draft level", "nodes in the level", PHASE_COLORS["draft"]),
    )
    for column, (line, name, nodes, color) in enumerate(panels, start=1):
        if line is not None:
            for trace in _traces(line, name, color, column - 1, dark):
                figure.add_trace(trace, row=1, col=column)
            ticks = [str(size) for size in line.sizes]
            figure.update_xaxes(type="log", tickvals=line.sizes, ticktext=ticks, tickangle=0, row=1, col=column)
        figure.update_xaxes(title_text=nodes, row=1, col=column)
        figure.update_yaxes(title_text=f"{name} (ms)", rangemode="tozero", row=1, col=column)
    if target is None or draft is None:
        figure.add_annotation(
            text="Nothing is measured yet: load a pair, or press Measure now.", showarrow=False,
            xref="paper", yref="paper", x=0.5, y=0.5,
        )  # fmt: skip
    figure.update_layout(height=HEIGHT, showlegend=False)
    style(figure, dark).update_xaxes(minor_showgrid=False, zeroline=False)
    return figure.update_layout(margin={"l": 52, "r": 12, "t": 12, "b": 46})


def _traces(line: CostLine, name: str, color: str, place: int, dark: bool) -> list[go.Scatter]:
    """The line first, so that the points lie over it."""
    read_off = go.Scatter(
        x=list(range(1, len(line.line) + 1)), y=line.line, mode="lines", name=f"{name}, read off",
        line={"color": color, "width": 1.5, "dash": SERIES_DASHES[place]},
        hovertemplate=f"%{{x}} nodes: {name} %{{y:.3~g}} ms, read off the line<extra></extra>",
    )  # fmt: skip
    above = [max(high - median, 0.0) for high, median in zip(line.highs, line.medians, strict=True)]
    below = [max(median - low, 0.0) for low, median in zip(line.lows, line.medians, strict=True)]
    measured = go.Scatter(
        x=line.sizes, y=line.medians, mode="markers", name=f"{name}, measured",
        marker={"color": color, "size": 8, "symbol": SERIES_SYMBOLS[place],
                "line": {"color": palette(dark).surface, "width": 1}},
        error_y={"type": "data", "symmetric": False, "array": above, "arrayminus": below,
                 "color": palette(dark).text, "thickness": 1.2, "width": 4},
        customdata=list(zip(line.lows, line.highs, strict=True)),
        hovertemplate=f"%{{x}} nodes: {name} %{{y:.3~g}} ms, quartiles %{{customdata[0]:.3~g}} to "
                      "%{customdata[1]:.3~g} ms<extra></extra>",
    )  # fmt: skip
    return [read_off, measured]
