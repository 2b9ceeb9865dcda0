"""What a draft head is trained on at one root: the target's tree (TALF), the text's own next tokens (HASS), the mask.

figure = training_tree_figure(TrainingTree(text=("The", " cat"), chain=(" sat",), tree=(((" sat", 0), (" is", 0)),)))
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import networkx as nx
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from viz.theme import GREY, SERIES, palette, style
from viz.tokens import escaped, visible

ROOT = -1
TALF, HASS, ITSELF, TEXT = SERIES[0], SERIES[1], SERIES[2], GREY
COLUMNS = 12  # of a token
ROW_HEIGHT, LEAST_HEIGHT = 24, 290
TOP = 1.3  # rows above the first one, for the words above its node
HEADS = ("Tokens below the root", "Mask: a row sees the text (grey), its ancestors (squares), itself (diamond)")
MASK_RIGHT = {"row": 1, "col": 2}
TITLE = {"font": {"size": 12}, "standoff": 6}  # of an axis


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


def drafted(example: TrainingTree) -> nx.DiGraph:
    """The nodes of the tree level by level, then the chain, by number, all below `ROOT`.

    Each has its `text`, and whether it is of the `chain`.
    """
    graph = nx.DiGraph()
    graph.add_node(ROOT, text=example.text[-1])
    above = [ROOT]
    for nodes in example.tree:
        level = range(len(graph) - 1, len(graph) - 1 + len(nodes))
        for node, (text, parent) in zip(level, nodes, strict=True):
            graph.add_node(node, text=text, chain=False)
            graph.add_edge(above[parent], node)
        above = list(level)
    parent = ROOT
    for node, text in enumerate(example.chain, len(graph) - 1):
        graph.add_node(node, text=text, chain=True)
        graph.add_edge(parent, node)
        parent = node
    return graph


def sees(graph: nx.DiGraph) -> dict[int, list[int]]:
    """For each drafted token the drafted tokens that it sees, from the root on: its ancestors, and no other."""
    return {node: path[1:-1] for node, path in nx.shortest_path(graph, ROOT).items() if node != ROOT}


def training_tree_figure(example: TrainingTree, dark: bool = False) -> go.Figure:
    """Tree and chain on the left, the attention mask of their rows on the right; both in the same order of rows."""
    graph, colors = drafted(example), palette(dark)
    level = nx.shortest_path_length(graph, ROOT)
    order = list(nx.dfs_preorder_nodes(graph, ROOT))[1:]  # as a walk meets them, the chain last
    chain = nx.get_node_attributes(graph, "chain")
    names = {node: visible(text, COLUMNS) for node, text in graph.nodes(data="text")}
    height = {node: -y - chain[node] for y, node in enumerate(order)}  # a gap above the chain
    first = [height[node] for node in graph.successors(ROOT) if not chain[node]]
    height[ROOT] = root_y = sum(first) / max(1, len(first))
    figure = make_subplots(1, 2, column_widths=[0.5, 0.5], horizontal_spacing=0.14, subplot_titles=HEADS)
    for of_chain, color, dash in ((False, TALF, "solid"), (True, HASS, "dash")):
        edges = [edge for edge in graph.edges if chain[edge[1]] == of_chain]
        figure.add_scatter(
            x=[x for edge in edges for x in (level[edge[0]], level[edge[1]], None)],
            y=[y for edge in edges for y in (height[edge[0]], height[edge[1]], None)],
            mode="lines", hoverinfo="skip", showlegend=False, line={"color": color, "width": 1.5, "dash": dash},
            row=1, col=1,
        )  # fmt: skip
    for of_chain, color, symbol, words in ((False, TALF, "circle", "TALF: the target's own tree"),
                                           (True, HASS, "square", "HASS: the text itself")):  # fmt: skip
        own = [node for node in graph if node != ROOT and chain[node] == of_chain]
        figure.add_scatter(
            x=[level[node] for node in own], y=[height[node] for node in own], mode="markers+text", name=words,
            text=[f" {escaped(names[node])}" for node in own], cliponaxis=False,
            textposition=["top right" if graph.out_degree(node) else "middle right" for node in own],
            textfont={"color": colors.text, "size": 12}, marker={"color": color, "symbol": symbol, "size": 10},
            hovertemplate="%{text}, level %{x}<extra></extra>", row=1, col=1,
        )  # fmt: skip
    figure.add_scatter(
        x=[0], y=[root_y], mode="markers+text", name="EAGLE: the root", text=[escaped(names[ROOT])],
        textposition="top center", textfont={"color": colors.text, "size": 12}, cliponaxis=False,
        marker={"color": TEXT, "symbol": "diamond", "size": 11}, hovertemplate="%{text}, root<extra></extra>",
        row=1, col=1,
    )  # fmt: skip
    _add_mask(figure, example, graph, order, names, height)
    style(figure, dark, showlegend=True, margin={"l": 28, "r": 12, "t": 64, "b": 96})
    full = max(LEAST_HEIGHT, ROW_HEIGHT * len(order) + 170)
    figure.update_layout(height=full, legend={"y": 1.1, "itemclick": False})
    figure.update_annotations(font={"size": 12, "color": colors.muted})
    places = ["root", *(f"level {level}" for level, _ in enumerate(example.chain, 1))]
    figure.update_xaxes(range=[-0.35, len(places) - 0.25], tickvals=list(range(len(places))), ticktext=places,
                        showgrid=False, row=1, col=1)  # fmt: skip
    return figure.update_yaxes(visible=False, range=[-0.6 - len(order), TOP], row=1, col=1)


def _add_mask(
    figure: go.Figure, example: TrainingTree, graph: nx.DiGraph, order: list[int], names: Mapping[int, str],
    height: Mapping[int, float],
) -> None:  # fmt: skip
    """A square for every row that a drafted token sees: the text, its ancestors, itself."""
    text, seen = len(example.text), sees(graph)
    column = {node: text + x for x, node in enumerate(order)}
    kinds: dict[str, tuple[str, str, list[tuple[int, float]]]] = {
        "the text": (TEXT, "square", [(x, height[node]) for node in order for x in range(text)]),
        "ancestors": (TALF, "square", [(column[each], height[node]) for node in order for each in seen[node]]),
        "itself": (ITSELF, "diamond", [(column[node], height[node]) for node in order]),
    }
    for words, (color, symbol, cells) in kinds.items():
        figure.add_scatter(
            x=[x for x, _ in cells], y=[y for _, y in cells], mode="markers", name=f"sees {words}",
            marker={"color": color, "symbol": symbol, "size": 11}, showlegend=False,
            hovertemplate=f"{words}<extra></extra>", **MASK_RIGHT,
        )  # fmt: skip
    labels = [visible(token, COLUMNS) for token in example.text] + [names[node] for node in order]
    figure.update_xaxes(tickvals=list(range(len(labels))), ticktext=[escaped(label) for label in labels],
                        range=[-0.7, len(labels) - 0.3], tickangle=-60, **MASK_RIGHT)  # fmt: skip
    figure.update_xaxes(title={"text": "text, then drafted tokens: what is seen", **TITLE}, **MASK_RIGHT)
    figure.update_yaxes(tickvals=[height[node] for node in order], range=[-0.6 - len(order), TOP],
                        ticktext=[escaped(names[node]) for node in order],
                        title={"text": "drafted token: a row", **TITLE}, **MASK_RIGHT)  # fmt: skip
