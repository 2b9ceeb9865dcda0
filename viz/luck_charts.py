"""Charts of luck: what one pass could have committed, and how far a run ran ahead of what was to be expected."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from viz.theme import GREY, MARKS, SERIES, palette, pattern, style, with_alpha

HAPPENED = MARKS["accepted"].color
MOST_BARS = 24


def token_law_figure(
    law: Mapping[int, float], happened: int, rolled: Mapping[int, int] | None = None, dark: bool = False
) -> go.Figure:
    """Exact probability of each number of committed tokens; the one that happened stands out.

    Args:
        rolled: how many of some re-rolled draws committed how many tokens.
    """
    last = max(max((n for n, p in law.items() if p >= 5e-4), default=1), happened, *(rolled or {1: 0}))
    tokens = list(range(1, min(last, MOST_BARS) + 1))
    values = [100 * law.get(n, 0.0) for n in tokens]
    figure = go.Figure()
    for name, mine, color, shape in (("exact", False, SERIES[0], ""), ("exact, what happened", True, HAPPENED, "/")):
        kept = [(n, value) for n, value in zip(tokens, values, strict=True) if (n == happened) is mine]
        figure.add_bar(
            x=[n for n, _ in kept], y=[value for _, value in kept], name=name, width=0.72,
            marker={"color": color, "pattern": pattern(shape)},
            hovertemplate="%{x} tokens: %{y:.1f}% of all draws (exact)<extra></extra>",
        )  # fmt: skip
    if rolled:
        total = sum(rolled.values())
        figure.add_scatter(
            x=tokens, y=[100 * rolled.get(n, 0) / total for n in tokens], mode="markers",
            name=f"{total:,} re-rolled draws",
            marker={"symbol": "diamond-open", "size": 9, "color": palette(dark).text, "line": {"width": 1.6}},
            customdata=[rolled.get(n, 0) for n in tokens],
            hovertemplate=f"%{{x}} tokens: %{{customdata}} of {total:,} re-rolled draws (%{{y:.1f}}%)<extra></extra>",
        )  # fmt: skip
    style(figure, dark).update_layout(barmode="overlay", margin={"l": 56, "r": 12, "t": 34, "b": 48})
    figure.update_xaxes(
        title_text="tokens committed by this pass", dtick=1, tickformat="d", range=[0.4, tokens[-1] + 0.6]
    )
    return figure.update_yaxes(title_text="share of all draws (%)", rangemode="tozero", nticks=5)


def run_luck_figure(
    places: Sequence[int],
    tokens: Sequence[int],
    expected: Sequence[float],
    variances: Sequence[float],
    current: int | None = None,
    dark: bool = False,
) -> go.Figure:
    """Tokens committed beyond expectation so far, over the iterations, in the band where two in three runs lie.

    Args:
        places: indices of the iterations; the other three belong to them.
        current: index of the iteration looked at.
    """
    numbers = [place + 1 for place in places]
    ahead = np.cumsum(np.array(tokens) - np.array(expected))
    spread = np.sqrt(np.cumsum(variances))
    color = palette(dark).text
    figure = go.Figure()
    for factor, shade, name in ((2, 0.16, "± 2 standard deviations"), (1, 0.3, "± 1")):
        figure.add_scatter(
            x=[*numbers, *numbers[::-1]], y=[*(factor * spread), *(-factor * spread[::-1])], fill="toself", name=name,
            mode="none", fillcolor=with_alpha(GREY, shade), hoverinfo="skip",
        )  # fmt: skip
    figure.add_scatter(
        x=numbers, y=ahead, mode="lines", name="happened − expected", line={"color": SERIES[0], "width": 2},
        customdata=np.stack([tokens, expected, spread], axis=-1) if numbers else None,
        hovertemplate="iteration %{x}: %{customdata[0]} tokens, %{customdata[1]:.2f} expected; %{y:+.2f} so far, "
        "± %{customdata[2]:.2f}<extra></extra>",
    )  # fmt: skip
    if current in places:
        figure.add_scatter(
            x=[current + 1], y=[ahead[list(places).index(current)]], mode="markers", name="this iteration",
            marker={"symbol": "circle", "size": 10, "color": HAPPENED, "line": {"color": color, "width": 1.5}},
            hoverinfo="skip",
        )  # fmt: skip
    style(figure, dark).update_layout(margin={"l": 56, "r": 12, "t": 34, "b": 48})
    figure.update_xaxes(title_text="iteration", tickformat="d", rangemode="normal")
    return figure.update_yaxes(
        title_text="tokens ahead, so far", nticks=5, zeroline=True, zerolinecolor=palette(dark).muted
    )
