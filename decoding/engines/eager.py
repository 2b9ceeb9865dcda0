"""The engine that runs every pass at its own size: one call of a forward per pass, on any device."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from decoding.cache.kv_cache import KVCache
from decoding.engines.base import Forward, Visibility
from decoding.engines.output_head import OutputHead, watched


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
        logits = self._forward(*self._inputs(cache, token_ids, positions), mask, cache, keep or len(token_ids))
        cache.advance(len(token_ids))
        return logits

    def run_with_features(
        self,
        cache: KVCache,
        token_ids: np.ndarray,
        positions: np.ndarray,
        mask: Any,
        keep: int,
        project: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One pass with its features; see `Engine.run_with_features`."""
        inputs = self._inputs(cache, token_ids, positions)
        logits, features = self._forward.with_features(*inputs, mask, cache, keep or len(token_ids), project)
        cache.advance(len(token_ids))
        return logits, features

    def project(self, features: Tensor) -> Tensor:
        """See `Engine.project`."""
        return self._forward.project(features)

    def _inputs(self, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Ids and positions on the device, with room in the cache for their rows."""
        cache.reserve(len(token_ids))
        ids = torch.from_numpy(np.asarray(token_ids, dtype=np.int64)).to(self.device, non_blocking=True)
        places = torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(self.device, non_blocking=True)
        return ids, places


class LibraryForward:
    """The transformers model as a forward; its features are caught where they enter the output head."""

    def __init__(self, network: Any, name: str = "The target"):
        self._network, self._name = network, name
        self._head: OutputHead | None = None

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

    def with_features(
        self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor, project: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """See `Forward.with_features`."""
        with watched(self._output_head.module, project) as seen:
            logits = self(ids, positions, mask, cache, keep)
        return logits, seen[0][0]

    def project(self, features: Tensor) -> Tensor:
        """See `Forward.project`."""
        return self._output_head(features)

    @property
    def _output_head(self) -> OutputHead:
        """Made when it is first asked for: making it tries the model."""
        if self._head is None:
            self._head = OutputHead(self._network, self._name)
        return self._head
