"""GPT-NeoX in float32 on a CPU in as few calls as possible: with few rows it is calls that a pass waits for."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from decoding.engines.attention import RotaryTable
from decoding.engines.kv_cache import KVCache
from decoding.engines.packed import FEWEST_ROWS, NeoXForward, PackedForward, PackedLinear, can_pack

STREAMED_BYTES = 2**23  # weights of a model that are read from memory in every pass: rows are filled up once for all
# What the first layer makes of every token of a vocabulary stands in a table, where that is no larger.
MOST_TABLE_BYTES = 2**27


class MergedForward(PackedForward):
    """Forward of a `GPTNeoXForCausalLM` with parallel residual, its weights folded and in an order of our own.

    A layer is two products, as both its norms read the same vector. Folding changes weights by rounding, which float32
    bears (logits within 2e-5) and 16 bits would not. In the first layer only attention depends on more than the token:
    the rest of it is looked up (Graef 2024, "Transformer tricks: precomputing the first layer").
    """

    floor = -torch.inf  # attention would make such a mask of booleans in every layer

    def __init__(self, network: Any, positions: int):
        body, weight = network.gpt_neox, network.gpt_neox.embed_in.weight.detach()
        rotary = RotaryTable(body.rotary_emb, weight[:1], positions, adjacent=True)
        layers = [_Layer(layer, network.config.num_attention_heads, rotary) for layer in body.layers]
        head = PackedLinear(network.get_output_embeddings().weight.detach(), None)
        super().__init__(body.embed_in, rotary, layers, body.final_layer_norm, head)
        self._turns = rotary.turns()[:, None, None]
        streamed = sum(one.numel() * one.element_size() for one in network.parameters()) > STREAMED_BYTES
        self._fewest = FEWEST_ROWS if streamed else 1
        self._first = _FirstLayer(layers[0], weight) if 4 * weight.nbytes <= MOST_TABLE_BYTES else None

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether this forward computes what the network computes."""
        weight = network.get_input_embeddings().weight
        packs = weight.dtype == torch.float32 and can_pack(weight.device, weight.dtype)
        return packs and NeoXForward.fits(network) and network.get_output_embeddings().bias is None

    def with_features(
        self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor, project: int | None = None
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(keep, int)  # an index is what graphs ask for
        count, turns = len(ids), self._turns[positions.numpy()]
        if self._embed._forward_pre_hooks:  # `load_pair` has put one there where a draft lacks rows of the last tokens
            ids = ids.clamp(max=self._embed.num_embeddings - 1)
        if count < self._fewest:
            ids = functional.pad(ids, (0, self._fewest - count))
        first = self._first
        x = self._embed.weight.index_select(0, ids) if first is None else first(ids, turns, mask, cache)
        for index in range(first is not None, len(self._layers)):
            x = self._layers[index](x, turns, mask, cache, index)
        if keep < count:
            x = x[count - keep : count]
        norm = self._norm
        features = functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        if project is not None:
            return self.project(features[keep - project : keep]), features[:keep]
        return self.project(features)[:keep], features[:keep]


class MergedAttention:
    """Attention on keys, values and queries in one row; what it gives takes the place of the queries.

    Args:
        order: where queries, keys and values of each head stand in the weight that makes them, `[heads, 3, head_dim]`.
        rotary: with `adjacent` pairs.
    """

    def __init__(self, order: np.ndarray, rotary: RotaryTable, scale: float):
        self.heads, self.size, self.turned, self.scale = len(order), order.size // 3, rotary.size, scale
        order = order.copy()
        order[:, :2, : rotary.size] = order[:, :2, rotary.neighbours.numpy()]
        self.columns = order[:, [1, 2, 0]].transpose(1, 0, 2).ravel()  # of that weight, as `attend` expects them

    def attend(self, made: Tensor, turns: np.ndarray, mask: Any, cache: KVCache, index: int) -> None:
        """Attention of a pass; the keys go into the cache.

        Args:
            made: keys, values and queries, `[num_rows, 3 * hidden_size or more]`; overwrites the queries.
            turns: complex, `[num_queries, 1, 1, rotary_size / 2]`; rows behind the queries fill up the products.
        """
        count = len(turns)
        parts = made.numpy()[:count, : 3 * self.size].reshape(count, 3, self.heads, -1)
        turned = parts[:, ::2, :, : self.turned].view(np.complex64)
        turned *= turns
        keys, values = cache.write(torch.from_numpy(parts[:, :2].transpose(1, 2, 0, 3)[:, None]), index)
        if hasattr(mask, "attend"):
            parts[:, 2] = mask.attend(torch.from_numpy(parts[:, 2]), keys, values, self.scale).numpy()
            return
        queries = torch.from_numpy(parts[:, 2].transpose(1, 0, 2)[None])
        found = functional.scaled_dot_product_attention(queries, keys, values, mask, scale=self.scale)
        parts[:, 2] = found.numpy()[0].transpose(1, 0, 2)


class _Layer(MergedAttention):
    """Keys, values, queries and what grows in one product."""

    def __init__(self, layer: Any, heads: int, rotary: RotaryTable):
        attention, mlp = layer.attention, layer.mlp
        size, self._eps, self.act = attention.dense.weight.shape[0], layer.input_layernorm.eps, mlp.act
        super().__init__(np.arange(3 * size).reshape(heads, 3, -1), rotary, attention.scaling)
        columns = self.columns
        weight, bias = _fold(attention.query_key_value, layer.input_layernorm)
        grown = _fold(mlp.dense_h_to_4h, layer.post_attention_layernorm)
        self.into = PackedLinear(torch.cat([weight[columns], grown[0]]), torch.cat([bias[columns], grown[1]]))
        self.dense, self.down = attention.dense.weight.detach(), mlp.dense_4h_to_h.weight.detach()
        bias = mlp.dense_4h_to_h.bias if attention.dense.bias is None else attention.dense.bias + mlp.dense_4h_to_h.bias
        self.bias = bias.detach()
        self._out = PackedLinear(torch.cat([self.dense, self.down], 1), self.bias)

    def normed(self, x: Tensor) -> Tensor:
        """The norm of both halves without gain and bias, which are in the weights."""
        return functional.layer_norm(x, (self.size,), eps=self._eps)

    def __call__(self, x: Tensor, turns: np.ndarray, mask: Any, cache: KVCache, index: int) -> Tensor:
        made = self.into(self.normed(x))
        self.attend(made, turns, mask, cache, index)
        grown = made[:, 3 * self.size :]
        grown.copy_(self.act(grown))
        return self._out.add_to(x, made[:, 2 * self.size :])


class _FirstLayer:
    """The first layer with everything but attention looked up by token."""

    def __init__(self, layer: _Layer, embedding: Tensor):
        made = layer.into(layer.normed(embedding))
        self._layer, self._dense = layer, layer.dense.T.contiguous()  # so small that a packed product takes longer
        self._made = made[:, : 3 * layer.size].contiguous()
        self._rest = embedding + functional.linear(layer.act(made[:, 3 * layer.size :]), layer.down, layer.bias)

    def __call__(self, ids: Tensor, turns: np.ndarray, mask: Any, cache: KVCache) -> Tensor:
        made = self._made.index_select(0, ids)
        self._layer.attend(made, turns, mask, cache, 0)
        return torch.addmm(self._rest.index_select(0, ids), made[:, 2 * self._layer.size :], self._dense)


def _fold(product: torch.nn.Linear, norm: torch.nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """Weight and bias of a product behind a norm without gain and bias."""
    bias = product.weight @ norm.bias
    return (product.weight * norm.weight).detach(), (bias if product.bias is None else bias + product.bias).detach()
