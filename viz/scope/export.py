"""A draft tree to export: a figure with the positions, marks and numbers on screen, or a networkx graph."""

import json
import re
from dataclasses import asdict
from io import BytesIO

import networkx as nx
import plotly.graph_objects as go

from decoding.trace.records import IterationTrace
from viz.scope.scene import Scene, SceneNode
from viz.theme import MARKS, Mark, outline, palette, style
from viz.tokens import code_of, escaped, visible

_CURVE = tuple(step / 12 for step in range(13))


def tree_figure(scene: Scene, dark: bool = False) -> go.Figure:
    """Figure of a scene as it ended; one trace per state, so that the legend can filter."""
    by_id = {node.node_id: node for node in scene.nodes}
    figure = go.Figure()
    for node in scene.nodes:
        if node.parent_id != -1:
            figure.add_scatter(**_edge(by_id[node.parent_id], node, dark))
    for state in dict.fromkeys(node.state for node in scene.nodes):
        figure.add_scatter(**_marks([node for node in scene.nodes if node.state == state], MARKS[state], dark))
    last = max((node.depth for node in scene.nodes), default=0)
    style(
        figure, dark,
        title={"text": escaped(scene.title), "x": 0, "xanchor": "left", "xref": "paper", "y": 0.98, "yanchor": "top"},
        height=int(min(max(220 + 26 * scene.rows, 320), 1600)),
        margin={"l": 24, "r": 24, "t": 72, "b": 84},
        legend={"y": -0.02, "yanchor": "top", "yref": "paper"},
    )  # fmt: skip
    figure.update_xaxes(
        range=[-0.15, last + 0.85], showgrid=True, side="top", zeroline=False,
        tickvals=list(range(last + 1)), ticktext=["root", *(f"depth {i}" for i in range(1, last + 1))],
    )  # fmt: skip
    figure.update_yaxes(range=[scene.rows + 0.1, -0.1], visible=False)
    unlabelled = f" · {scene.unlabelled:,} unlabelled" if scene.unlabelled else ""
    return figure.add_annotation(
        text=f"{scene.note}{unlabelled} · line width = path probability",
        xref="paper", yref="paper", x=0, y=0, yshift=-44, xanchor="left", yanchor="top", showarrow=False,
        font={"size": 11, "color": palette(dark).muted},
    )  # fmt: skip


def _edge(parent: SceneNode, node: SceneNode, dark: bool) -> dict:
    """One edge as a short smooth curve in the second half of the column, clear of the parent's text."""
    look, turn = MARKS[node.state], parent.depth + 0.55
    xs = [parent.depth, *(turn + (node.depth - turn) * t for t in _CURVE)]
    ys = [parent.row, *(parent.row + (node.row - parent.row) * (3 * t * t - 2 * t**3) for t in _CURVE)]
    return {
        "x": xs, "y": ys, "mode": "lines", "hoverinfo": "skip", "showlegend": False,
        "line": {"color": outline(look.color, dark), "dash": look.dash, "width": 0.9 + 5.1 * node.width},
        "opacity": 1.0 if node.state in ("accepted", "recovered", "bonus", "fallback") else 0.6,
    }  # fmt: skip


def _marks(nodes: list[SceneNode], look: Mark, dark: bool) -> dict:
    line = {"color": outline(look.color, dark), "width": 2}
    labels = [
        f"  {escaped(visible(node.label))}  <sub>{escaped(node.both)}</sub>" if node.labelled or node.folded else ""
        for node in nodes
    ]
    return {
        "x": [node.depth for node in nodes],
        "y": [node.row for node in nodes],
        "mode": "markers+text",
        "text": labels,
        "textposition": "top right",
        "textfont": {"color": palette(dark).text, "size": 12, "family": "monospace"},
        "hovertext": [escaped(node.title) for node in nodes],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [node.node_id for node in nodes],
        "marker": {"symbol": look.symbol, "size": 12, "color": look.color, "line": line},
        "name": look.words,
        "cliponaxis": False,
    }


# XML cannot hold most control characters, half a surrogate pair and two others; a bare carriage return is read as a
# line feed.
_NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tree_graph(iteration: IterationTrace) -> nx.DiGraph:
    """Draft tree of an iteration, edges from parent to child; every field of a node that is not None is an attribute.

    The attributes of the graph are those of the iteration: index, prefix length, final token.
    """
    place = {"iteration": iteration.index, "prefix_length": iteration.prefix_length}
    graph = nx.DiGraph(**_known(place | {"final_kind": iteration.final_kind, "final_text": iteration.final_text}))
    for node in iteration.nodes:
        graph.add_node(node.node_id, **_known(asdict(node)))
        if node.parent_id >= 0:
            graph.add_edge(node.parent_id, node.node_id)
    return graph


def tree_graphml(iteration: IterationTrace) -> bytes:
    """Draft tree as GraphML for Gephi, yEd and networkx; characters that XML cannot hold read `\\x00` or `\\ud800`."""
    graph = tree_graph(iteration)
    for attributes in (graph.graph, *(attributes for _, attributes in graph.nodes(data=True))):
        for name, value in attributes.items():
            if isinstance(value, str):
                attributes[name] = _NOT_IN_XML.sub(lambda found: code_of(found[0]), value)
    file = BytesIO()  # line by line, separators inside tokens would cut lines
    nx.write_graphml(graph, file)
    return file.getvalue()


def tree_json(iteration: IterationTrace) -> str:
    """Draft tree as node-link JSON: `networkx.node_link_graph` and D3 read it."""
    return json.dumps(nx.node_link_data(tree_graph(iteration), edges="edges"), allow_nan=False)


def _known(values: dict) -> dict:
    return {name: value for name, value in values.items() if value is not None}
