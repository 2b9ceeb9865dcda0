"""Naive speculative sampling of the first child drawn, on the first path alone or on the tree (Algorithms 2, 7, 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from decoding.verifiers.base import SAMPLED_TREES, VerifiedTree
from decoding.verifiers.top_down import Solver, TopDown, TopDownVerifier, positive_part


class NaiveSolver(Solver):
    """Tests only the first entry."""

    def fixed_order(self) -> Sequence[int]:
        return (0,)

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
    how = "tests the first entry; the token drawn after a rejection may still be another child."
    paper = "Leviathan et al. 2023, Chen et al. 2023, on trees"
    lossless_for = SAMPLED_TREES
    solver = NaiveSolver

    def acceptance_rate(self, target: Tensor, draft: Tensor, draws: int) -> float:
        """Probability that the token picked is among `draws` independent draws from the draft (Algorithm 7)."""
        left = (target - draft).clamp(min=0) * (1 - (1 - draft) ** (draws - 1))
        return float(target.minimum(draft).sum() + left.sum())


@dataclass(frozen=True)
class NaiveVerifier(TopDownVerifier):
    """Sees only the first child drawn at each node and stops at the first rejection."""

    name = "naive"
    label = "Naive"
    summary = "Tests the tokens of the first path one by one and stops at the first rejection."
    how = "tests the first entry; after a rejection the final token is drawn and the path ends."
    paper = "Leviathan et al. 2023, Chen et al. 2023"
    lossless_for = SAMPLED_TREES
    solver = NaiveSolver

    def decide(self, tree: VerifiedTree) -> TopDown:
        return TopDown(tree, NaiveSolver, {}, first_child_only=True)
