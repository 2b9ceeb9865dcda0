"""Every verifier on small tables: exact joint distributions, exact expectations, what is refused, what it records."""

import itertools

import numpy as np
import pytest
import torch

from benchmarks.enumeration import (
    SAMPLED,
    Tables,
    all_drafts,
    all_tables,
    bias,
    block_distribution,
    emitted_distribution,
    enumerate_draws,
)
from decoding.common.errors import SettingsError
from decoding.drafters import (
    DelayedDrafter,
    DySpecDrafter,
    FixedTreeDrafter,
    HardwareAwareDrafter,
    IIDPathsDrafter,
    LinearDrafter,
    SequoiaDrafter,
)
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import TargetDistributions
from decoding.tree.draft import Draft, TokenTree
from decoding.verifiers import VERIFIERS, KhistiVerifier, traversal
from decoding.verifiers.base import VerifiedTree
from decoding.verifiers.specinfer_wor import without
from tests.helpers.families import family
from tests.helpers.replayed_draws import ReplayDraws

SAMPLERS = [name for name, kind in VERIFIERS.items() if not kind.greedy_only]
TABLES = all_tables(3, count_random=1)
BY_NAME = {tables.name: tables for tables in TABLES}
TREES = {
    "chain": LinearDrafter(length=2, sampled=True),
    "iid": IIDPathsDrafter(paths=2, length=2),
    "delayed": DelayedDrafter(paths=2, trunk=1, branch=1),
    "wor": SequoiaDrafter(node_budget=5, max_depth=2, acceptance="0.5,0.3"),
    "dyspec": DySpecDrafter(node_budget=4),
    "deterministic": FixedTreeDrafter(max_depth=1, branching=2, prune_probability=0.0, branch_first_level=True),
    "as printed": FixedTreeDrafter(
        max_depth=1, branching=2, prune_probability=0.3, branch_first_level=True, verify_pruned=True
    ),
    "hardware_aware": HardwareAwareDrafter(5, max_depth=3, verify_ms="1:1 6:1.2", level_ms="0.1", odds="1 1"),
}


def allowed(tree: str, verifier: str) -> bool:
    return VERIFIERS[verifier]().refusal(TREES[tree].draft_sampling, SAMPLED) is None


@pytest.mark.parametrize("name", family(BY_NAME, "random 1"))
@pytest.mark.parametrize("tree", TREES)
def test_the_joint_law_is_the_targets_and_the_expectation_is_exact(tree, name):
    tables = BY_NAME[name]
    drafts = list(all_drafts(TREES[tree], tables))
    for verifier in SAMPLERS:
        if not allowed(tree, verifier):
            continue
        emitted: dict = {}
        for draft, chance in drafts:
            decision = VERIFIERS[verifier]().decide(VerifiedTree(draft, tables.target_rows(draft)))
            probs = block_distribution(VERIFIERS[verifier](), draft, tables)
            assert decision.expected_tokens == pytest.approx(sum(len(b) * p for b, p in probs.items()), abs=1e-12)
            for block, share in probs.items():
                emitted[block] = emitted.get(block, 0.0) + chance * share
        assert bias(emitted, tables) < 1e-12, verifier


@pytest.mark.parametrize("verifier", SAMPLERS)
def test_the_probability_of_being_accepted_is_that_of_all_draws(verifier):
    tables, drafter = TABLES[0], TREES["iid"]
    for draft, _ in list(all_drafts(drafter, tables))[::9]:
        decision = VERIFIERS[verifier]().decide(VerifiedTree(draft, tables.target_rows(draft)))
        counted = np.zeros(draft.tree.size)
        counted[0] = 1.0
        for verification, chance in enumerate_draws(decision.walk):
            counted[list(verification.accepted)] += chance
        assert decision.acceptance_probability == pytest.approx(counted[draft.order], abs=1e-12)


@pytest.mark.parametrize("tree", family(TREES, *(TREES.keys() - {"wor"})))
def test_what_is_refused_is_biased(tree):
    for verifier in SAMPLERS:
        if not allowed(tree, verifier):
            worst = max(
                bias(emitted_distribution(TREES[tree], VERIFIERS[verifier](), tables), tables) for tables in TABLES[:3]
            )
            assert worst > 1e-4, (tree, verifier)


def test_the_refusals_are_those_of_the_specification():
    trees = ("iid", "wor", "dyspec", "deterministic")
    refused = {tree: {name for name in SAMPLERS if not allowed(tree, name)} for tree in trees}
    need_independent = {"spectr", "specinfer", "khisti", "traversal"}
    assert refused["iid"] == set() and refused["wor"] == refused["dyspec"] == need_independent
    assert refused["deterministic"] == set(SAMPLERS) - {"nss"}


def test_on_a_chain_solvers_are_naive_and_traversal_is_block_verification():
    for tables in TABLES:
        distributions = {name: emitted_distribution(TREES["chain"], VERIFIERS[name](), tables) for name in SAMPLERS}
        for reference, same in (
            ("naive", ("naive_tree", "spectr", "specinfer", "specinfer_wor", "khisti")),
            ("block", ("traversal", "traversal_wor")),
        ):
            for name in same:
                blocks = {*distributions[reference], *distributions[name]}
                assert (
                    max(abs(distributions[reference].get(b, 0) - distributions[name].get(b, 0)) for b in blocks) < 1e-12
                ), name


@pytest.mark.parametrize("truncation", [2, 3])
def test_khisti_is_lossless_for_every_truncation(truncation):
    assert bias(emitted_distribution(IIDPathsDrafter(3, 1), KhistiVerifier(truncation), TABLES[0]), TABLES[0]) < 1e-12


def test_khisti_refuses_a_truncation_of_one():
    with pytest.raises(SettingsError, match="truncation \(s\) must be a whole number from 2 to 64, not 1"):
        KhistiVerifier(1)


@pytest.mark.parametrize("verifier", SAMPLERS)
def test_a_walk_is_replayed_by_its_draws(verifier):
    draft, _ = list(all_drafts(TREES["iid"], TABLES[0]))[5]
    target = TABLES[0].target_rows(draft)
    for seed in range(20):
        draws = GeneratorDraws(seed)
        first = VERIFIERS[verifier]().verify(draft, target, draws)
        again = VERIFIERS[verifier]().verify(draft, target, ReplayDraws(tuple(draws.record)))
        assert (first.accepted, first.final_token) == (again.accepted, again.final_token)
        assert [s.accepted for s in first.steps] == [s.accepted for s in again.steps]


@pytest.mark.parametrize("verifier", SAMPLERS)
def test_steps_tell_the_walk(verifier):
    draft, _ = list(all_drafts(TREES["iid"], TABLES[0]))[5]
    for seed in range(20):
        reported = VERIFIERS[verifier]().verify(draft, TABLES[0].target_rows(draft), GeneratorDraws(seed))
        last = reported.steps[-1]
        assert last.kind == "choice" and last.child_id is None and last.token_id == reported.final_token
        assert last.node_id == (reported.accepted[-1] if reported.accepted else 0)
        for step in reported.steps:
            assert 0 <= step.acceptance_probability <= 1
            if step.kind == "test" and step.drawn is not None:
                assert step.accepted == (step.drawn < step.acceptance_probability)
            assert sum(step.residual_probs) == pytest.approx(1) or not step.residual_probs


def bad(draft, rows, verifier: str = "nss") -> None:
    VERIFIERS[verifier]().verify(draft, TargetDistributions(None, SAMPLED, probs=rows), GeneratorDraws(0))


def test_bad_input_names_its_argument():
    draft, _ = next(all_drafts(TREES["iid"], TABLES[0]))
    good = TABLES[0].target_rows(draft).logits
    for spoil, words in ((0.5, "target_probs must hold probabilities"), (float("nan"), "target_probs must hold")):
        rows = good.clone()
        rows[-1, 0] += spoil
        with pytest.raises(ValueError, match=words):
            bad(draft, rows)
    with pytest.raises(ValueError, match="target has 1 rows for"):
        bad(draft, good[:1])
    object.__setattr__(draft, "order", draft.order[::-1].copy())
    with pytest.raises(ValueError, match=r"draft\.order must begin with the root"):
        bad(draft, good)


def test_a_parent_behind_its_child_and_a_bad_draft_row_are_refused():
    draft, _ = next(
        (d, c) for d, c in all_drafts(TREES["iid"], TABLES[0]) if len(d.order) > 3 and d.tree.depths[d.order[-1]] == 2
    )
    good = TABLES[0].target_rows(draft).logits
    order = draft.order.copy()
    order[1:] = order[1:][::-1]
    object.__setattr__(draft, "order", order)
    with pytest.raises(ValueError, match=r"draft\.order must list the parent of node"):
        bad(draft, good)
    object.__setattr__(draft, "order", np.sort(order))
    nodes, probs = draft.rows[0]
    object.__setattr__(draft, "rows", ((nodes, probs * 2), *draft.rows[1:]))
    with pytest.raises(ValueError, match="draft_probs of node 0 sums to 2: probabilities must sum to 1"):
        bad(draft, good, "specinfer")


@pytest.mark.parametrize("verifier", SAMPLERS)
def test_large_vocabularies_in_float32_never_give_nan(verifier):
    generator = torch.Generator().manual_seed(0)
    size, drafter = 152_000, IIDPathsDrafter(paths=3, length=2)
    logits = torch.randn(1, size, generator=generator) * 4

    class Source:
        depth_limit = 10

        def expand(self, tree, nodes):
            return torch.softmax(logits.expand(len(nodes), -1), -1)

    drafts = drafter.draft(None, Source(), 0, GeneratorDraws(1))
    for target in (logits, -logits, logits + torch.randn(1, size, generator=generator)):
        rows = TargetDistributions(target.expand(len(drafts.order), -1), SAMPLED)
        reported = VERIFIERS[verifier]().verify(drafts, rows, GeneratorDraws(2))
        assert np.isfinite(reported.acceptance_probability).all() and 0 <= reported.final_token < size
        assert reported.acceptance_probability.max() <= 1 + 1e-9


def trees_drawn_on():
    """Trees of two children a node to depth 2: the draft's only token, then one drawn uniformly from the other two."""
    for others in itertools.product((1, 2), repeat=3):
        tree = TokenTree(0)
        for parent, other in enumerate(others):
            tree.append(np.array([parent, parent]), np.array([0, other]), np.array([1.0, 0.0]))
        rows = ((np.arange(3), torch.tensor([[1.0, 0.0, 0.0]] * 3, dtype=torch.float64)),)
        yield Draft(tree, np.arange(tree.size), "without_replacement", None, rows, {}), 0.5**3


@pytest.mark.parametrize(("goes_on", "tokens"), [(False, 1.96), (True, 2.78)])
def test_children_of_draft_probability_0_are_lossless_and_lost(goes_on, tokens, monkeypatch):
    """What the docstring of `traversal_wor` says of them, and what the rule that it does not follow would give."""
    tables = Tables("drawn on", {}, {}, [1.0, 0.0, 0.0], [0.6, 0.3, 0.1])

    def uniform(probs, token):
        left = without(probs, token)
        return left if float(left.sum()) > 0 else without(torch.full_like(probs, 1 / len(probs)), token)

    if goes_on:
        monkeypatch.setattr(traversal, "without", uniform)
    verifier, emitted, expected = VERIFIERS["traversal_wor"](), {}, 0.0
    for draft, chance in trees_drawn_on():
        expected += chance * verifier.decide(VerifiedTree(draft, tables.target_rows(draft))).expected_tokens
        for block, share in block_distribution(verifier, draft, tables).items():
            emitted[block] = emitted.get(block, 0.0) + chance * share
    assert bias(emitted, tables) < 1e-12 and expected == pytest.approx(tokens, abs=1e-12)
