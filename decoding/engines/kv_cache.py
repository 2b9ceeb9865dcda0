"""Room for key/value rows: layers of one shape and device share a block, so that moving rows costs one copy each."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from decoding.trace.records import KVTrace


class KVBlocks:
    """Blocks `[num_layers, 2, 1, kv_heads, capacity, head_dim]`, made when the first keys and values show their shape.

    Where keys and values differ in width (MLA caches a latent and a rotary key), each has a block of its own,
    `[num_layers, 1, 1, kv_heads, capacity, width]`. `zeroed` clears new blocks, for passes that read rows nobody has
    written (their weight is 0, but 0 x nan is nan).

    Attributes:
        views: keys and values by layer, `[1, kv_heads, capacity, head_dim]` each; none before `place`.
        pairs: the same in one tensor `[2, 1, kv_heads, capacity, head_dim]`; without those whose widths differ.
        arrays: the pairs as numpy sees them, where it can: writing a few rows is a matter of calls.
        placed: whether the block of each layer stands.
    """

    def __init__(self, num_layers: int, capacity: int, zeroed: bool = False):
        self.num_layers, self.capacity = num_layers, capacity
        self.views: dict[int, tuple[Tensor, Tensor]] = {}
        self.pairs: dict[int, Tensor] = {}
        self.arrays: dict[int, np.ndarray] = {}
        self.placed = [False] * num_layers
        self._zeroed = zeroed
        self._blocks: list[tuple[int, tuple[Tensor, ...]]] = []
        self._bytes_per_row: int | None = None

    def place(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The views of a layer; its block is made like its first rows: one for all layers, or its own if it differs."""
        if not self._blocks:
            self._add(keys, values, layer, self.num_layers)
        views = self.views.get(layer)
        if views is None or any(
            view.device != rows.device or view.shape[1::2] != rows.shape[1::2]
            for view, rows in zip(views, (keys, values), strict=True)
        ):
            self._add(keys, values, layer, 1)
        self.placed[layer] = True
        return self.views[layer]

    def copy_from(self, other: "KVBlocks", rows: int) -> None:
        """Take over the first `rows` rows of blocks of the same model."""
        self.placed = list(other.placed)
        for index, (first_layer, old) in enumerate(other._blocks):
            if index == len(self._blocks):
                self._add(old[0][0, 0], old[-1][0, -1], first_layer, old[0].shape[0])
            for mine, theirs in zip(self._blocks[index][1], old, strict=True):
                mine[..., :rows, :] = theirs[..., :rows, :]

    def move(self, first: int, rows: list[int]) -> None:
        """Copy rows to `first` and after it."""
        for block in self._tensors():
            chosen = torch.tensor(rows).to(block.device, non_blocking=True)
            block[..., first : first + len(rows), :] = block.index_select(4, chosen)

    def move_rows(self, sources: Tensor, targets: Tensor) -> None:
        """Copy rows `sources[i]` to `targets[i]`, all distinct; index tensors on the device, nothing is read back."""
        for block in self._tensors():
            block.index_copy_(4, targets, block.index_select(4, sources))

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of keys and values of one row over all layers; 0 before all layers are placed."""
        if self._bytes_per_row is None and self.placed[-1]:
            self._bytes_per_row = sum(view[:, :, 0].nbytes for views in self.views.values() for view in views)
        return self._bytes_per_row or 0

    def _tensors(self) -> Iterator[Tensor]:
        for _, tensors in self._blocks:
            yield from tensors

    def _add(self, keys: Tensor, values: Tensor, first_layer: int, layers: int) -> None:
        joined = keys.shape[1::2] == values.shape[1::2]
        tensors = (
            (self._new(layers, 2, keys),) if joined else (self._new(layers, 1, keys), self._new(layers, 1, values))
        )
        self._blocks.append((first_layer, tensors))
        for offset in range(min(layers, self.num_layers - first_layer)):
            self.pairs.pop(first_layer + offset, None)
            self.arrays.pop(first_layer + offset, None)
            if joined:
                self.pairs[first_layer + offset] = pair = tensors[0][offset]
                if pair.device.type == "cpu" and pair.dtype == torch.float32:
                    self.arrays[first_layer + offset] = pair.numpy()
            self.views[first_layer + offset] = (tensors[0][offset, 0], tensors[-1][offset, -1])

    def _new(self, layers: int, parts: int, like: Tensor) -> Tensor:
        new = torch.zeros if self._zeroed else torch.empty
        shape = (layers, parts, 1, like.shape[1], self.capacity, like.shape[3])
        return new(shape, dtype=like.dtype, device=like.device)


class LayerCache:
    """What `transformers` asks of a cache besides `update`, which writes the rows of one layer."""

    is_compileable = False

    def get_seq_length(self, _layer_idx: int = 0) -> int:
        """Number of rows in front of the queries."""
        raise NotImplementedError

    def get_query_offset(self, _layer_idx: int = 0) -> int:
        """Number of rows in front of the queries, by which some models count positions; ours are given."""
        return self.get_seq_length()

    def get_mask_sizes(self, query_length: int, _layer_idx: int = 0) -> tuple[int, int]:
        """Number of key rows that a pass over `query_length` tokens sees, and the offset of the first."""
        return self.get_seq_length() + query_length, 0


class KVCache(LayerCache):
    """Keys and values of one model for one text, as `transformers` models read and write them.

    Row r of the `length` rows held belongs to position r of the text, except the rows of a draft tree, which stand
    after the committed ones until they are kept or dropped.
    """

    def __init__(self, num_layers: int, capacity: int):
        self.num_layers = num_layers
        self.length = 0
        self.blocks = KVBlocks(num_layers, capacity)

    @property
    def capacity(self) -> int:
        """Rows that there is room for."""
        return self.blocks.capacity

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_args, **_kwargs) -> tuple[Tensor, Tensor]:
        """Write the rows of one layer after the rows held; return all rows `[1, kv_heads, length + new, head_dim]`."""
        blocks, end = self.blocks, self.length + keys.shape[2]
        views = blocks.views[layer_idx] if blocks.placed[layer_idx] else blocks.place(layer_idx, keys, values)
        views[0][:, :, self.length : end].copy_(keys)
        views[1][:, :, self.length : end].copy_(values)
        return views[0][:, :, :end], views[1][:, :, :end]

    def write(self, pair: Tensor | np.ndarray, layer_idx: int) -> tuple[Tensor, Tensor]:
        """The same for keys and values in one tensor `[2, 1, kv_heads, new, head_dim]`, with one copy."""
        blocks, end = self.blocks, self.length + pair.shape[3]
        if not blocks.placed[layer_idx]:
            blocks.place(layer_idx, *torch.as_tensor(pair))
        array = blocks.arrays.get(layer_idx)
        if array is None:
            blocks.pairs[layer_idx][:, :, :, self.length : end].copy_(torch.as_tensor(pair))
        else:
            array[:, :, :, self.length : end] = pair
        keys, values = blocks.views[layer_idx]
        return keys.narrow(2, 0, end), values.narrow(2, 0, end)

    def get_seq_length(self, _layer_idx: int = 0) -> int:
        """Number of rows held."""
        return self.length

    def reserve(self, new_rows: int) -> None:
        """Make room for `new_rows` more rows; growing copies the rows held, so sessions reserve once."""
        if self.length + new_rows <= self.capacity:
            return
        old, self.blocks = self.blocks, KVBlocks(self.num_layers, max(self.length + new_rows, self.capacity * 3 // 2))
        self.blocks.copy_from(old, self.length)

    def advance(self, new_rows: int) -> None:
        """Count rows that a forward pass has just written in every layer."""
        self.length += new_rows

    def rollback(self, length: int) -> None:
        """Drop every row from `length` on; nothing is copied."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} slots: the cache holds {self.length}")
        self.length = length

    def compact(self, start: int, kept: list[int], moved: bool = False) -> int:
        """Keep rows `kept` (ascending, all >= `start`), unless the device has `moved` them; return the bytes copied."""
        in_place = next((place for place, row in enumerate(kept) if row != start + place), len(kept))
        if kept[in_place:] and not moved:
            self.blocks.move(start + in_place, kept[in_place:])
        self.length = start + len(kept)
        return (len(kept) - in_place) * self.bytes_per_slot

    def fresh(self, capacity: int) -> "KVCache":
        """An empty cache of the same model."""
        return KVCache(self.num_layers, capacity)

    def clone(self) -> "KVCache":
        """An independent copy of the rows held."""
        copy = self.fresh(self.capacity)
        copy.reserve(self.length)
        if self.length:
            copy.blocks.copy_from(self.blocks, self.length)
        copy.length = self.length
        return copy

    def rows(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer, `[1, kv_heads, length, head_dim]`, for comparison with another cache."""
        return [(k[:, :, : self.length], v[:, :, : self.length]) for _, (k, v) in sorted(self.blocks.views.items())]

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of keys and values of one row over all layers."""
        return self.blocks.bytes_per_slot

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all rows the cache has room for."""
        return self.bytes_per_slot * self.capacity


def keep_rows(
    cache: KVCache, slots_before: int, slot_nodes: tuple[int, ...], kept: list[int], moved: bool, drop_all: bool = False
) -> KVTrace:
    """Bring a cache from a drafted tree to the accepted path, rows `kept`, and say what moved.

    `slot_nodes` are the node ids of each row after `slots_before`, -1 for committed tokens. With `drop_all` all of them
    are rolled back instead: a second forward will write the kept ones again. The device may have `moved` the kept rows
    already.
    """
    bytes_moved = 0
    if drop_all:
        cache.rollback(slots_before)
    else:
        bytes_moved = cache.compact(slots_before, kept, moved)
    return KVTrace(
        slots_before=slots_before,
        slots_written=len(slot_nodes),
        slot_nodes=slot_nodes,
        moved_from=tuple(kept),
        slots_freed=len(slot_nodes) - len(kept),
        rebuilt=drop_all,
        bytes_per_slot=cache.bytes_per_slot,
        bytes_moved=bytes_moved,
    )


class FeatureRows:
    """Features `[length, hidden_size]`: row r belongs to the token at position r of the text.

    Rows of a verified tree stand after the committed ones until they are kept or dropped. There is room for `capacity`
    rows with the first ones; more make it grow.
    """

    def __init__(self, capacity: int):
        self.length = 0
        self._capacity = capacity
        self._rows = torch.empty(0, 0)

    def append(self, features: Tensor) -> None:
        """Add rows after those held, `[num_rows, hidden_size]`."""
        old, end = self._rows, self.length + len(features)
        if not len(old) or end > len(old):
            room = max(end, len(old) * 3 // 2 or self._capacity)
            self._rows = features.new_empty((room, features.shape[1]))
            if self.length:
                self._rows[: self.length] = old[: self.length]
        self._rows[self.length : end] = features
        self.length = end

    def between(self, start: int, end: int) -> Tensor:
        """Rows from `start` to before `end`, a view."""
        if not 0 <= start < end <= self.length:
            raise ValueError(f"slots {start} to {end} are not among the {self.length} held")
        return self._rows[start:end]

    def at(self, places: list[int]) -> Tensor:
        """The rows at some places, `[len(places), hidden_size]`."""
        return self._rows[: self.length][places]

    def compact(self, start: int, kept: tuple[int, ...]) -> None:
        """Keep rows `kept` (ascending, all >= `start`) after the first `start` rows."""
        if kept and kept[-1] != start + len(kept) - 1:
            self._rows[start : start + len(kept)] = self._rows[list(kept)]
        self.length = start + len(kept)

    def first(self, count: int) -> "FeatureRows":
        """An independent copy of the first rows; fewer where fewer are held."""
        other = FeatureRows(len(self._rows) or self._capacity)
        count = min(count, self.length)
        if count:
            other.append(self._rows[:count])
        return other

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all rows there is room for."""
        return self._rows.nbytes
