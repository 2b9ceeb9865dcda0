"""A draft tree as a networkx graph: what is written as GraphML and as JSON reads back as the same tree."""

import io
import json
from dataclasses import replace

import networkx as nx
import pytest

from tests.helpers import traces
from viz.scope.export import tree_graph, tree_graphml, tree_json

ODD = ("\x00\x1b[31m", "\r\n", "\ud83d", "", "  \t", "\u2028\x85\ufffe", "<0xE2>", "</data>&amp;", "日本 😀", 'a"\n')


def odd_iteration():
    """Tokens with characters that separate, end or break files."""
    iteration = traces.dynatree_recovered()
    texts = {place + 1: text for place, text in enumerate(ODD)}
    nodes = (replace(node, text=texts.get(node.node_id, node.text)) for node in iteration.nodes)
    return replace(iteration, nodes=tuple(nodes))


def read_graphml(iteration) -> nx.DiGraph:
    return nx.read_graphml(io.BytesIO(tree_graphml(iteration)), node_type=int)


def read_json(iteration) -> nx.DiGraph:
    return nx.node_link_graph(json.loads(tree_json(iteration)), edges="edges")


def test_the_graph_has_every_node_with_the_fields_that_it_has():
    graph = tree_graph(traces.dynatree_recovered())
    assert nx.is_arborescence(graph) and graph.number_of_nodes() == 14
    assert graph.nodes[8]["verdict"] == "rejected" and "confidence" not in graph.nodes[11]
    assert graph.graph["final_kind"] == "recovered"


@pytest.mark.parametrize("read", [read_graphml, read_json])
@pytest.mark.parametrize(
    "build",
    [traces.dynatree_recovered, pytest.param(lambda: traces.big(1024), marks=pytest.mark.slow), traces.summary],
)
def test_what_is_written_reads_back_as_the_same_tree(read, build):
    graph, again = tree_graph(build()), read(build())
    assert again.is_directed() and again.graph.items() >= graph.graph.items()
    assert dict(again.nodes(data=True)) == dict(graph.nodes(data=True))
    assert list(again.edges) == list(graph.edges)


def test_json_keeps_every_character():
    assert [text for _, text in read_json(odd_iteration()).nodes(data="text")][1 : 1 + len(ODD)] == list(ODD)


def test_graphml_keeps_what_xml_can_hold_and_shows_the_rest():
    written = [text for _, text in read_graphml(odd_iteration()).nodes(data="text")][1 : 1 + len(ODD)]
    shown = ("\\x00\\x1b[31m", "\\x0d\n", "\\ud83d", "", "  \t", "\u2028\x85\\ufffe", "<0xE2>", "</data>&amp;")
    assert written == [*shown, "日本 😀", 'a"\n']
