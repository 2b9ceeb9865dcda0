"""Preallocated key/value rows: appending copies nothing, rolling back is a counter, compaction moves accepted rows."""

from decoding.kv_blocks import KVBlocks
from decoding.optional_torch import Tensor
from decoding.trace import KVTrace


class KVCache:
    """Keys and values of one model for one text, as `transformers` models read and write them.

    Row r belongs to position r of the text, except the rows of a draft tree, which stand behind the committed ones
    until they are kept or dropped.

    Attributes:
        length: rows held.
        blocks: where they stand.
    """

    is_compileable = False

    def __init__(self, num_layers: int, capacity: int):
        self.num_layers = num_layers
        self.length = 0
        self.blocks = KVBlocks(num_layers, capacity)

    @property
    def capacity(self) -> int:
        """Rows that there is room for."""
        return self.blocks.capacity

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_args, **_kwargs) -> tuple[Tensor, Tensor]:
        """Write the rows of one layer behind the rows held; return all rows `[1, kv_heads, length + new, head_dim]`."""
        blocks, end = self.blocks, self.length + keys.shape[2]
        views = blocks.views[layer_idx] if blocks.placed[layer_idx] else blocks.place(layer_idx, keys, values)
        views[0][:, :, self.length : end].copy_(keys)
        views[1][:, :, self.length : end].copy_(values)
        return views[0][:, :, :end], views[1][:, :, :end]

    def write(self, pair: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """The same for keys and values in one tensor `[2, 1, kv_heads, new, head_dim]`, with one copy."""
        if not self.blocks.placed[layer_idx]:
            self.blocks.place(layer_idx, *pair)
        both, end = self.blocks.pairs[layer_idx], self.length + pair.shape[3]
        both[:, :, :, self.length : end].copy_(pair)
        return both[0, :, :, :end], both[1, :, :, :end]

    def get_seq_length(self, _layer_idx: int = 0) -> int:
        """Number of rows held."""
        return self.length

    def get_query_offset(self, _layer_idx: int = 0) -> int:
        """Position of the next row."""
        return self.length

    def get_mask_sizes(self, query_length: int, _layer_idx: int = 0) -> tuple[int, int]:
        """Number of key rows that a pass over `query_length` tokens sees, and the offset of the first."""
        return self.length + query_length, 0

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
            raise ValueError(f"cannot roll back to {length} rows: the cache holds {self.length}")
        self.length = length

    def compact(self, start: int, kept: list[int]) -> int:
        """Keep rows `kept` (ascending, all >= `start`) behind the first `start` rows; return the bytes copied."""
        in_place = _in_place(start, kept)
        if kept[in_place:]:
            self.blocks.move(start + in_place, kept[in_place:])
        return self.settle(start, kept)

    def settle(self, start: int, kept: list[int]) -> int:
        """What `compact` does where the device has moved the rows already: count them; return the bytes copied."""
        self.length = start + len(kept)
        return (len(kept) - _in_place(start, kept)) * self.bytes_per_row

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
        return [(k[:, :, : self.length], v[:, :, : self.length]) for k, v in filter(None, self.blocks.views)]

    @property
    def bytes_per_row(self) -> int:
        """Bytes of keys and values of one row over all layers."""
        return self.blocks.bytes_per_row

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all rows the cache has room for."""
        return self.bytes_per_row * self.capacity


def _in_place(start: int, kept: list[int]) -> int:
    """How many of the rows to keep stand where they belong already."""
    count = 0
    while count < len(kept) and kept[count] == start + count:
        count += 1
    return count


def keep_rows(
    cache: KVCache,
    rows_before: int,
    row_nodes: tuple[int, ...],
    kept: list[int],
    drop_all: bool = False,
    moved: bool = False,
) -> KVTrace:
    """Bring a cache from a drafted tree to the accepted path, and say what moved.

    Args:
        row_nodes: node id of each row behind `rows_before`; -1 for committed tokens.
        kept: rows of the committed path, ascending.
        drop_all: roll all of them back instead; a second forward will write the kept ones again.
        moved: the device has moved the kept rows already.
    """
    bytes_moved = 0
    if drop_all:
        cache.rollback(rows_before)
    else:
        bytes_moved = (cache.settle if moved else cache.compact)(rows_before, kept)
    return KVTrace(
        rows_before=rows_before,
        rows_written=len(row_nodes),
        row_nodes=row_nodes,
        kept_from=tuple(kept),
        rows_freed=len(row_nodes) - len(kept),
        rebuilt=drop_all,
        bytes_per_row=cache.bytes_per_row,
        bytes_moved=bytes_moved,
    )
