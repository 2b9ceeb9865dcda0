"""Speed-up by the number of sequences in a batch, and where it is lost."""

from collections.abc import Mapping, Sequence
from math import log10

import plotly.graph_objects as go

from viz.theme import SERIES, SERIES_DASHES, SERIES_SYMBOLS, palette, style
from viz.tokens import escaped

EDGE = 0.12  # of the axis beyond the batch sizes, in powers of ten


def speedup_by_batch_figure(
    series: Mapping[str, Sequence[tuple[int, float, str]]],
    break_even: Sequence[float],
    kind: str,
    no_room_from: int | None = None,
    dark: bool = False,
) -> go.Figure:
    """Speed-up over plain decoding by batch size, both axes by powers of 2, a line at 1.

    Args:
        series: by name; batch size, speed-up, and what gives it in words.
        break_even: batch sizes at which the faster of them crosses 1.
        kind: what the figures are, such as modelled.
        no_room_from: the first batch size that memory has no room for; None where all fit.
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
        figure.add_annotation(text=f"break-even {at:.0f}", x=log10(at), y=1, yanchor="top", xanchor=side, **label)
    if no_room_from is not None:
        start = no_room_from / 2**0.5
        figure.add_vrect(x0=start, x1=batches[-1] * 2, fillcolor=colors.muted, opacity=0.14, line_width=0)
        figure.add_annotation(text="no room in memory", x=last, y=0, yanchor="bottom", xanchor="right", **label)
    style(figure, dark).update_xaxes(
        title_text="sequences in a batch", type="log", tickvals=batches, range=[first - EDGE, last + EDGE]
    )
    gains = [gain for points in series.values() for _, gain, _ in points]
    top = max(1.5, *gains) * 1.12
    figure.update_layout(margin={"l": 56, "r": 16, "t": 44, "b": 48})
    return figure.update_yaxes(title_text=f"x plain decoding ({kind})", range=[min(0.6, *gains) * 0.95, top])
