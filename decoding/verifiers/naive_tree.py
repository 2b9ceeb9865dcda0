"""Naive tree: speculative sampling of the first child; the residual may still pick another (Algorithms 2, 7, 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from decoding.verifiers.base import SAMPLED_LAWS
from decoding.verifiers.top_down import Solver, TopDownVerifier, positive_part


class NaiveSolver(Solver):
    """Tests only the first entry."""

    def order(self, draws, matches):
        yield 0

    def fixed_order(self) -> Sequence[int]:
        return (0,)

    def acceptance(self, rejected: int, entry: int) -> float:
        token = self.tokens[entry]
        drafted = float(self.draft[token])
        return min(1.0, float(self.target[token]) / drafted) if drafted > 0 else 0.0

    def residual(self, rejected: int) -> Tensor:
        return self._left if rejected else self.target

    @cached_property
    def _left(self) -> Tensor:
        return positive_part(self.target - self.draft, self.target)


@dataclass(frozen=True)
class NaiveTreeVerifier(TopDownVerifier):
    """Accepts the first child with min(1, target / draft); what is drawn after a rejection may be another child."""

    name = "naive_tree"
    label = "Naive tree"
    summary = "Tests the first child of each node; after a rejection the residual may still pick another child."
    paper = "Leviathan et al. 2023, Chen et al. 2023, on trees"
    lossless_for = SAMPLED_LAWS

    def solver(self):
        return NaiveSolver

    def acceptance_rate(self, target: Tensor, draft: Tensor, draws: int) -> float:
        """Probability that the token picked is among `draws` independent draws from the draft (Algorithm 7)."""
        left = (target - draft).clamp(min=0) * (1 - (1 - draft) ** (draws - 1))
        return float(target.minimum(draft).sum() + left.sum())
