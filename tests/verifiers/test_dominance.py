"""Which verifier theory guarantees to accept at least as much as another, exactly on small tables."""

import pytest

from benchmarks.enumeration import all_drafts, all_tables
from decoding.drafters import DelayedDrafter, IIDPathsDrafter, LinearDrafter
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import VerifiedTree

NAMES = ("naive", "naive_tree", "block")
DRAFTERS = (IIDPathsDrafter(paths=2, length=2), DelayedDrafter(paths=2, trunk=1, branch=1), LinearDrafter(3, True))


@pytest.mark.parametrize("tables", all_tables(3, count_random=1), ids=lambda tables: tables.name)
def test_naive_is_below_naive_tree_on_every_tree_and_below_block_in_expectation(tables):
    for drafter in DRAFTERS:
        gain = 0.0
        for draft, chance in all_drafts(drafter, tables):
            tree = VerifiedTree(draft, tables.target_rows(draft))
            naive, naive_tree, block = (VERIFIERS[name]().decide(tree).expected_tokens for name in NAMES)
            assert naive_tree >= naive - 1e-12
            gain += chance * (block - naive)
        assert gain >= -1e-12
