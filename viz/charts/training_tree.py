"""What a draft head is trained on at one root: the target's tree (TALF), the text's own next tokens (HASS), the mask.

figure = training_tree_figure(TrainingTree(text=("The", " cat"), chain=(" sat",), tree=(((" sat", 0), (" is", 0)),)))
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from viz.theme import GREY, SERIES, palette, style
from viz.tokens import escaped, visible

TALF, HASS, ITSELF, TEXT = SERIES[0], SERIES[1], SERIES[2], GREY
COLUMNS = 12  # of a token
ROW_HEIGHT, LEAST_HEIGHT = 24, 260
HEADS = ("Tokens below the root", "Mask: a row sees the text (grey), its ancestors (squares), itself (diamond)")
MASK_RIGHT = {"row": 1, "col": 2}


@dataclass(frozen=True, slots=True)
class TrainingTree:
    """One root.

    Attributes:
        text: tokens up to the root, which is the last.
        chain: tokens of the text after it, as many as levels.
        tree: the target's tree level by level, each node its text and the place of its parent in the level above.
    """

    text: tuple[str, ...]
    chain: tuple[str, ...]
    tree: tuple[tuple[tuple[str, int], ...], ...]

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "TrainingTree":
        """From the JSON that a training writes; `ValueError` where a node has no parent."""
        tree = tuple(tuple((str(text), int(parent)) for text, parent in level) for level in content["tree"])
        for above, level in pairwise(tree):
            if not all(0 <= parent < len(above) for _, parent in level):
                raise ValueError("a node has no parent")
        return cls(tuple(map(str, content["text"])), tuple(map(str, content["chain"])), tree)


@dataclass(frozen=True, slots=True)
class _Row:
    """A drafted token: its text, level from 1, row of its parent or None below the root, and whose it is."""

    text: str
    level: int
    parent: int | None
    chain: bool


def _rows(example: TrainingTree) -> list[_Row]:
    """The nodes of the tree level by level, then the chain."""
    rows: list[_Row] = []
    before: list[int] = []
    for level, nodes in enumerate(example.tree, 1):
        places = list(range(len(rows), len(rows) + len(nodes)))
        rows += [_Row(text, level, before[parent] if before else None, False) for text, parent in nodes]
        before = places
    for level, text in enumerate(example.chain, 1):
        rows.append(_Row(text, level, len(rows) - 1 if level > 1 else None, True))
    return rows


def sees(example: TrainingTree) -> list[list[int]]:
    """For each drafted token the rows of drafted tokens that it sees: its ancestors, nearest first, and no other."""
    seen: list[list[int]] = []
    for row in _rows(example):
        seen.append([] if row.parent is None else [row.parent, *seen[row.parent]])
    return seen


def training_tree_figure(example: TrainingTree, dark: bool = False) -> go.Figure:
    """Tree and chain on the left, the attention mask of their rows on the right; both in the same order of rows."""
    rows, colors = _rows(example), palette(dark)
    names, inner = [visible(row.text, COLUMNS) for row in rows], {row.parent for row in rows}
    height = {place: -y - rows[place].chain for y, place in enumerate(_by_branch(rows))}  # a gap above the chain
    figure = make_subplots(1, 2, column_widths=[0.5, 0.5], horizontal_spacing=0.14, subplot_titles=HEADS)
    root = sum(height[place] for place, row in enumerate(rows) if row.level == 1 and not row.chain)
    root_y = root / max(1, sum(row.level == 1 and not row.chain for row in rows))
    for chain, color, dash in ((False, TALF, "solid"), (True, HASS, "dash")):
        x, y = [], []
        for place, row in enumerate(rows):
            if row.chain == chain:
                above = (0, root_y) if row.parent is None else (rows[row.parent].level, height[row.parent])
                x += [above[0], row.level, None]
                y += [above[1], height[place], None]
        figure.add_scatter(x=x, y=y, mode="lines", hoverinfo="skip", showlegend=False,
                           line={"color": color, "width": 1.5, "dash": dash}, row=1, col=1)  # fmt: skip
    for chain, color, symbol, words in ((False, TALF, "circle", "TALF: the target's own tree"),
                                        (True, HASS, "square", "HASS: the text itself")):  # fmt: skip
        own = [place for place, row in enumerate(rows) if row.chain == chain]
        figure.add_scatter(
            x=[rows[place].level for place in own], y=[height[place] for place in own], mode="markers+text", name=words,
            text=[f" {escaped(names[place])}" for place in own], cliponaxis=False,
            textposition=["top right" if place in inner else "middle right" for place in own],
            textfont={"color": colors.text, "size": 12}, marker={"color": color, "symbol": symbol, "size": 10},
            hovertemplate="%{text}, level %{x}<extra></extra>", row=1, col=1,
        )  # fmt: skip
    shown = escaped(visible(example.text[-1], COLUMNS))
    figure.add_scatter(
        x=[0], y=[root_y], mode="markers+text", name="EAGLE: the root", text=[shown],
        textposition="top center", textfont={"color": colors.text, "size": 12}, cliponaxis=False,
        marker={"color": TEXT, "symbol": "diamond", "size": 11}, hovertemplate="%{text}, root<extra></extra>",
        row=1, col=1,
    )  # fmt: skip
    _add_mask(figure, example, rows, names, height)
    style(figure, dark, showlegend=True, margin={"l": 28, "r": 12, "t": 64, "b": 76})
    full = max(LEAST_HEIGHT, ROW_HEIGHT * len(rows) + 130)
    figure.update_layout(height=full, legend={"y": 1.1, "itemclick": False})
    figure.update_annotations(font={"size": 12, "color": colors.muted})
    places = ["root", *(f"level {level}" for level, _ in enumerate(example.chain, 1))]
    figure.update_xaxes(range=[-0.35, len(places) - 0.25], tickvals=list(range(len(places))), ticktext=places,
                        showgrid=False, row=1, col=1)  # fmt: skip
    return figure.update_yaxes(visible=False, range=[-0.3 - len(rows), 0.7], row=1, col=1)


def _by_branch(rows: list[_Row], parent: int | None = None) -> list[int]:
    """Rows below one, or all, in the order in which a walk through the tree meets them, the chain last."""
    below = [place for place, row in enumerate(rows) if row.parent == parent]
    return [each for place in below for each in (place, *_by_branch(rows, place))]


def _add_mask(
    figure: go.Figure, example: TrainingTree, rows: list[_Row], names: list[str], height: Mapping[int, int]
) -> None:
    """A square for every row that a drafted token sees: the text, its ancestors, itself."""
    text, seen = len(example.text), sees(example)
    order = _by_branch(rows)
    column = {place: text + x for x, place in enumerate(order)}
    kinds: dict[str, tuple[str, str, list[tuple[int, int]]]] = {
        "the text": (TEXT, "square", [(x, height[place]) for place in order for x in range(text)]),
        "ancestors": (TALF, "square", [(column[a], height[place]) for place in order for a in seen[place]]),
        "itself": (ITSELF, "diamond", [(column[place], height[place]) for place in order]),
    }
    for words, (color, symbol, cells) in kinds.items():
        figure.add_scatter(
            x=[x for x, _ in cells], y=[y for _, y in cells], mode="markers", name=f"sees {words}",
            marker={"color": color, "symbol": symbol, "size": 11}, showlegend=False,
            hovertemplate=f"{words}<extra></extra>", **MASK_RIGHT,
        )  # fmt: skip
    labels = [visible(token, COLUMNS) for token in example.text] + [names[place] for place in order]
    figure.update_xaxes(tickvals=list(range(len(labels))), ticktext=[escaped(label) for label in labels],
                        range=[-0.7, len(labels) - 0.3], tickangle=-60, **MASK_RIGHT)  # fmt: skip
    figure.update_yaxes(tickvals=[height[place] for place in order], range=[-0.3 - len(rows), 0.7],
                        ticktext=[escaped(names[place]) for place in order], **MASK_RIGHT)  # fmt: skip
