"""SpecInfer: test the children in random order, each against what the ones before left (Algorithms 4, 9, 14)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.verifiers.base import IID_TREES
from decoding.verifiers.top_down import Solver, TopDownVerifier, positive_part

# The exact probabilities of a random order need 2^k terms; above this k the list order, equally lossless, is taken.
RANDOM_ORDER_ENTRIES = 12


class SpecInferSolver(Solver):
    """Any rejection makes the target's distribution norm((distribution - draft)+)."""

    random_order = True

    def __init__(self, target, draft, tokens):
        super().__init__(target, draft, tokens)
        self._distributions: list[Tensor] = [target]
        self._passes: list[list[float]] = []

    def order(self, draws, matches) -> Iterator[int]:
        left = list(range(len(self.tokens)))
        if len(left) > RANDOM_ORDER_ENTRIES:
            yield from left
            return
        while left:
            yield left.pop(draws.choose(torch.ones(len(left), dtype=torch.float64)) if len(left) > 1 else 0)

    def acceptance(self, rejected: int, entry: int) -> float:
        while len(self._passes) <= rejected:
            tokens = list(self.tokens)
            left, drafted = self.residual(len(self._passes))[tokens], self.draft[tokens]
            self._passes.append(torch.where(drafted > 0, left / drafted, 0.0).clamp(max=1.0).tolist())
        return self._passes[rejected][entry]

    def residual(self, rejected: int) -> Tensor:
        while len(self._distributions) <= rejected:
            left = positive_part(self._distributions[-1] - self.draft, self._distributions[-1])
            self._distributions.append(left / left.sum())
        return self._distributions[rejected]

    def branching(self) -> dict[int, float]:
        count = len(self.tokens)
        if count == 1 or count > RANDOM_ORDER_ENTRIES:
            return super().branching()
        # Probability that exactly the entries of a bit mask have been tested and rejected.
        rejected_set = np.zeros(2**count)
        rejected_set[0] = 1.0
        sizes = np.array([mask.bit_count() for mask in range(2**count)])
        picked = dict.fromkeys(self.tokens, 0.0)
        for rejected in range(count):
            masks = np.flatnonzero(sizes == rejected)
            for entry, token in enumerate(self.tokens):
                untested = masks[(masks >> entry) & 1 == 0]
                chance = rejected_set[untested] / (count - rejected)
                passes = self.acceptance(rejected, entry)
                picked[token] += float(chance.sum()) * passes
                rejected_set[untested | (1 << entry)] += chance * (1 - passes)
        left = float(rejected_set[-1])
        return self.add_residual(picked, self.residual(count), left) if left > 0 else picked


@dataclass(frozen=True)
class SpecInferVerifier(TopDownVerifier):
    """Multi-round speculative sampling for independent draws."""

    name = "specinfer"
    label = "SpecInfer"
    summary = "Tests the children one by one in random order, each against the residual left by the previous ones."
    how = "tests the entries in random order; the figures are those of draw order."
    paper = "Miao et al. 2023"
    lossless_for = IID_TREES
    solver = SpecInferSolver

    def acceptance_rate(self, target: Tensor, draft: Tensor, draws: int) -> float:
        """Probability that the token picked is among `draws` independent draws from the draft (Algorithm 9)."""
        # A token that survives every residual could never be rejected, so Algorithm 9's last term is 0.
        solver, none_passes = SpecInferSolver(target, draft, ()), 1.0
        for rejected in range(draws):
            none_passes *= 1 - float(solver.residual(rejected).minimum(draft).sum())
        return 1 - max(0.0, none_passes)
