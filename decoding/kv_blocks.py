"""Room for key/value rows: layers of one shape and device share a block, so that moving rows costs one copy each."""

from collections.abc import Iterator

from decoding.optional_torch import Tensor, torch


class KVBlocks:
    """Blocks `[num_layers, 2, 1, kv_heads, capacity, head_dim]`, made when the first keys and values show their shape.

    Where keys and values differ in width (MLA caches a latent and a rotary key), each has a block of its own,
    `[num_layers, 1, 1, kv_heads, capacity, width]`.

    Args:
        capacity: number of rows.
        zeroed: clear new blocks, for passes that read rows nobody has written (their weight is 0, but 0 x nan is nan).

    Attributes:
        views: keys and values of each layer, `[1, kv_heads, capacity, head_dim]` each; None before `place`.
        pairs: the same of each layer in one tensor `[2, 1, kv_heads, capacity, head_dim]`; None where widths differ.
        placed: whether the block of each layer stands.
    """

    def __init__(self, num_layers: int, capacity: int, zeroed: bool = False):
        self.num_layers, self.capacity = num_layers, capacity
        self.views: list[tuple[Tensor, Tensor] | None] = [None] * num_layers
        self.pairs: list[Tensor | None] = [None] * num_layers
        self.placed = [False] * num_layers
        self._zeroed = zeroed
        self._blocks: list[tuple[int, tuple[Tensor, ...]]] = []
        self._bytes_per_row: int | None = None

    def place(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The views of a layer; its block is made like its first rows: one for all layers, or its own if it differs."""
        if not self._blocks:
            self._add(keys, values, layer, self.num_layers)
        views = self.views[layer]
        if views is None or not all(map(_fits, views, (keys, values))):
            self._add(keys, values, layer, 1)
        self.placed[layer] = True
        return self.views[layer]  # type: ignore[return-value]

    def copy_from(self, other: "KVBlocks", rows: int) -> None:
        """Take over the first `rows` rows of blocks of the same model."""
        self.placed = list(other.placed)
        for index, (first_layer, old) in enumerate(other._blocks):
            if index == len(self._blocks):
                self._add(old[0][0, 0], old[-1][0, -1], first_layer, old[0].shape[0])
            for mine, theirs in zip(self._blocks[index][1], old, strict=True):
                mine[..., :rows, :] = theirs[..., :rows, :]

    def move(self, first: int, rows: list[int]) -> None:
        """Copy rows to `first` and behind it."""
        for block in self._tensors():
            chosen = torch.tensor(rows).to(block.device, non_blocking=True)
            block[..., first : first + len(rows), :] = block.index_select(4, chosen)

    def move_rows(self, sources: Tensor, targets: Tensor) -> None:
        """Copy rows `sources[i]` to `targets[i]`, all distinct; index tensors on the device, nothing is read back."""
        for block in self._tensors():
            block.index_copy_(4, targets, block.index_select(4, sources))

    @property
    def bytes_per_row(self) -> int:
        """Bytes of keys and values of one row over all layers; 0 before all layers are placed."""
        if self._bytes_per_row is None and self.placed[-1]:
            rows = (view[:, :, 0] for views in filter(None, self.views) for view in views)
            self._bytes_per_row = sum(row.numel() * row.element_size() for row in rows)
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
            self.pairs[first_layer + offset] = tensors[0][offset] if joined else None
            self.views[first_layer + offset] = (tensors[0][offset, 0], tensors[-1][offset, -1])

    def _new(self, layers: int, parts: int, like: Tensor) -> Tensor:
        new = torch.zeros if self._zeroed else torch.empty
        shape = (layers, parts, 1, like.shape[1], self.capacity, like.shape[3])
        return new(shape, dtype=like.dtype, device=like.device)


def _fits(view: Tensor, rows: Tensor) -> bool:
    """Whether rows can be written into a view."""
    return view.device == rows.device and view.shape[1::2] == rows.shape[1::2]
