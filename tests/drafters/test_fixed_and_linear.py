"""Chains and fixed trees on a table of probabilities."""

import numpy as np
import pytest

from benchmarks.table_source import TableSource, paths
from decoding.common.errors import PairError, SettingsError
from decoding.drafters import DRAFTERS, FixedTreeDrafter, LinearDrafter, NoDrafter
from decoding.sampling.draws import GeneratorDraws
from decoding.trace.records import STOP_REASONS

HALVES = [0.6, 0.4]


def test_chain_has_k_nodes_and_takes_k_forwards():
    source = TableSource({}, HALVES)
    drafted = LinearDrafter(length=4).draft(None, source, 9, None)
    assert paths(drafted.tree, [4]) == {(0, 0, 0, 0)} and drafted.tree.size == 5 and source.forwards == 4
    assert drafted.tree.path_probs[4] == pytest.approx(0.6**4)


def test_chain_ends_at_the_length_limit():
    drafted = LinearDrafter(length=4).draft(None, TableSource({}, HALVES, depth_limit=2), 9, None)
    assert drafted.tree.size == 3 and STOP_REASONS[drafted.tree.stop_reason[2]] == "length_limit"


def test_full_fixed_tree_counts_depth_as_the_paper():
    drafter = FixedTreeDrafter(max_depth=2, branching=2, prune_probability=0.0)
    source = TableSource({}, HALVES)
    drafted = drafter.draft(None, source, 9, None)
    assert np.bincount(drafted.tree.depths).tolist() == [1, 1, 2, 4]
    assert source.forwards == 3
    branching = FixedTreeDrafter(max_depth=2, branching=2, prune_probability=0.0, branch_first_level=True)
    drafted = branching.draft(None, TableSource({}, HALVES), 9, None)
    assert np.bincount(drafted.tree.depths).tolist() == [1, 2, 4, 8]


def test_pruned_nodes_are_drafted_but_not_verified_and_not_expanded():
    drafter = FixedTreeDrafter(max_depth=3, branching=2, prune_probability=0.2, branch_first_level=True)
    drafted = drafter.draft(None, TableSource({}, HALVES), 9, None)
    low = drafted.tree.path_probs < 0.2
    assert low.any() and not np.isin(np.flatnonzero(low), drafted.order).any()
    assert (drafted.tree.level[low] == -1).all()
    parents = drafted.tree.parents[drafted.order[1:]]
    assert np.isin(parents, drafted.order).all()
    assert (drafted.tree.size - 1, len(drafted.order) - 1) == (14, 6)  # 0.6, 0.4, 0.36, twice 0.24, 0.216
    printed = drafter.with_settings(verify_pruned=True).draft(None, TableSource({}, HALVES), 9, None)
    assert printed.order.tolist() == list(range(15))
    assert (printed.tree.stop_reason == drafted.tree.stop_reason).all()
    assert drafter.with_settings(verify_pruned=True).rule({}).left_out is None


def test_budget():
    drafter = FixedTreeDrafter(max_depth=8, branching=3, prune_probability=0.0, node_budget=20)
    drafted = drafter.draft(None, TableSource({}, [0.4, 0.3, 0.3]), 9, None)
    assert drafted.tree.size - 1 == 20
    for budget in range(1, 20):  # also those that a level leaves one place of
        drafter = FixedTreeDrafter(max_depth=8, branching=2, prune_probability=0.0, node_budget=budget)
        assert drafter.draft(None, TableSource({}, HALVES), 9, None).tree.size - 1 == budget


def test_no_drafter_draws_only_the_root():
    drafted = NoDrafter().draft(None, TableSource({}, HALVES), 9, None)
    assert drafted.tree.size == 1 and drafted.order.tolist() == [0]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("linear", {"length": 0}), ("fixed_tree", {"branching": 0}), ("fixed_tree", {"max_depth": 0})],
)
def test_out_of_range_is_refused(kind, changes):
    with pytest.raises(SettingsError, match=next(iter(changes))):
        DRAFTERS[kind](**changes)


@pytest.mark.parametrize("drafter", [LinearDrafter(), LinearDrafter(sampled=True), FixedTreeDrafter()])
def test_a_draft_that_overflows_is_reported_in_a_sentence(drafter):
    source = TableSource({}, [float("nan")] * 4)
    with pytest.raises(PairError, match="The draft gives nan or infinite logits"):
        drafter.draft(drafter.start([1]), source, 0, GeneratorDraws(0))
