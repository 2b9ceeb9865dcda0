"""Uniform numbers by seed, the same with and without torch: those of PyTorch's generator on the host.

That one is the Mersenne Twister (MT19937) begun at the low 32 bits of its seed; a float64 takes two of its outputs, the
first above the second, and of these the lowest 53 bits. numpy's `RandomState`, whose numbers are frozen, is the same.
"""

from threading import Lock

import numpy as np

FIRST = 64  # most walks over a tree need fewer
LOWEST_BITS = 53

# Begun anew for each reading: making one costs as much as thousands of draws.
_twister = np.random.RandomState(0)
_lock = Lock()


class Uniforms:
    """The numbers of one seed in their order; whoever reads them keeps the place."""

    def __init__(self, seed: int):
        self._seed = seed
        self._numbers = np.empty(0)

    def read(self, place: int, count: int) -> list[float]:
        """`count` numbers from a place on, each at least 0 and below 1."""
        numbers, end = self._numbers, place + count
        if end > len(numbers):
            numbers = self._numbers = uniform_numbers(self._seed, max(FIRST, 2 * len(numbers), end))
        return numbers[place:end].tolist()


def uniform_numbers(seed: int, count: int) -> np.ndarray:
    """The first `count` numbers of a seed in float64, as `torch.rand` gives them."""
    with _lock:
        _twister.seed(seed & 0xFFFFFFFF)
        words = _twister.randint(0, 2**32, (count, 2), dtype=np.uint32)
    high, low = words.astype(np.uint64).T
    return ((high << np.uint64(32) | low) & np.uint64(2**LOWEST_BITS - 1)) * 2.0**-LOWEST_BITS
