"""Rotary positions from a table and attention without repeated keys, as the lean forwards share them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Position rules whose angles do not depend on the length of the text: only these can stand in a table.
TABLED_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def has_rotary_table(config: Any) -> bool:
    """Whether the angles of a model's positions can stand in a table."""
    return (getattr(config, "rope_parameters", None) or {}).get("rope_type") in TABLED_ROPE_TYPES


class RotaryTable:
    """Cosines and sines of every position, taken once from the model's own rotary module.

    Args:
        rotary: the model's module, `(x, position_ids) -> (cos, sin)`, both `[1, num_positions, rotary_size]`.
        like: a tensor of the dtype and device to compute in.
        positions: number of positions to hold.
    """

    def __init__(self, rotary: Callable, like: Tensor, positions: int):
        places = torch.arange(positions, device=like.device)[None]
        cos, sin = (part[0].to(like.dtype) for part in rotary(like, places))
        self.size = cos.shape[-1]
        # The rotated half carries a minus sign; with it in the table, rotating is a roll.
        sin = torch.cat([-sin[:, : self.size // 2], sin[:, self.size // 2 :]], -1)
        self._table = torch.stack([cos, sin], 1)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines, `[num_queries, 1, 1, rotary_size]` each."""
        rows = self._table[positions]
        return rows[:, 0, None, None], rows[:, 1, None, None]

    def back(self, distances: Tensor) -> tuple[Tensor, Tensor]:
        """What turns a vector back by so many positions, `[num_queries]`, in the form that `at` gives."""
        cos, sin = self.at(distances)
        return cos, -sin

    @property
    def keeps_length(self) -> bool:
        """Whether rotating leaves a vector's length as it is, so that rotations add up."""
        return bool((self._table[0, 0] == 1).all())

    def rotate(self, heads: Tensor, angles: tuple[Tensor, Tensor]) -> None:
        """Rotate the first `size` entries of `[num_queries, a, b, head_dim]` in place."""
        part = heads[..., : self.size]
        part.copy_(torch.addcmul(part * angles[0], part.roll(self.size // 2, -1), angles[1]))


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Any, scale: float) -> Tensor:
    """Attention of one pass; no key is repeated for the query heads that share it.

    Args:
        queries: `[num_queries, heads, head_dim]`.
        keys, values: `[1, kv_heads, num_rows, head_dim]`.
        mask: `[1, 1, num_queries, num_rows]`, None where every query sees every row, or a mask that attends itself
            (`streaming.SinksAndWindow`).

    Returns:
        `[num_queries, heads, head_dim]`.
    """
    if hasattr(mask, "attend"):
        return mask.attend(queries, keys, values, scale)
    heads, groups = queries.transpose(0, 1), queries.shape[1] // keys.shape[1]
    if groups == 1:
        return functional.scaled_dot_product_attention(heads[None], keys, values, mask, scale=scale)[0].transpose(0, 1)
    # Each key head is an element of the batch that the query heads of its group read through a stride of zero.
    keys, values = (rows[0, :, None].expand(-1, groups, -1, -1) for rows in (keys, values))
    out = functional.scaled_dot_product_attention(heads.unflatten(0, (-1, groups)), keys, values, mask, scale=scale)
    return out.flatten(0, 1).transpose(0, 1)
