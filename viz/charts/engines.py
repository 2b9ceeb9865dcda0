"""Charts of what an inference engine says about its speculative decoding."""

from collections.abc import Sequence

import plotly.graph_objects as go

from decoding.trace.engine_metrics import EngineMetrics
from viz.theme import SERIES, SERIES_DASHES, SERIES_SYMBOLS, pattern, style
from viz.tokens import escaped


def positions_figure(metrics: EngineMetrics, run: Sequence[float], run_label: str, dark: bool = False) -> go.Figure:
    """Acceptance by position, marginal and conditional, beside the marginal one of a run.

    Args:
        run: by depth; empty for none.
    """
    figure, places = go.Figure(), [each.position for each in metrics.positions]
    marginal = [(each.marginal, each.marginal_error) for each in metrics.positions]
    conditional = [(each.conditional, each.conditional_error) for each in metrics.positions]
    bars: tuple[tuple[str, Sequence[tuple[float | None, float | None]]], ...] = (
        ("marginal: all up to here accepted", marginal),
        ("conditional: accepted where the one before was", conditional),
    )
    for number, (name, shares) in enumerate(bars):
        figure.add_bar(
            x=places, y=[None if share is None else 100 * share for share, _ in shares], name=name,
            error_y={"type": "data", "array": [100 * (error or 0.0) for _, error in shares], "thickness": 1},
            marker={"color": SERIES[number], "pattern": pattern(("", "/")[number])},
            hovertemplate="position %{x}: %{y:.1f}%<extra></extra>",
        )  # fmt: skip
    if run:
        figure.add_scatter(
            x=list(range(1, len(run) + 1)), y=[100 * share for share in run], name=f"marginal, {escaped(run_label)}",
            mode="lines+markers", line={"color": SERIES[2], "dash": SERIES_DASHES[1]},
            marker={"symbol": SERIES_SYMBOLS[1], "size": 8}, hovertemplate="depth %{x}: %{y:.1f}%<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="group")
    style(figure, dark).update_xaxes(title_text="position of the draft token", dtick=1)
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"})
    return figure.update_yaxes(title_text="accepted (% of passes)", rangemode="tozero", range=[0, 105])


def other_lengths_figure(metrics: EngineMetrics, dark: bool = False) -> go.Figure:
    """Tokens per pass by draft tokens per pass: exact up to the engine's own, bounds beyond it."""
    figure, known = go.Figure(), [each for each in metrics.other_lengths if each.exact]
    figure.add_scatter(
        x=[each.draft_length for each in known], y=[each.stayed for each in known], mode="lines+markers",
        name="from the engine's rates", line={"color": SERIES[0]}, marker={"symbol": SERIES_SYMBOLS[0], "size": 7},
        hovertemplate="K %{x}: %{y:.2f} tokens per pass<extra></extra>",
    )  # fmt: skip
    beyond = [*known[-1:], *(each for each in metrics.other_lengths if not each.exact)]
    names = ("if every further token were accepted", "if the last conditional rate stayed", "if none were")
    for number, (name, column) in enumerate(zip(names, ("high", "stayed", "low"), strict=True)):
        figure.add_scatter(
            x=[each.draft_length for each in beyond], y=[getattr(each, column) for each in beyond], mode="lines",
            name=name, line={"color": SERIES[1], "dash": ("dot", "dash", "dot")[number]},
            hovertemplate="K %{x}: %{y:.2f} tokens per pass<extra></extra>",
        )  # fmt: skip
    style(figure, dark).update_xaxes(title_text="draft tokens per pass (K)", dtick=1)
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"})
    return figure.update_yaxes(title_text="tokens per pass, bonus included", rangemode="tozero")
