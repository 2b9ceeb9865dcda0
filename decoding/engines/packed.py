"""GPT-NeoX, Llama and Qwen2 as forwards of our own, with nothing of transformers between the products; StreamingLLM.

On a CPU weights are packed once, for FBGEMM where float16 holds them and for oneDNN elsewhere; on other devices the
model's own are read as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from decoding.common.settings import SINKS
from decoding.engines.attention import RotaryTable, attend, has_rotary_table
from decoding.engines.base import EagerEngine, Visibility
from decoding.engines.kv_cache import KVCache

PACKED_DTYPES = (torch.float32, torch.bfloat16)


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of PyTorch packs weights of this dtype on this device; bfloat16 not on every processor."""
    ops = ("_reorder_linear_weight", "_linear_pointwise")
    has_ops = torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, op) for op in ops)
    computes = dtype != torch.bfloat16 or (has_ops and torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return device.type == "cpu" and dtype in PACKED_DTYPES and has_ops and computes


# Weights that no cache of the processor holds are read from memory in every pass, and oneDNN reads them a quarter to a
# half faster for this number of rows than for fewer, in float32 and in bfloat16.
FEWEST_ROWS = 4
LARGE_WEIGHT = 2**22  # bytes


class PackedLinear:
    """`x @ weight.T + bias` with a packed copy of the weight: at 1 to 64 rows twice as fast as the plain product."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self._fewest = FEWEST_ROWS if weight.nbytes >= LARGE_WEIGHT else 1
        # Packed for no number of rows in particular: as fast at every number of rows as packing for that number.
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) < self._fewest:
            return self(functional.pad(x, (0, 0, 0, self._fewest - len(x))))[: len(x)]
        return torch.ops.mkldnn._linear_pointwise.default(x, self._weight, self._bias, "none", [], "")

    def add_to(self, base: Tensor, x: Tensor) -> Tensor:
        """`base + x @ weight.T + bias` in one call."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, base, self._weight, self._bias, "add")


class Float16Linear:
    """The same product in float32 with weights that float16 holds exactly: half the bytes are read, nothing is rounded.

    So it is with models that were stored in float16. With AVX-512, what a row gives does not depend on how many there
    are. It pays for few rows, where weights are read; for many, as in a large prefill, oneDNN's own product is faster.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), bias)
        self._product = torch.ops.quantized.linear_dynamic_fp16.default._op  # without a look at every argument

    @staticmethod
    def fits(weight: Tensor) -> bool:
        """Whether float16 holds every weight and this build of PyTorch has the product."""
        built = torch.backends.quantized.engine in ("x86", "fbgemm")
        return built and weight.dtype == torch.float32 and torch.equal(weight.half().float(), weight)

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x, self._packed)

    def add_to(self, base: Tensor, x: Tensor) -> Tensor:
        """`base + x @ weight.T + bias`."""
        return self(x).add_(base)


def pack(weight: Tensor, bias: Tensor | None) -> PackedLinear | Float16Linear:
    """The product with a weight that `can_pack`, from the fewest bytes that hold the same weights."""
    return (Float16Linear if Float16Linear.fits(weight) else PackedLinear)(weight, bias)


def linear(module: torch.nn.Linear) -> Callable[[Tensor], Tensor]:
    """A product with the weights of a linear module, packed where that is possible, else with nothing copied."""
    return linear_of(module.weight.detach(), None if module.bias is None else module.bias.detach())


def linear_of(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The same with weights at hand."""
    if can_pack(weight.device, weight.dtype):
        return pack(weight, bias)
    return partial(functional.linear, weight=weight, bias=bias)


class PackedForward:
    """A forward made of parts of a transformers model: token ids to hidden vectors, layers, hidden vectors to logits.

    A layer takes hidden vectors `[num_queries, hidden_size]`, the rotary table, angles, mask, cache and its index.
    `floor` is what a mask that is added has where a query sees nothing; None for masks of booleans.
    """

    floor: float | None = None

    def __init__(self, embed: Any, rotary: RotaryTable, layers: Sequence[Callable[..., Tensor]], norm: Any, head: Any):
        self._embed, self.rotary, self._layers, self._norm = embed, rotary, layers, norm
        self.project = head

    def __call__(self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor) -> Tensor:
        return self.with_features(ids, positions, mask, cache, keep)[0]

    def with_features(
        self, ids: Tensor, positions: Tensor, mask: Any, cache: KVCache, keep: int | Tensor, project: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """See `TransformersForward.with_features`."""
        features = self._features(ids, positions, mask, cache, keep)
        return self.project(features if project is None else features[-project:]), features

    def _features(self, ids: Tensor, positions: Tensor, mask: Any, cache: Any, keep: int | Tensor) -> Tensor:
        x, angles = self._embed(ids), self.rotary.at(positions)
        for index, layer in enumerate(self._layers):
            x = layer(x, self.rotary, angles, mask, cache, index)
        return self._norm(x[-keep:] if isinstance(keep, int) else x.index_select(0, keep))


class NeoXForward(PackedForward):
    """Forward of a `GPTNeoXForCausalLM` with parallel residual; weights that need not be packed are shared."""

    def __init__(self, network: Any, positions: int):
        body, config = network.gpt_neox, network.config
        rotary = RotaryTable(body.rotary_emb, body.embed_in.weight.detach()[:1], positions)
        layers = [_NeoXLayer(layer, config.num_attention_heads) for layer in body.layers]
        head = linear(network.get_output_embeddings())
        super().__init__(body.embed_in, rotary, layers, body.final_layer_norm, head)

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether this forward computes what the network computes."""
        config = network.config
        return (
            type(network).__name__ == "GPTNeoXForCausalLM" and config.use_parallel_residual and has_rotary_table(config)
        )


class _NeoXLayer:
    """Four products, in the order of the paper."""

    def __init__(self, layer: Any, heads: int):
        attention = layer.attention
        self._heads, self._head_dim, self._scale = heads, attention.head_size, attention.scaling
        self._norms, self._act = (layer.input_layernorm, layer.post_attention_layernorm), layer.mlp.act
        self._qkv, self._dense = linear(attention.query_key_value), linear(attention.dense)
        self._up, self._down = linear(layer.mlp.dense_h_to_4h), linear(layer.mlp.dense_4h_to_h)

    def __call__(self, x: Tensor, rotary, angles, mask, cache: KVCache, index: int) -> Tensor:
        parts = self._qkv(self._norms[0](x)).view(len(x), self._heads, 3, self._head_dim)
        rotary.rotate(parts[:, :, :2], angles)
        keys, values = cache.write(parts[:, :, 1:].permute(2, 1, 0, 3)[:, None], index)
        attended = attend(parts[:, :, 0], keys, values, mask, self._scale)
        grown = self._down(self._act(self._up(self._norms[1](x))))
        return grown + self._dense(attended.reshape(len(x), -1)) + x


LLAMA_ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")


class LlamaForward(PackedForward):
    """Forward of a `LlamaForCausalLM` or `Qwen2ForCausalLM` without sliding windows; see `NeoXForward`."""

    def __init__(self, network: Any, positions: int):
        body = network.model
        rotary = RotaryTable(body.rotary_emb, body.embed_tokens.weight.detach()[:1], positions)
        layers = [_LlamaLayer(layer) for layer in body.layers]
        super().__init__(body.embed_tokens, rotary, layers, _rms_norm(body.norm), linear(network.lm_head))

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether this forward computes what the network computes."""
        config = network.config
        plain = set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
        return type(network).__name__ in LLAMA_ARCHITECTURES and plain and has_rotary_table(config)


class _LlamaLayer:
    def __init__(self, layer: Any):
        attention, mlp = layer.self_attn, layer.mlp
        self._norms = _rms_norm(layer.input_layernorm), _rms_norm(layer.post_attention_layernorm)
        self._qkv = _joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self._gate_up = _joined(mlp.gate_proj, mlp.up_proj)
        self._dense, self._down, self._act = linear(attention.o_proj), linear(mlp.down_proj), mlp.act_fn
        self._head_dim, self._scale = attention.head_dim, attention.scaling

    def __call__(self, x: Tensor, rotary: RotaryTable, angles, mask, cache: KVCache, index: int) -> Tensor:
        queries, keys, values = (part.view(len(x), -1, self._head_dim) for part in self._qkv(self._norms[0](x)))
        rotary.rotate(queries[:, None], angles)
        rotary.rotate(keys[:, None], angles)
        rows = cache.update(keys.transpose(0, 1)[None], values.transpose(0, 1)[None], index)
        x = x + self._dense(attend(queries, *rows, mask, self._scale).reshape(len(x), -1))
        gate, up = self._gate_up(self._norms[1](x))
        return x + self._down(self._act(gate) * up)


def _rms_norm(norm: Any) -> Callable[[Tensor], Tensor]:
    weight = norm.weight.detach()
    return partial(functional.rms_norm, normalized_shape=weight.shape, weight=weight, eps=norm.variance_epsilon)


def _joined(*modules: torch.nn.Linear) -> Callable[[Tensor], Sequence[Tensor]]:
    """Several products of one vector: one packed product where weights are packed, else each by itself."""
    weight = modules[0].weight
    if not can_pack(weight.device, weight.dtype):
        products = [linear(module) for module in modules]
        return lambda x: [product(x) for product in products]
    bias = None if modules[0].bias is None else torch.cat([module.bias.detach() for module in modules])
    packed = pack(torch.cat([module.weight.detach() for module in modules]), bias)
    sizes = [module.weight.shape[0] for module in modules]
    return lambda x: packed(x).split(sizes, -1)


@dataclass(frozen=True)
class SinksAndWindow:
    """The mask of one pass: no query sees rows before `first` that are none of the `sinks`."""

    first: int
    sinks: int
    # seen_sinks: bool `[num_queries, sinks]`. seen: bool `[num_queries, num_rows - first]`.
    seen_sinks: Tensor
    seen: Tensor
    # Cosines and signed sines from each query's place in the text to its place in the cache
    turned_back: tuple[Tensor, Tensor]
    rotary: RotaryTable

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """See `attention.attend`: both parts share one softmax."""
        groups = queries.shape[1] // keys.shape[1]
        back = queries.clone()[:, None]
        self.rotary.rotate(back, self.turned_back)
        count = self.sinks
        # [kv_heads, groups, queries, head_dim] times [kv_heads, 1, head_dim, rows]
        near, far = (part.transpose(0, 1).unflatten(0, (-1, groups)) for part in (queries, back[:, 0]))
        rows, sinks = keys[0, :, None, self.first :], keys[0, :, None, :count]
        scores = [
            (far @ sinks.transpose(-1, -2)).masked_fill(~self.seen_sinks, -torch.inf),
            (near @ rows.transpose(-1, -2)).masked_fill(~self.seen, -torch.inf),
        ]
        weights = (torch.cat(scores, -1) * scale).softmax(-1, dtype=torch.float32).to(values.dtype)
        rows, sinks = values[0, :, None, self.first :], values[0, :, None, :count]
        out = weights[..., :count] @ sinks + weights[..., count:] @ rows
        return out.flatten(0, 1).transpose(0, 1)


class StreamingEngine(EagerEngine):
    """StreamingLLM: a packed forward whose tokens see the first of a text and the last before them (Xiao et al. 2024).

    Positions are counted inside the cache, so the distance to a sink never exceeds the window. A key of the window is
    rotated by its place in the text, which gives the same distances; for the sinks the query is turned back from its
    place in the text to its place in the cache. What a token computes depends on its text alone, not on how tokens were
    grouped into passes: trees are verified exactly, against this attention. Rows that no token sees any more stay in
    the cache, where nothing reads them. `rows` are sinks and window together.
    """

    def __init__(self, forward: PackedForward, rows: int, **how):
        super().__init__(f"streaming-{rows}", forward, **how)
        self._rotary, self._rows = forward.rotary, rows

    def mask(self, seen: Visibility) -> Visibility:
        """What `run` takes: the window follows from the positions, which are known there."""
        return seen

    def _pass(self, forward: Callable, cache: KVCache, token_ids, positions, mask: Visibility, keep: int, *project):
        return super()._pass(forward, cache, token_ids, positions, self._windowed(mask, positions), keep, *project)

    def _windowed(self, seen: Visibility, positions: np.ndarray) -> SinksAndWindow:
        allowed, places = seen.dense(), np.asarray(positions)
        # Rows of the text stand at their positions, the pass's own rows are given, and the drafted rows between them
        # are nearer than the window is long.
        at = np.arange(allowed.shape[1])
        at[seen.past :] = places.max() if len(places) else 0
        at[allowed.shape[1] - len(places) :] = places
        sinks, oldest = min(SINKS, allowed.shape[1]), places - (self._rows - SINKS) + 1
        near = allowed & (at >= oldest[:, None])
        near[:, :sinks] = False
        first = int(min(max(sinks, oldest.min()), max(sinks, seen.past)))
        cos, sin = self._rotary.at(self._on_device(places - np.minimum(places, self._rows - 1)))
        return SinksAndWindow(
            first=first,
            sinks=sinks,
            seen_sinks=self._on_device(allowed[:, :sinks]),
            seen=self._on_device(near[:, first:]),
            turned_back=(cos, -sin),
            rotary=self._rotary,
        )

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)
