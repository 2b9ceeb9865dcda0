"""GPT-NeoX in float32 on a CPU in as few calls as possible: with few rows it is calls that a pass waits for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from decoding.engines.attention import RotaryTable
from decoding.engines.kv_cache import KVCache
from decoding.engines.packed import NeoXForward, PackedForward, can_pack, linear, pack

# What the first layer makes of every token of a vocabulary stands in a table, where that is no larger.
MOST_TABLE_BYTES = 2**27


class MergedForward(PackedForward):
    """Forward of a `GPTNeoXForCausalLM` with parallel residual, its weights in an order of our own.

    A layer is three products, the last one of both halves. In the first layer only attention depends on more than the
    token: the rest of it is looked up (Graef 2024, "Transformer tricks: precomputing the first layer").
    """

    floor = -torch.inf  # attention would make such a mask of booleans in every layer

    def __init__(self, network: Any, positions: int):
        body, weight = network.gpt_neox, network.gpt_neox.embed_in.weight.detach()
        rotary = RotaryTable(body.rotary_emb, weight[:1], positions, adjacent=True)
        layers = [_Layer(layer, network.config.num_attention_heads, rotary) for layer in body.layers]
        head = linear(network.get_output_embeddings())
        super().__init__(body.embed_in, rotary, layers, _layer_norm(body.final_layer_norm), head)
        self._turns = rotary.turns()[:, None, None]
        self._first = _FirstLayer(layers[0], weight) if 4 * weight.nbytes <= MOST_TABLE_BYTES else None

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether this forward computes what the network computes."""
        weight = network.get_input_embeddings().weight
        packs = weight.dtype == torch.float32 and can_pack(weight.device, weight.dtype)
        return packs and NeoXForward.fits(network)

    def _features(self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor) -> Tensor:
        assert isinstance(keep, int)  # an index is what graphs ask for
        count, turns = len(ids), self._turns[positions.numpy()]
        if self._embed._forward_pre_hooks:  # `load_pair` has put one there where a draft lacks rows of the last tokens
            ids = ids.clamp(max=self._embed.num_embeddings - 1)
        first = self._first
        x = self._embed.weight.index_select(0, ids) if first is None else first(ids, turns, mask, cache)
        for index in range(first is not None, len(self._layers)):
            x = self._layers[index](x, turns, mask, cache, index)
        return self._norm(x if keep == count else x[-keep:])


class MergedAttention:
    """Attention on keys, values and queries in one row, with a rotary table of `adjacent` pairs.

    `order` says where those of each head stand in the weight that makes them, `[heads, 3, head_dim]`.
    """

    def __init__(self, order: np.ndarray, rotary: RotaryTable, scale: float):
        self.heads, self.size, self.turned, self.scale = len(order), order.size // 3, rotary.size, scale
        order = order.copy()
        order[:, :2, : rotary.size] = order[:, :2, rotary.neighbours.numpy()]
        self.columns = order[:, [1, 2, 0]].transpose(1, 0, 2).ravel()  # of that weight, as `attend` expects them

    def attend(self, made: Tensor, turns: np.ndarray, mask: Any, cache: KVCache, index: int) -> Tensor:
        """Attention of a pass, `[num_queries, hidden_size]`; the keys go into the cache.

        Args:
            made: keys, values and queries, `[num_queries, 3 * hidden_size]`, which are rotated in place.
            turns: complex, `[num_queries, 1, 1, rotary_size / 2]`.
        """
        parts = made.numpy().reshape(len(turns), 3, self.heads, -1)
        turned = parts[:, ::2, :, : self.turned].view(np.complex64)
        turned *= turns
        keys, values = cache.write(parts[:, :2].transpose(1, 2, 0, 3)[:, None], index)
        if hasattr(mask, "attend"):
            attended = mask.attend(torch.from_numpy(parts[:, 2]), keys, values, self.scale)
        else:
            queries = torch.from_numpy(parts[None, :, 2].transpose(0, 2, 1, 3))
            found = functional.scaled_dot_product_attention(queries, keys, values, mask, scale=self.scale)
            attended = found.transpose(1, 2)
        return attended.reshape(len(turns), self.size)


class _Layer(MergedAttention):
    """Keys, values and queries in one product, another for what grows, and one for both outputs."""

    def __init__(self, layer: Any, heads: int, rotary: RotaryTable):
        attention, mlp = layer.attention, layer.mlp
        size, self.act = attention.dense.weight.shape[0], mlp.act
        super().__init__(np.arange(3 * size).reshape(heads, 3, -1), rotary, attention.scaling)
        self.norms = _layer_norm(layer.input_layernorm), _layer_norm(layer.post_attention_layernorm)
        weight, bias = attention.query_key_value.weight.detach(), attention.query_key_value.bias
        self.made = pack(weight[self.columns], None if bias is None else bias.detach()[self.columns])
        self.dense, self.down = attention.dense.weight.detach(), mlp.dense_4h_to_h.weight.detach()
        self.grown = linear(mlp.dense_h_to_4h)
        bias = mlp.dense_4h_to_h.bias if attention.dense.bias is None else attention.dense.bias + mlp.dense_4h_to_h.bias
        self.bias = bias.detach()
        self._out = pack(torch.cat([self.dense, self.down], 1), self.bias)

    def __call__(self, x: Tensor, turns: np.ndarray, mask: Any, cache: KVCache, index: int) -> Tensor:
        attended = self.attend(self.made(self.norms[0](x)), turns, mask, cache, index)
        return self._out.add_to(x, torch.cat([attended, self.act(self.grown(self.norms[1](x)))], 1))


class _FirstLayer:
    """The first layer with everything but attention looked up by token."""

    def __init__(self, layer: _Layer, embedding: Tensor):
        self._layer, self._dense = layer, layer.dense.T.contiguous()  # so small that a packed product takes longer
        self._made = layer.made(layer.norms[0](embedding))
        grown = layer.act(layer.grown(layer.norms[1](embedding)))
        self._rest = embedding + functional.linear(grown, layer.down, layer.bias)

    def __call__(self, ids: Tensor, turns: np.ndarray, mask: Any, cache: KVCache) -> Tensor:
        attended = self._layer.attend(self._made.index_select(0, ids), turns, mask, cache, 0)
        return torch.addmm(self._rest.index_select(0, ids), attended, self._dense)


def _layer_norm(norm: torch.nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """The norm without the module's own steps."""
    weight, bias = norm.weight.detach(), norm.bias.detach()
    return lambda x: torch.layer_norm(x, weight.shape, weight, bias, norm.eps)
