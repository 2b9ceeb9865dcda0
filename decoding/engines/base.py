"""What every way to run a model shares: who sees whom in a pass, the forward it wraps, and the signature of a pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from decoding.kv_cache import KVCache

# (ids [num_queries], positions [num_queries], mask as `Engine.mask` made it, cache, queries to project: the last so
# many, or those at an index [num_kept]) -> logits
Forward = Callable[[Tensor, Tensor, Any, KVCache, int | Tensor], Tensor]


@dataclass(frozen=True)
class Visibility:
    """Who sees whom in one pass: every query sees all rows before `past` and some of the rows behind.

    Attributes:
        past: rows that every query sees.
        among: bool `[num_queries, num_rows]`, which of the rows behind the past each query sees; the queries' own rows
            are the last `num_queries` of them.
    """

    past: int
    among: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and rows, the past included."""
        return self.among.shape[0], self.past + self.among.shape[1]

    @property
    def sees_all(self) -> bool:
        """True where no query misses a row."""
        return bool(self.among.all())

    def dense(self) -> np.ndarray:
        """Bool `[num_queries, past + num_rows]`, True where a query sees a row."""
        mask = np.ones(self.shape, dtype=bool)
        mask[:, self.past :] = self.among
        return mask


def kept_rows(x: Tensor, keep: int | Tensor) -> Tensor:
    """The rows of `[num_queries, size]` to project: the last `keep`, or those at an index."""
    return x[-keep:] if isinstance(keep, int) else x.index_select(0, keep)


class Engine(Protocol):
    """Runs one model; caches that it makes are only for its own passes.

    Attributes:
        name: `library`, `lean` or `static`.
    """

    name: str

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache with room for `capacity` rows."""
        ...

    def mask(self, seen: Visibility) -> Any:
        """The mask of a pass on the device, in the form that `run` takes."""
        ...

    def run(self, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray, mask: Any, keep: int) -> Tensor:
        """One pass over `[num_queries]` tokens at `positions`; their rows are appended to the cache.

        Returns:
            Raw logits of the last `keep` queries (0: of all), `[keep or num_queries, vocab_size]`.
        """
        ...
