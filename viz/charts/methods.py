"""Pass times on this machine: measured target passes and draft levels, and the curve that methods use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from viz.theme import (
    GREY,
    PHASE_COLORS,
    PHASE_PATTERNS,
    PHASE_WORDS,
    SERIES,
    SERIES_DASHES,
    SERIES_SYMBOLS,
    palette,
    pattern,
    say,
    style,
    with_alpha,
)
from viz.tokens import escaped

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
            # The line first, so that the points are on top.
            figure.add_scatter(
                x=list(range(1, len(line.line) + 1)), y=line.line, mode="lines", name=f"{name}, interpolated",
                line={"color": color, "width": 1.5, "dash": SERIES_DASHES[column - 1]}, row=1, col=column,
                hovertemplate=f"%{{x}} nodes: {name} %{{y:.3~g}} ms, interpolated<extra></extra>",
            )  # fmt: skip
            above = [max(high - median, 0.0) for high, median in zip(line.highs, line.medians, strict=True)]
            below = [max(median - low, 0.0) for low, median in zip(line.lows, line.medians, strict=True)]
            whiskers = {"type": "data", "symmetric": False, "color": palette(dark).text, "thickness": 1.2, "width": 4}
            point = {"color": color, "size": 8, "symbol": SERIES_SYMBOLS[column - 1]}
            figure.add_scatter(
                x=line.sizes, y=line.medians, mode="markers", name=f"{name}, measured", row=1, col=column,
                marker=point | {"line": {"color": palette(dark).surface, "width": 1}},
                error_y=whiskers | {"array": above, "arrayminus": below},
                customdata=list(zip(line.lows, line.highs, strict=True)),
                hovertemplate=f"%{{x}} nodes: {name} %{{y:.3~g}} ms, quartiles %{{customdata[0]:.3~g}} to "
                              "%{customdata[1]:.3~g} ms<extra></extra>",
            )  # fmt: skip
            ticks = [str(size) for size in line.sizes]
            figure.update_xaxes(type="log", tickvals=line.sizes, ticktext=ticks, tickangle=0, row=1, col=column)
        figure.update_xaxes(title_text=nodes, row=1, col=column)
        figure.update_yaxes(title_text=f"{name} (ms)", rangemode="tozero", row=1, col=column)
    if target is None or draft is None:
        say(figure, "Nothing measured yet: load a pair or press Measure now.")
    style(figure, dark, height=HEIGHT, showlegend=False, margin={"l": 52, "r": 12, "t": 12, "b": 46})
    return figure.update_xaxes(minor_showgrid=False, zeroline=False)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Accepted drafted tokens of one run with both denominators; the bonus token counts in neither."""

    label: str
    accepted: int
    drafted: int
    verified: int


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting that was run: tokens per second, accepted share of the drafted nodes, and the setting."""

    label: str
    throughput: float
    acceptance: float
    group: str
    details: str = ""


def acceptance_figure(rows: Sequence[Acceptance], dark: bool = False) -> go.Figure:
    """Acceptance per run with both denominators written at the bars."""
    figure = go.Figure()
    names = [escaped(row.label) for row in rows]
    kinds = (("of drafted nodes", "drafted", SERIES[2], ""), ("of verified nodes", "verified", SERIES[0], "/"))
    for words, field, color, shape in kinds:
        totals = [getattr(row, field) for row in rows]
        figure.add_bar(
            x=[100 * row.accepted / total if total else 0 for row, total in zip(rows, totals, strict=True)], y=names,
            orientation="h", name=words, marker={"color": color, "pattern": pattern(shape)},
            text=[f"{row.accepted:,} / {total:,}" if total else "nothing drafted"
                  for row, total in zip(rows, totals, strict=True)],
            textposition=["auto" if total else "outside" for total in totals],
            hovertemplate=f"%{{y}}: %{{text}} {words} (%{{x:.1f}}%)<extra></extra>",
        )  # fmt: skip
    style(figure, dark, barmode="group", height=130 + 52 * max(len(rows), 1))
    figure.update_xaxes(title_text="accepted drafted tokens (%)", rangemode="tozero")
    return figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")


BAR_PX = 38
WIDEST_LABEL = 26
# Over a filled bar: without a fill dark colours vanish on the dark theme.
PATTERN = {"size": 5, "solidity": 0.25, "fillmode": "overlay"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A median with its quartiles, with at most 3 `repeats` the whole range; `shown` is the label next to the bar."""

    label: str
    median: float
    low: float
    high: float
    shown: str
    baseline: bool = False
    repeats: int = 4


@dataclass(frozen=True, slots=True)
class ProgressCurve:
    """Tokens committed over time in one call, in seconds since its start."""

    label: str
    seconds: tuple[float, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Seconds per committed token by part: the phases, `prefill`, and `other` for time outside all phases."""

    label: str
    parts: Mapping[str, float]


def speed_figure(bars: Sequence[Bar], dark: bool = False) -> go.Figure:
    """Tokens per second: medians as bars with whiskers; dotted lines extend the baselines' medians."""
    figure, colors = go.Figure(), palette(dark)
    around = "quartiles" if all(bar.repeats > 3 for bar in bars) else "range"
    labels, most = names([bar.label for bar in bars]), max((bar.high for bar in bars), default=1.0)
    figure.add_bar(
        **_medians(bars, 1, dark), y=labels, orientation="h", customdata=[[bar.low, bar.high] for bar in bars],
        hovertemplate=f"%{{y}}: %{{x:.1f}} tokens/s ({around} %{{customdata[0]:.1f}} to %{{customdata[1]:.1f}})"
        "<extra></extra>",
    )  # fmt: skip
    figure.update_traces(marker_pattern={"shape": ["/" if bar.baseline else "" for bar in bars], **PATTERN})
    words = {"showarrow": False, "xanchor": "left", "bgcolor": with_alpha(colors.surface, 0.75), "borderpad": 1}
    for bar, name in zip(bars, labels, strict=True):
        # Labels go right of the whisker, where neither bar nor whisker covers them.
        figure.add_annotation(x=bar.high, y=name, text=bar.shown, xshift=8, **words)
        if bar.baseline:
            figure.add_vline(x=bar.median, line={"color": colors.muted, "dash": "dot", "width": 1})
    style(figure, dark, height=chart_height(len(bars)), showlegend=False, bargap=0.35, margin_t=4)
    figure.update_xaxes(title_text=f"tokens / s (median, {around})", range=[0, most * 1.42])
    return _rows(figure)


def _medians(bars: Sequence[Bar], scale: float, dark: bool) -> dict:
    """Medians as horizontal bars with quartiles as whiskers."""
    whiskers = {"type": "data", "symmetric": False, "color": palette(dark).text, "thickness": 1.5, "width": 4}
    above = [scale * (bar.high - bar.median) for bar in bars]
    below = [scale * (bar.median - bar.low) for bar in bars]
    return {
        "x": [scale * bar.median for bar in bars],
        "marker": {"color": [GREY if bar.baseline else SERIES[0] for bar in bars]},
        "error_x": whiskers | {"array": above, "arrayminus": below},
    }


def token_cost_figure(costs: Sequence[TokenCost], dark: bool = False) -> go.Figure:
    """Milliseconds per committed token, stacked by phase; a call without phase times is one bar."""
    figure = go.Figure()
    labels = names([cost.label for cost in costs])
    known = {"prefill": (SERIES[5], ".", "prefill"), "whole": (GREY, "/", "no phase times (external baseline)")}
    known |= {name: (PHASE_COLORS[name], PHASE_PATTERNS[name], PHASE_WORDS[name]) for name in PHASE_COLORS}
    for part, (color, hatch, words) in known.items():
        values = [1e3 * cost.parts.get(part, 0.0) for cost in costs]
        if not any(values):
            continue
        figure.add_bar(
            x=values, y=labels, orientation="h", name=words,
            marker={"color": color, "pattern": {"shape": hatch, **PATTERN}},
            hovertemplate=f"{words}: %{{x:.2f}} ms per token<extra>%{{y}}</extra>",
        )  # fmt: skip
    style(figure, dark, barmode="stack", height=chart_height(len(costs)) + 60, bargap=0.35, margin_t=64)
    figure.update_xaxes(title_text="time per committed token (ms)", rangemode="tozero")
    return _rows(figure)


def latency_figure(first: Sequence[Bar], later: Sequence[Bar], dark: bool = False) -> go.Figure:
    """Time to first token (TTFT) and time per later token (TPOT) side by side, in milliseconds."""
    titles = ("time to first token, TTFT (ms)", "time per later token, TPOT (ms)")
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.08)
    for column, bars in enumerate((first, later), start=1):
        figure.add_bar(
            **_medians(bars, 1e3, dark), y=names([bar.label for bar in bars]), orientation="h",
            row=1, col=column, hovertemplate="%{y}: %{x:.2f} ms<extra></extra>",
        )  # fmt: skip
    style(figure, dark, height=chart_height(len(first)), showlegend=False, bargap=0.35)
    for column, title in enumerate(titles, start=1):
        figure.update_xaxes(title_text=title, rangemode="tozero", row=1, col=column)
    return _rows(figure)


def progress_figure(curves: Sequence[ProgressCurve], dark: bool = False) -> go.Figure:
    """Tokens over time of every method; a step is one iteration, which commits all its tokens at its end."""
    figure = go.Figure()
    for place, (curve, name) in enumerate(zip(curves, names([curve.label for curve in curves]), strict=True)):
        color = SERIES[place % len(SERIES)]
        last = len(curve.seconds)
        figure.add_scatter(
            x=[0.0, *curve.seconds], y=[0, *curve.tokens], name=name.replace("<br>", " "), mode="lines+markers",
            line={"shape": "hv", "width": 2, "color": color, "dash": SERIES_DASHES[place % len(SERIES_DASHES)]},
            # Only the end has a symbol: it distinguishes the curves without colour.
            marker={"symbol": SERIES_SYMBOLS[place % 8], "size": [0] * last + [10]},
            hovertemplate="%{y} tokens after %{x:.3f} s<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    style(figure, dark, height=380, hovermode="closest", margin_t=64)
    figure.update_xaxes(title_text="time since the start of the call (s)", rangemode="tozero")
    return figure.update_yaxes(title_text="new tokens", rangemode="tozero")


def chart_height(rows: int) -> int:
    """Height of a chart with one bar per method."""
    return 84 + BAR_PX * max(rows, 1)


def names(labels: Sequence[str]) -> list[str]:
    """Labels as axis ticks: escaped, broken into lines where they are long."""
    return ["<br>".join(map(escaped, wrap(label, WIDEST_LABEL) or [label])) for label in labels]


def _rows(figure: go.Figure) -> go.Figure:
    return figure.update_yaxes(autorange="reversed", showgrid=False, ticks="", ticklabelstandoff=6)


SPREAD = 0.16  # of the smallest distance between two places, from the first line to the last


def beside(places: Iterable[float], number: int, count: int) -> float:
    """Horizontal offset of the points of line `number` of `count` from their places on the axis."""
    known = sorted(set(places))
    nearest = min((after - before for before, after in pairwise(known)), default=1.0)
    return 0.0 if count < 2 else SPREAD * nearest * (number / (count - 1) - 0.5)


ITERATION, WHOLE = "one iteration on this prefix", "whole generation"


def tuning_figure(tried: Sequence[Tried], current: str, pinned: str, dark: bool = False) -> go.Figure:
    """Throughput over acceptance of every setting run; `current` and `pinned`, labels of iterations, are framed."""
    figure = go.Figure()
    # Iterations first: symbols follow the order of the groups and must not change when points come and go.
    ordered = sorted(tried, key=lambda entry: entry.group == WHOLE)
    for place, group in enumerate(dict.fromkeys(entry.group for entry in ordered)):
        members = [entry for entry in ordered if entry.group == group]
        figure.add_scatter(
            x=[100 * entry.acceptance for entry in members], y=[entry.throughput for entry in members], mode="markers",
            name=escaped(group), customdata=[entry.label for entry in members],
            hovertext=[f"{escaped(entry.label)}<br>{escaped(entry.details)}" for entry in members],
            hovertemplate="%{hovertext}<br>%{y:.1f} tokens/s, %{x:.1f}% accepted<extra></extra>",
            marker={"size": 10, "color": SERIES[place % 8], "symbol": SERIES_SYMBOLS[place % 8]},
        )  # fmt: skip
    iterations = [entry for entry in ordered if entry.group == ITERATION]
    for label, entries, name, size, symbol, color, width in (
        (current, ordered, "current", 20, "circle-open", palette(dark).select, 2.5),
        (pinned, iterations, "pinned", 16, "square-open", palette(dark).text, 1.5),
    ):
        framed = next((entry for entry in entries if entry.label == label), None)
        if framed is not None:
            figure.add_scatter(
                x=[100 * framed.acceptance], y=[framed.throughput], mode="markers", name=name, hoverinfo="skip",
                marker={"size": size, "symbol": symbol, "color": color, "line": {"width": width}},
            )  # fmt: skip
    if not tried:
        say(figure, "Change a setting to try it: every run adds a point here.")
    style(figure, dark, height=340, showlegend=bool(ordered), margin={"l": 56, "r": 16, "t": 30, "b": 40})
    figure.update_layout(legend={"itemclick": False, "itemdoubleclick": False})
    # Axes start at zero, so that a small difference looks small.
    most = max((100 * entry.acceptance for entry in ordered), default=0.0)
    fastest = max((entry.throughput for entry in ordered), default=0.0)
    figure.update_xaxes(title_text="accepted share of drafted nodes (%)", range=[-2, max(most * 1.12, 20)])
    return figure.update_yaxes(title_text="tokens / s", range=[0, max(fastest * 1.15, 1)])
