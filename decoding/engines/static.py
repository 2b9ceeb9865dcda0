"""The engine of static shapes: passes padded to a few sizes, over rows at fixed addresses, replayed as CUDA graphs."""

import weakref
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Forward, Visibility
from decoding.engines.graphs import Graphs
from decoding.engines.kv_cache import KVBlocks
from decoding.engines.static_cache import BlockPool, PassRows, PassShape, StaticKVCache


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


class Transfers:
    """Moves small arrays between the host and one device.

    Attributes:
        device: the device.
        reads: how often the host has waited for the device.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.reads = 0

    def staging(self, like: Tensor) -> Tensor:
        """A host tensor to fill and `upload`; page-locked where the device copies from it by itself."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=self.device.type == "cuda")

    def upload(self, staged: Tensor, static: Tensor) -> None:
        """Copy to the device behind the work queued there.

        A new staging tensor is made for every upload: the allocator of page-locked memory gives one away again only
        after the copies from it have been done, so that nothing is overwritten before the device has read it.
        """
        static.copy_(staged, non_blocking=True)

    def read(self, tensor: Tensor) -> np.ndarray:
        """The values on the host; the only way in which a pass on the device makes the host wait."""
        self.reads += 1
        host = self.staging(tensor)
        host.copy_(tensor, non_blocking=True)
        if self.device.type == "cuda":
            # An event, as torch.cuda.set_sync_debug_mode takes waiting for a whole stream for a mistake.
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(self.device))
            copied.synchronize()
        return host.numpy()


class StaticEngine:
    """Passes of a few sizes; see `Engine`. On CUDA each becomes a graph the second time it comes up.

    Args:
        forward: runs the layers; takes masks that are added, whatever `mask_kind` says of the eager ones.
        mask_kind: `bool` for attention that takes -inf in a mask, `additive` where it must be the dtype's minimum.
        mask_layer_types: keys of the dict of masks that the model takes, None if it takes one mask.
        name: `static`, or `static-host` where whole iterations are left to the host.

    Attributes:
        graphs, transfers: graphs of this model and its traffic with the host, with their counters.
        forward_pass: the model as a function of tensors on the device.
        trees: room that iterations on the device work in, by size (see `decoding.device.iteration`).
    """

    def __init__(
        self,
        forward: Forward,
        num_layers: int,
        device: torch.device,
        dtype: torch.dtype,
        mask_kind: Literal["bool", "additive"] = "bool",
        mask_layer_types: tuple[str, ...] | None = None,
        name: Literal["static", "static-host"] = "static",
    ):
        self.name, self.device = name, device
        self.graphs, self.transfers = Graphs(device), Transfers(device)
        floor = -torch.inf if mask_kind == "bool" else torch.finfo(dtype).min
        self.forward_pass = StaticPass(forward, dtype, floor, mask_layer_types)
        self._num_layers = num_layers
        self._pool = BlockPool(num_layers)
        self.trees: dict[Any, Any] = {}
        self._inputs: dict[PassShape, PassInputs] = {}

    def new_cache(self, capacity: int) -> StaticKVCache:
        """An empty cache with room for `capacity` rows; more room would cost it its graphs."""
        return StaticKVCache(self._num_layers, capacity, weakref.ref(self._pool))

    def mask(self, seen: Visibility) -> Visibility:
        """Who sees whom, as it is: the mask is made on the device, inside the pass."""
        return seen

    def run(
        self, cache: StaticKVCache, token_ids: np.ndarray, positions: np.ndarray, mask: Visibility, keep: int
    ) -> Tensor:
        """One pass; see `Engine.run`. The logits stay as they are whatever runs later."""
        return self._run(cache, token_ids, positions, mask, keep, features=False)

    @torch.inference_mode()
    def run_with_features(
        self,
        cache: StaticKVCache,
        token_ids: np.ndarray,
        positions: np.ndarray,
        mask: Visibility,
        keep: int,
        project: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One pass with its features; see `Engine.run_with_features`. Logits are made behind the pass."""
        features = self._run(cache, token_ids, positions, mask, keep, features=True)
        return self.project(features if project is None else features[-project:]), features

    @torch.inference_mode()
    def project(self, features: Tensor) -> Tensor:
        """See `Engine.project`."""
        return self.forward_pass.project(features)

    @torch.inference_mode()
    def _run(
        self,
        cache: StaticKVCache,
        token_ids: np.ndarray,
        positions: np.ndarray,
        mask: Visibility,
        keep: int,
        features: bool,
    ) -> Tensor:
        """Logits or features of the kept queries."""
        count, kept = len(token_ids), keep or len(token_ids)
        shape = PassShape.of(mask, kept)
        cache.reserve(shape.queries)
        inputs = self._static_inputs(shape)
        staged = PassInputs(shape, self.transfers.staging(inputs.buffer))
        staged.fill(token_ids, positions, mask.among, mask.past, cache.length, kept)
        self.transfers.upload(staged.buffer, inputs.buffer)
        body = partial(host_pass, self.forward_pass, cache.blocks, inputs, shape, features)
        # The first pass over new blocks makes them, which no graph may do.
        recurs = shape.recurs and all(cache.blocks.placed)
        rows = self.graphs.call(cache.blocks, (shape, features), body) if recurs else body()
        cache.advance(count)
        # A pass that computes every query says nothing of which were asked for: the last ones of those that are real.
        first = count - kept if shape.kept == shape.queries else 0
        rows = rows[first : first + kept]
        return rows.clone() if self.graphs.capture else rows

    def _static_inputs(self, shape: PassShape) -> PassInputs:
        if not shape.recurs:
            return PassInputs.on(shape, self.device)
        if shape not in self._inputs:
            self._inputs[shape] = PassInputs.on(shape, self.device)
        return self._inputs[shape]
