"""Greedy verification against hand-made trees and target rows."""

import torch

from benchmarks.table_source import TableSource
from decoding.drafters import FixedTreeDrafter, LinearDrafter
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.verifiers import VERIFIERS, GreedyVerifier


def rows(*argmaxes, vocab=4):
    """Target rows whose argmax is given per verified node."""
    return TargetDistributions(torch.nn.functional.one_hot(torch.tensor(argmaxes), vocab).float(), Sampling())


def binary_tree():
    """Root, 2 children (tokens 0, 1), 4 grandchildren."""
    drafter = FixedTreeDrafter(max_depth=1, branching=2, prune_probability=0.0, branch_first_level=True)
    return drafter.draft(None, TableSource({}, [0.6, 0.4, 0.0, 0.0]), 9, None)


def test_walks_to_a_leaf_and_adds_the_bonus():
    result = GreedyVerifier().verify(binary_tree(), rows(1, 3, 0, 3, 3, 2, 3), None)
    assert result.accepted == (2, 5) and result.final_token == 2 and result.final_kind == "bonus"
    assert result.acceptance_probability.tolist() == [1, 0, 1, 0, 0, 1, 0]


def test_stops_where_no_child_matches():
    result = GreedyVerifier().verify(binary_tree(), rows(0, 3, 0, 0, 0, 0, 0), None)
    assert result.accepted == (1,) and result.final_token == 3 and result.final_kind == "recovered"


def test_falls_back_to_the_targets_token():
    result = GreedyVerifier().verify(binary_tree(), rows(3, 0, 0, 0, 0, 0, 0), None)
    assert result.accepted == () and result.final_token == 3 and result.final_kind == "fallback"


def test_steps_list_every_test_in_order():
    result = GreedyVerifier().verify(binary_tree(), rows(1, 0, 3, 0, 0, 0, 0), None)
    assert [(s.node_id, s.child_id, s.accepted) for s in result.steps] == [
        (0, 1, False), (0, 2, True), (2, 5, False), (2, 6, False), (2, None, True),
    ]  # fmt: skip


def test_uses_raw_logits_where_probabilities_tie():
    logits = torch.tensor([[-1.0, 1e-9, 2e-9, -1.0]]).repeat(2, 1)
    assert torch.softmax(logits, -1).argmax(-1).tolist() == [1, 1], "the probabilities no longer tie"
    drafted = LinearDrafter(length=1).draft(None, TableSource({}, [0.0, 0.1, 0.9, 0.0]), 9, None)
    assert GreedyVerifier().verify(drafted, TargetDistributions(logits, Sampling()), None).accepted == (1,)


def test_refuses_temperature():
    for verifier in VERIFIERS.values():
        refusal = verifier().refusal("deterministic", Sampling(temperature=0.7))
        assert (refusal is not None and "temperature 0" in refusal) == verifier.greedy_only
