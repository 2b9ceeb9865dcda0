"""Verifiers on one tree: at each node the exact probability that one reaches and accepts it, and their charts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from decoding.common.formats import number
from decoding.trace.records import IterationTrace
from viz.explain.iteration import iteration_summary
from viz.scope.data import compact_data
from viz.theme import PHASE_COLORS, SERIES, SERIES_DASHES, SERIES_SYMBOLS, palette, pattern, style, with_alpha
from viz.tokens import columns, escaped, visible

# With more rows than this there is no room for a second line under a token.
TWO_LINE_ROWS = 11


def kept_tree_data(
    iteration: IterationTrace,
    *,
    scene_id: str,
    title: str,
    walker: str,
    selected: int | None = None,
    unfolded: Collection[int] = (),
) -> dict:
    """Data of the compact scope for an iteration replayed by a verifier (`replay.replayed_iteration`).

    The node where the walk of `walker` stopped is framed. The final token is left out: its parent differs between
    verifiers, so it would move the other nodes.
    """
    stop = iteration.accepted[-1] if iteration.accepted else 0
    still = replace(iteration, final_kind="none", committed_ids=(), committed_texts=())  # no end of the text either
    marks = {stop: f"end of {walker}"}
    data = compact_data(still, scene_id=scene_id, title=title, marks=marks, selected=selected, unfolded=unfolded)
    scene = data["scene"]
    scene["summary"] = iteration_summary(iteration)
    scene["note"] += " · number: acceptance probability"
    for node in scene["nodes"]:
        if node["node_id"] > 0:
            chance = iteration.nodes[node["node_id"]].acceptance_probability
            _write(node, chance, squeezed=scene["rows"] > TWO_LINE_ROWS)
    texts = [node for node in scene["nodes"] if node["labelled"] or node["folded"]]
    scene["column_chars"] = [
        max((node["chars"] for node in texts if node["depth"] == depth), default=0)
        for depth in range(len(scene["column_chars"]))
    ]
    return data


def _write(node: dict, chance: float | None, squeezed: bool) -> None:
    """Put the probability under the token, or before it where no second line fits; pruned nodes have none."""
    node["both"] = "" if chance is None else number(chance)
    if chance is not None:
        node["title"] += f", reached and accepted with probability {number(chance, 4)}"
    if squeezed and node["labelled"]:
        written = "0" if chance == 0 else node["both"]
        node["label"] = f"{written} {node['label']}".lstrip()  # a label that is cut keeps its number
    times = f" ×{node['multiplicity']}" if node["multiplicity"] > 1 else ""
    # The second line is set at four fifths of the size.
    node["chars"] = max(columns(node["label"] + times), -(-4 * columns(node["both"]) // 5))


TARGET, DRAFT = PHASE_COLORS["verify"], PHASE_COLORS["draft"]
ROW_PX, HEAD_PX, FOOT_PX = 19, 74, 42


@dataclass(frozen=True, slots=True)
class DistributionPanel:
    """Both distributions at one test.

    Attributes:
        title, subtitle: which test, and its outcome.
        target, draft: probability of each shown token, all others together last; no draft for a final token.
        tested: positions of the tokens tested here.
    """

    title: str
    subtitle: str
    target: tuple[float, ...]
    draft: tuple[float, ...] | None = None
    tested: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """Means with standard errors (None for a single value); a `bound` is drawn without marks."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    errors: tuple[float | None, ...]
    counts: tuple[int, ...]
    bound: bool = False


def distributions_figure(
    tokens: Sequence[str],
    panels: Sequence[DistributionPanel],
    draft_words: str = "draft",
    dark: bool = False,
    target_words: str = "target",
):
    """The target's residual before each test, next to the distribution that the tokens were drawn from.

    Args:
        tokens: the tokens shown; a last entry for all others is added.
        draft_words, target_words: labels of the draft's marks and the target's bars.
    """
    rows = [escaped(visible(text, 12)) for text in tokens] + ["all others"]
    places = list(range(len(rows)))
    most = max((value for panel in panels for value in (*panel.target, *(panel.draft or ()))), default=1.0)
    figure = make_subplots(1, max(len(panels), 1), shared_yaxes=True, horizontal_spacing=0.02)
    for column, panel in enumerate(panels, start=1):
        for trace in _distribution_traces(panel, rows, (target_words, draft_words), column == 1, len(panels) > 1):
            figure.add_trace(trace, row=1, col=column)
        heading = f"<b>{escaped(panel.title)}</b><br>{escaped(panel.subtitle)}"
        figure.add_annotation(
            text=heading, xref=f"x{column if column > 1 else ''} domain", yref="paper", x=0, y=1, yshift=6,
            yanchor="bottom", xanchor="left", align="left", showarrow=False, font_size=12,
        )  # fmt: skip
    style(
        figure, dark, height=HEAD_PX + FOOT_PX + ROW_PX * len(places), bargap=0.25,
        margin={"l": 8, "r": 8, "t": HEAD_PX, "b": FOOT_PX},
        legend={"x": 1, "xanchor": "right", "y": 1, "yanchor": "top", "yref": "container"},
    )  # fmt: skip
    figure.update_xaxes(range=[0, most * 1.08], nticks=4, tickformat="~g", title_text=None)
    figure.update_yaxes(
        range=[len(places) - 0.45, -0.55], tickvals=places, ticktext=[f"{row} " for row in rows], ticks="",
        showgrid=False, tickfont={"family": "Source Code Pro, monospace", "size": 11.5},
    )  # fmt: skip
    return figure.add_annotation(
        text="probability", xref="paper", yref="paper", x=0.5, y=0, yshift=-22, yanchor="top", showarrow=False
    )


def _distribution_traces(
    panel: DistributionPanel, rows: Sequence[str], labels: tuple[str, str], first: bool, residuals: bool
) -> list:
    places = list(range(len(panel.target)))
    colors = [TARGET if place in panel.tested or not panel.draft else with_alpha(TARGET, 0.45) for place in places]
    if places:
        colors[-1] = with_alpha(TARGET, 0.25)
    target_words, draft_words = labels
    name = f"{target_words}, then its residuals" if residuals else target_words
    if not first:  # the legend has the first alone, the table all of them
        name, draft_words = (f"{escaped(panel.title)}: {words}" for words in ("target", draft_words))
    made = [
        go.Bar(
            x=panel.target, y=places, orientation="h", name=name, legendgroup="target",
            showlegend=first, marker={"color": colors, "line": {"width": 0}}, customdata=rows,
            hovertemplate="%{customdata}: target %{x:.4f}<extra></extra>",
        )
    ]  # fmt: skip
    if panel.draft is not None:
        sizes = [3 if place in panel.tested else 2 for place in places]
        made.append(
            go.Scatter(
                x=panel.draft, y=places, mode="markers", name=draft_words, legendgroup="draft", showlegend=first,
                marker={"symbol": "line-ns", "size": 13, "color": DRAFT, "line": {"color": DRAFT, "width": sizes}},
                customdata=rows, hovertemplate=f"%{{customdata}}: {draft_words} %{{x:.4f}}<extra></extra>",
            )
        )  # fmt: skip
    return made


def acceptance_by_depth_figure(rates: Sequence[Curve], l1: Curve, dark: bool = False) -> go.Figure:
    """Acceptance rates of the solvers by node depth, and below it the L1 distance of both distributions."""
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.68, 0.32], vertical_spacing=0.06)
    for place, curve in enumerate(rates):
        figure.add_trace(_curve(curve, place, dark), row=1, col=1)
    lower = _curve(l1, 0, dark)
    figure.add_trace(lower.update(showlegend=False, line={"color": palette(dark).text}), row=2, col=1)
    style(figure, dark, margin={"l": 56, "r": 16, "t": 64, "b": 58})
    small = "<br><span style='font-size:10px'>n {:,}</span>"
    depths = [f"{int(depth)}{small.format(count)}" for depth, count in zip(l1.x, l1.counts, strict=True)]
    figure.update_xaxes(tickvals=list(l1.x), row=1, col=1)
    figure.update_xaxes(title_text="depth of the node (0 = root)", tickvals=list(l1.x), ticktext=depths, row=2, col=1)
    figure.update_yaxes(title_text="acceptance rate", range=[0, 1.02], row=1, col=1)
    return figure.update_yaxes(title_text="L1 distance (0–2)", rangemode="tozero", nticks=4, row=2, col=1)


def _curve(curve: Curve, place: int, dark: bool) -> go.Scatter:
    """Means with error bars; a bound is a thin dashed line."""
    errors = [0.0 if error is None else error for error in curve.errors]
    color = palette(dark).muted if curve.bound else SERIES[place % len(SERIES)]
    made = go.Scatter(
        x=curve.x, y=curve.y, name=escaped(curve.label), mode="lines" if curve.bound else "lines+markers",
        line={"color": color, "dash": "dash" if curve.bound else SERIES_DASHES[place % 8], "width": 1.5},
        marker={"symbol": SERIES_SYMBOLS[place % 8], "size": 7},
        customdata=list(zip(errors, curve.counts, strict=True)),
        hovertemplate="%{y:.3f} ± %{customdata[0]:.3f} (n %{customdata[1]:,})<extra>%{fullData.name}</extra>",
    )  # fmt: skip
    if not curve.bound:
        made.error_y = {"type": "data", "array": errors, "thickness": 1, "width": 2}
    return made


def draft_probability_figure(accepted: Curve, target: Curve, dark: bool = False) -> go.Figure:
    """Acceptance and target probability of drafted tokens by draft probability; x holds the middles of the bins."""
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="target = draft", hoverinfo="skip",
        line={"color": palette(dark).muted, "dash": "dot", "width": 1},
    )  # fmt: skip
    for place, curve in ((2, accepted), (0, target)):
        figure.add_trace(_curve(curve, place, dark))
    for x, count in zip(accepted.x, accepted.counts, strict=True):
        figure.add_annotation(
            x=x, y=0, yref="paper", yanchor="top", yshift=-20, text=f"{count:,}", showarrow=False, font_size=10,
        )  # fmt: skip
    style(figure, dark, margin={"l": 56, "r": 16, "t": 44, "b": 62})
    figure.update_xaxes(
        title={"text": "draft probability of the token (small: tokens per bin)", "standoff": 22},
        range=[0, 1], dtick=0.2, tickformat="~g",
    )  # fmt: skip
    return figure.update_yaxes(title_text="mean ± standard error", range=[0, 1.05])


def expected_tokens_figure(labels: Sequence[str], means: Curve, dark: bool = False) -> go.Figure:
    """Exact expected tokens of each verifier, mean over the trees of a run with standard error."""
    errors = [0.0 if error is None else error for error in means.errors]
    rows = [f"{escaped(label)} " for label in labels]
    figure = go.Figure()
    figure.add_bar(
        x=means.y, y=rows, orientation="h", marker={"color": SERIES[0], "pattern": pattern("")},
        error_x={"type": "data", "array": errors, "color": palette(dark).text, "thickness": 1.5, "width": 4},
        customdata=list(zip(errors, means.counts, strict=True)),
        hovertemplate="%{y}: %{x:.3f} ± %{customdata[0]:.3f} over %{customdata[1]:,} trees<extra></extra>",
    )  # fmt: skip
    most = max((value + error for value, error in zip(means.y, errors, strict=True)), default=1.0)
    for row, value, error in zip(rows, means.y, errors, strict=True):
        figure.add_annotation(
            x=value + error, y=row, text=number(value), showarrow=False, xanchor="left", xshift=6, font_size=11.5
        )
    style(figure, dark, showlegend=False, bargap=0.35, margin={"l": 8, "r": 16, "t": 12, "b": 48})
    figure.update_xaxes(title_text="expected tokens per tree", range=[0, most * 1.18])
    return figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
