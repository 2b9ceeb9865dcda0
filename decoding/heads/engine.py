"""Runs the layer of a draft head behind the rows of its cache, with packed weights where the target has them too."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from decoding.engines.attention import RotaryTable, attend
from decoding.engines.base import Visibility
from decoding.engines.kv_cache import KVCache
from decoding.engines.lean import linear
from decoding.heads.network import HeadNetwork


class HeadEngine:
    """One head on the device of its target.

    Args:
        network: trained weights, which are copied.
        embedding: the target's own, token ids to vectors.
        positions: most positions that a text can have.
    """

    name = "lean"

    def __init__(self, network: HeadNetwork, embedding: Any, positions: int, device: torch.device, dtype: torch.dtype):
        self.device, self.dtype = device, dtype
        network = deepcopy(network).to(device, dtype).eval()  # the one given may still be in training
        self._embedding, self._heads, self._eps = embedding, network.config.num_heads, network.config.norm_eps
        norms = (network.embedding_norm, network.attention_norm, network.mlp_norm)
        self._norms = [norm.weight.detach() for norm in norms]
        self._feature_gain = network.feature_gain.detach()
        products = (network.fc, network.qkv, network.attention_out, network.gate_up, network.down)
        self._fc, self._qkv, self._out, self._gate_up, self._down = (linear(product) for product in products)
        self._rotary = RotaryTable(network.rotary, torch.zeros(1, dtype=dtype, device=device), positions)
        self._scale = network.config.head_dim**-0.5

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache with room for `capacity` rows; row r belongs to the token at position r + 1."""
        return KVCache(1, capacity)

    def run(
        self, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray, seen: Visibility, features: Tensor
    ) -> Tensor:
        """One pass over tokens of a tree or of a text; their rows are appended to the cache.

        Args:
            token_ids, positions: `[num_queries]`.
            seen: who sees whom, `[num_queries, cache.length + num_queries]`.
            features: of each token's parent, true or predicted, `[num_queries, hidden_size]`.

        Returns:
            Predicted features of the tokens, `[num_queries, hidden_size]`.
        """
        count = len(token_ids)
        cache.reserve(count)
        ids, places = (torch.from_numpy(np.asarray(part, dtype=np.int64)) for part in (token_ids, positions))
        ids, places = ids.to(self.device, non_blocking=True), places.to(self.device, non_blocking=True)
        mask = None if seen.sees_all else torch.from_numpy(seen.dense())[None, None].to(self.device, non_blocking=True)
        embedded, features = self._embedding(ids).to(self.device), features.to(self.device)
        x = self._fc(torch.cat([self._norm(embedded, 0), features], -1)) + self._feature_gain * features
        parts = self._qkv(self._norm(x, 1)).view(count, 3, self._heads, -1)
        self._rotary.rotate(parts[:, :2], self._rotary.at(places))
        keys, values = cache.write(parts[:, 1:].permute(1, 2, 0, 3)[:, None], 0)
        x = x + self._out(attend(parts[:, 0], keys, values, mask, self._scale).reshape(count, -1))
        gate, up = self._gate_up(self._norm(x, 2)).chunk(2, -1)
        cache.advance(count)
        return x + self._down(functional.silu(gate) * up)

    def _norm(self, x: Tensor, which: int) -> Tensor:
        weight = self._norms[which]
        return functional.rms_norm(x, weight.shape, weight, self._eps)
