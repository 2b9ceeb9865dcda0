"""GPT-NeoX, Llama and Qwen2 on CUDA in few kernels: with few tokens it is launches that a pass waits for.

The kernels are written in Triton, which comes with PyTorch for CUDA on Linux. Nothing is folded or kept twice: weights
are the model's own, read through views where products of one vector have been joined.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from decoding.engines.attention import attend
from decoding.engines.cuda_graph import PassRows
from decoding.engines.packed import LlamaForward, NeoXForward, PackedForward, linear

try:
    from decoding.engines import triton_kernels as kernels
except ImportError:  # PyTorch for a CPU, or for another system, comes without Triton
    kernels = None  # type: ignore[assignment]

# A pass over more tokens fills the device by itself, and PyTorch's attention reads each row only once for many queries.
MOST_TOKENS = 128


@cache
def can_run(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the kernels compile for a device and run there; a failure is reported once, slower forwards remain."""
    if device.type != "cuda" or kernels is None or head_dim > kernels.WIDEST:
        return False
    try:
        with torch.cuda.device(device):  # Triton runs on the current one
            # The smallest sizes and the largest, which need most of what a multiprocessor shares.
            for count, rows in ((1, 64), (kernels.MOST_QUERIES, kernels.CHUNK * (kernels.MOST_CHUNKS + 1))):
                ones = torch.ones(count, 2, head_dim, device=device, dtype=dtype)
                stored, slots = ones.new_zeros(2, 1, 2, rows, head_dim), torch.arange(count, device=device)
                kernels.add_and_norm(ones[:, 0], (ones[:, 1],), ((ones[0, 0], ones[0, 1]),), 1e-5)
                queries = kernels.rotate_into_cache((ones, ones, ones), ones, stored, slots)
                kernels.tree_attention(queries, stored, ones.new_zeros(count, rows), 1.0)
            torch.cuda.synchronize(device)
    except Exception as error:  # noqa: BLE001 - a compiler that is missing or too old fails in its own ways; reported
        warnings.warn(f"Kernels cannot be fused on {device}, passes are slower: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


def _can_run(network: Any) -> bool:
    weight, config = network.get_input_embeddings().weight, network.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return can_run(weight.device, weight.dtype, head_dim)


class FusedForward(PackedForward):
    """A forward whose layers hand on what is still to be added, so that adding and the next norm are one kernel.

    A layer takes hidden vectors, what is added to them, angles `[num_queries, 2, rotary_size]`, the mask that is added,
    `PassRows` and its index; it returns hidden vectors and what is added to those.
    """

    final: tuple[Tensor, Tensor | None]
    eps: float

    def _features(self, ids: Tensor, positions: Tensor, mask: Any, cache: Any, keep: int | Tensor) -> Tensor:
        x, added, angles = self._embed(ids), (), self.rotary.rows(positions)
        with torch.cuda.device_of(ids):  # Triton runs on the current one
            for index, layer in enumerate(self._layers):
                x, added = layer(x, added, angles, mask, cache, index)
            _, normed = kernels.add_and_norm(x, added, (self.final,), self.eps)
        return normed[-keep:] if isinstance(keep, int) else normed.index_select(0, keep)


class FusedNeoXForward(FusedForward, NeoXForward):
    """Forward of a `GPTNeoXForCausalLM` with parallel residual; the weights are the model's."""

    def __init__(self, network: Any, positions: int):
        NeoXForward.__init__(self, network, positions)
        body, heads = network.gpt_neox, network.config.num_attention_heads
        self._layers = [_FusedNeoXLayer(layer, heads) for layer in body.layers]
        self.final, self.eps = _gain_and_bias(body.final_layer_norm), body.final_layer_norm.eps

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether this forward computes what the network computes, and can run where it lies."""
        return NeoXForward.fits(network) and _can_run(network)


class FusedLlamaForward(FusedForward, LlamaForward):
    """Forward of a `LlamaForCausalLM` or `Qwen2ForCausalLM` without sliding windows; the weights are the model's."""

    def __init__(self, network: Any, positions: int):
        LlamaForward.__init__(self, network, positions)
        body = network.model
        self._layers = [_FusedLlamaLayer(layer) for layer in body.layers]
        self.final, self.eps = (body.norm.weight.detach(), None), body.norm.variance_epsilon

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether this forward computes what the network computes, and can run where it lies."""
        return LlamaForward.fits(network) and _can_run(network)


class _FusedNeoXLayer:
    def __init__(self, layer: Any, heads: int):
        attention, mlp = layer.attention, layer.mlp
        self._heads, self._head_dim, self._scale = heads, attention.head_size, attention.scaling
        self._norms = _gain_and_bias(layer.input_layernorm), _gain_and_bias(layer.post_attention_layernorm)
        self._eps, self._act = layer.input_layernorm.eps, mlp.act
        self._qkv, self._dense = linear(attention.query_key_value), linear(attention.dense)
        self._up, self._down = linear(mlp.dense_h_to_4h), linear(mlp.dense_4h_to_h)

    def __call__(self, x: Tensor, added, angles: Tensor, mask: Tensor, rows: PassRows, index: int):
        x, first, second = kernels.add_and_norm(x, added, self._norms, self._eps)
        heads = self._qkv(first).view(len(x), self._heads, 3, self._head_dim).unbind(2)
        grown = self._down(self._act(self._up(second)))
        return x, (grown, self._dense(_attended(heads, angles, mask, rows, index, self._scale)))


class _FusedLlamaLayer:
    def __init__(self, layer: Any):
        attention, mlp = layer.self_attn, layer.mlp
        self._norms = layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach()
        self._eps, self._act = layer.input_layernorm.variance_epsilon, mlp.act_fn
        self._qkv = joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self._gate_up = joined(mlp.gate_proj, mlp.up_proj)
        self._dense, self._down = linear(attention.o_proj), linear(mlp.down_proj)
        self._head_dim, self._scale = attention.head_dim, attention.scaling
        widths = (attention.q_proj.out_features, attention.k_proj.out_features, attention.v_proj.out_features)
        self._heads = [width // self._head_dim for width in widths]

    def __call__(self, x: Tensor, added, angles: Tensor, mask: Tensor, rows: PassRows, index: int):
        x, normed = kernels.add_and_norm(x, added, ((self._norms[0], None),), self._eps)
        heads = self._qkv(normed).view(len(x), -1, self._head_dim).split(self._heads, 1)
        attended = self._dense(_attended(heads, angles, mask, rows, index, self._scale))
        x, normed = kernels.add_and_norm(x, (attended,), ((self._norms[1], None),), self._eps)
        gate, up = self._gate_up(normed).chunk(2, -1)
        return x, (self._down(self._act(gate) * up),)


def _attended(heads, angles: Tensor, mask: Tensor, rows: PassRows, index: int, scale: float) -> Tensor:
    """Attention of one layer, `[num_queries, hidden_size]`; its keys and values go into the cache."""
    stored = rows.stored(index, *heads[1:])
    queries = kernels.rotate_into_cache(heads, angles, stored, rows.slots)
    if len(queries) <= MOST_TOKENS:
        return kernels.tree_attention(queries, stored, mask[0, 0], scale)
    keys, values = stored[..., : mask.shape[-1], :]
    return attend(queries, keys, values, mask, scale).reshape(len(queries), -1)


def _gain_and_bias(norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return norm.weight.detach(), norm.bias.detach()


def joined(*modules: nn.Linear) -> Callable[[Tensor], Tensor]:
    """Several products of one vector as one, one after another; from now on the modules' weights are views of its own.

    Modules that were joined before are read where they lie.
    """
    weights, sizes = [module.weight.detach() for module in modules], [module.out_features for module in modules]
    step, after = weights[0].stride(0), [w.storage_offset() + w.numel() for w in weights[:-1]]
    behind = [w.storage_offset() for w in weights[1:]] == after
    if behind and len({w.untyped_storage().data_ptr() for w in weights}) == 1:
        whole = weights[0].as_strided((sum(sizes), weights[0].shape[1]), (step, 1))
    else:
        whole = torch.cat(weights)
        for module, part in zip(modules, whole.split(sizes), strict=True):
            module.weight.data = part
    bias = None if modules[0].bias is None else torch.cat([module.bias.detach() for module in modules])
    return partial(functional.linear, weight=whole, bias=bias)
