"""What theory says, against enumeration of the very solvers and against one another."""

from itertools import product

import numpy as np
import pytest
import torch

from benchmarks.enumeration import enumerate_draws
from decoding.verifiers import VERIFIERS, KhistiVerifier
from decoding.verifiers.theory import SOLVERS, acceptance_rate, best_acceptance, l1_distance
from tests.helpers.families import family

GENERATOR = np.random.default_rng(3)


def probs(size: int, evenness: float = 0.6) -> torch.Tensor:
    return torch.from_numpy(GENERATOR.dirichlet(np.full(size, evenness)))


PAIRS = [(probs(size), probs(size)) for size in (2, 3, 3, 4)] + [
    (torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)),
    (torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)),
    (torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)),
]


def lists(draft: torch.Tensor, draws: int):
    """Every list of draws with its probability."""
    for tokens in product(range(len(draft)), repeat=draws):
        chance = float(torch.stack([draft[t] for t in tokens]).prod())
        if chance > 0:
            yield list(tokens), chance


def picked_law(name: str, target, draft, tokens) -> np.ndarray:
    """Distribution of the token that the solver itself picks, every draw enumerated."""
    found = np.zeros(len(target))
    verifier = VERIFIERS[name]()

    def run(draws):
        solver, rejected = verifier.solve(target, draft, tokens), 0
        for entry in solver.order(draws, []):
            if draws.accept(solver.acceptance(rejected, entry)):
                return solver.tokens[entry]
            rejected += 1
        return draws.choose(solver.residual(rejected))

    for token, chance in enumerate_draws(run):
        found[token] += chance
    return found


@pytest.mark.parametrize("draws", family((1, 2, 3), 2))
@pytest.mark.parametrize("name", ["nss", "naive_tree", "spectr", "specinfer", "specinfer_wor", "khisti"])
def test_branching_is_what_the_solver_does(name, draws):
    for target, draft in PAIRS:
        for tokens, _ in lists(draft, draws):
            probs = picked_law(name, target, draft, tokens)
            for token, chance in VERIFIERS[name]().solve(target, draft, tokens).branching().items():
                assert chance == pytest.approx(probs[token], abs=1e-12)


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("name", SOLVERS)
def test_acceptance_rates_are_exact_and_never_beat_the_best(name, draws):
    for target, draft in PAIRS:
        exact = sum(
            chance * sum(VERIFIERS[name]().solve(target, draft, tokens).branching().values())
            for tokens, chance in lists(draft, draws)
        )
        rate = acceptance_rate(name, target, draft, draws)
        assert rate == pytest.approx(exact, abs=1e-9), (target, draft)
        assert rate <= best_acceptance(target, draft, draws) + 1e-9


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_the_best_acceptance_is_the_minimum_over_all_sets_of_tokens(draws):
    for target, draft in PAIRS:
        sets = [list(members) for members in product([False, True], repeat=len(target))]
        brute = min(float(target[s].sum() + 1 - draft[s].sum() ** draws) for s in map(torch.tensor, sets))
        assert best_acceptance(target, draft, draws) == pytest.approx(brute, abs=1e-12)


def test_khisti_with_all_tokens_free_reaches_the_best_at_two_draws_and_less_with_few():
    gaps = []
    for _ in range(12):
        target, draft = probs(6), probs(6)
        best = best_acceptance(target, draft, 2)
        assert KhistiVerifier(6).acceptance_rate(target, draft, 2) == pytest.approx(best, abs=1e-7)
        gaps.append(best - KhistiVerifier(2).acceptance_rate(target, draft, 2))
    assert min(gaps) > -1e-9 and max(gaps) > 1e-3


def test_distances():
    target = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    draft = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    assert l1_distance(target, draft) == pytest.approx(1.0)
    assert acceptance_rate("naive_tree", target, draft, 1) == pytest.approx(1 - l1_distance(target, draft) / 2)


def test_what_has_no_rate_is_refused():
    with pytest.raises(ValueError, match="traversal has no acceptance rate"):
        acceptance_rate("traversal", *PAIRS[0], 2)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        acceptance_rate("nss", *PAIRS[0], 0)
