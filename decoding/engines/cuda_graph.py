"""The engine of static shapes: passes padded to a few sizes, over rows at fixed addresses, replayed as CUDA graphs."""

import weakref
from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Forward, MaskKind, Visibility
from decoding.engines.graphs import Graphs
from decoding.engines.kv_cache import KVBlocks, KVCache, LayerCache

# Between powers of two one more size, from 16 on: a tree of 64 nodes and its root takes 96 places, not 128.
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
LARGEST = BUCKETS[-1]
# Trees of up to 63 nodes need one size of the matrix that says who sees whom among the new rows.
LEAST_AMONG = 64
# Attention reads whole steps of rows: 256, or an eighth of the next power of two where that is more.
ROW_STEP = 256
STEPS_PER_OCTAVE = 8
# A chain and its root; a longer causal pass is a prompt, whose length hardly comes up again: it runs at its own size.
LONGEST_CHAIN = 65


def bucket(count: int) -> int:
    """The least size that holds `count`; beyond the largest bucket, whole multiples of it."""
    if count > LARGEST:
        return -(-count // LARGEST) * LARGEST
    return BUCKETS[bisect_left(BUCKETS, count)]


def row_bucket(rows: int) -> int:
    """The least number of key rows, in steps, that holds `rows`."""
    octave = 1 << max(rows - 1, 0).bit_length()
    step = max(ROW_STEP, octave // STEPS_PER_OCTAVE)
    return max(-(-rows // step), 1) * step


@dataclass(frozen=True)
class PassShape:
    """Sizes of one pass, all rounded up."""

    queries: int
    among: int  # rows after the past, the queries' own included
    rows: int  # key rows that attention reads
    kept: int  # queries whose logits are computed
    recurs: bool = True  # whether a pass of these sizes is likely to come again, and worth a graph

    @staticmethod
    def of(seen: Visibility, keep: int) -> "PassShape":
        """The shape of a pass that keeps `keep` of its queries."""
        count, total = seen.shape
        among = seen.among.shape[1]
        causal = count == among and np.array_equal(seen.among, np.tri(count, dtype=bool))
        if count > LARGEST or (count > LONGEST_CHAIN and causal):
            return PassShape(count, among, row_bucket(total), keep, recurs=False)
        queries = bucket(count)
        return PassShape(queries, bucket(max(among, LEAST_AMONG)), row_bucket(total - count + queries), bucket(keep))


# Room that blocks have at least: most texts then find the blocks of the text before large enough.
LEAST_ROWS = 512
# Blocks kept while no cache uses them: a session and its fork find their graphs again.
IDLE_BLOCKS = 2


def new_blocks(num_layers: int, rows: int) -> KVBlocks:
    """Blocks with room for `rows` rows, rounded up to what attention reads."""
    return KVBlocks(num_layers, row_bucket(max(rows, LEAST_ROWS)), zeroed=True)


class BlockPool:
    """The blocks of one model: graphs are bound to their addresses, so they are lent and not made anew."""

    def __init__(self, num_layers: int):
        self.num_layers = num_layers
        self._idle: list[KVBlocks] = []

    def borrow(self, rows: int) -> KVBlocks:
        """Blocks with room for `rows` rows that no other cache uses: the ones used last, or new ones."""
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].capacity >= rows:
                return self._idle.pop(place)
        del self._idle[:1]  # too small for what is asked for now; its memory makes room
        return new_blocks(self.num_layers, rows)

    def give_back(self, blocks: KVBlocks) -> None:
        """Take blocks back whose cache is gone."""
        self._idle.append(blocks)
        del self._idle[:-IDLE_BLOCKS]


class StaticKVCache(KVCache):
    """A cache whose blocks have fixed addresses; it borrows them with its first row and gives them back when it goes.

    More room means other blocks, and the graphs of the old ones go with them. Passes run in inference mode, and so does
    whatever changes rows. The pool is known weakly: a cache somebody holds on to does not keep a released model.
    """

    def __init__(self, num_layers: int, capacity: int, pool: "weakref.ref[BlockPool]"):
        super().__init__(num_layers, 0)
        self._pool, self._asked = pool, capacity
        self._return: weakref.finalize | None = None

    @property
    def capacity(self) -> int:
        """Rows that there is room for, or will be when the first one comes."""
        return self.blocks.capacity or self._asked

    @torch.inference_mode()
    def reserve(self, new_rows: int) -> None:
        """Make room for `new_rows` more rows; the rows held are copied where the blocks are too small."""
        needed = self.length + new_rows
        if needed <= self.blocks.capacity:
            return
        old = self.blocks
        rows = max(needed, old.capacity * 3 // 2 if old.capacity else self._asked)
        pool = self._pool()
        self.blocks = pool.borrow(rows) if pool is not None else new_blocks(self.num_layers, rows)
        if self.length:
            self.blocks.copy_from(old, self.length)
        if self._return is not None:
            self._return.detach()  # too small for this text, and so perhaps for the next one
        self._return = weakref.finalize(self, _give_back, self._pool, self.blocks)
        self._return.atexit = False

    compact = torch.inference_mode()(KVCache.compact)
    clone = torch.inference_mode()(KVCache.clone)

    def fresh(self, capacity: int) -> "StaticKVCache":
        """An empty cache of the same model."""
        return StaticKVCache(self.num_layers, capacity, self._pool)


class PassRows(LayerCache):
    """What a model takes for its cache during a padded pass: rows go to given slots, attention reads a fixed number."""

    def __init__(self, blocks: KVBlocks, slots: Tensor, rows: int):
        self._blocks, self.slots, self._rows = blocks, slots, rows

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_args, **_kwargs) -> tuple[Tensor, Tensor]:
        """Write the rows of one layer; return `[1, kv_heads, rows, head_dim]` twice."""
        blocks = self._blocks
        stored = blocks.views[layer_idx] if blocks.placed[layer_idx] else blocks.place(layer_idx, keys, values)
        stored[0].index_copy_(2, self.slots, keys)
        stored[1].index_copy_(2, self.slots, values)
        return stored[0][:, :, : self._rows], stored[1][:, :, : self._rows]

    def write(self, pair: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """The same for keys and values in one tensor `[2, 1, kv_heads, num_queries, head_dim]`."""
        blocks = self._blocks
        if not blocks.placed[layer_idx]:
            blocks.place(layer_idx, *pair)
        stored = blocks.pairs[layer_idx]
        stored.index_copy_(3, self.slots, pair)
        return stored[0, :, :, : self._rows], stored[1, :, :, : self._rows]

    def stored(self, layer_idx: int, keys: Tensor, values: Tensor) -> Tensor:
        """Where a layer's rows stand, `[2, 1, kv_heads, capacity, head_dim]`, for a kernel that writes them itself.

        New keys and values are `[num_queries, kv_heads, head_dim]`.
        """
        if not self._blocks.placed[layer_idx]:
            self._blocks.place(layer_idx, keys.transpose(0, 1)[None], values.transpose(0, 1)[None])
        return self._blocks.pairs[layer_idx]

    def get_seq_length(self, _layer_idx: int = 0) -> int:
        """Rows in front of the queries."""
        return self._rows - self.slots.shape[0]


def _give_back(pool: "weakref.ref[BlockPool]", blocks: KVBlocks) -> None:
    living = pool()
    if living is not None:
        living.give_back(blocks)


class CudaGraphPass:
    """A model as a function of tensors on the device.

    Args:
        dtype: of the mask, which is 0 where a query sees a row: attention would make it from booleans in every layer.
        floor: the mask elsewhere.
        mask_layer_types: keys of the dict of masks that the model takes, None if it takes one mask.
    """

    def __init__(self, forward: Forward, dtype: torch.dtype, floor: float, mask_layer_types: tuple[str, ...] | None):
        self._forward, self.dtype, self._floor = forward, dtype, floor
        self._mask_layer_types, self.project = mask_layer_types, forward.project

    def mask(self, visible: Tensor) -> Tensor:
        """The mask `[1, 1, num_queries, rows]` that says `visible`, bool `[num_queries, rows]`."""
        return torch.zeros_like(visible, dtype=self.dtype).masked_fill_(~visible, self._floor)[None, None]

    def __call__(
        self,
        blocks: KVBlocks,
        ids: Tensor,
        positions: Tensor,
        slots: Tensor,
        mask: Tensor,
        keep: int | Tensor,
        features: bool = False,
    ) -> Tensor:
        """Logits `[num_kept, vocab_size]` of the queries that `keep` names, or features `[num_kept, hidden_size]`.

        Args:
            ids, positions, slots: token, position and row of each query, int64 `[num_queries]`.
            mask: as `mask` made it; its width is the number of rows that attention reads.
            keep: the last so many, or those at an index.
        """
        masks = {kind: mask for kind in self._mask_layer_types} if self._mask_layer_types else mask
        inputs = ids, positions, masks, PassRows(blocks, slots, mask.shape[-1]), keep
        return self._forward.with_features(*inputs, project=1)[1] if features else self._forward(*inputs)


def visible_rows(past: Tensor, among: Tensor, slots: Tensor, rows: int) -> Tensor:
    """Who sees whom, bool `[num_queries, rows]`: the past, what `among` says of the rows after it, and its own row.

    Padding queries see themselves, for a query that sees nothing would become nan; nobody else sees them.
    """
    row = torch.arange(rows, device=slots.device)
    behind = row - past
    seen = among.index_select(1, behind.clamp(0, among.shape[1] - 1)) & (behind < among.shape[1])
    return seen | (behind < 0) | (row == slots[:, None])


class PassInputs:
    """What a pass needs from the host in one piece of memory, uint8, so that one copy brings it to the device.

    Attributes:
        ids, positions: `[queries]`; kept: which queries to compute logits of, `[kept]`; 0 for padding.
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
    run: CudaGraphPass, blocks: KVBlocks, inputs: PassInputs, shape: PassShape, features: bool = False
) -> Tensor:
    """Logits `[kept, vocab_size]`, or features, of a pass whose tree came from the host; makes mask and slots."""
    slots = inputs.length + torch.arange(shape.queries, device=inputs.length.device)
    mask = run.mask(visible_rows(inputs.past, inputs.among, slots, shape.rows))
    keep = shape.queries if shape.kept == shape.queries else inputs.kept
    return run(blocks, inputs.ids, inputs.positions, slots, mask, keep, features)


class Transfers:
    """Moves small arrays between the host and one device; `reads` counts how often the host has waited for it."""

    def __init__(self, device: torch.device):
        self.device = device
        self.reads = 0
        self._copied: Any = None  # an event
        self._answers: dict[tuple[torch.Size, torch.dtype], Tensor] = {}

    def staging(self, like: Tensor) -> Tensor:
        """A host tensor to fill and `upload`; page-locked where the device copies from it by itself."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=self.device.type == "cuda")

    def upload(self, staged: Tensor, static: Tensor) -> None:
        """Copy to the device after the work queued there.

        A new staging tensor is made for every upload: the allocator of page-locked memory gives one away again only
        after the copies from it have been done, so that nothing is overwritten before the device has read it.
        """
        static.copy_(staged, non_blocking=True)

    def read(self, tensor: Tensor) -> np.ndarray:
        """The values on the host; the only way in which a pass on the device makes the host wait."""
        self.reads += 1
        key = tensor.shape, tensor.dtype
        if key not in self._answers:
            with torch.inference_mode(False):  # or it could be written in inference mode alone
                self._answers[key] = self.staging(tensor)
        answer = self._answers[key]
        answer.copy_(tensor, non_blocking=True)
        if self.device.type == "cuda":
            # An event, as torch.cuda.set_sync_debug_mode takes waiting for a whole stream for a mistake.
            self._copied = self._copied or torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(self.device))
            self._copied.synchronize()
        return answer.numpy().copy()


class CudaGraphEngine:
    """Passes of a few sizes; see `EagerEngine`. On CUDA each becomes a graph the second time it comes up.

    Args:
        forward: takes masks that are added, whatever `mask_kind` says of the eager ones.
        mask_kind: `bool` for attention that takes -inf in a mask, `additive` where it must be the dtype's minimum.
        name: `cuda_graph`, or `cuda_graph-host` where whole iterations are left to the host.

    Attributes:
        graphs, transfers: graphs of this model and its traffic with the host, with their counters.
        trees: room that iterations on the device work in, by size (see `decoding.device.iteration`).
    """

    def __init__(
        self,
        forward: Forward,
        num_layers: int,
        device: torch.device,
        dtype: torch.dtype,
        mask_kind: MaskKind = "bool",
        mask_layer_types: tuple[str, ...] | None = None,
        name: str = "cuda_graph",
    ):
        self.name, self.device = name, device
        self.graphs, self.transfers = Graphs(device), Transfers(device)
        floor = -torch.inf if mask_kind == "bool" else torch.finfo(dtype).min
        self.forward_pass = CudaGraphPass(forward, dtype, floor, mask_layer_types)
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

    @torch.inference_mode()
    def run(self, cache: KVCache, token_ids, positions, mask: Visibility, keep: int, features: bool = False) -> Tensor:
        """One pass; see `EagerEngine.run`. Its logits, or features instead, stay as they are whatever runs later."""
        count, kept = len(token_ids), keep or len(token_ids)
        shape = PassShape.of(mask, kept)
        cache.reserve(shape.queries)
        inputs = self._inputs.get(shape) or PassInputs.on(shape, self.device)
        if shape.recurs:
            self._inputs[shape] = inputs
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

    @torch.inference_mode()
    def run_with_features(
        self, cache: KVCache, token_ids, positions, mask: Visibility, keep: int, project: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """One pass with its features; see `EagerEngine.run_with_features`. Logits are made after the pass."""
        features = self.run(cache, token_ids, positions, mask, keep, features=True)
        return self.project(features if project is None else features[-project:]), features

    @torch.inference_mode()
    def project(self, features: Tensor) -> Tensor:
        return self.forward_pass.project(features)
