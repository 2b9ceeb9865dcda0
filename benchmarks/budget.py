"""A time that a program has, and what of it is left."""

import time
from collections.abc import Callable


class Budget:
    """Seconds from now on.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self._clock, self._end = clock, clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, 0 at least."""
        return max(self._end - self._clock(), 0.0)

    def spent(self) -> bool:
        """Whether none is left."""
        return not self.left_s

    def share(self, part: float) -> "Budget":
        """A budget of a share of what is left."""
        return Budget(part * self.left_s, self._clock)
