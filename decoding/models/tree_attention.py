"""One forward pass over tokens that form a tree: who sees whom, at which position, and the logits."""

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from decoding.engines.base import Visibility
from decoding.engines.kv_cache import KVCache
from decoding.models.pair import Model

if TYPE_CHECKING:
    from decoding.engines.kv_cache import FeatureRows


def visibility(past: int, among_queries: np.ndarray) -> Visibility:
    """Mask of a pass in which every query sees the whole past and its ancestors among the rows behind it.

    Args:
        past: rows that every query sees.
        among_queries: bool `[num_queries, num_rows]`, which of the rows behind the past each query sees.
    """
    return Visibility(past, among_queries)


def causal_visibility(past: int, num_queries: int) -> Visibility:
    """Mask of a pass over consecutive tokens behind `past` rows."""
    return Visibility(past, np.tri(num_queries, dtype=bool))


def tree_forward(
    model: Model,
    cache: KVCache,
    token_ids: np.ndarray,
    positions: np.ndarray,
    mask: Any,
    keep: int = 0,
    features: "FeatureRows | None" = None,
) -> Tensor:
    """Run a model over tokens of a tree behind the rows of a cache; their rows are appended to the cache.

    Args:
        cache: one that `model.engine.new_cache` made.
        token_ids: `[num_queries]`.
        positions: `[num_queries]`, the length of the prefix + depth - 1, so that siblings share a position.
        mask: a `Visibility` of `[num_queries, cache.length + num_queries]`, or what `model.engine.mask` made of it.
        keep: project only the last `keep` rows to logits; 0 projects all.
        features: takes the features of all tokens, for a draft head.

    Returns:
        Raw logits `[num_queries or keep, vocab_size]` on the device of the model's output.
    """
    if isinstance(mask, Visibility):
        mask = model.engine.mask(mask)
    if features is None:
        return model.engine.run(cache, token_ids, positions, mask, keep)
    logits, rows = model.engine.run_with_features(cache, token_ids, positions, mask, 0, keep or None)
    features.append(rows)
    return logits
