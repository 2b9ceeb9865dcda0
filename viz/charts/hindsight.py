"""Charts of hindsight and luck: what was possible, what a run lost by its own budget, how lucky it was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from decoding.common.formats import number
from viz.theme import GREY, MARKS, SERIES, palette, pattern, style, with_alpha
from viz.tokens import escaped, visible

TAKEN, POSSIBLE = MARKS["accepted"].color, MARKS["bonus"].color
MOST_TOKENS = MOST_BARS = 24
RANK_TICKS = (1, 2, 3, 5, 10, 20, 50, 100, 1000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class RankBar:
    """One token of the text that followed.

    Attributes:
        rank: the draft's rank of it, None if not recorded; a lower bound if not `exact`.
        kind: `taken` by this tree, `possible` for the best tree in the draft's order, or `beyond`.
        note: where the rank comes from, for the tooltip.
    """

    text: str
    rank: int | None
    exact: bool
    kind: str
    note: str


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """Tokens and modelled seconds by number of nodes, `[nodes + 1]` each, and the number with most tokens/s."""

    tokens: tuple[float, ...]
    seconds: tuple[float, ...]
    best: int

    @property
    def rates(self) -> tuple[float, ...]:
        """Tokens per second."""
        return tuple(tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True))


def ranks_figure(bars: Sequence[RankBar], dark: bool = False) -> go.Figure:
    """The draft's rank of each token that followed; a tree finds short bars first."""
    shown = list(bars[:MOST_TOKENS])
    figure = go.Figure()
    for kind, name, color, shape in (
        ("taken", "in this tree", TAKEN, ""),
        ("possible", "within reach of the best tree of this size", POSSIBLE, "/"),
        ("beyond", "out of reach", GREY, "."),
    ):
        known = [(p, b, b.rank) for p, b in enumerate(shown, start=1) if b.kind == kind and b.rank is not None]
        if known:
            figure.add_bar(
                x=[place for place, _, _ in known], y=[rank for _, _, rank in known], name=name, width=0.74,
                marker={"color": color, "pattern": pattern(shape)},
                text=[_rank_words(rank, bar.exact) for _, bar, rank in known], textposition="outside", cliponaxis=False,
                customdata=[[_token(bar), _rank_words(rank, bar.exact), bar.note] for _, bar, rank in known],
                hovertemplate="%{customdata[0]}: the draft's rank %{customdata[1]}, %{customdata[2]}<extra></extra>",
            )  # fmt: skip
    for place, bar in enumerate(shown, start=1):
        if bar.rank is None:
            figure.add_annotation(
                x=place, y=0, text="?", showarrow=False, font_size=13, yanchor="bottom",
                hovertext=f"{_token(bar)}: unknown, the draft did not run here",
            )  # fmt: skip
    most = max((bar.rank for bar in shown if bar.rank is not None), default=1)
    style(figure, dark, barmode="overlay", margin={"l": 56, "r": 12, "t": 44, "b": 84})
    figure.update_xaxes(
        title_text=f"token that followed{f' (first {len(shown)} of {len(bars)})' if bars[len(shown):] else ''}",
        tickangle=-45,
        tickvals=list(range(1, len(shown) + 1)), ticktext=[_token(bar) for bar in shown],
        range=[0.4, max(len(shown), 6) + 0.6], showgrid=False,
        tickfont={"family": "Source Code Pro, monospace", "size": 11},
    )  # fmt: skip
    return figure.update_yaxes(
        title_text="rank in the draft's distribution", type="log",
        tickvals=[tick for tick in RANK_TICKS if tick <= 3 * most],
        ticktext=[f"{tick:,}" for tick in RANK_TICKS if tick <= 3 * most], range=[-0.25, max(0.7, log10(most) + 0.35)],
    )  # fmt: skip


def _rank_words(rank: int, exact: bool) -> str:
    return f"{rank:,}" if exact else f"> {rank - 1:,}"


def _token(bar: RankBar) -> str:
    return escaped(visible(bar.text, 10))


def budget_figure(line: BudgetLine, dark: bool = False, exact: bool = False) -> go.Figure:
    """Tokens per second by budget, modelled, with the best one and the whole tree marked; below, the tokens.

    Args:
        exact: tokens are the expectation over the verifier's draws, not what one run committed.
    """
    nodes, rates = list(range(len(line.tokens))), line.rates
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.66, 0.34], vertical_spacing=0.07)
    hovered = [[tokens, 1e3 * seconds] for tokens, seconds in zip(line.tokens, line.seconds, strict=True)]
    hover = "%{x} nodes: %{y:.1f} tokens/s (%{customdata[0]:.2f} tokens in %{customdata[1]:.1f} ms)<extra></extra>"
    figure.add_scatter(
        x=nodes, y=rates, mode="lines", line={"color": SERIES[0], "width": 2}, customdata=hovered, hovertemplate=hover,
        name="modelled", showlegend=False, row=1, col=1,
    )  # fmt: skip
    for name, place, symbol, color in (
        ("this tree", len(nodes) - 1, "circle", TAKEN),
        ("best budget", line.best, "star", POSSIBLE),
    ):
        figure.add_scatter(
            x=[place], y=[rates[place]], mode="markers", name=f"{name}: {number(rates[place], 1)} tokens/s",
            marker={"symbol": symbol, "size": 13, "color": color, "line": {"color": palette(dark).text, "width": 1}},
            customdata=[hovered[place]], hovertemplate=hover, row=1, col=1,
        )  # fmt: skip
    figure.add_scatter(
        x=nodes, y=line.tokens, mode="lines", name="tokens", showlegend=False,
        line={"color": SERIES[2], "width": 2, "shape": "linear" if exact else "hv"},
        hovertemplate="%{x} nodes: %{y:.2f} tokens<extra></extra>", row=2, col=1,
    )  # fmt: skip
    style(figure, dark, margin={"l": 60, "r": 12, "t": 34, "b": 48})
    figure.update_xaxes(title_text="nodes of this tree that are verified", rangemode="tozero", row=2, col=1)
    figure.update_yaxes(title_text="modelled tokens/s", rangemode="tozero", nticks=5, row=1, col=1)
    return figure.update_yaxes(title_text="tokens", rangemode="tozero", nticks=4, row=2, col=1)


def lost_figure(
    places: Sequence[int], lost: Sequence[float], current: int | None = None, dark: bool = False
) -> go.Figure:
    """Modelled tokens per second that each iteration lost relative to its own best budget."""
    figure = go.Figure()
    colors = [POSSIBLE if place == current else with_alpha(SERIES[4], 0.75) for place in places]
    figure.add_bar(
        x=[place + 1 for place in places], y=list(lost), marker={"color": colors}, showlegend=False,
        hovertemplate="iteration %{x}: %{y:.1f} tokens/s lost (modelled)<extra></extra>",
    )  # fmt: skip
    style(figure, dark, bargap=0.15, margin={"l": 60, "r": 12, "t": 16, "b": 48})
    title = f"iteration ({len(places)} counted; light blue: this one)" if current in places else "iteration"
    figure.update_xaxes(title_text=title, tickformat="d")
    return figure.update_yaxes(title_text="modelled tokens/s lost", rangemode="tozero", nticks=5)


def token_distribution_figure(
    probs: Mapping[int, float], happened: int, rolled: Mapping[int, int] | None = None, dark: bool = False
) -> go.Figure:
    """Exact probability of each number of committed tokens; the actual one is highlighted.

    Args:
        rolled: number of re-rolled draws by number of committed tokens.
    """
    last = max(max((n for n, p in probs.items() if p >= 5e-4), default=1), happened, *(rolled or {1: 0}))
    tokens = list(range(1, min(last, MOST_BARS) + 1))
    values = [100 * probs.get(n, 0.0) for n in tokens]
    figure = go.Figure()
    for name, mine, color, shape in (("exact", False, SERIES[0], ""), ("exact, this pass", True, TAKEN, "/")):
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
    style(figure, dark, barmode="overlay", margin={"l": 56, "r": 12, "t": 34, "b": 48})
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
    """Tokens committed minus expected so far, over the iterations, with bands of 1 and 2 standard deviations.

    Args:
        places: indices of the iterations; the other three belong to them.
        current: index of the selected iteration.
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
        x=numbers, y=ahead, mode="lines", name="committed − expected", line={"color": SERIES[0], "width": 2},
        customdata=np.stack([tokens, expected, spread], axis=-1) if numbers else None,
        hovertemplate="iteration %{x}: %{customdata[0]} tokens, %{customdata[1]:.2f} expected; %{y:+.2f} so far, "
        "± %{customdata[2]:.2f}<extra></extra>",
    )  # fmt: skip
    if current is not None and current in places:
        figure.add_scatter(
            x=[current + 1], y=[ahead[list(places).index(current)]], mode="markers", name="this iteration",
            marker={"symbol": "circle", "size": 10, "color": TAKEN, "line": {"color": color, "width": 1.5}},
            hoverinfo="skip",
        )  # fmt: skip
    style(figure, dark, margin={"l": 56, "r": 12, "t": 34, "b": 48})
    figure.update_xaxes(title_text="iteration", tickformat="d", rangemode="normal")
    return figure.update_yaxes(
        title_text="tokens ahead of expectation", nticks=5, zeroline=True, zerolinecolor=palette(dark).muted
    )
