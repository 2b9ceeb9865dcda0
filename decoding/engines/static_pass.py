"""One forward of static shape: everything that it depends on stands in tensors, nothing in it waits for the host."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoding.cache.kv_cache import KVBlocks
from decoding.engines.base import Forward
from decoding.engines.static_cache import PassRows
from decoding.engines.static_shapes import PassShape


class StaticPass:
    """A model as a function of tensors on the device.

    Args:
        forward: runs the layers.
        dtype: of the mask, which is 0 where a query sees a row: attention would make it from booleans in every layer.
        floor: the mask elsewhere.
        mask_layer_types: keys of the dict of masks that the model takes, None if it takes one mask.
    """

    def __init__(self, forward: Forward, dtype: torch.dtype, floor: float, mask_layer_types: tuple[str, ...] | None):
        self._forward, self.dtype, self._floor = forward, dtype, floor
        self._mask_layer_types = mask_layer_types

    def mask(self, visible: Tensor) -> Tensor:
        """The mask `[1, 1, num_queries, rows]` that says `visible`, bool `[num_queries, rows]`."""
        return torch.zeros_like(visible, dtype=self.dtype).masked_fill_(~visible, self._floor)[None, None]

    def __call__(
        self, blocks: KVBlocks, ids: Tensor, positions: Tensor, slots: Tensor, mask: Tensor, keep: int | Tensor
    ) -> Tensor:
        """Logits of the queries named by `keep`: the last so many, or those at an index; `[num_kept, vocab_size]`.

        Args:
            ids, positions, slots: token, position and row of each query, int64 `[num_queries]`.
            mask: as `mask` made it; its width is the number of rows that attention reads.
        """
        return self._forward(ids, positions, self._masks(mask), PassRows(blocks, slots, mask.shape[-1]), keep)

    def features(
        self, blocks: KVBlocks, ids: Tensor, positions: Tensor, slots: Tensor, mask: Tensor, keep: int | Tensor
    ) -> Tensor:
        """Features of these queries in the place of their logits, `[num_kept, hidden_size]`."""
        rows = PassRows(blocks, slots, mask.shape[-1])
        return self._forward.with_features(ids, positions, self._masks(mask), rows, keep, project=1)[1]

    def project(self, features: Tensor) -> Tensor:
        """Logits `[num_rows, vocab_size]` of features `[num_rows, hidden_size]`."""
        return self._forward.project(features)

    def _masks(self, mask: Tensor) -> Any:
        return {kind: mask for kind in self._mask_layer_types} if self._mask_layer_types else mask


def visible_rows(past: Tensor, among: Tensor, slots: Tensor, rows: int) -> Tensor:
    """Who sees whom, bool `[num_queries, rows]`: the past, what `among` says of the rows behind it, and its own row.

    Padding queries see themselves, for a query that sees nothing would become nan; nobody else sees them.

    Args:
        past: number of rows that every query sees, `[1]`.
        among: bool `[num_queries, num_among]`.
        slots: row of each query.
    """
    row = torch.arange(rows, device=slots.device)
    behind = row - past
    seen = among.index_select(1, behind.clamp(0, among.shape[1] - 1)) & (behind < among.shape[1])
    return seen | (behind < 0) | (row == slots[:, None])


class PassInputs:
    """What a pass needs from the host, in one piece of memory, so that one copy brings it to the device.

    Attributes:
        buffer: the memory, uint8.
        ids, positions: `[queries]`, 0 for padding.
        kept: which queries to compute logits of, `[kept]`, 0 for padding.
        past, length: rows that everyone sees, and rows held before the pass, `[1]` each.
        among: bool `[queries, among]`.
    """

    def __init__(self, shape: PassShape, buffer: Tensor):
        sizes = (shape.queries, shape.queries, shape.kept, 1, 1)
        words = 8 * sum(sizes)
        self.buffer = buffer
        self.ids, self.positions, self.kept, self.past, self.length = buffer[:words].view(torch.int64).split(sizes)
        self.among = buffer[words:].view(torch.bool).view(shape.queries, shape.among)

    @staticmethod
    def on(shape: PassShape, device: torch.device) -> "PassInputs":
        """Inputs of this shape on a device."""
        size = 8 * (2 * shape.queries + shape.kept + 2) + shape.queries * shape.among
        return PassInputs(shape, torch.empty(size, dtype=torch.uint8, device=device))

    def fill(
        self, ids: np.ndarray, positions: np.ndarray, among: np.ndarray, past: int, length: int, keep: int
    ) -> None:
        """Write the inputs of one pass, on the host."""
        count = len(ids)
        self.buffer.zero_()
        self.ids.numpy()[:count] = ids
        self.positions.numpy()[:count] = positions
        self.kept.numpy()[:keep] = np.arange(count - keep, count)
        self.past.numpy()[0], self.length.numpy()[0] = past, length
        self.among.numpy()[:count, : among.shape[1]] = among


def host_pass(
    run: StaticPass, blocks: KVBlocks, inputs: PassInputs, shape: PassShape, features: bool = False
) -> Tensor:
    """Logits `[kept, vocab_size]` of a pass whose tree came from the host; mask and slots are made on the device.

    Args:
        features: give the features `[kept, hidden_size]` instead.
    """
    slots = inputs.length + torch.arange(shape.queries, device=inputs.length.device)
    mask = run.mask(visible_rows(inputs.past, inputs.among, slots, shape.rows))
    keep = shape.queries if shape.kept == shape.queries else inputs.kept
    wanted = run.features if features else run
    return wanted(blocks, inputs.ids, inputs.positions, slots, mask, keep)
