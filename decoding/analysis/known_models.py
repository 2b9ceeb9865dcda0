"""Configurations that come with the program, so that a target and a draft can be chosen without a file. Torch-free.

Each holds the numbers of the model's published config.json that decide cost, and the parameter count that its makers
publish, which the tests hold against the count from those numbers.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from decoding.analysis.model_shape import ModelShape, read_shape


@dataclass(frozen=True)
class KnownModel:
    """A configuration; `billions` and `active` are the published counts, `active` of those that one token uses."""

    config: dict[str, Any]
    billions: float
    source: str
    active: float | None = None

    @property
    def text(self) -> str:
        """It as the text of a config.json."""
        return json.dumps(self.config, indent=1)


def _config(
    model_type: str, hidden: int, inner: int, layers: int, heads: int, kv: int, vocab: int, **more: Any
) -> dict:
    return {
        "model_type": model_type, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, **more,
    }  # fmt: skip


_CARD = "its Hugging Face model card"
_OSS = "gpt-oss model card (OpenAI 2025), table 1"
_OSS_MORE = {"head_dim": 64, "num_experts_per_tok": 4, "attention_bias": True, "sliding_window": 128}
_DEEPSEEK = {
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
_TIED: dict[str, Any] = {"tie_word_embeddings": True}
_QWEN3: dict[str, Any] = {"head_dim": 128}
KNOWN_MODELS: dict[str, KnownModel] = {
    "Llama-3.1-8B": KnownModel(_config("llama", 4096, 14336, 32, 32, 8, 128256), 8.03, _CARD),
    "Llama-3.1-70B": KnownModel(_config("llama", 8192, 28672, 80, 64, 8, 128256), 70.6, _CARD),
    "Llama-3.3-70B": KnownModel(_config("llama", 8192, 28672, 80, 64, 8, 128256), 70.6, _CARD),
    "Llama-3.2-1B": KnownModel(_config("llama", 2048, 8192, 16, 32, 8, 128256, head_dim=64, **_TIED), 1.24, _CARD),
    "Llama-2-7B": KnownModel(_config("llama", 4096, 11008, 32, 32, 32, 32000), 6.74, _CARD),
    "Llama-2-70B": KnownModel(_config("llama", 8192, 28672, 80, 64, 8, 32000), 69.0, _CARD),
    "TinyLlama-1.1B": KnownModel(_config("llama", 2048, 5632, 22, 32, 4, 32000), 1.10, _CARD),
    "Mistral-7B-v0.3": KnownModel(_config("mistral", 4096, 14336, 32, 32, 8, 32768), 7.25, _CARD),
    "Qwen2.5-7B": KnownModel(_config("qwen2", 3584, 18944, 28, 28, 4, 152064), 7.62, _CARD),
    "Qwen2.5-0.5B": KnownModel(_config("qwen2", 896, 4864, 24, 14, 2, 151936, **_TIED), 0.494, _CARD),
    "Qwen3-8B": KnownModel(_config("qwen3", 4096, 12288, 36, 32, 8, 151936, **_QWEN3), 8.19, _CARD),
    "Qwen3-32B": KnownModel(_config("qwen3", 5120, 25600, 64, 64, 8, 151936, **_QWEN3), 32.8, _CARD),
    "Qwen3-0.6B": KnownModel(_config("qwen3", 1024, 3072, 28, 16, 8, 151936, **_QWEN3, **_TIED), 0.596, _CARD),
    "Gemma-2-9B": KnownModel(
        _config("gemma2", 3584, 14336, 42, 16, 8, 256000, head_dim=256, sliding_window=4096), 9.24, _CARD
    ),
    "Pythia-2.8B": KnownModel(_config("gpt_neox", 2560, 10240, 32, 32, 32, 50304), 2.78, "Biderman et al. 2023"),
    "Pythia-70M": KnownModel(_config("gpt_neox", 512, 2048, 6, 8, 8, 50304), 0.0704, "Biderman et al. 2023"),
    "GPT-2": KnownModel(
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
        0.124, _CARD,
    ),
    "Mixtral-8x7B": KnownModel(
        _config("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
        46.7, "Jiang et al. 2024", 12.9,
    ),
    "Qwen3-30B-A3B": KnownModel(
        _config("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, **_QWEN3, moe_intermediate_size=768, num_experts=128,
                num_experts_per_tok=8),
        30.5, _CARD, 3.3,
    ),
    "DeepSeek-V3": KnownModel(
        _config("deepseek_v3", 7168, 18432, 61, 128, 128, 129280, **_DEEPSEEK), 671, "DeepSeek-AI 2024", 37
    ),
    "gpt-oss-20b": KnownModel(
        _config("gpt_oss", 2880, 2880, 24, 64, 8, 201088, **_OSS_MORE, num_local_experts=32), 20.91, _OSS, 3.61
    ),
    "gpt-oss-120b": KnownModel(
        _config("gpt_oss", 2880, 2880, 36, 64, 8, 201088, **_OSS_MORE, num_local_experts=128), 116.83, _OSS, 5.13
    ),
}  # fmt: skip


def known_name(repository: str) -> str | None:
    """The known model that a repository holds in one of its usual variants; None where there is none."""
    bare = re.sub(
        r"^(?:[^/]*/)?(?:meta-)?|(?:-(?:instruct|chat|base|it|hf|fp8))+$", "", repository, flags=re.IGNORECASE
    )
    return next((name for name in KNOWN_MODELS if name.lower() == bare.lower()), None)


@lru_cache
def known_shape(name: str) -> ModelShape:
    """The shape of a known model; raises `KeyError` where there is none of that name."""
    return read_shape(KNOWN_MODELS[name].text.encode(), name)
