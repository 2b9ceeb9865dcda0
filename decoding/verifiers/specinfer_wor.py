"""SpecInfer without replacement: a rejected child also leaves the draft's distribution (Sequoia; DySpec Alg. 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.verifiers.base import SAMPLED_TREES
from decoding.verifiers.top_down import Solver, TopDownVerifier, positive_part


class WithoutReplacementSolver(Solver):
    """Tests the distinct entries in draw order against the distribution that each was drawn from."""

    def __init__(self, target, draft, tokens):
        super().__init__(target, draft, tokens)
        self._first = [tokens.index(token) for token in dict.fromkeys(tokens)]
        self._targets: list[Tensor] = [target]
        self._drafts: list[Tensor] = [draft]

    def fixed_order(self):
        return self._first

    def residual(self, rejected: int) -> Tensor:
        while len(self._targets) <= rejected:
            target, draft = self._targets[-1], self._drafts[-1]
            left = positive_part(target - draft, target)
            self._targets.append(left / left.sum())
            self._drafts.append(without(draft, self.tokens[self._first[len(self._drafts) - 1]]))
        return self._targets[rejected]

    def drafted_distribution(self, rejected: int) -> Tensor:
        self.residual(rejected)  # computes both distributions
        return self._drafts[rejected]


def without(probs: Tensor, token: int) -> Tensor:
    """The distribution given that it is not this token; all 0 if nothing else is left."""
    left = probs.clone()
    left[token] = 0.0
    total = left.sum()
    return torch.where(total > 0, left / total, left)


@dataclass(frozen=True)
class SpecInferWithoutReplacementVerifier(TopDownVerifier):
    """Multi-round speculative sampling for draws without replacement; repeats of independent draws are dropped."""

    name = "specinfer_wor"
    label = "SpecInfer, no replacement"
    summary = "Tests the distinct children in draw order; a rejected one is removed from both distributions."
    how = "tests each distinct entry once, in draw order; a rejected one leaves the draft's distribution."
    paper = "Chen et al. 2024 (Sequoia); DySpec, Algorithm 3"
    lossless_for = SAMPLED_TREES
    solver = WithoutReplacementSolver
