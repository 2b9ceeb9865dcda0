"""Why a selector chose a shape: modelled tokens per second of every (K, L1, L2) at one root."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from decoding.common.formats import number
from decoding.trace.records import SelectorTrace
from viz.charts.sweeps import SCALES, color_bar
from viz.scope.outline import Table
from viz.theme import palette, style

SHAPE = (4, 9, 9)  # K from 1, L1 and L2 from 0: the order of the grids of a `SelectorTrace`
# What may be marked: label, symbol and size, which differ where they fall into one cell.
MARKED = {
    "chosen": ("chosen", "circle-open", 10),
    "static": ("best static", "square-open", 17),
    "best": ("best at this root", "star", 8),
}
# Scalars as a table names them, and their unit.
SCALAR_WORDS = {
    "target_entropy": "Target's entropy before the root, nats",
    "draft_entropy": "Draft's entropy before the root, nats",
    "root_entropy": "Draft's entropy at the root, nats",
    "target_to_draft": "KL(target ‖ draft) before the root, nats",
    "draft_to_target": "KL(draft ‖ target) before the root, nats",
    "l1_distance": "Σ |target − draft| before the root",
    "length": "Context, tokens",
    "log_length": "Context, tokens",
    "temperature": "Temperature",
    "top_p": "Top-p",
    "draft_temperature": "Draft temperature",
    "draft_s": "Draft pass, ms",
    "target_s": "Target pass, ms",
    "log_draft_s": "Draft pass, ms",
    "log_target_s": "Target pass, ms",
    "log_tree_s": "Target pass of 16 tokens, ms",
    "asking_s": "Asking the selector, ms",
}


@dataclass(frozen=True, slots=True)
class ActionMap:
    """A number for every action at one root, `[324]` each, and the places that are marked.

    Attributes:
        values: what is drawn: tokens per second, or a probability in percent.
        measure: what that is, with its unit.
        tokens: expected tokens, None where they are not known.
        seconds: modelled time of an iteration, the asking of a selector included.
        asking_s: what asking takes of it; 0 in records that do not tell.
        marks: places of actions by key of `MARKED`.
    """

    values: np.ndarray
    measure: str
    tokens: np.ndarray | None
    seconds: np.ndarray
    asking_s: float
    marks: dict[str, int]

    def at(self, key: str) -> tuple[float, float]:
        """What is drawn of a marked shape, and its seconds; for the static one asking is left out of both."""
        place = self.marks[key]
        value, seconds = float(self.values[place]), float(self.seconds[place])
        if key != "static" or not 0 < self.asking_s < seconds:  # a file may hold any number
            return value, seconds
        asked = seconds - self.asking_s
        return (value if self.tokens is None else value * seconds / asked), asked


def action_map(choice: SelectorTrace, found: Sequence[float] | None = None) -> ActionMap:
    """The map of a record.

    Args:
        found: expected tokens of every action over trees drawn at this root, `[324]`; they take the place of what the
            selector expected, and the best of them is marked.
    """
    seconds, worth, asking_s = np.array(choice.seconds), np.array(choice.worth), choice.scalars.get("asking_s", 0.0)
    marks = {"chosen": choice.chosen} | ({} if choice.static is None else {"static": choice.static})
    if found is not None:
        tokens, rates = np.array(found), np.array(found) / seconds
        best = int((rates > rates.max() * (1 - 1e-9)).argmax())  # of equals the first
        return ActionMap(rates, "tokens/s", tokens, seconds, asking_s, marks | {"best": best})
    if choice.rule == "tokens":
        return ActionMap(worth / seconds, "tokens/s", worth, seconds, asking_s, marks)
    return ActionMap(100 * worth, "probability, %", None, seconds, asking_s, marks)


def shape_of(place: int) -> tuple[int, int, int]:
    """K, L1 and L2 of a place in a grid."""
    paths, trunk, branch = np.unravel_index(place, SHAPE)
    return int(paths) + 1, int(trunk), int(branch)


def shape_words(place: int) -> str:
    """`K 2, L₁ 1, L₂ 3`; a chain has its length alone."""
    paths, trunk, branch = shape_of(place)
    if paths == 1 or not branch:
        return f"a chain of {trunk + branch}" if trunk + branch else "no draft"
    return f"K {paths}, L₁ {trunk}, L₂ {branch}"


def action_figure(shown: ActionMap, dark: bool = False) -> go.Figure:
    """A square for every L1 and L2, a panel for every K, with what was chosen, the best static and the best marked."""
    titles = [f"K = {paths}" for paths in range(1, SHAPE[0] + 1)]
    shared = {"horizontal_spacing": 0.07, "vertical_spacing": 0.16}
    figure = make_subplots(2, 2, subplot_titles=titles, **shared)
    grids, steps = shown.values.reshape(SHAPE), list(range(SHAPE[1]))
    branch, trunk = np.meshgrid(steps, steps)
    for paths, grid in enumerate(grids):
        row, column = paths // 2 + 1, paths % 2 + 1
        figure.add_heatmap(
            z=grid, x=steps, y=steps, coloraxis="coloraxis", xgap=1, ygap=1, hoverinfo="skip", row=row, col=column
        )
        words = [_cell_words(shown, int(np.ravel_multi_index((paths, t, b), SHAPE)))
                 for t, b in zip(trunk.ravel().tolist(), branch.ravel().tolist(), strict=True)]  # fmt: skip
        figure.add_scatter(
            x=branch.ravel(), y=trunk.ravel(), mode="markers", marker={"size": 14, "symbol": "square", "opacity": 0},
            text=words, hovertemplate="%{text}<extra></extra>", showlegend=False, row=row, col=column,
        )  # fmt: skip
    colors = palette(dark)
    for key, place in shown.marks.items():
        paths, trunk_at, branch_at = shape_of(place)
        label, symbol, size = MARKED[key]
        filled = key == "best"
        figure.add_scatter(
            x=[branch_at], y=[trunk_at], mode="markers",
            name=f"{label}: {number(shown.at(key)[0], 1)} {shown.measure}",
            marker={"symbol": symbol, "size": size, "color": colors.text,
                    "line": {"width": 1 if filled else 2, "color": colors.surface if filled else colors.text}},
            hoverinfo="skip", cliponaxis=False, row=(paths - 1) // 2 + 1, col=(paths - 1) % 2 + 1,
        )  # fmt: skip
    style(figure, dark, margin={"l": 48, "r": 8, "t": 64, "b": 44}, hovermode="closest")
    figure.update_layout(legend_y=1.1, coloraxis={"colorscale": SCALES[dark], "colorbar": color_bar(shown.measure)})
    figure.update_annotations(font_size=12)
    figure.update_xaxes(dtick=2, showgrid=False, range=[-0.5, 8.5])
    figure.update_yaxes(dtick=2, showgrid=False, range=[-0.5, 8.5])
    figure.update_xaxes(title_text="L₂", row=2)
    return figure.update_yaxes(title_text="L₁", col=1)


def _cell_words(shown: ActionMap, place: int) -> str:
    paths, trunk, branch = shape_of(place)
    said = f"K {paths}, L₁ {trunk}, L₂ {branch}: {number(float(shown.values[place]), 1)} {shown.measure}"
    tokens = "" if shown.tokens is None else f"{shown.tokens[place]:.2f} tokens in "
    return f"{said} ({tokens}{1000 * shown.seconds[place]:.1f} ms)"


def action_sentence(shown: ActionMap) -> str:
    """What the map shows, for screen readers."""
    named = [f"{MARKED[key][0]} {shape_words(place)}, {number(shown.at(key)[0], 1)} {shown.measure}"
             for key, place in shown.marks.items()]  # fmt: skip
    return f"{shown.measure} of 324 shapes by K, L1 and L2: {'; '.join(named)}."


def action_table(shown: ActionMap) -> Table:
    """Every shape, the best first."""
    heads = ("K", "L1", "L2", shown.measure, "Tokens", "ms")
    rows = []
    for place in np.argsort(-shown.values, kind="stable").tolist():
        tokens = "–" if shown.tokens is None else f"{shown.tokens[place]:.2f}"
        rows.append(
            (*map(str, shape_of(place)), f"{shown.values[place]:.1f}", tokens, f"{1000 * shown.seconds[place]:.2f}")
        )
    return Table("", heads, tuple(rows), "")


def scalar_rows(choice: SelectorTrace) -> list[tuple[str, str]]:
    """What the selector read beside hidden states, and times of passes, as words and number."""
    rows = []
    for name, value in choice.scalars.items():
        if f"log_{name}" in choice.scalars:
            continue
        shown = np.exp(value) if name.startswith("log_") else value
        if name.endswith("_s"):
            rows.append((SCALAR_WORDS[name], f"{1000 * shown:.2f}"))
        elif name in ("length", "log_length"):
            rows.append((SCALAR_WORDS[name], f"{shown:.0f}"))
        else:
            rows.append((SCALAR_WORDS.get(name, name), f"{shown:.3g}"))
    return rows
