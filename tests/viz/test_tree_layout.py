"""The tidy layout: nodes keep apart, parents stand amid their children, no two subtrees cross, time is linear."""

import itertools
from functools import partial

import numpy as np
import pytest

from tests.helpers.counted import lines_run
from tests.helpers.traces import big, dynatree_recovered
from viz.scope.scene import tidy_rows


def _depths(parents):
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    return depths


@pytest.mark.parametrize("trace", [dynatree_recovered(), big(300), big(1024)], ids=["13", "300", "1024"])
def test_nodes_of_one_depth_keep_their_order_and_a_whole_row_apart(trace):
    parents = [node.parent_id for node in trace.nodes]
    rows, depths = tidy_rows(parents), _depths(parents)
    for depth in range(max(depths) + 1):
        column = [rows[i] for i in _in_drawing_order(parents) if depths[i] == depth]
        assert all(b - a >= 1 - 1e-9 for a, b in itertools.pairwise(column))


def _in_drawing_order(parents):
    children = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], start=1):
        children[parent].append(node)
    stack, order = [0], []
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(children[node]))
    return order


def test_a_parent_stands_in_the_middle_of_its_first_and_last_child():
    trace = dynatree_recovered()
    rows = tidy_rows([node.parent_id for node in trace.nodes])
    for node in trace.nodes:
        children = trace.children(node.node_id)
        if children:
            assert rows[node.node_id] == pytest.approx((rows[children[0]] + rows[children[-1]]) / 2)


def test_rows_start_at_the_top_edge():
    assert min(tidy_rows([-1, 0, 0])) == pytest.approx(0.5)
    assert tidy_rows([]) == []
    assert tidy_rows([-1]) == [0.5]


def test_low_nodes_take_less_room():
    flat = [-1, *[0] * 10]
    assert max(tidy_rows(flat, [1.0] + [0.5] * 10)) < max(tidy_rows(flat)) / 1.5


def test_a_random_tree_of_many_nodes_never_overlaps():
    random = np.random.default_rng(4)
    parents = [-1] + [int(random.integers(max(0, node - 9), node)) for node in range(1, 600)]
    rows, depths = tidy_rows(parents), _depths(parents)
    for depth in set(depths):
        column = sorted(row for row, d in zip(rows, depths, strict=True) if d == depth)
        assert all(b - a >= 1 - 1e-9 for a, b in itertools.pairwise(column))


def chain(count: int) -> list[int]:
    return [-1, *range(count - 1)]


def comb(count: int) -> list[int]:
    return [-1, *(parent for spine in range(0, count, 2) for parent in (spine, spine))]


@pytest.mark.parametrize("shape", [chain, comb])
def test_work_grows_in_step_with_the_nodes_however_deep(shape):
    small, large = (lines_run(partial(tidy_rows, shape(count))) for count in (1_000, 10_000))
    assert small > 1_000 and large < 12 * small


def test_a_chain_stays_in_one_row():
    assert set(tidy_rows(chain(10_000))) == {0.5}
