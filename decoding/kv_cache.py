"""Preallocated key/value rows: appending copies nothing, rolling back is a counter, compaction moves accepted rows."""

import torch
from torch import Tensor

from decoding.trace import KVTrace


class KVCache:
    """Keys and values of one model for one text, as `transformers` models read and write them.

    Rows stand in blocks `[num_layers, 2, 1, kv_heads, capacity, head_dim]`; layers of one shape and device share a
    block, so that moving rows costs one copy per block and not two per layer. Row r belongs to position r of the
    text, except the rows of a draft tree, which stand behind the committed ones until they are kept or dropped.
    """

    is_compileable = False

    def __init__(self, num_layers: int, capacity: int):
        self.num_layers = num_layers
        self.capacity = capacity
        self.length = 0
        self._blocks: list[tuple[int, Tensor]] = []
        self._views: list[tuple[Tensor, Tensor] | None] = [None] * num_layers
        self._pairs: list[Tensor | None] = [None] * num_layers
        self._checked = [False] * num_layers
        self._bytes_per_row: int | None = None

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_args, **_kwargs) -> tuple[Tensor, Tensor]:
        """Write the rows of one layer behind the rows held; return all rows `[1, kv_heads, length + new, head_dim]`."""
        views = self._views[layer_idx] if self._checked[layer_idx] else self._place(layer_idx, keys)
        end = self.length + keys.shape[2]
        views[0][:, :, self.length : end].copy_(keys)
        views[1][:, :, self.length : end].copy_(values)
        return views[0][:, :, :end], views[1][:, :, :end]

    def write(self, pair: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """The same for keys and values in one tensor `[2, 1, kv_heads, new, head_dim]`, with one copy."""
        if not self._checked[layer_idx]:
            self._place(layer_idx, pair[0])
        both, end = self._pairs[layer_idx], self.length + pair.shape[3]
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
        self.capacity = max(self.length + new_rows, self.capacity * 3 // 2)
        old_blocks, self._blocks = self._blocks, []
        self._copy_blocks(old_blocks)

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
        in_place = 0
        while in_place < len(kept) and kept[in_place] == start + in_place:
            in_place += 1
        moved = kept[in_place:]
        if moved:
            first = start + in_place
            for _, block in self._blocks:
                rows = torch.tensor(moved, device=block.device)
                block[..., first : first + len(moved), :] = block.index_select(4, rows)
        self.length = start + len(kept)
        return len(moved) * self.bytes_per_row

    def fresh(self, capacity: int) -> "KVCache":
        """An empty cache of the same model."""
        return KVCache(self.num_layers, capacity)

    def clone(self) -> "KVCache":
        """An independent copy of the rows held."""
        copy = KVCache(self.num_layers, self.capacity)
        copy.length = self.length
        copy._checked = list(self._checked)
        copy._copy_blocks(self._blocks)
        return copy

    def rows(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer, `[1, kv_heads, length, head_dim]`, for comparison with another cache."""
        return [(k[:, :, : self.length], v[:, :, : self.length]) for k, v in filter(None, self._views)]

    @property
    def bytes_per_row(self) -> int:
        """Bytes of keys and values of one row over all layers."""
        if self._bytes_per_row is None and self._checked[-1]:
            self._bytes_per_row = self._count_bytes_per_row()
        return self._bytes_per_row or 0

    def _count_bytes_per_row(self) -> int:
        return sum(2 * keys[:, :, 0].numel() * keys.element_size() for keys, _ in filter(None, self._views))

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all rows the cache has room for."""
        return self.bytes_per_row * self.capacity

    def _place(self, layer_idx: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Make the block of a layer from the first keys it sees: one for all layers, or its own where it differs."""
        if not self._blocks:
            self._add_block(like, layer_idx, self.num_layers)
        view = self._views[layer_idx]
        if view is None or view[0].device != like.device or view[0].shape[1::2] != like.shape[1::2]:
            self._add_block(like, layer_idx, 1)
        self._checked[layer_idx] = True
        return self._views[layer_idx]  # type: ignore[return-value]

    def _add_block(self, like: Tensor, first_layer: int, layers: int) -> Tensor:
        heads, head_dim = like.shape[1], like.shape[3]
        block = torch.empty((layers, 2, 1, heads, self.capacity, head_dim), dtype=like.dtype, device=like.device)
        self._blocks.append((first_layer, block))
        for offset in range(min(layers, self.num_layers - first_layer)):
            self._pairs[first_layer + offset] = block[offset]
            self._views[first_layer + offset] = (block[offset, 0], block[offset, 1])
        return block

    def _copy_blocks(self, blocks: list[tuple[int, Tensor]]) -> None:
        for first_layer, old in blocks:
            new = self._add_block(old[0, 0], first_layer, old.shape[0])
            new[..., : self.length, :] = old[..., : self.length, :]


def keep_rows(
    cache: KVCache, rows_before: int, row_nodes: tuple[int, ...], kept: list[int], drop_all: bool = False
) -> KVTrace:
    """Bring a cache from a drafted tree to the accepted path, and say what moved.

    Args:
        row_nodes: node id of each row behind `rows_before`; -1 for committed tokens.
        kept: rows of the committed path, ascending.
        drop_all: roll all of them back instead; a second forward will write the kept ones again.
    """
    moved = 0
    if drop_all:
        cache.rollback(rows_before)
    else:
        moved = cache.compact(rows_before, kept)
    return KVTrace(
        rows_before=rows_before,
        rows_written=len(row_nodes),
        row_nodes=row_nodes,
        kept_from=tuple(kept),
        rows_freed=len(row_nodes) - len(kept),
        rebuilt=drop_all,
        bytes_per_row=cache.bytes_per_row,
        bytes_moved=moved,
    )
