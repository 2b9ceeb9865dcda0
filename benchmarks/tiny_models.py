"""Tiny random pairs of the architectures that can decode a draft tree, written as checkpoints and loaded as a user's.

The draft is the target with noise, as much as lets both prefer the same token at 97 of 100 places.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from benchmarks.tiny_checkpoints import CONTEXT, SIZES, tiny_config
from decoding.models.pair import Pair, load_pair
from decoding.models.presets import PairSettings

WORDS = 150  # tokens of the tokenizer; the models' vocabularies may be padded
END = 0
HIDDEN, LAYERS, HEADS = 32, 2, 4
HEAD_DIM = HIDDEN // HEADS
# How much layers outweigh the embedding, and the standard deviation of the logits: text that wanders, few near ties.
GAIN, SHARPNESS = 2.0, 6.0
# Share of places where both models prefer one token: with random settings one or two are then accepted per iteration.
AGREEMENT = 0.97
TRIAL = (8, 48)  # texts and tokens of each that agreement is measured on

_SIZES: dict[str, Any] = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
_WIDE = _SIZES | {"intermediate_size": 2 * HIDDEN}
_GROUPED = _WIDE | {"num_key_value_heads": 2}
_GPT: dict[str, Any] = {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS}
_GEMMA = _GROUPED | {"head_dim": HEAD_DIM, "query_pre_attn_scalar": HEAD_DIM}
_MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_experts_per_tok": 2, "norm_topk_prob": True}

# Architecture (`model_type`) -> its configuration for a number of positions; windows reach over all of them.
ARCHITECTURES: dict[str, Callable[[int], dict[str, Any]]] = {
    "llama": lambda n: _GROUPED,
    "gpt_neox": lambda n: _WIDE,
    "gpt2": lambda n: {**_GPT, "n_positions": n},
    "qwen2": lambda n: _GROUPED,
    "mistral": lambda n: {**_GROUPED, "sliding_window": n},
    "gemma3_text": lambda n: {**_GEMMA, **_MIXED, "sliding_window": n},
    "opt": lambda n: {**_SIZES, "ffn_dim": 2 * HIDDEN, "word_embed_proj_dim": HIDDEN},
    "qwen3": lambda n: {**_GROUPED, "head_dim": HEAD_DIM},
    "gemma": lambda n: {**_GROUPED, "head_dim": HEAD_DIM},
    "gemma2": lambda n: {**_GEMMA, **_MIXED, "sliding_window": n},
    "phi": lambda n: _WIDE,
    "phi3": lambda n: {**_GROUPED, "sliding_window": None},
    "gpt_neo": lambda n: {
        **_SIZES, "num_layers": LAYERS, "num_heads": HEADS, "intermediate_size": 2 * HIDDEN, "window_size": n,
        "attention_types": [[["global", "local"], 1]],
    },
    "gptj": lambda n: {**_GPT, "n_positions": n, "rotary_dim": HEAD_DIM // 2},
    "codegen": lambda n: {**_GPT, "n_positions": n, "n_ctx": n, "rotary_dim": HEAD_DIM // 2},
    "falcon": lambda n: {**_SIZES, "alibi": False, "multi_query": True, "new_decoder_architecture": False},
    "stablelm": lambda n: {**_GROUPED, "partial_rotary_factor": 0.5},
    "olmo": lambda n: _GROUPED,
    "olmo2": lambda n: _GROUPED,
    "granite": lambda n: _GROUPED,
    "cohere": lambda n: {**_GROUPED, "logit_scale": 1.0},
    "starcoder2": lambda n: {**_GROUPED, "sliding_window": None},
    "biogpt": lambda n: _WIDE,
    "smollm3": lambda n: _GROUPED,
    "helium": lambda n: {**_GROUPED, "head_dim": HEAD_DIM},
    "gpt_bigcode": lambda n: {**_GPT, "n_positions": n, "multi_query": True},
    "nemotron": lambda n: {**_GROUPED, "head_dim": HEAD_DIM},
    "xglm": lambda n: {"d_model": HIDDEN, "num_layers": LAYERS, "attention_heads": HEADS, "ffn_dim": 2 * HIDDEN},
    "glm": lambda n: {**_GROUPED, "head_dim": HEAD_DIM},
    "persimmon": lambda n: _WIDE,
    "mixtral": lambda n: {**_GROUPED, "num_local_experts": 4, **_EXPERTS},
    "qwen3_moe": lambda n: {
        **_GROUPED, "head_dim": HEAD_DIM, "num_experts": 4, "moe_intermediate_size": HIDDEN, **_EXPERTS,
    },
    "olmoe": lambda n: {**_GROUPED, "num_experts": 4, **_EXPERTS},
    "deepseek_v3": lambda n: {
        **_WIDE, "num_key_value_heads": HEADS, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 12, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
        "moe_intermediate_size": HIDDEN, "n_shared_experts": 1, "first_k_dense_replace": 1, **_EXPERTS,
    },
}  # fmt: skip
# These are shrunk by the names of their settings alone.
SHRUNK = (
    "apertus", "arcee", "cohere2", "deepseek_v2", "dots1", "ernie4_5", "exaone4", "glm4", "gpt_oss", "hunyuan_v1_dense",
    "llama4_text", "ministral", "olmo3", "phimoe", "qwen2_moe", "seed_oss",
)  # fmt: skip
NAMES = (*ARCHITECTURES, *SHRUNK)
# Packed forwards run these; a window of so many rows is never left. Of the others all but a few run in static shapes.
PACKED = ("llama", "gpt_neox", "qwen2")
PACKED_ENGINES = ("auto", "transformers", "cuda_graph", "streaming-256")
LIBRARY_ONLY = ("gpt_neo", "deepseek_v3")


@dataclass(frozen=True)
class PairPlan:
    """What a random pair is to be.

    Attributes:
        architecture: one of `NAMES`.
        context: positions that a text can have; of both models and of the windows of their layers.
        vocab, draft_vocab: rows of the embeddings, which may be more than the tokenizer's tokens, the draft's fewer.
        engine, attention: as in `PairSettings`.
        seed: of the weights.
    """

    architecture: str
    context: int
    vocab: int
    draft_vocab: int
    engine: str
    attention: str
    seed: int

    @classmethod
    def numbered(cls, number: int) -> "PairPlan":
        """The plan of a number: architectures come in turn, the rest is drawn."""
        random, architecture = Random(f"pair {number}"), NAMES[number % len(NAMES)]
        engines = PACKED_ENGINES if architecture in PACKED else ("auto", "auto", "cuda_graph")
        return cls(
            architecture=architecture,
            context=random.choice((64, 96, 128, 200, 256)),
            vocab=random.choice((WORDS, 160, 192)),
            draft_vocab=random.choice((WORDS, 160, 192)),
            engine="transformers" if architecture in LIBRARY_ONLY else random.choice(engines),
            attention=random.choice(("auto", "auto", "eager")),
            seed=number,
        )


def load_tiny_pair(plan: PairPlan, folder: Path) -> tuple[Pair, Any]:
    """Write the checkpoints of a plan into `folder` and load them; the target once more, as transformers loads it.

    Raises:
        PairError: the pair cannot work together.
    """
    target, draft = make_models(plan)
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)
    pair = load_pair(
        PairSettings(
            str(folder / "target"), str(folder / "draft"), device="cpu", dtype="float32",
            context_length=plan.context, engine=plan.engine, attention=plan.attention,
        )
    )  # fmt: skip
    reference = AutoModelForCausalLM.from_pretrained(folder / "target", dtype=torch.float32)
    reference.generation_config = GenerationConfig()
    return pair, reference.eval().requires_grad_(False)


@torch.no_grad()
def make_models(plan: PairPlan) -> tuple[Any, Any]:
    """A random target and the draft that is the target with noise."""
    generator = torch.Generator().manual_seed(plan.seed)
    target = _new_model(plan, plan.vocab)
    _randomise(target, generator)
    text = torch.randint(1, WORDS, TRIAL, generator=generator)
    wanted = target(text).logits[..., :WORDS].argmax(-1)
    draft = _new_model(plan, plan.draft_vocab)
    noise = {name: torch.randn(weight.shape, generator=generator) for name, weight in draft.named_parameters()}
    low, high = 0.001, 2.0
    for _ in range(8):  # bisection by ratio
        middle = (low * high) ** 0.5
        _add_noise(draft, target, noise, middle)
        agrees = (draft(text).logits[..., :WORDS].argmax(-1) == wanted).float().mean()
        low, high = (middle, high) if agrees > AGREEMENT else (low, middle)
    return target, draft


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of so many words, with characters among them so that it reads any text; the first one ends a text."""
    characters = map(chr, range(ord("!"), ord("~") + 1))
    # The tokenizer of Qwen2 adds the last one where it is missing, which would be a token too many.
    known = ["<end>", *characters, "<|endoftext|>"]
    words = {word: number for number, word in enumerate(known)} | {f"w{n}": n for n in range(len(known), WORDS)}
    backend = Tokenizer(models.BPE(words, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


def _new_model(plan: PairPlan, vocab: int) -> Any:
    kind, count = plan.architecture, plan.context
    ids = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": None, "tie_word_embeddings": False}
    if kind in ARCHITECTURES:
        sizes = {"vocab_size": vocab, "max_position_embeddings": count, **ARCHITECTURES[kind](count)}
        config = AutoConfig.for_model(kind, **ids, **sizes)
    else:
        names = {field.name for field in fields(CONFIG_MAPPING[kind])}
        changes = {name: count for name in names if SIZES.get(name) == CONTEXT}
        config = tiny_config(kind, vocab, **changes, **{name: value for name, value in ids.items() if name in names})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.generation_config = GenerationConfig(eos_token_id=END)
    return model


def _randomise(model: Any, generator: torch.Generator) -> None:
    """Weights that make layers matter and logits lie well apart."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    head = model.get_output_embeddings().weight
    for weight in model.parameters():
        if weight.dim() < 2:
            continue
        small = id(weight) in tables or weight is head
        spread = weight.shape[-1] ** -0.5 * (1.0 if small else GAIN)
        weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
    ids = torch.randint(1, WORDS, (1, 32), generator=generator)
    for _ in range(3):  # where the head is the embedding too, the logits do not follow it in proportion
        head.mul_(SHARPNESS / model(ids).logits.std())


def _add_noise(draft: Any, target: Any, noise: dict[str, torch.Tensor], share: float) -> None:
    """Give the draft the target's weights with noise; rows of embeddings that only one of them has do not matter."""
    known = dict(target.named_parameters())
    for name, weight in draft.named_parameters():
        source = known[name]
        spread = source.std() if source.numel() > 1 else torch.zeros(())
        if source.shape != weight.shape:
            missing = (0, 0) * (source.dim() - 1) + (0, max(0, len(weight) - len(source)))
            source = torch.nn.functional.pad(source, missing)[: len(weight)]
        weight.copy_(source + share * spread * noise[name])
