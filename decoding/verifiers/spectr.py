"""SpecTr: K-SEQ, tests with a common division factor (Sun et al. 2023; Algorithms 3, 8, 13)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from decoding.verifiers.base import IID_TREES
from decoding.verifiers.top_down import Solver, TestDistributions, TopDownVerifier, positive_part

BISECTIONS = 60


def overlap(target: Tensor, draft: Tensor, factor: float) -> float:
    """beta(rho), Eq. 6: probability that one draw passes a test with the given division factor."""
    return float((target / factor).minimum(draft).sum())


def division_factor(target: Tensor, draft: Tensor, draws: int) -> float:
    """rho*: where 1 - (1 - beta)^k = rho * beta, on [1, k].

    The upper end of the bisection is returned: a factor above the root is lossless, one below it is biased.
    """
    low, high = 1.0, float(draws)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        beta = overlap(target, draft, middle)
        if 1 - (1 - beta) ** draws > middle * beta:
            low = middle
        else:
            high = middle
        if high - low < 1e-15 * high:
            break
    return high


class SpecTrSolver(Solver):
    """Every entry passes with min(1, target / (rho * draft)), in draw order."""

    @cached_property
    def factor(self) -> float:
        """rho*."""
        return division_factor(self.target, self.draft, len(self.tokens))

    def acceptance(self, rejected: int, entry: int) -> float:
        token = self.tokens[entry]
        drafted = self.factor * float(self.draft[token])
        return min(1.0, float(self.target[token]) / drafted) if drafted > 0 else 0.0

    def residual(self, rejected: int) -> Tensor:
        return self._left if rejected == len(self.tokens) else self.target

    def changed_residual(self, rejected: int) -> Tensor | None:
        return self._left if rejected == len(self.tokens) else None

    def test_distributions(self) -> Iterator[TestDistributions]:
        """All entries against the draft's distribution times one factor."""
        count = len(self.tokens)
        yield TestDistributions(0, tuple(range(count)), self.target, self.factor * self.draft)
        yield TestDistributions(count, (), self.residual(count), None)

    @cached_property
    def _left(self) -> Tensor:
        beta = overlap(self.target, self.draft, self.factor)
        gamma = (1 - (1 - beta) ** len(self.tokens)) / beta if beta > 0 else self.factor
        return positive_part(self.target - gamma * (self.target / self.factor).minimum(self.draft), self.target)


@dataclass(frozen=True)
class SpecTrVerifier(TopDownVerifier):
    """K-SEQ: one residual after all tests."""

    name = "spectr"
    label = "SpecTr"
    summary = "Tests all children with one common division factor, then samples from one residual."
    how = "tests all entries against the draft's distribution times one factor, then draws from one residual."
    paper = "Sun et al. 2023"
    lossless_for = IID_TREES
    solver = SpecTrSolver

    def acceptance_rate(self, target: Tensor, draft: Tensor, draws: int) -> float:
        """Probability that the token picked is among `draws` independent draws from the draft (Algorithm 8)."""
        # The residual and what can be rejected have disjoint supports at rho*, so Algorithm 8's last term is 0.
        return 1 - (1 - overlap(target, draft, division_factor(target, draft, draws))) ** draws
