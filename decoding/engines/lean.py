"""What the lean forwards share: embedding, layers, norm and head, with nothing of the library between the products."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from decoding.cache.kv_cache import KVCache
from decoding.engines.attention import RotaryTable
from decoding.engines.base import kept_rows

# (hidden vectors, rotary table, angles, mask, cache, index of the layer) -> hidden vectors
Layer = Callable[..., Tensor]


class LeanForward:
    """A `Forward` made of parts of a transformers model.

    Args:
        embed: token ids to hidden vectors.
        rotary: cosines and sines of every position.
        layers: each takes hidden vectors `[num_queries, hidden_size]` and gives back such.
        norm, head: hidden vectors to logits.
    """

    def __init__(self, embed: Any, rotary: RotaryTable, layers: Sequence[Layer], norm: Any, head: Any):
        self._embed, self.rotary, self._layers, self._norm, self._head = embed, rotary, layers, norm, head

    def __call__(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: KVCache, keep: int | Tensor
    ) -> Tensor:
        return self._head(self._features(ids, positions, mask, cache, keep))

    def with_features(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: KVCache,
        keep: int | Tensor,
        project: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `Forward.with_features`."""
        features = self._features(ids, positions, mask, cache, keep)
        return self._head(features if project is None else features[-project:]), features

    def project(self, features: Tensor) -> Tensor:
        """See `Forward.project`."""
        return self._head(features)

    def _features(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: KVCache, keep: int | Tensor
    ) -> Tensor:
        x = self._embed(ids)
        angles = self.rotary.at(positions)
        for index, layer in enumerate(self._layers):
            x = layer(x, self.rotary, angles, mask, cache, index)
        return self._norm(kept_rows(x, keep))
