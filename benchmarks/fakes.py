"""Small random checkpoints on disk, as a user would have them after a download.

The weights are random but not dull: layers outweigh the embedding and logits are well apart, so that greedy text
wanders instead of repeating one token, and a draft made of the target plus noise agrees some of the time.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import processors
from transformers import AutoTokenizer, GenerationConfig

from decoding.models.embedded import embedded_folder

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message['role'] }}\n{{ message['content'] }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# Chat template, the special tokens it needs, and the start token that the tokenizer puts before a text.
CHATS: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "chatml": (CHATML, ("<|im_start|>", "<|im_end|>"), None),
    "llama3": (
        LLAMA3,
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|begin_of_text|>",
    ),
    "gemma": (GEMMA, ("<bos>", "<start_of_turn>", "<end_of_turn>"), "<bos>"),
}


def _dense(hidden: int, layers: int, wider: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": wider * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
    }


def _llama(hidden: int, layers: int, tied: bool) -> dict[str, Any]:
    more = {"num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": tied}
    return _dense(hidden, layers, 2) | more


# Architecture -> (model class, configuration for a width and depth, chat template). Preset families come first.
ARCHITECTURES: dict[str, tuple[str, Callable[[int, int], dict[str, Any]], str | None]] = {
    "gpt_neox": ("GPTNeoXForCausalLM", lambda h, n: {**_dense(h, n, 4), "max_position_embeddings": 1024}, None),
    "qwen2": ("Qwen2ForCausalLM", lambda h, n: _llama(h, n, tied=False), "chatml"),
    "llama": ("LlamaForCausalLM", lambda h, n: _llama(h, n, tied=True), "llama3"),
    "smollm2": ("LlamaForCausalLM", lambda h, n: {**_llama(h, n, tied=True), "num_key_value_heads": 4}, "chatml"),
    "gpt2": ("GPT2LMHeadModel", lambda h, n: {"n_embd": h, "n_layer": n, "n_head": 4, "n_positions": 1024}, None),
    "gemma3": (
        "Gemma3ForCausalLM",
        lambda h, n: {
            **_llama(h, n, tied=True),
            "head_dim": h // 4,
            "query_pre_attn_scalar": h // 4,
            "sliding_window": 512,
            "layer_types": ["sliding_attention", "full_attention"] * (n // 2),
        },
        "gemma",
    ),
    "mistral": ("MistralForCausalLM", lambda h, n: {**_llama(h, n, tied=False), "sliding_window": 128}, None),
    "phi3": ("Phi3ForCausalLM", lambda h, n: _llama(h, n, tied=False), None),
    "bloom": ("BloomForCausalLM", lambda h, n: {"hidden_size": h, "n_layer": n, "n_head": 4}, None),
    "mpt": ("MptForCausalLM", lambda h, n: {"d_model": h, "n_layers": n, "n_heads": 4}, None),
    "mamba": ("MambaForCausalLM", lambda h, n: {"hidden_size": h, "num_hidden_layers": n, "state_size": 4}, None),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        lambda h, n: {
            **_llama(h, n, tied=False),
            "head_dim": h // 4,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": h,
            "shared_expert_intermediate_size": h,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": h // 4,
            "linear_value_head_dim": h // 4,
        },
        None,
    ),
    "t5": (
        "T5ForConditionalGeneration",
        lambda h, n: {"d_model": h, "d_ff": 2 * h, "num_layers": n, "num_heads": 4, "d_kv": h // 4},
        None,
    ),
    "bert": ("BertForMaskedLM", lambda h, n: _dense(h, n, 2), None),
}
# The noise with which a draft agrees with its target for 1 to 3 tokens per iteration, found by trying.
PAIR_NOISE = 0.02


def make_checkpoint(
    folder: Path,
    architecture: str,
    *,
    seed: int = 0,
    noise_from: Path | None = None,
    noise: float = 0.0,
    layers: int = 2,
    hidden: int = 64,
    vocab: int | None = None,
    gain: float = 2.0,
    sharpness: float = 4.0,
    **changes: Any,
) -> Path:
    """Write config, safetensors weights, generation config and tokenizer of a small random model.

    Args:
        architecture: key of `ARCHITECTURES`.
        noise_from: checkpoint of the same shape whose weights are taken, with gaussian noise of `noise` times each
            tensor's standard deviation on top.
        vocab: rows of the embedding; more than the tokenizer holds means padding.
        gain, sharpness: how much layers outweigh the embedding, and the spread of the logits.
        changes: settings of the configuration to change.
    """
    class_name, shape, chat = ARCHITECTURES[architecture]
    tokenizer = make_tokenizer(chat)
    model_class = getattr(transformers, class_name)
    eos = tokenizer.eos_token_id
    options = {"vocab_size": vocab or len(tokenizer), "bos_token_id": tokenizer.bos_token_id, "eos_token_id": eos}
    config = model_class.config_class(**{**options, "pad_token_id": eos, **shape(hidden, layers), **changes})
    model = model_class(config)
    generator = torch.Generator().manual_seed(seed)
    if noise_from is None:
        _randomise(model, generator, gain, sharpness)
    else:
        source = model_class.from_pretrained(noise_from, dtype=torch.float32)
        _add_noise(model, source, generator, noise)
    model.generation_config = GenerationConfig(bos_token_id=tokenizer.bos_token_id, eos_token_id=eos)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_pair(
    folder: Path, architecture: str, *, seed: int = 0, noise: float = PAIR_NOISE, **options: Any
) -> tuple[Path, Path]:
    """A random target and the draft that is the target with noise: `folder/target` and `folder/draft`."""
    target = make_checkpoint(folder / "target", architecture, seed=seed, **options)
    draft = make_checkpoint(folder / "draft", architecture, seed=seed + 1, noise_from=target, noise=noise, **options)
    return target, draft


def make_tokenizer(chat: str | None = None) -> Any:
    """The embedded pair's tokenizer, with the template, special tokens and start token of a chat family."""
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder("target"))
    if chat is None:
        return tokenizer
    template, specials, start = CHATS[chat]
    tokenizer.add_special_tokens({"additional_special_tokens": list(specials)})
    tokenizer.chat_template = template
    if start is not None:
        tokenizer.bos_token = start
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{start} $A", special_tokens=[(start, tokenizer.convert_tokens_to_ids(start))]
        )
    return tokenizer


def intervention_json(file: Path, changes: Mapping[str, Any]) -> None:
    """Change settings in a JSON file."""
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, **changes}), encoding="utf-8")


@torch.no_grad()
def _randomise(model: Any, generator: torch.Generator, gain: float, sharpness: float) -> None:
    head = model.get_output_embeddings()
    tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    # Gemma multiplies embeddings; without a counterweight each token would predict itself.
    embed_scale = float(getattr(model.get_input_embeddings(), "embed_scale", 1.0))
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if not isinstance(weight, torch.nn.Parameter) or weight.dim() != 2:
            continue
        if weight is head.weight or any(weight is table for table in tables):
            std = weight.shape[1] ** -0.5 / embed_scale
        else:
            fan_in = weight.shape[0] if type(module).__name__ == "Conv1D" else weight.shape[1]
            std = gain * fan_in**-0.5
        weight.copy_(torch.randn(weight.shape, generator=generator) * std)
    norms = [m for m in model.base_model.children() if getattr(m, "weight", None) is not None and m.weight.dim() == 1]
    for norm in norms:  # the last norm: its scale is the spread of the logits; Gemma's is stored less one
        norm.weight.copy_(torch.full_like(norm.weight, sharpness * embed_scale - (1.0 - norm.weight.mean().item())))


@torch.no_grad()
def _add_noise(model: Any, source: Any, generator: torch.Generator, noise: float) -> None:
    target = dict(source.named_parameters())
    for name, weight in model.named_parameters():
        original = target[name]
        spread = original.std() if original.numel() > 1 else torch.zeros(())
        weight.copy_(original + noise * spread * torch.randn(weight.shape, generator=generator))
