"""The tidy layout: nodes keep apart, parents stand amid their children, no two subtrees cross."""

import itertools
from functools import partial

import networkx as nx
import numpy as np
import pytest

from tests.helpers.counted import lines_run
from tests.helpers.families import family
from tests.helpers.traces import big, dynatree_recovered
from viz.scope.scene import tidy_rows


def tree_of(parents) -> nx.DiGraph:
    tree = nx.DiGraph()
    tree.add_nodes_from(range(len(parents)))
    tree.add_edges_from((parent, node) for node, parent in enumerate(parents) if node)
    return tree


def columns(tree, rows):
    """Rows of the nodes of each depth, in the order in which they are drawn."""
    depths, order = nx.shortest_path_length(tree, 0), list(nx.dfs_preorder_nodes(tree, 0))
    return [[rows[i] for i in order if depths[i] == depth] for depth in set(depths.values())]


@pytest.mark.parametrize("trace", [dynatree_recovered(), big(300), big(1024)], ids=["13", "300", "1024"])
def test_nodes_of_one_depth_keep_their_order_and_a_whole_row_apart(trace):
    tree = tree_of([node.parent_id for node in trace.nodes])
    for column in columns(tree, tidy_rows(tree)):
        assert all(b - a >= 1 - 1e-9 for a, b in itertools.pairwise(column))


def test_a_parent_stands_in_the_middle_of_its_first_and_last_child():
    trace = dynatree_recovered()
    rows = tidy_rows(tree_of([node.parent_id for node in trace.nodes]))
    for node in trace.nodes:
        children = trace.children(node.node_id)
        if children:
            assert rows[node.node_id] == pytest.approx((rows[children[0]] + rows[children[-1]]) / 2)


def test_rows_start_at_the_top_edge():
    assert min(tidy_rows(tree_of([-1, 0, 0]))) == pytest.approx(0.5)
    assert tidy_rows(tree_of([])) == []
    assert tidy_rows(tree_of([-1])) == [0.5]


def test_low_nodes_take_less_room():
    flat = tree_of([-1, *[0] * 10])
    assert max(tidy_rows(flat, [1.0] + [0.5] * 10)) < max(tidy_rows(flat)) / 1.5


def test_a_random_tree_of_many_nodes_never_overlaps():
    random = np.random.default_rng(4)
    tree = tree_of([-1] + [int(random.integers(max(0, node - 9), node)) for node in range(1, 600)])
    for column in columns(tree, tidy_rows(tree)):
        assert all(b - a >= 1 - 1e-9 for a, b in itertools.pairwise(sorted(column)))


def chain(count: int) -> nx.DiGraph:
    return tree_of([-1, *range(count - 1)])


def comb(count: int) -> nx.DiGraph:
    return tree_of([-1, *(parent for spine in range(0, count, 2) for parent in (spine, spine))])


@pytest.mark.parametrize("shape", family((chain, comb), comb))
def test_work_grows_in_step_with_the_nodes_however_deep(shape):
    small, large = (lines_run(partial(tidy_rows, shape(count))) for count in (1_000, 10_000))
    assert small > 1_000 and large < 12 * small


def test_a_chain_stays_in_one_row():
    assert set(tidy_rows(chain(10_000))) == {0.5}
