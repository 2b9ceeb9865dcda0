"""Randomness as an object: decisions drawn by seed, each of them recorded."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from decoding.sampling.sampling import exact_dtype
from decoding.trace.records import DrawTrace

FIRST = 64  # most walks over a tree need fewer


class Uniforms:
    """The numbers of one seed in their order, from PyTorch's generator on the host; whoever reads keeps the place."""

    def __init__(self, seed: int):
        self._seed = seed
        self._numbers: list[float] = []

    def read(self, place: int, count: int) -> list[float]:
        """`count` numbers from a place on, each at least 0 and below 1."""
        numbers, end = self._numbers, place + count
        if end > len(numbers):
            generator = torch.Generator().manual_seed(self._seed)
            enough = max(FIRST, 2 * len(numbers), end)
            numbers = self._numbers = torch.rand(enough, dtype=torch.float64, generator=generator).tolist()
        return numbers[place:end]


class Draws(Protocol):
    """Every random decision of drafters and verifiers goes through one of these, one uniform number each.

    A drafter draws first, level by level and in each level as it documents; then the verifier, test by test, and last
    the final token. The record of these decisions replays the iteration.

    Attributes:
        last_uniform: the number after the latest decision, None where none was drawn.
    """

    last_uniform: float | None

    def accept(self, probability: float) -> bool:
        """True with the given probability."""

    def choose(self, weights: Tensor) -> int:
        """Index i with probability `weights[i]` / their sum; `[num_choices]`, not all 0."""

    def choose_each(self, weights: Tensor) -> list[int]:
        """One index per row of `[num_rows, num_choices]`: the same as `choose` row by row."""


class GeneratorDraws:
    """Draws with the numbers of a seed; keeps a record of every decision."""

    def __init__(self, seed: int):
        # Neighbouring seeds of the generator begin with numbers that are alike: seeds are scattered first.
        scattered = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        self._numbers, self._place = Uniforms(scattered >> 1), 0
        self.record: list[DrawTrace] = []
        self.last_uniform: float | None = None

    def accept(self, probability: float) -> bool:
        uniform = self.last_uniform = self._uniforms(1)[0]
        outcome = uniform < probability
        self.record.append(DrawTrace("accept", float(probability), int(outcome), uniform))
        return outcome

    def choose(self, weights: Tensor) -> int:
        return self.choose_each(weights[None])[0]

    def choose_each(self, weights: Tensor) -> list[int]:
        uniforms = self._uniforms(len(weights))
        on_host = weights.device.type == "cpu"
        indices, probabilities = (_invert_on_host if on_host else _invert)(weights, uniforms)
        drawn = zip(probabilities, indices, uniforms, strict=True)
        self.record.extend(DrawTrace("choose", probability, index, uniform) for probability, index, uniform in drawn)
        self.last_uniform = uniforms[-1]
        return indices

    def fork(self, skipped: int = 0) -> "GeneratorDraws":
        """A copy that continues with the same numbers, some decisions further on, and an empty record."""
        copy = GeneratorDraws(0)
        copy._numbers, copy._place = self._numbers, self._place + skipped
        return copy

    def ahead(self, count: int) -> list[float]:
        """The numbers of the next decisions, none of which is taken."""
        return self._numbers.read(self._place, count)

    def _uniforms(self, count: int) -> list[float]:
        numbers = self.ahead(count)
        self._place += count
        return numbers


def _invert(weights: Tensor, uniforms: list[float]) -> tuple[list[int], list[float]]:
    """Per row the first index whose cumulative weight exceeds the uniform's share of the total, and its probability."""
    cumulative = weights.to(exact_dtype(weights.device)).cumsum(-1)
    totals = cumulative[:, -1:].contiguous()
    points = torch.tensor(uniforms, dtype=cumulative.dtype, device=weights.device)[:, None] * totals
    # Rounding may lift a point to the total, past every weight: it belongs to the last one that is not 0.
    last = torch.searchsorted(cumulative, totals)
    outcomes = torch.minimum(torch.searchsorted(cumulative, points, right=True), last)
    return outcomes[:, 0].tolist(), (weights.gather(1, outcomes) / totals)[:, 0].tolist()


def _invert_on_host(weights: Tensor, uniforms: list[float]) -> tuple[list[int], list[float]]:
    """The same with numpy's search, which takes half the time for a row: drafters that draw node by node live on it."""
    indices, probabilities = [], []
    sums = weights.double().cumsum(-1).numpy()
    for row, cumulative, uniform in zip(weights.numpy(), sums, uniforms, strict=True):
        total = cumulative[-1]
        index = int(cumulative.searchsorted(uniform * total, side="right"))
        if index == len(row):
            index = int(cumulative.searchsorted(total))
        indices.append(index)
        probabilities.append(float(row[index] / total))
    return indices, probabilities
