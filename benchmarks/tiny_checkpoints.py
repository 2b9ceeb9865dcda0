"""A tiny random checkpoint of any causal architecture that transformers knows, and a draft that is it with noise.

A configuration is shrunk by the names of its settings, which most families share; what a family needs besides stands in
`OVERRIDES`. Windows and positions both end at `CONTEXT` tokens, so that short texts reach every limit.
"""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from decoding.models.embedded import embedded_folder

CONTEXT = 64
LAYERS, HEADS, HEAD_DIM = 4, 4, 8
HIDDEN = HEADS * HEAD_DIM
# Spread of the logits, and the noise with which a draft agrees with its target for one or two tokens per iteration.
LOGIT_STD, NOISE = 2.5, 0.1

LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers")
OPTIONAL = ("q_lora_rank", "num_experts", "num_local_experts", "moe_intermediate_size", "topk_group", "n_group")
_SIZES: tuple[tuple[Any, str], ...] = (
    (HIDDEN, "hidden_size d_model n_embd emb_dim embedding_dim backbone_hidden_size embedding_size lru_width"),
    (HIDDEN, "word_embed_proj_dim attention_hidden_size adapter_in_dim adapter_input_size adapter_out_dim"),
    (
        2 * HIDDEN,
        "intermediate_size ffn_dim decoder_ffn_dim encoder_ffn_dim d_inner dff dim_ff feed_forward_size n_inner",
    ),
    (2 * HIDDEN, "ffn_hidden_size dense_intermediate_size"),
    (HIDDEN, "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size intermediate_size_mlp"),
    (HIDDEN, "shared_intermediate_size shared_experts_intermediate_size moe_shared_expert_intermediate_size"),
    (LAYERS, " ".join(LAYER_COUNTS) + " n_layers decoder_layers encoder_layers num_encoder_layers num_decoder_layers"),
    (LAYERS, "num_blocks"),
    (HEADS, "num_attention_heads n_head n_heads num_heads attention_heads swa_num_attention_heads linear_num_heads"),
    (HEADS, "decoder_attention_heads encoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads"),
    (2, "num_key_value_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads linear_num_value_heads"),
    (HEAD_DIM, "head_dim dim_head d_head kv_channels swa_head_dim query_pre_attn_scalar rotary_dim linear_head_dim"),
    (HEAD_DIM, "linear_key_head_dim linear_value_head_dim qk_nope_head_dim v_head_dim hidden_size_per_layer_input"),
    (HEAD_DIM // 2, "qk_rope_head_dim"),
    (2 * HEAD_DIM, "kv_lora_rank q_lora_rank"),
    (4, "num_experts n_routed_experts num_local_experts moe_num_experts"),
    (2, "num_experts_per_tok moe_topk moe_k num_kv_shared_layers"),
    (1, "n_group topk_group first_k_dense_replace num_dense_layers"),
    (CONTEXT, "max_position_embeddings n_positions max_seq_len n_ctx context_length max_target_positions rel_extent"),
    (CONTEXT, "original_max_position_embeddings sliding_window window_size attention_chunk_size sliding_window_size"),
    (CONTEXT, "local_attention attention_window_size"),
    (True, "is_decoder"),
    (False, "is_encoder_decoder"),
    (0.0, "dropout attention_dropout hidden_dropout_prob attention_probs_dropout_prob"),
)
SIZES = {name: value for value, names in _SIZES for name in names.split()}
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
ASSISTANT = {
    **{name: SIZES[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")},
    **{name: SIZES[name] for name in ("num_key_value_heads", "head_dim", "max_position_embeddings", "sliding_window")},
    "vocab_size_per_layer_input": 0,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": LAYERS,
    "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
}
# Further settings by model type.
OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
        "rope_parameters": {"sliding_attention": ROPE, "full_attention": ROPE},
    },
    "dbrx": {"attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "dots1": {"n_shared_experts": 1},
    "gemma4_assistant": {"text_config": {"model_type": "gemma4_text", **ASSISTANT}},
    "gemma4_unified_assistant": {"text_config": {"model_type": "gemma4_unified_text", **ASSISTANT}},
    "gpt_neo": {"attention_types": [[["global", "local"], LAYERS // 2]]},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_head": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)},
    "longcat_flash": {"head_dim": 4},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"] * (LAYERS // 2)},
    "modernbert-decoder": {"local_attention": 2 * CONTEXT},  # half of it on either side
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * (HEAD_DIM // 2),
    "long_factor": [4.0] * (HEAD_DIM // 2),
    "original_max_position_embeddings": CONTEXT // 2,
}
# Model types once more: what was changed, the context asked for, and the settings.
VARIANTS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("gpt_neo", "global layers alone", CONTEXT, {"attention_types": [[["global"], LAYERS]]}),
    *[
        (kind, f"{what}, context {context}", context, changes)
        for kind, what, changes in (
            ("gpt_neo", f"window {CONTEXT // 2}", {"window_size": CONTEXT // 2}),
            ("mistral", f"window {CONTEXT // 2}", {"sliding_window": CONTEXT // 2}),
            ("llama", f"longrope from {CONTEXT // 2}", {"rope_parameters": LONGROPE}),
            (
                "phi3",
                f"longrope from {CONTEXT // 2}",
                {"rope_parameters": LONGROPE, "original_max_position_embeddings": CONTEXT // 2},
            ),
        )
        for context in (CONTEXT, CONTEXT // 2)
    ],
]


def causal_types() -> list[str]:
    """The model types that `AutoModelForCausalLM` knows."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def tiny_config(model_type: str, vocab_size: int, **changes: Any) -> PreTrainedConfig:
    """A small configuration of a model type; composite ones are shrunk part by part.

    Raises:
        whatever the configuration class says of the settings.
    """
    config_class = CONFIG_MAPPING[model_type]
    return config_class(**{**_settings(config_class, vocab_size), **OVERRIDES.get(model_type, {}), **changes})


def _settings(config_class: type, vocab_size: int) -> dict[str, Any]:
    defaults = _defaults(config_class)
    names = {field.name for field in dataclasses.fields(config_class)}
    settings = {
        name: value
        for name, value in SIZES.items()
        if name in names and (name not in OPTIONAL or defaults.get(name, 0) is not None)
    }  # families leave these out by default
    if "kv_lora_rank" in names and "num_key_value_heads" in names:
        settings["num_key_value_heads"] = HEADS  # one latent for all heads: none are shared
    for name in names:
        number = defaults.get(name)
        if name.endswith("token_id") and isinstance(number, int) and number >= vocab_size:
            settings[name] = 1
    settings |= {"eos_token_id": 0} if "eos_token_id" in names else {}
    settings |= {"vocab_size": vocab_size} if "vocab_size" in names else {}
    # Lists with an entry per layer have as many kinds of layers as the family has by default.
    count = next((defaults[name] for name in LAYER_COUNTS if defaults.get(name)), None)
    for name in names:
        value = defaults.get(name)
        if isinstance(value, list) and len(value) == count:
            kinds = list(dict.fromkeys(value))
            settings[name] = [kinds[layer % len(kinds)] for layer in range(LAYERS)]
    for part in getattr(config_class, "sub_configs", {}):
        made = defaults.get(part)
        if part in names and dataclasses.is_dataclass(made):
            settings[part] = type(made)(**_settings(type(made), vocab_size))
    return settings


def _defaults(config_class: type) -> dict[str, Any]:
    """What a configuration holds by default; nothing where there is no default one."""
    try:
        return dict(vars(config_class()))
    except (ValueError, TypeError, AttributeError, StrictDataclassError):
        return {}


def write_pair(folder: Path, model_type: str, seed: int = 0, **changes: Any) -> tuple[Path, Path]:
    """Write a random target of a model type and a draft that is the target with noise; return both folders."""
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder("target"))
    config = tiny_config(model_type, len(tokenizer), **changes)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    whole = type(model.config) is type(config)  # else the model is the text part of what the folder describes
    _randomise(model)
    for name in ("target", "draft"):
        if name == "draft":
            _add_noise(model)
        model.generation_config = GenerationConfig(eos_token_id=0)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        if not whole:
            config.architectures = [type(model).__name__]
            config.save_pretrained(folder / name)
    return folder / "target", folder / "draft"


@torch.no_grad()
def _randomise(model: torch.nn.Module) -> None:
    """Weights that outweigh the embedding and logits well apart, so that greedy text wanders."""
    head = model.get_output_embeddings()
    tables = [module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    for weight in model.parameters():
        if weight.dim() >= 2 and weight.is_floating_point():
            table = any(weight is one for one in tables) or (head is not None and weight is head.weight)
            weight.normal_(0.0, (0.5 if table else 1.5) * weight.shape[-1] ** -0.5)
    if head is not None:
        spread = model(input_ids=torch.arange(3, 19)[None]).logits.float().std()
        if torch.isfinite(spread) and spread > 0:
            head.weight.mul_((LOGIT_STD / spread).clamp(max=100.0))


@torch.no_grad()
def _add_noise(model: torch.nn.Module) -> None:
    for weight in model.parameters():
        if weight.dim() >= 2 and weight.is_floating_point():
            weight.add_(NOISE * weight.std() * torch.randn_like(weight))
