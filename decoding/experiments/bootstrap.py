"""Means over prompts with 95% intervals, and whether a difference between two ways is decided by them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

DRAWS, SEED = 4000, 0


@dataclass(frozen=True)
class Estimate:
    """A figure over prompts.

    Attributes:
        low, high: 95% interval of the bootstrap over prompts.
    """

    value: float
    low: float
    high: float
    prompts: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval lies on that side of 0, else 0."""
        return int(self.low > 0) - int(self.high < 0)


def estimate(prompts: Sequence, figure: Callable[[np.ndarray], float] | None = None, draws: int = DRAWS) -> Estimate:
    """A figure of prompts drawn again with replacement, as often as there are; without one the mean of numbers.

    Args:
        figure: of the indices of the prompts drawn.
    """
    count, chosen = len(prompts), _chosen(len(prompts), draws)
    if figure is None:
        numbers = np.asarray(prompts, dtype=np.float64)
        value, drawn = numbers.mean(), numbers[chosen].mean(1)
    else:
        value, drawn = figure(np.arange(count)), np.array([figure(row) for row in chosen])
    return _estimate(value, drawn, count)


def ratio_gain(better: np.ndarray, worse: np.ndarray) -> Estimate:
    """By how much, as a share, the mean of one exceeds that of the other, above 0, on the same prompts.

    Draws of the prompts in which the other is 0 have no ratio and are left out.
    """
    chosen = _chosen(len(better), DRAWS)
    over, under = better[chosen].mean(1), worse[chosen].mean(1)
    drawn = over[under > 0] / under[under > 0] - 1
    return _estimate(better.mean() / worse.mean() - 1, drawn, len(better))


def _chosen(count: int, draws: int) -> np.ndarray:
    """Prompts drawn with replacement, `[draws, count]`."""
    return np.random.default_rng(SEED).integers(count, size=(draws, count))


def _estimate(value: float, drawn: np.ndarray, count: int) -> Estimate:
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Estimate(float(value), float(low), float(high), count)


def middle(prompts: Sequence[float]) -> Estimate:
    """The median of numbers, one per prompt: for times, which a busy machine stretches now and then."""
    numbers = np.asarray(prompts, dtype=np.float64)
    return estimate(numbers, lambda chosen: float(np.median(numbers[chosen])))


def difference(
    first: Sequence[float], second: Sequence[float], of: Callable[[Sequence[float]], Estimate] = estimate
) -> Estimate:
    """How much more the first is on the same prompts: paired, so that what all share cancels."""
    return of(np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64))


def verdict(found: Estimate) -> str:
    """Whether a claim that the difference is above 0 holds here."""
    return {1: "holds", -1: "does not hold", 0: "not decided here"}[found.sign]
