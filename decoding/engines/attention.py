"""Attention that repeats no key or value, as transformers models and our packed forwards call it; rotary tables."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

GROUPED_SDPA = "sdpa_grouped"
# What models may ask of sdpa besides a mask; transformers' own function knows them.
RARE_REQUESTS = ("position_bias", "softcap", "cache")


def can_group(model_class: type, config: Any) -> bool:
    """Whether a model has fewer key/value heads than query heads and takes a registered attention function."""
    text = config.get_text_config()
    heads, kv_heads = getattr(text, "num_attention_heads", None), getattr(text, "num_key_value_heads", None)
    takes_registered = bool(getattr(model_class, "_supports_attention_backend", False))
    return takes_registered and heads is not None and kv_heads is not None and kv_heads < heads


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention as `transformers` calls it; the same numbers as its `sdpa`, and no weights.

    Under a mask transformers copies every key and value once per query head of its group, in every layer and pass.
    `scaled_dot_product_attention(enable_gqa=True)` avoids that on the CPU, but on CUDA (torch 2.11 to 2.13) flash
    attention takes no mask, the memory-efficient kernel refuses unequal head counts, cuDNN takes half precision only,
    and what is left is unfused and repeats all the same. Here each key/value head is an element of the batch, and the
    query heads of its group read it through a stride of zero: every fused kernel takes that, nothing is copied.

    Args:
        query: `[batch, heads, num_queries, head_dim]`; key, value: `[batch, kv_heads, num_rows, head_dim]`.
        attention_mask: bool or additive, `[1 or batch, 1 or heads, num_queries, num_rows]`; without one the library
            copies nothing, and its function is called.
    """
    heads, kv_heads = query.shape[1], key.shape[1]
    rare = any(kwargs.get(name) is not None for name in RARE_REQUESTS)
    if attention_mask is None or heads == kv_heads or rare:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    batch, _, num_queries, _ = query.shape
    groups, mask = heads // kv_heads, attention_mask
    if not mask.shape[0] == mask.shape[1] == 1:  # one mask for all stays one, as a broadcast
        mask = mask.expand(batch, kv_heads if mask.shape[1] == 1 else heads, -1, -1)
        mask = mask.reshape(batch * kv_heads, -1, *mask.shape[2:])
    output = functional.scaled_dot_product_attention(
        query.reshape(batch * kv_heads, groups, num_queries, query.shape[3]),
        shared_rows(key, groups),
        shared_rows(value, groups),
        attn_mask=mask,
        dropout_p=dropout,
        scale=scaling,
    )
    output = output.view(batch, kv_heads, groups, num_queries, value.shape[3])
    return output.permute(0, 3, 1, 2, 4).reshape(batch, num_queries, heads, value.shape[3]).contiguous(), None


def shared_rows(rows: Tensor, groups: int) -> Tensor:
    """Keys or values as `[batch * kv_heads, groups, num_rows, head_dim]`, the second dimension of stride zero."""
    return rows.flatten(0, 1).unsqueeze(1).expand(-1, groups, -1, -1)


AttentionInterface.register(GROUPED_SDPA, grouped_attention)
# A registered attention without a mask function gets no mask at all from transformers, not even for padding.
AttentionMaskInterface.register(GROUPED_SDPA, sdpa_mask)


# Position rules whose angles do not depend on the length of the text: only these can stand in a table.
TABLED_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def has_rotary_table(config: Any) -> bool:
    """Whether the angles of a model's positions can stand in a table."""
    return (getattr(config, "rope_parameters", None) or {}).get("rope_type") in TABLED_ROPE_TYPES


class RotaryTable:
    """Cosines and sines of every position, taken once from the model's own rotary module.

    Args:
        rotary: that module, `(x, position_ids) -> (cos, sin)`, both `[1, num_positions, rotary_size]`.
        like: a tensor of the dtype and device to compute in.
        adjacent: whether the two entries that turn together are neighbours, and not half the size apart.
    """

    def __init__(self, rotary: Callable, like: Tensor, positions: int, adjacent: bool = False):
        places = torch.arange(positions, device=like.device)[None]
        cos, sin = (part[0].to(like.dtype) for part in rotary(like, places))
        self.size, self._adjacent = cos.shape[-1], adjacent
        # The rotated half carries a minus sign; with it in the table, rotating is a roll.
        sin = torch.cat([-sin[:, : self.size // 2], sin[:, self.size // 2 :]], -1)
        self._table = torch.stack([cos, sin], 1)
        if adjacent:
            self._table = self._table[..., self.neighbours]

    @property
    def neighbours(self) -> Tensor:
        """Where each entry of a rotary table with `adjacent` pairs stood before, `[rotary_size]`."""
        return torch.arange(self.size).view(2, -1).T.flatten()

    def turns(self) -> np.ndarray:
        """Every position's angles as complex numbers of length 1, `[num_positions, rotary_size / 2]`, on the host."""
        cos, signed_sin = self._table[:, 0, : self.size : 2], self._table[:, 1, 1::2]
        return torch.complex(cos, signed_sin).numpy()

    def rows(self, positions: Tensor) -> Tensor:
        """Cosines and signed sines, `[num_queries, 2, rotary_size]`."""
        return self._table[positions]

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The same for `rotate`, `[num_queries, 1, 1, rotary_size]` each."""
        rows = self.rows(positions)
        return rows[:, 0, None, None], rows[:, 1, None, None]

    @property
    def keeps_length(self) -> bool:
        """Whether rotating leaves a vector's length as it is, so that rotations add up."""
        return bool((self._table[0, 0] == 1).all())

    def rotate(self, heads: Tensor, angles: tuple[Tensor, Tensor]) -> None:
        """Rotate the first `size` entries of `[num_queries, a, b, head_dim]` in place."""
        part = heads[..., : self.size]
        other = part.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) if self._adjacent else part.roll(self.size // 2, -1)
        part.copy_(torch.addcmul(part * angles[0], other, angles[1]))


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Any, scale: float) -> Tensor:
    """Attention of one pass, `[num_queries, heads, head_dim]`; no key is repeated for the query heads that share it.

    Args:
        queries: `[num_queries, heads, head_dim]`; keys, values: `[1, kv_heads, num_rows, head_dim]`.
        mask: `[1, 1, num_queries, num_rows]`, None where every query sees every row, or a mask that attends itself
            (`packed.SinksAndWindow`).
    """
    if hasattr(mask, "attend"):
        return mask.attend(queries, keys, values, scale)
    heads, groups = queries.transpose(0, 1), queries.shape[1] // keys.shape[1]
    if groups == 1:
        return functional.scaled_dot_product_attention(heads[None], keys, values, mask, scale=scale)[0].transpose(0, 1)
    keys, values = shared_rows(keys, groups), shared_rows(values, groups)
    out = functional.scaled_dot_product_attention(heads.unflatten(0, (-1, groups)), keys, values, mask, scale=scale)
    return out.flatten(0, 1).transpose(0, 1)
