"""Orders of the rows of a pass and the blocks of the mask they leave, counted by hand on small trees."""

from dataclasses import replace

import pytest

from decoding.trace.tree_mask import count_blocks, tree_mask
from tests.helpers import traces
from viz.scope.panels import breadth_first, depth_first, row_orders

#        0
#      /   \
#     1     2
#     |   / | \
#     3  4  5  6
#           |
#           7
PARENTS = {0: -1, 1: 0, 2: 0, 3: 1, 4: 2, 5: 2, 6: 2, 7: 5}


def test_three_orders_of_a_small_tree():
    assert breadth_first(PARENTS) == (0, 1, 2, 3, 4, 5, 6, 7)
    assert depth_first(PARENTS) == (0, 1, 3, 2, 4, 5, 7, 6)
    # The larger subtree first, equal ones by id: 2 before 1, 5 before 4 and 6.
    assert depth_first(PARENTS, heavy=True) == (0, 2, 5, 7, 4, 6, 1, 3)


def test_a_node_whose_parent_was_pruned_away_does_not_hang_the_walk():
    assert depth_first({0: -1, 2: 0, 5: 4}) == (0, 2, 5)


@pytest.fixture
def mask():
    """A mask of the eight nodes above behind a prefix of five columns."""
    specs = [traces.Spec(PARENTS[node], f"t{node}", 0.5, 0.5, "not_reached") for node in range(1, 8)]
    return tree_mask(traces.iteration_of(specs, final=None, final_kind="none", prefix_length=6))


def test_blocks_of_two_counted_by_hand(mask):
    assert mask.prefix_columns == 5
    # Rows 01 23 45 67 x columns 0..12: two blocks of prefix alone, a mixed one (prefix column 4, node 0), then nodes
    # 12 34 56 7. Breadth-first: node 1 sees 1; 2 and 3 see 1, 2, 3; 4 and 5 see 2, 4, 5; 6 and 7 see 2, 5, 6, 7.
    blocks = count_blocks(mask, (0, 1, 2, 3, 4, 5, 6, 7), block=2)
    assert (blocks.total, blocks.possible, blocks.tree) == (8 + 4 + 1 + 2 + 3 + 3, 28, 4 + 1 + 2 + 3 + 3)


def test_an_order_that_keeps_branches_together_needs_fewer_blocks(mask):
    # Depth-first 0 1 | 3 2 | 4 5 | 7 6 with columns p0 | 1 3 | 2 4 | 5 7 | 6:
    # row pairs see {1}, {1 3, 2}, {2 4, 5}, {2, 5 7, 6}.
    blocks = count_blocks(mask, depth_first(PARENTS), block=2)
    assert blocks.tree == 4 + 1 + 2 + 2 + 3
    assert blocks.total == 8 + blocks.tree


def test_one_block_holds_a_small_mask(mask):
    blocks = count_blocks(mask, (0, 1, 2, 3, 4, 5, 6, 7))
    assert (blocks.total, blocks.possible, blocks.tree) == (1, 1, 1)


def test_the_order_of_the_pass_is_named_and_used():
    trace = traces.big(64)
    orders = {order.name: order for order in row_orders(trace)}
    assert [name for name, order in orders.items() if order.used] == ["run"]
    straight = replace(trace, flatten_order=orders["breadth"].rows)
    assert [order.name for order in row_orders(straight) if order.used] == ["breadth"]
    assert {frozenset(order.rows) for order in orders.values()} == {frozenset(trace.flatten_order)}


def test_the_words_say_what_is_counted():
    reported = row_orders(traces.big(64))[1].caption(75)
    assert "of the whole 65 × 140 mask" in reported and "blocks of 32 × 32" in reported


def test_pruned_nodes_have_no_row():
    assert all(set(order.rows) == {0, 1, 3} for order in row_orders(traces.pruned()))
