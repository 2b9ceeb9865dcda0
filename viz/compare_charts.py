"""Charts that set methods or settings beside each other, from plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from viz.theme import SERIES, SERIES_SYMBOLS, palette, pattern, style
from viz.tokens import for_plotly_keep


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Accepted drafted tokens of one run with both denominators; the bonus token is in none of them."""

    label: str
    accepted: int
    drafted: int
    verified: int


@dataclass(frozen=True, slots=True)
class Tried:
    """One tried setting: tokens per second, accepted share of the drafted nodes, and what the setting was."""

    label: str
    throughput: float
    acceptance: float
    group: str = ""
    details: str = ""


def acceptance_figure(rows: Sequence[Acceptance], dark: bool = False) -> go.Figure:
    """Acceptance per run with both denominators written beside the bars."""
    figure = go.Figure()
    names = [for_plotly_keep(row.label) for row in rows]
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
    figure.update_layout(barmode="group", height=130 + 52 * max(len(rows), 1))
    style(figure, dark).update_xaxes(title_text="accepted drafted tokens (%)", rangemode="tozero")
    return figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")


def tried_settings_figure(tried: Sequence[Tried], current: str | None = None, dark: bool = False) -> go.Figure:
    """Throughput against acceptance of every tried setting; groups differ in colour and symbol, one is framed."""
    figure = go.Figure()
    groups = list(dict.fromkeys(entry.group for entry in tried))
    for place, group in enumerate(groups):
        members = [entry for entry in tried if entry.group == group]
        figure.add_scatter(
            x=[100 * entry.acceptance for entry in members], y=[entry.throughput for entry in members], mode="markers",
            name=for_plotly_keep(group) or "tried", customdata=[entry.label for entry in members],
            hovertext=[f"{for_plotly_keep(entry.label)}<br>{for_plotly_keep(entry.details)}" for entry in members],
            hovertemplate="%{hovertext}<br>%{y:.1f} tokens/s, %{x:.1f}% accepted<extra></extra>",
            marker={"size": 10, "color": SERIES[place % 8], "symbol": SERIES_SYMBOLS[place % 8]},
        )  # fmt: skip
    framed = next((entry for entry in tried if entry.label == current), None)
    if framed is not None:
        figure.add_scatter(
            x=[100 * framed.acceptance], y=[framed.throughput], mode="markers", name="current", hoverinfo="skip",
            marker={"size": 20, "symbol": "circle-open", "color": palette(dark).select, "line": {"width": 2.5}},
        )  # fmt: skip
    if not tried:
        figure.add_annotation(
            text="Move a setting to try it: every run leaves a point here.", showarrow=False,
            xref="paper", yref="paper", x=0.5, y=0.5,
        )  # fmt: skip
    figure.update_layout(height=340, showlegend=len(groups) > 1 or framed is not None)
    style(figure, dark).update_xaxes(title_text="accepted share of drafted nodes (%)")
    return figure.update_yaxes(title_text="tokens / s")
