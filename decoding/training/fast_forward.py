"""The forward pass of a GPT-NeoX network as training needs it: many rows at once, causal, in bfloat16 where that helps.

It computes what transformers computes, in three quarters of the time on a CPU: attention in blocks of queries as plain
matrix products, which a CPU multiplies in bfloat16 several times as fast as its fused attention, and no idle cast.
"""

import copy
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import GPTNeoXForCausalLM

from decoding.models.presets import cpu_computes_bfloat16

BLOCK = 256  # queries whose scores are computed together
Rotation = tuple[Tensor, Tensor]


class RowCache:
    """Keys and values of rows that grow together.

    Args:
        rows: number of rows. size: most tokens that one of them can have.
    """

    def __init__(self, network: GPTNeoXForCausalLM, rows: int, size: int, dtype: torch.dtype):
        config = network.config
        shape = (rows, config.num_attention_heads, size, config.hidden_size // config.num_attention_heads)
        self.length = 0
        self._kept = [
            tuple(torch.empty(shape, dtype=dtype, device=network.device) for _ in range(2))
            for _ in range(config.num_hidden_layers)
        ]

    def put(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append to a layer; returns all its keys and values."""
        end = self.length + key.shape[2]
        for kept, fresh in zip(self._kept[layer], (key, value), strict=True):
            kept[:, :, self.length : end] = fresh
        return tuple(kept[:, :, :end] for kept in self._kept[layer])


def compute_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device has instructions for it."""
    fast = device.type == "cuda" or (device.type == "cpu" and cpu_computes_bfloat16())
    return torch.bfloat16 if fast else torch.float32


def hidden_states(
    network: GPTNeoXForCausalLM, tokens: Tensor, dtype: torch.dtype, cache: RowCache | None = None
) -> Tensor:
    """What the output head multiplies, `[rows, window, width]` in `dtype`; the residual stream stays in float32.

    Args:
        tokens: `[rows, window]`, each row from position 0, or behind what the cache holds.
    """
    body, heads = network.gpt_neox, network.config.num_attention_heads
    residual = body.embed_in(tokens).float()
    past = 0 if cache is None else cache.length
    rotation = _rotation(body.rotary_emb.inv_freq, past, tokens.shape[1])
    for number, layer in enumerate(body.layers):
        normed = _normed(layer.input_layernorm, residual, dtype)
        attended = _attention(layer.attention, normed, rotation, heads, number, cache)
        mlp = _normed(layer.post_attention_layernorm, residual, dtype)
        mlp = F.gelu(_linear(layer.mlp.dense_h_to_4h, mlp))
        residual = residual + (attended + _linear(layer.mlp.dense_4h_to_h, mlp))
    if cache is not None:
        cache.length += tokens.shape[1]
    return _normed(body.final_layer_norm, residual, dtype)


def head_logits(network: GPTNeoXForCausalLM, hidden: Tensor) -> Tensor:
    """Logits `[..., vocab_size]` in float32 of hidden states of any dtype."""
    return F.linear(hidden, network.get_output_embeddings().weight.to(hidden.dtype)).float()


@torch.no_grad()
def greedy_continuations(network: GPTNeoXForCausalLM, prompts: Tensor, count: int) -> Tensor:
    """`count` greedy tokens behind every prompt `[rows, length]`, past any end of text: `[rows, count]`."""
    dtype = compute_dtype(prompts.device)
    cast = _cast_once(network, dtype)
    cache = RowCache(network, prompts.shape[0], prompts.shape[1] + count, dtype)
    tokens, found = prompts, []
    for _ in range(count):
        last = hidden_states(cast, tokens, dtype, cache)[:, -1:]
        tokens = head_logits(cast, last).argmax(-1)
        found.append(tokens)
    return torch.cat(found, dim=1)


def _cast_once(network: GPTNeoXForCausalLM, dtype: torch.dtype) -> GPTNeoXForCausalLM:
    """A copy whose matrices need no cast in every pass."""
    cast = copy.deepcopy(network)
    for module in cast.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.to(dtype)
    return cast


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    bias = None if layer.bias is None else layer.bias.to(x.dtype)
    return F.linear(x, layer.weight.to(x.dtype), bias)


def _normed(layer: nn.LayerNorm, x: Tensor, dtype: torch.dtype) -> Tensor:
    return F.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps).to(dtype)


def _attention(
    layer: nn.Module, x: Tensor, rotation: Rotation, heads: int, number: int, cache: RowCache | None
) -> Tensor:
    rows, window, width = x.shape
    mixed = _linear(layer.query_key_value, x).view(rows, window, heads, 3, width // heads)
    query, key, value = (part.transpose(1, 2) for part in mixed.unbind(3))
    query = _rotated(query, rotation) * (width // heads) ** -0.5
    key = _rotated(key, rotation)
    if cache is not None:
        key, value = cache.put(number, key, value)
    total, blocks = key.shape[2], []
    future = _future(min(window, BLOCK), total, x.dtype, x.device) if window > 1 else None
    for start in range(0, window, BLOCK):
        size = min(BLOCK, window - start)
        seen = total - window + start + size
        scores = torch.matmul(query[:, :, start : start + size], key[:, :, :seen].transpose(-1, -2))
        if future is not None:
            scores = scores + future[len(future) - size :, total - seen :]
        blocks.append(torch.matmul(scores.softmax(-1), value[:, :, :seen]))
    attended = blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)
    return _linear(layer.dense, attended.transpose(1, 2).reshape(rows, window, width))


@lru_cache(maxsize=8)
def _future(block: int, total: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0 and -inf `[block, total]`: the last keys are those of the queries themselves, and hide from earlier ones."""
    return torch.full((block, total), -torch.inf, device=device).triu(total - block + 1).to(dtype)


def _rotation(inverse_frequencies: Tensor, past: int, window: int) -> Rotation:
    positions = torch.arange(past, past + window, device=inverse_frequencies.device)
    angles = positions[:, None] * inverse_frequencies.float()
    return torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()


def _rotated(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotary positions on the first dimensions of each head."""
    cos, sin = rotation
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = turned.float().chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-second, first), -1) * sin
    return torch.cat((turned.to(x.dtype), rest), -1)
