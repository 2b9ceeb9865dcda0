"""Lines whose intervals would lie on one another: the points of each stand a little beside their place."""

from collections.abc import Iterable
from itertools import pairwise

SPREAD = 0.16  # of the smallest distance between two places, from the first line to the last


def beside(places: Iterable[float], number: int, count: int) -> float:
    """How far the points of line `number` of `count` stand beside their places on the axis."""
    known = sorted(set(places))
    nearest = min((after - before for before, after in pairwise(known)), default=1.0)
    return 0.0 if count < 2 else SPREAD * nearest * (number / (count - 1) - 0.5)
