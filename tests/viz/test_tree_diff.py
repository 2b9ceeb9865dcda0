"""Two trees on one prefix: nodes by their tokens, and what the iterations did differently."""

from dataclasses import replace

import pytest

from tests.helpers.traces import DYNATREE, autoregressive, bonus, dynatree_recovered, iteration_of
from viz.branches.diff import compare_trees, what_changed


def pruned_tree(*left_out: int):
    """The hand-written tree without some of its nodes (leaves), renumbered."""
    kept = [place for place in range(1, len(DYNATREE) + 1) if place not in left_out]
    number = {0: 0} | {old: new for new, old in enumerate(kept, start=1)}
    specs = [replace(DYNATREE[old - 1], parent=number[DYNATREE[old - 1].parent]) for old in kept]
    return iteration_of(specs, final=(number[3], "No", 0.69), final_kind="recovered")


def test_a_tree_beside_itself_has_no_differences():
    tree = dynatree_recovered()
    diff = compare_trees(tree, tree)
    assert diff.only_first == diff.only_second == ()
    assert diff.both == tuple((node.node_id, node.node_id) for node in tree.nodes[1:])
    assert diff.same_text


def test_missing_nodes_are_found_although_ids_have_moved():
    full, smaller = dynatree_recovered(), pruned_tree(4, 9)
    diff = compare_trees(full, smaller)
    assert diff.only_first == (4, 9)
    assert diff.only_second == ()
    assert len(diff.both) == len(DYNATREE) - 2
    for first, second in diff.both:
        assert full.nodes[first].text == smaller.nodes[second].text
        assert [full.nodes[i].text for i in full.path(first)] == [smaller.nodes[i].text for i in smaller.path(second)]
    turned = compare_trees(smaller, full)
    assert (turned.only_first, turned.only_second) == ((), (4, 9))


def test_the_same_token_below_another_parent_is_another_node():
    full = dynatree_recovered()
    moved = replace(full.nodes[5], parent_id=1)
    other = replace(full, nodes=(*full.nodes[:5], moved, *full.nodes[6:]))
    diff = compare_trees(full, other)
    assert diff.only_first == diff.only_second == (5,)


def test_a_tree_without_nodes_has_nothing_in_common():
    diff = compare_trees(dynatree_recovered(), autoregressive())
    assert diff.both == ()
    assert len(diff.only_first) == len(DYNATREE)


def test_marks_say_where_a_node_is():
    first, second = compare_trees(dynatree_recovered(), pruned_tree(4)).marks("the pinned tree", "this tree")
    assert first == {4: "only in the pinned tree"}
    assert second == {}


def test_text_is_the_same_as_far_as_the_shorter_goes():
    tree = dynatree_recovered()
    shorter = replace(tree, committed_ids=tree.committed_ids[:1])
    assert compare_trees(tree, shorter).same_text
    assert not compare_trees(tree, replace(tree, committed_ids=(9999,))).same_text


def test_what_changed_counts_and_times():
    full, smaller = dynatree_recovered(), pruned_tree(4, 9)
    changes = {change.words: change for change in what_changed(full, smaller, 0.02, 0.03)}
    assert (changes["nodes drafted"].first, changes["nodes drafted"].second) == (13, 11)
    assert changes["nodes verified"].difference == -2
    assert changes["verified depth"].difference == 0
    assert changes["tokens accepted"].first == changes["tokens accepted"].second == 2
    assert changes["time"].unit == "s"
    assert changes["time"].difference == pytest.approx(0.01)
    assert changes["tokens / s here"].first == pytest.approx(3 / 0.02)


def test_without_measured_times_there_is_no_entry_for_time():
    words = [change.words for change in what_changed(dynatree_recovered(), bonus(), 0.02, None)]
    assert "draft forwards" in words
    assert not {"time", "tokens / s here"} & set(words)
