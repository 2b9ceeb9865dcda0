"""The engine that runs every pass at its own size: one call of a forward per pass, on any device."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Forward, Visibility
from decoding.kv_cache import KVCache


class EagerEngine:
    """Passes of the size that the tree has; the reference for every other engine.

    Args:
        name: `library` where `forward` is the transformers model, `lean` where it is our own.
        forward: runs the layers.
        mask_kind: `bool` (True = attend) or `additive` (0 and the dtype's minimum).
        mask_layer_types: keys of the dict of masks that the model takes, None if it takes one mask.
    """

    def __init__(
        self,
        name: Literal["library", "lean"],
        forward: Forward,
        num_layers: int,
        device: torch.device,
        dtype: torch.dtype,
        mask_kind: Literal["bool", "additive"] = "bool",
        mask_layer_types: tuple[str, ...] | None = None,
    ):
        self.name, self.device = name, device
        self._forward, self._num_layers, self._dtype = forward, num_layers, dtype
        self._mask_kind, self._mask_layer_types = mask_kind, mask_layer_types

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache with room for `capacity` rows; it grows when a pass needs more."""
        return KVCache(self._num_layers, capacity)

    def mask(self, seen: Visibility) -> Any:
        """The mask in the 4-D form that the attention in use really takes: bool for SDPA, additive for eager.

        A lone query that sees every row needs none: SDPA is about 3% faster without.
        """
        if seen.shape[0] == 1 and self._mask_kind == "bool" and not self._mask_layer_types and seen.sees_all:
            return None
        visible = torch.from_numpy(seen.dense())[None, None].to(self.device, non_blocking=True)
        if self._mask_kind == "additive":
            floor = torch.finfo(self._dtype).min
            visible = torch.zeros(visible.shape, dtype=self._dtype, device=self.device).masked_fill_(~visible, floor)
        if self._mask_layer_types:
            return {layer_type: visible for layer_type in self._mask_layer_types}
        return visible

    def run(self, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray, mask: Any, keep: int) -> Tensor:
        """One pass; see `Engine.run`."""
        count = len(token_ids)
        cache.reserve(count)
        ids = torch.from_numpy(np.asarray(token_ids, dtype=np.int64)).to(self.device, non_blocking=True)
        places = torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(self.device, non_blocking=True)
        logits = self._forward(ids, places, mask, cache, keep or count)
        cache.advance(count)
        return logits


class LibraryForward:
    """The transformers model as a forward."""

    def __init__(self, network: Any):
        self._network = network

    def __call__(self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor) -> Tensor:
        output = self._network(
            input_ids=ids[None],
            position_ids=positions[None],
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        return output.logits[0]
