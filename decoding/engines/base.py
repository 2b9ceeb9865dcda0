"""What every way to run a model shares: who sees whom in a pass, the forward it wraps, and the signature of a pass."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from decoding.engines.kv_cache import KVCache

# Largest difference of log-probabilities between a tree forward and plain forwards that rounding explains.
TOLERANCE = {torch.float32: 2e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}

# What a forward pass of a model that is none of ours can fail with.
FORWARD_ERRORS = (TypeError, ValueError, ArithmeticError, RuntimeError, LookupError, AttributeError, AssertionError)


class Forward(Protocol):
    """Runs the layers of one model."""

    def __call__(self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor) -> Tensor:
        """Raw logits `[num_kept, vocab_size]`.

        Args:
            ids, positions: `[num_queries]` each.
            mask: as `Engine.mask` made it.
            keep: queries to project: the last so many, or those at an index `[num_kept]`.
        """
        ...

    def with_features(
        self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor, project: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits of the last `project` kept queries (None: of all) and features `[num_kept, hidden_size]`."""
        ...

    def project(self, features: Tensor) -> Tensor:
        """Features `[num_rows, hidden_size]` to raw logits `[num_rows, vocab_size]`."""
        ...


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

    @staticmethod
    def causal(past: int, num_queries: int) -> "Visibility":
        """Of a pass over consecutive tokens behind `past` rows."""
        return Visibility(past, np.tri(num_queries, dtype=bool))

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


class Engine(Protocol):
    """Runs one model; caches that it makes are only for its own passes.

    Attributes:
        name: `library`, `lean`, `static`, `static-host` or `streaming-N`.
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

    def run_with_features(
        self,
        cache: KVCache,
        token_ids: np.ndarray,
        positions: np.ndarray,
        mask: Any,
        keep: int,
        project: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The same pass, with the features of the kept queries: what the output head multiplies.

        Args:
            keep: give the features of the last so many queries (0: of all).
            project: make logits of only the last so many of these; None: of all of them.

        Returns:
            Raw logits `[project or kept, vocab_size]` and features `[kept, hidden_size]`.

        Raises:
            PairError: the model has no such features.
        """
        ...

    def project(self, features: Tensor) -> Tensor:
        """Raw logits `[num_rows, vocab_size]` of features `[num_rows, hidden_size]`.

        Raises:
            PairError: the model has no such features.
        """
        ...
