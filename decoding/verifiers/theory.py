"""What theory says exactly: how far two distributions are apart, what a solver accepts, what the tests at a node see.

Distributions are `[vocab_size]`; everything that the app calls "expected" or "exact" is computed here or by `Decision`.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import VerifiedTree, Verifier
from decoding.verifiers.bottom_up import BottomUp
from decoding.verifiers.specinfer_wor import without
from decoding.verifiers.top_down import TestDistributions, TopDown

# Verifiers with an acceptance rate for k independent draws (Definition 5.1), and whether it is exact or a lower bound.
SOLVERS: tuple[str, ...] = ("nss", "naive_tree", "spectr", "specinfer", "khisti")
LOWER_BOUNDS: tuple[str, ...] = ("khisti",)


def l1_distance(target: Tensor, draft: Tensor) -> float:
    """Sum of the absolute differences, from 0 to 2; naive verification accepts one draw with 1 - half of it."""
    return float((target - draft).abs().sum())


def acceptance_rate(name: str, target: Tensor, draft: Tensor, draws: int) -> float:
    """Probability that a solver's token is among `draws` independent draws from the draft (Algorithms 6 to 10).

    Raises `ValueError` where the verifier is no solver for independent draws, or `draws` is less than 1.
    """
    if name not in SOLVERS:
        raise ValueError(f"{name} has no acceptance rate for independent draws: choose {', '.join(SOLVERS)}.")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}.")
    return VERIFIERS[name]().acceptance_rate(target, draft, draws)


def best_acceptance(target: Tensor, draft: Tensor, draws: int) -> float:
    """alpha_opt = min over token sets S of target(S) + 1 - draft(S)^k: no solver for k draws accepts more.

    The least set is one of those that begin the order by target / draft: for a given draft(S) these have the least
    target(S), and between two of them the bound is concave.
    """
    ratio = torch.where(draft > 0, target / draft, torch.inf)
    order = ratio.argsort()
    outside = torch.cat([target.new_zeros(1), target[order].cumsum(0)])
    inside = torch.cat([draft.new_zeros(1), draft[order].cumsum(0)]).clamp(max=1.0)
    return float((outside + 1 - inside**draws).min())


@dataclass
class NodeTests:
    """A verifier's tests at one node, in order."""

    # Probability that an entry's test passes once all before it have failed, by place; untested ones are missing
    passes: dict[int, float] = field(default_factory=dict)
    distributions: list[TestDistributions] = field(default_factory=list)  # what each test sees
    wins: dict[int, float] | None = None  # chance to win the tournament by token, None where there is none
    # Bottom-up verifiers: chance that the path ends here once everything below was rejected, else None
    ends: float | None = None
    factor: float | None = None  # SpecTr's common division factor, else None
    bottom_up: bool = False  # what is tested here depends on the tests below

    def see(self, distributions: TestDistributions) -> None:
        """Note the distributions that the next test sees, the target's normalised."""
        self.distributions.append(replace(distributions, target=distributions.target / distributions.target.sum()))


def tests_at(verifier: Verifier, tree: VerifiedTree, node: int) -> NodeTests:
    """The tests of a verifier at a node that has verified children."""
    decision = verifier.decide(tree)
    if isinstance(decision, TopDown):
        solver = decision.solver(node)
        tests = NodeTests(wins=solver.winner_chances(), factor=solver.factor)
        for distributions in solver.test_distributions():
            tests.passes |= {place: solver.acceptance(distributions.rejected, place) for place in distributions.tested}
            tests.see(distributions)
        return tests
    if isinstance(decision, BottomUp):
        return _bottom_up(decision, node)
    wanted = tree.preferred[tree.row_of[node]]  # greedy: every child is compared with the target's favourite
    tests = NodeTests({place: float(tree.tokens[child] == wanted) for place, child in enumerate(tree.entries[node])})
    tests.see(TestDistributions(0, (), tree.target_distribution(node), None))
    return tests


def _bottom_up(decision: BottomUp, node: int) -> NodeTests:
    """Children are tested after everything below them."""
    tree, tests, rejected = decision.tree, NodeTests(bottom_up=True), 0
    target, draft = tree.target_distribution(node), tree.draft_distribution(node)
    entries, replaced = tree.entries[node], decision.replaced
    first = [place for place, child in enumerate(entries) if child not in entries[:place]]
    places = iter(range(len(entries)) if replaced else first)
    for stop in decision.stops():
        if stop.node and tree.parents[stop.node] == node:
            place = next(places)
            tests.passes[place] = stop.passes
            tests.see(TestDistributions(rejected, (place,), target, draft))
            rejected += 1
            target = target if stop.residual is None else stop.residual
            draft = draft if replaced else without(draft, tree.tokens[stop.node])
        elif stop.node == node:
            tests.ends = stop.passes
            tests.see(TestDistributions(rejected, (), stop.final_distribution, None))
    if not tests.distributions:
        tests.see(TestDistributions(0, (), target, draft))
    return tests
