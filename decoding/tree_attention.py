"""One forward pass over tokens that form a tree: who sees whom, at which position, and the logits."""

import numpy as np
import torch
from torch import Tensor

from decoding.kv_cache import KVCache
from decoding.pair import Model


def visibility(past: int, among_queries: np.ndarray) -> np.ndarray:
    """Mask of a pass, `[num_queries, past + num_new_rows]`: every query sees the whole past and its ancestors.

    Args:
        past: rows that every query sees.
        among_queries: bool `[num_queries, num_rows]`, which of the rows behind the past each query sees.
    """
    mask = np.ones((among_queries.shape[0], past + among_queries.shape[1]), dtype=bool)
    mask[:, past:] = among_queries
    return mask


def causal_visibility(past: int, num_queries: int) -> np.ndarray:
    """Mask of a pass over consecutive tokens, `[num_queries, past + num_queries]`."""
    return visibility(past, np.tri(num_queries, dtype=bool))


def tree_forward(
    model: Model, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray, mask: np.ndarray, keep: int = 0
) -> Tensor:
    """Run a model over tokens of a tree behind the rows of a cache; their rows are appended to the cache.

    Args:
        token_ids: `[num_queries]`.
        positions: `[num_queries]`, the length of the prefix + depth - 1, so that siblings share a position.
        mask: bool `[num_queries, cache.length + num_queries]`, True where a query sees a row.
        keep: project only the last `keep` rows to logits; 0 projects all.

    Returns:
        Raw logits `[num_queries or keep, vocab_size]` on the device of the model's output.
    """
    count = len(token_ids)
    cache.reserve(count)
    ids = torch.from_numpy(np.asarray(token_ids, dtype=np.int64)).to(model.device, non_blocking=True)
    position_ids = torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(model.device, non_blocking=True)
    output = model.network(
        input_ids=ids[None],
        position_ids=position_ids[None],
        attention_mask=attention_mask(model, mask),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=keep,
    )
    cache.advance(count)
    return output.logits[0]


def attention_mask(model: Model, mask: np.ndarray):
    """The mask in the 4-D form that the attention in use really takes: bool for SDPA, additive for eager.

    A lone query that sees every row needs none: SDPA is about 3% faster without.
    """
    if len(mask) == 1 and model.mask_kind == "bool" and not model.mask_layer_types and mask.all():
        return None
    visible = torch.from_numpy(mask)[None, None].to(model.device, non_blocking=True)
    if model.mask_kind == "additive":
        floor = torch.finfo(model.dtype).min
        visible = torch.zeros(visible.shape, dtype=model.dtype, device=model.device).masked_fill_(~visible, floor)
    if model.mask_layer_types:
        return {layer_type: visible for layer_type in model.mask_layer_types}
    return visible
