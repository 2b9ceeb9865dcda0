"""StreamingLLM: every token sees the first few tokens of the text and the last ones before it (Xiao et al. 2024).

Positions are counted inside the cache, so the distance to a sink never exceeds the window. A key of the window is
rotated by its place in the text, which gives the same distances; for the sinks the query is turned back from its place
in the text to its place in the cache. What a token computes depends on its text alone, not on how tokens were grouped
into passes: trees are verified exactly, against this attention.

Rows that no token sees any more stay in the cache, where nothing reads them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.common.settings import SINKS
from decoding.engines.attention import RotaryTable
from decoding.engines.base import Visibility
from decoding.engines.eager import EagerEngine
from decoding.engines.kv_cache import KVCache


@dataclass(frozen=True)
class SinksAndWindow:
    """The mask of one pass.

    Attributes:
        first: rows before it are seen by no query but where they are sinks.
        sinks: number of sinks.
        seen_sinks: bool `[num_queries, sinks]`. seen: bool `[num_queries, num_rows - first]`.
        turned_back: cosines and signed sines from each query's place in the text to its place in the cache.
        rotary: turns them.
    """

    first: int
    sinks: int
    seen_sinks: Tensor
    seen: Tensor
    turned_back: tuple[Tensor, Tensor]
    rotary: RotaryTable

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """See `attention.attend`: both parts share one softmax."""
        groups = queries.shape[1] // keys.shape[1]
        back = queries.clone()[:, None]
        self.rotary.rotate(back, self.turned_back)
        count = self.sinks
        # [kv_heads, groups, queries, head_dim] times [kv_heads, 1, head_dim, rows]
        near, far = (part.transpose(0, 1).unflatten(0, (-1, groups)) for part in (queries, back[:, 0]))
        rows, sinks = keys[0, :, None, self.first :], keys[0, :, None, :count]
        scores = [
            (far @ sinks.transpose(-1, -2)).masked_fill(~self.seen_sinks, -torch.inf),
            (near @ rows.transpose(-1, -2)).masked_fill(~self.seen, -torch.inf),
        ]
        weights = (torch.cat(scores, -1) * scale).softmax(-1, dtype=torch.float32).to(values.dtype)
        rows, sinks = values[0, :, None, self.first :], values[0, :, None, :count]
        out = weights[..., :count] @ sinks + weights[..., count:] @ rows
        return out.flatten(0, 1).transpose(0, 1)


class StreamingEngine(EagerEngine):
    """A lean forward whose queries see sinks and a window alone.

    Args:
        rotary: the forward's own table.
        rows: sinks and window together.
    """

    def __init__(self, forward, rotary: RotaryTable, rows: int, **how):
        super().__init__(f"streaming-{rows}", forward, **how)
        self._rotary, self._rows = rotary, rows

    def mask(self, seen: Visibility) -> Visibility:
        """What `run` takes: the window follows from the positions, which are known there."""
        return seen

    def run(self, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray, mask: Visibility, keep: int) -> Tensor:
        """One pass; see `Engine.run`."""
        return super().run(cache, token_ids, positions, self._windowed(mask, positions), keep)

    def run_with_features(self, cache, token_ids, positions, mask: Visibility, keep, project=None):
        """One pass with its features; see `Engine.run_with_features`."""
        windowed = self._windowed(mask, positions)
        return super().run_with_features(cache, token_ids, positions, windowed, keep, project)

    def _windowed(self, seen: Visibility, positions: np.ndarray) -> SinksAndWindow:
        allowed, places = seen.dense(), np.asarray(positions)
        # Rows of the text stand at their positions, the pass's own rows are told, and the drafted rows between them
        # are nearer than the window is long.
        at = np.arange(allowed.shape[1])
        at[seen.past :] = places.max() if len(places) else 0
        at[allowed.shape[1] - len(places) :] = places
        sinks, oldest = min(SINKS, allowed.shape[1]), places - (self._rows - SINKS) + 1
        near = allowed & (at >= oldest[:, None])
        near[:, :sinks] = False
        first = int(min(max(sinks, oldest.min()), max(sinks, seen.past)))
        in_cache = np.minimum(places, self._rows - 1)
        return SinksAndWindow(
            first=first,
            sinks=sinks,
            seen_sinks=self._on_device(allowed[:, :sinks]),
            seen=self._on_device(near[:, first:]),
            turned_back=self._rotary.back(self._on_device(places - in_cache)),
            rotary=self._rotary,
        )

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)
