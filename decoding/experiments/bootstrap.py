"""Means over prompts with 95% intervals, and whether a difference between two ways is decided by them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from scipy.special import ndtr, stdtrit

DRAWS, SEED = 4000, 0
FEWEST = 3  # prompts, or what else was sampled: fewer have no interval and decide nothing


@dataclass(frozen=True)
class Estimate:
    """A figure over prompts.

    Attributes:
        low, high: 95% interval over prompts: of the bootstrap, for `ratio_gain` of Student's t.
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

    The interval is Student's t of the linearised ratio: three prompts that agree by chance convince a bootstrap.
    """
    count, ratio = len(better), better.mean() / worse.mean()
    apart = (better - ratio * worse) / worse.mean()
    half = stdtrit(count - 1, 0.975) * apart.std(ddof=1) / sqrt(count) if count > 1 else 0.0
    return Estimate(float(ratio - 1), float(ratio - 1 - half), float(ratio - 1 + half), count)


def _chosen(count: int, draws: int) -> np.ndarray:
    """Prompts drawn with replacement, `[draws, count]`."""
    return np.random.default_rng(SEED).integers(count, size=(draws, count))


def _estimate(value: float, drawn: np.ndarray, count: int) -> Estimate:
    tail = _tail(count)
    low, high = np.percentile(drawn, (100 * tail, 100 * (1 - tail)))
    return Estimate(float(value), float(low), float(high), count)


@lru_cache
def _tail(count: int) -> float:
    """Share of the draws beyond each end of a 95% interval: the expanded percentile interval (Hesterberg, 2015).

    Means of drawn prompts spread less than means of as many prompts do, the fewer there are the more.
    """
    return float(ndtr(-sqrt(count / (count - 1)) * stdtrit(count - 1, 0.975))) if count > 1 else 0.025


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
