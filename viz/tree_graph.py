"""The draft tree as a networkx graph, for export and for questions that a graph library answers best."""

from dataclasses import asdict

import networkx as nx

from decoding.trace import IterationTrace


def tree_graph(iteration: IterationTrace) -> nx.DiGraph:
    """Draft tree of an iteration with every field of its nodes as an attribute; edges run from parent to child."""
    graph = nx.DiGraph(iteration=iteration.index, prefix_length=iteration.prefix_length)
    for node in iteration.nodes:
        attributes = {name: value for name, value in asdict(node).items() if value is not None}
        graph.add_node(node.node_id, **attributes)
        if node.parent_id >= 0:
            graph.add_edge(node.parent_id, node.node_id, path_probability=node.path_probability)
    return graph


def to_graphml(iteration: IterationTrace) -> str:
    """Draft tree as GraphML text, which Gephi, yEd and networkx open."""
    return "\n".join(nx.generate_graphml(tree_graph(iteration)))
