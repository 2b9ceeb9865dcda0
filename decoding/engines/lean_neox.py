"""GPT-NeoX (Pythia, the embedded pair) as a forward of its own, without the library's calls between the products."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from decoding.cache.kv_cache import KVCache
from decoding.engines.attention import RotaryTable, attend, has_rotary_table
from decoding.engines.lean import LeanForward
from decoding.engines.linear import PackedLinear, can_pack, linear


class NeoXForward(LeanForward):
    """`Forward` of a `GPTNeoXForCausalLM` with parallel residual.

    Args:
        network: the transformers model, whose weights are shared where they need not be packed.
        positions: most positions that a text can have.
    """

    def __init__(self, network: Any, positions: int):
        body, config = network.gpt_neox, network.config
        weight = body.embed_in.weight
        rotary = RotaryTable(body.rotary_emb, weight.detach()[:1], positions)
        merged = weight.dtype == torch.float32 and can_pack(weight.device, weight.dtype)
        kind = _MergedLayer if merged else _PlainLayer
        layers = [kind(layer, config.num_attention_heads) for layer in body.layers]
        head = linear(network.get_output_embeddings())
        super().__init__(body.embed_in, rotary, layers, body.final_layer_norm, head)

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether this forward computes what the network computes."""
        config = network.config
        return (
            type(network).__name__ == "GPTNeoXForCausalLM" and config.use_parallel_residual and has_rotary_table(config)
        )


class _Layer:
    """What both forms of a layer share: the sizes and the attention behind the query-key-value product."""

    def __init__(self, layer: Any, heads: int):
        attention = layer.attention
        self._heads, self._head_dim, self._scale = heads, attention.head_size, attention.scaling
        self._act = layer.mlp.act

    def _attend(self, qkv: Tensor, rotary, angles, mask, cache: KVCache, index: int) -> Tensor:
        """`[num_queries, heads * 3 * head_dim]` -> `[num_queries, heads, head_dim]`; the keys go into the cache."""
        parts = qkv.view(len(qkv), self._heads, 3, self._head_dim)
        rotary.rotate(parts[:, :, :2], angles)
        keys, values = cache.write(parts[:, :, 1:].permute(2, 1, 0, 3)[:, None], index)
        return attend(parts[:, :, 0], keys, values, mask, self._scale)


class _PlainLayer(_Layer):
    """Four products, in the order of the paper."""

    def __init__(self, layer: Any, heads: int):
        super().__init__(layer, heads)
        self._norms = layer.input_layernorm, layer.post_attention_layernorm
        self._qkv, self._dense = linear(layer.attention.query_key_value), linear(layer.attention.dense)
        self._up, self._down = linear(layer.mlp.dense_h_to_4h), linear(layer.mlp.dense_4h_to_h)

    def __call__(self, x: Tensor, rotary, angles, mask, cache: KVCache, index: int) -> Tensor:
        attended = self._attend(self._qkv(self._norms[0](x)), rotary, angles, mask, cache, index)
        grown = self._down(self._act(self._up(self._norms[1](x))))
        return grown + self._dense(attended.reshape(len(x), -1)) + x


class _MergedLayer(_Layer):
    """Two products: both norms read the same vector, so that their gains and biases fold into one weight.

    Folding changes weights by rounding, which float32 bears (logits within 2e-5) and 16 bits would not.
    """

    def __init__(self, layer: Any, heads: int):
        super().__init__(layer, heads)
        attention, mlp = layer.attention, layer.mlp
        self._size = (layer.input_layernorm.weight.shape[0],)
        self._eps = layer.input_layernorm.eps
        self._qkv_size = attention.query_key_value.weight.shape[0]
        folded = [
            _fold(attention.query_key_value, layer.input_layernorm),
            _fold(mlp.dense_h_to_4h, layer.post_attention_layernorm),
        ]
        self._in = PackedLinear(torch.cat([w for w, _ in folded]), torch.cat([b for _, b in folded]))
        weight = torch.cat([attention.dense.weight, mlp.dense_4h_to_h.weight], 1).detach()
        bias = mlp.dense_4h_to_h.bias if attention.dense.bias is None else attention.dense.bias + mlp.dense_4h_to_h.bias
        self._out = PackedLinear(weight, bias.detach())

    def __call__(self, x: Tensor, rotary, angles, mask, cache: KVCache, index: int) -> Tensor:
        both = self._in(functional.layer_norm(x, self._size, eps=self._eps))
        attended = self._attend(both[:, : self._qkv_size], rotary, angles, mask, cache, index)
        grown = self._act(both[:, self._qkv_size :])
        return self._out.add_to(x, torch.cat([attended.reshape(len(x), -1), grown], 1))


def _fold(product: torch.nn.Linear, norm: torch.nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """Weight and bias of a product behind a norm without gain and bias."""
    bias = product.weight @ norm.bias
    return (product.weight * norm.weight).detach(), (bias if product.bias is None else bias + product.bias).detach()
