"""Sizes that static passes are rounded up to, and key/value rows at fixed addresses, so that graphs outlive a text."""

import weakref
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Visibility
from decoding.engines.kv_cache import KVBlocks, KVCache

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
    """Sizes of one pass, all rounded up.

    Attributes:
        queries: tokens.
        among: rows behind the past, the queries' own included.
        rows: key rows that attention reads.
        kept: queries whose logits are computed.
        recurs: whether a pass of these sizes is likely to come again, and worth a graph.
    """

    queries: int
    among: int
    rows: int
    kept: int
    recurs: bool = True

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
    whatever changes rows.

    Args:
        pool: where blocks come from; known weakly, so that a cache somebody holds on to does not keep the memory of a
            released model.
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

    @torch.inference_mode()
    def compact(self, start: int, kept: list[int]) -> int:
        """See `KVCache.compact`."""
        return super().compact(start, kept)

    @torch.inference_mode()
    def clone(self) -> "StaticKVCache":
        """See `KVCache.clone`; the copy has blocks of its own."""
        return super().clone()

    def fresh(self, capacity: int) -> "StaticKVCache":
        """An empty cache of the same model."""
        return StaticKVCache(self.num_layers, capacity, self._pool)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all rows the cache has room for."""
        return self.bytes_per_row * self.blocks.capacity


class PassRows:
    """What a model takes for its cache during one static pass: rows go to given slots, attention reads a fixed number.

    Args:
        slots: row that each query writes, int64 `[num_queries]` on the device.
        rows: key rows that attention reads.
    """

    is_compileable = False

    def __init__(self, blocks: KVBlocks, slots: Tensor, rows: int):
        self._blocks, self._slots, self._rows = blocks, slots, rows

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_args, **_kwargs) -> tuple[Tensor, Tensor]:
        """Write the rows of one layer; return `[1, kv_heads, rows, head_dim]` twice."""
        blocks = self._blocks
        stored = blocks.views[layer_idx] if blocks.placed[layer_idx] else blocks.place(layer_idx, keys, values)
        stored[0].index_copy_(2, self._slots, keys)
        stored[1].index_copy_(2, self._slots, values)
        return stored[0][:, :, : self._rows], stored[1][:, :, : self._rows]

    def write(self, pair: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """The same for keys and values in one tensor `[2, 1, kv_heads, num_queries, head_dim]`."""
        blocks = self._blocks
        if not blocks.placed[layer_idx]:
            blocks.place(layer_idx, *pair)
        stored = blocks.pairs[layer_idx]
        stored.index_copy_(3, self._slots, pair)
        return stored[0, :, :, : self._rows], stored[1, :, :, : self._rows]

    def get_seq_length(self, _layer_idx: int = 0) -> int:
        """Rows in front of the queries, as models take it that count positions by it; ours are given."""
        return self._rows - self._slots.shape[0]

    def get_query_offset(self, _layer_idx: int = 0) -> int:
        """The same."""
        return self.get_seq_length()

    def get_mask_sizes(self, _query_length: int, _layer_idx: int = 0) -> tuple[int, int]:
        """Number of key rows that a pass sees, and the offset of the first."""
        return self._rows, 0


def _give_back(pool: "weakref.ref[BlockPool]", blocks: KVBlocks) -> None:
    living = pool()
    if living is not None:
        living.give_back(blocks)
