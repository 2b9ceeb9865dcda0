"""What an engine says: acceptance by position and other draft lengths; speed-up by batch size, and where it is lost."""

from collections.abc import Mapping, Sequence
from math import log10

import plotly.graph_objects as go

from decoding.trace.engine_metrics import EngineMetrics
from viz.theme import SERIES, SERIES_DASHES, SERIES_SYMBOLS, palette, pattern, style
from viz.tokens import escaped

EDGE = 0.12  # of the axis beyond the batch sizes, in powers of ten
ROOM = 0.3  # of the axis for batch sizes that memory has no room for
NEAR = 1.1  # a single batch size has a width, too


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
            error_y=_errors(shares),
            marker={"color": SERIES[number], "pattern": pattern(("", "/")[number])},
            hovertemplate="position %{x}: %{y:.1f}%<extra></extra>",
        )  # fmt: skip
    if run:
        figure.add_scatter(
            x=list(range(1, len(run) + 1)), y=[100 * share for share in run], name=f"marginal, {escaped(run_label)}",
            mode="lines+markers", line={"color": SERIES[2], "dash": SERIES_DASHES[1]},
            marker={"symbol": SERIES_SYMBOLS[1], "size": 8}, hovertemplate="depth %{x}: %{y:.1f}%<extra></extra>",
        )  # fmt: skip
    style(figure, dark, barmode="group").update_xaxes(title_text="position of the draft token", dtick=1)
    return figure.update_yaxes(title_text="accepted (%)", rangemode="tozero", range=[0, 105])


def _errors(shares: Sequence[tuple[float | None, float | None]]) -> dict | None:
    """Error bars of rates with their standard errors; none where no error is known."""
    if all(error is None for _, error in shares):
        return None
    return {"type": "data", "array": [100 * (error or 0.0) for _, error in shares], "thickness": 1}


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
            x=[each.draft_length for each in beyond], y=[getattr(each, column) for each in beyond], name=name,
            mode="lines+markers", line={"color": SERIES[number + 1], "dash": ("longdashdot", "dash", "dot")[number]},
            marker={"symbol": SERIES_SYMBOLS[number + 1], "size": 7},
            hovertemplate="K %{x}: %{y:.2f} tokens per pass<extra></extra>",
        )  # fmt: skip
    style(figure, dark).update_xaxes(title_text="draft tokens per pass (K)", dtick=1)
    return figure.update_yaxes(title_text="tokens per pass, bonus included", rangemode="tozero")


def speedup_by_batch_figure(
    series: Mapping[str, Sequence[tuple[int, float, str]]],
    break_even: Sequence[float],
    kind: str,
    most: int | None = None,
    dark: bool = False,
    yours: tuple[int, int] | None = None,
) -> go.Figure:
    """Speed-up over plain decoding by batch size, both axes by powers of 2, a line at 1.

    Args:
        series: by name; batch size, speed-up, and what gives it in words.
        break_even: batch sizes at which the faster of them crosses 1.
        kind: what the figures are, such as modelled.
        most: the largest batch size that memory has room for; None where all fit.
        yours: the batch sizes of a server.
    """
    figure, colors = go.Figure(), palette(dark)
    for number, (name, points) in enumerate(series.items()):
        figure.add_scatter(
            x=[batch for batch, _, _ in points], y=[gain for _, gain, _ in points], name=escaped(f"{name}, {kind}"),
            mode="lines+markers", line={"color": SERIES[number], "dash": SERIES_DASHES[number]},
            marker={"symbol": SERIES_SYMBOLS[number], "size": 8},
            customdata=[escaped(words) for _, _, words in points],
            hovertemplate="batch %{x}: %{y:.2f}x (%{customdata})<extra></extra>",
        )  # fmt: skip
    figure.add_hline(y=1, line={"color": colors.muted, "width": 1.5, "dash": "dash"})
    batches = sorted({batch for points in series.values() for batch, _, _ in points})
    first, last = (log10(end) for end in (batches[0], batches[-1]))
    label = {"yref": "paper", "showarrow": False, "font": {"color": colors.text}}
    for at in break_even:  # on a logarithmic axis a shape stands at its value, a label at its logarithm
        figure.add_vline(x=at, line={"color": colors.select, "width": 1.5})
        side = "right" if log10(at) > (first + last) / 2 else "left"
        figure.add_annotation(text=f"break-even {at:.3g}", x=log10(at), y=1, yanchor="top", xanchor=side, **label)
    if most is not None:
        last = max(last, log10(most)) + ROOM
        figure.add_vrect(x0=most, x1=10 ** (last + EDGE), fillcolor=colors.muted, opacity=0.14, line_width=0)
        figure.add_annotation(text="no room in memory", x=last, y=0, yanchor="bottom", xanchor="right", **label)
    if yours is not None:
        figure.add_vrect(x0=yours[0] / NEAR, x1=yours[1] * NEAR, fillcolor=colors.select, opacity=0.1, line_width=0)
        middle = (log10(yours[0]) + log10(yours[1])) / 2
        figure.add_annotation(text="your batch", x=middle, y=0, yanchor="bottom", **label)
    style(figure, dark, margin_t=44).update_xaxes(
        title_text="sequences in a batch", type="log", tickvals=batches, range=[first - EDGE, last + EDGE]
    )
    gains = [gain for points in series.values() for _, gain, _ in points]
    top = max(1.5, *gains) * 1.12
    return figure.update_yaxes(title_text=f"x plain decoding ({kind})", range=[min(0.6, *gains) * 0.95, top])
