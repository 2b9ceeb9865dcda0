"""Room for key/value rows: layers of one shape and device share a block, so that moving rows costs one copy each."""

from decoding.optional_torch import Tensor, torch


class KVBlocks:
    """Blocks `[num_layers, 2, 1, kv_heads, capacity, head_dim]`, made when the first keys show their shape.

    Args:
        capacity: number of rows.
        zeroed: clear new blocks, for passes that read rows nobody has written (their weight is 0, but 0 x nan is nan).

    Attributes:
        views: keys and values of each layer, `[1, kv_heads, capacity, head_dim]` each; None before `place`.
        pairs: the same of each layer in one tensor `[2, 1, kv_heads, capacity, head_dim]`.
        placed: whether the block of each layer stands.
    """

    def __init__(self, num_layers: int, capacity: int, zeroed: bool = False):
        self.num_layers, self.capacity = num_layers, capacity
        self.views: list[tuple[Tensor, Tensor] | None] = [None] * num_layers
        self.pairs: list[Tensor | None] = [None] * num_layers
        self.placed = [False] * num_layers
        self._zeroed = zeroed
        self._blocks: list[tuple[int, Tensor]] = []
        self._bytes_per_row: int | None = None

    def place(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """The views of a layer; its block is made like its first keys: one for all layers, or its own if it differs."""
        if not self._blocks:
            self._add(like, layer, self.num_layers)
        view = self.views[layer]
        if view is None or view[0].device != like.device or view[0].shape[1::2] != like.shape[1::2]:
            self._add(like, layer, 1)
        self.placed[layer] = True
        return self.views[layer]  # type: ignore[return-value]

    def copy_from(self, other: "KVBlocks", rows: int) -> None:
        """Take over the first `rows` rows of blocks of the same model."""
        self.placed = list(other.placed)
        for index, (first_layer, old) in enumerate(other._blocks):
            if index == len(self._blocks):
                self._add(old[0, 0], first_layer, old.shape[0])
            self._blocks[index][1][..., :rows, :] = old[..., :rows, :]

    def move(self, first: int, rows: list[int]) -> None:
        """Copy rows to `first` and behind it."""
        for _, block in self._blocks:
            chosen = torch.tensor(rows).to(block.device, non_blocking=True)
            block[..., first : first + len(rows), :] = block.index_select(4, chosen)

    def move_rows(self, sources: Tensor, targets: Tensor) -> None:
        """Copy rows `sources[i]` to `targets[i]`, all distinct; index tensors on the device, nothing is read back."""
        for _, block in self._blocks:
            block.index_copy_(4, targets, block.index_select(4, sources))

    @property
    def bytes_per_row(self) -> int:
        """Bytes of keys and values of one row over all layers; 0 before all layers are placed."""
        if self._bytes_per_row is None and self.placed[-1]:
            self._bytes_per_row = sum(2 * k[:, :, 0].numel() * k.element_size() for k, _ in filter(None, self.views))
        return self._bytes_per_row or 0

    def _add(self, like: Tensor, first_layer: int, layers: int) -> None:
        heads, head_dim = like.shape[1], like.shape[3]
        new = torch.zeros if self._zeroed else torch.empty
        block = new((layers, 2, 1, heads, self.capacity, head_dim), dtype=like.dtype, device=like.device)
        self._blocks.append((first_layer, block))
        for offset in range(min(layers, self.num_layers - first_layer)):
            self.pairs[first_layer + offset] = block[offset]
            self.views[first_layer + offset] = (block[offset, 0], block[offset, 1])
