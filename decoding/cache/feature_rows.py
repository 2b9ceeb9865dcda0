"""The target's features of committed tokens, row by row as the rows of its cache, so that they follow the same path."""

import torch
from torch import Tensor


class FeatureRows:
    """Features `[length, hidden_size]`: row r belongs to the token at position r of the text.

    Rows of a verified tree stand behind the committed ones until they are kept or dropped.

    Args:
        capacity: rows to make room for with the first ones; more make it grow.

    Attributes:
        length: rows held.
    """

    def __init__(self, capacity: int):
        self.length = 0
        self._capacity = capacity
        self._rows: Tensor | None = None

    def append(self, features: Tensor) -> None:
        """Add rows behind those held, `[num_rows, hidden_size]`."""
        end = self.length + len(features)
        if self._rows is None or end > len(self._rows):
            self._grow(features, end)
        self._rows[self.length : end] = features
        self.length = end

    def between(self, start: int, end: int) -> Tensor:
        """Rows from `start` to before `end`, a view."""
        if not 0 <= start < end <= self.length:
            raise ValueError(f"rows {start} to {end} are not among the {self.length} held")
        return self._rows[start:end]

    def at(self, places: list[int]) -> Tensor:
        """The rows at some places, `[len(places), hidden_size]`."""
        return self._rows[: self.length][places]

    def rollback(self, length: int) -> None:
        """Drop every row from `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} rows: {self.length} are held")
        self.length = length

    def compact(self, start: int, kept: tuple[int, ...]) -> None:
        """Keep rows `kept` (ascending, all >= `start`) behind the first `start` rows."""
        if kept and kept[-1] != start + len(kept) - 1:
            self._rows[start : start + len(kept)] = self._rows[list(kept)]
        self.length = start + len(kept)

    def clone(self) -> "FeatureRows":
        """An independent copy of the rows held."""
        return self.first(self.length)

    def first(self, count: int) -> "FeatureRows":
        """An independent copy of the first rows; fewer where fewer are held."""
        other = FeatureRows(self._capacity if self._rows is None else len(self._rows))
        count = min(count, self.length)
        if count:
            other.append(self._rows[:count])
        return other

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all rows there is room for."""
        return 0 if self._rows is None else self._rows.numel() * self._rows.element_size()

    def _grow(self, like: Tensor, needed: int) -> None:
        old = self._rows
        room = max(needed, self._capacity if old is None else len(old) * 3 // 2)
        self._rows = torch.empty((room, like.shape[1]), dtype=like.dtype, device=like.device)
        if self.length:
            self._rows[: self.length] = old[: self.length]
