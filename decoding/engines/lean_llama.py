"""Llama and Qwen2 (SmolLM2, Llama 3, Qwen2.5) as a forward of its own; grouped queries repeat no keys."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from decoding.cache.kv_cache import KVCache
from decoding.engines.attention import RotaryTable, attend, has_rotary_table
from decoding.engines.lean import LeanForward
from decoding.engines.linear import PackedLinear, can_pack, linear

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")


class LlamaForward(LeanForward):
    """`Forward` of a `LlamaForCausalLM` or `Qwen2ForCausalLM` without sliding windows.

    Args:
        network: the transformers model, whose weights are shared where they need not be packed.
        positions: most positions that a text can have.
    """

    def __init__(self, network: Any, positions: int):
        body = network.model
        rotary = RotaryTable(body.rotary_emb, body.embed_tokens.weight.detach()[:1], positions)
        layers = [_Layer(layer) for layer in body.layers]
        super().__init__(body.embed_tokens, rotary, layers, _RMSNorm(body.norm), linear(network.lm_head))

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether this forward computes what the network computes."""
        config = network.config
        plain = set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
        return type(network).__name__ in ARCHITECTURES and plain and has_rotary_table(config)


class _Layer:
    def __init__(self, layer: Any):
        attention, mlp = layer.self_attn, layer.mlp
        self._norms = _RMSNorm(layer.input_layernorm), _RMSNorm(layer.post_attention_layernorm)
        self._qkv = _Joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self._gate_up = _Joined(mlp.gate_proj, mlp.up_proj)
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


class _RMSNorm:
    def __init__(self, norm: Any):
        self._weight, self._eps = norm.weight.detach(), norm.variance_epsilon

    def __call__(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self._weight.shape, self._weight, self._eps)


class _Joined:
    """Several products of one vector: one packed product where weights are packed, else each by itself."""

    def __init__(self, *modules: torch.nn.Linear):
        weight = modules[0].weight
        self._sizes = [module.weight.shape[0] for module in modules]
        self._packed: PackedLinear | None = None
        if can_pack(weight.device, weight.dtype):
            bias = None if modules[0].bias is None else torch.cat([module.bias.detach() for module in modules])
            self._packed = PackedLinear(torch.cat([module.weight.detach() for module in modules]), bias)
        else:
            self._shared = [linear(module) for module in modules]

    def __call__(self, x: Tensor) -> list[Tensor]:
        if self._packed is not None:
            return list(self._packed(x).split(self._sizes, -1))
        return [product(x) for product in self._shared]
