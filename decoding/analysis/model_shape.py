"""What a pass of a model reads and computes, from the text of its config.json alone: no weights, torch-free.

    target = read_shape(Path("config.json").read_bytes(), "Llama-3.1-8B")
    target.parameters, target.kv_values, target.touched_experts(64)
    draft = eagle_head(target)

Counts are those of transformers' own models. A parameter is read once per pass, however many tokens the pass has; of
experts only those that some token is routed to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from decoding.common.errors import PairError
from decoding.models.folder import CONFIG, check_values, parse_object, shown

MOST_CONFIG_BYTES = 1_000_000
WRAPPED = ("text_config", "transformer_layer_config", "model")
EAGLE3_VOCABULARY = 32_000  # tokens that published EAGLE-3 heads can draft


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a model that decide the cost of its passes."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    # attention, mlp: parameters of a layer's attention with its norms, and of its MLP where that is dense
    attention: int
    mlp: int
    dense_layers: int  # layers whose MLP is dense; the others have experts
    # expert: parameters of one expert; experts, active: how many a layer has, and how many a token is routed to
    expert: int
    experts: int
    active: int
    shared: int  # parameters of a layer with experts that every token uses: the router, and experts that are always on
    kv_values: int  # numbers that the cache holds per token and layer
    pair_operations: int  # of attention per layer, query and row that it sees
    # local_layers, window: layers that see only so many rows; 0 where all see everything
    local_layers: int
    window: int
    # Parameters outside layers, embedding and output head: the last norm, learned positions, a head's fusion
    other: int
    projected: int  # numbers that attention projects a hidden state to (queries, keys, values)
    intermediate: int  # width of a dense MLP
    borrows: bool  # embedding and output head are those of the target, which holds them already

    @property
    def head(self) -> int:
        """Parameters of the output head, which every pass reads."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of its own; of embeddings that are also the output head one copy."""
        return self.stored(self.experts)

    @property
    def active_parameters(self) -> int:
        """Those that one token uses, embedding and output head included."""
        return self.stored(self.active)

    def stored(self, experts: float) -> int:
        """Parameters with so many experts per layer."""
        embeddings = 0 if self.borrows else self.head * (1 if self.tied else 2)
        return round(embeddings + self.other + self.body(experts))

    def body(self, experts: float) -> float:
        """Parameters of all layers with so many experts in each."""
        sparse = self.layers - self.dense_layers
        dense = self.layers * self.attention + self.dense_layers * self.mlp
        return dense + sparse * (self.shared + experts * self.expert)

    def touched_experts(self, tokens: int) -> float:
        """Experts of a layer that `tokens` tokens are expected to be routed to, E (1 - (1 - k/E)^tokens).

        Uniform and independent routing is assumed. Real routers prefer some experts, and tokens of one text resemble
        each other, so that fewer are touched: verifying more tokens costs less than this on a small batch.
        """
        return self.experts * (1 - (1 - self.active / self.experts) ** tokens) if self.experts else 0.0


@dataclass(frozen=True)
class ModelFamily:
    """How models of one `model_type` are built where it differs from Llama."""

    tied: bool = False  # whether the output head is the embedding where the configuration does not say
    # norms: of hidden size per layer; `norm_bias`: whether they have one
    norms: int = 2
    norm_bias: bool = False
    head_norms: bool = False  # norms of queries and keys, each of head_dim
    # qkv_bias, out_bias, mlp_bias: whether the projections have biases; None: as the configuration says
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    gated: bool = True  # an MLP of three matrices, not of two
    # Which layers have a sliding window where no list of `layer_types` says so: of every n the first n - 1, or all (1),
    # or none (0)
    local: int = 0
    experts: bool = False  # whether some of its layers have experts
    latent: bool = False  # multi-head latent attention (DeepSeek)


_PLAIN = partial(ModelFamily, norm_bias=True, qkv_bias=True, out_bias=True, mlp_bias=True, gated=False)
_UNBIASED = partial(ModelFamily, qkv_bias=False, out_bias=False, mlp_bias=False)
FAMILIES: dict[str, ModelFamily] = {
    "llama": ModelFamily(),
    "mistral": _UNBIASED(local=1),
    "phi3": _UNBIASED(local=1),
    "qwen2": _UNBIASED(qkv_bias=True),
    "qwen3": ModelFamily(head_norms=True, mlp_bias=False),
    "gemma": ModelFamily(tied=True, mlp_bias=False),
    "gemma2": ModelFamily(tied=True, norms=4, mlp_bias=False, local=2),
    "gemma3_text": ModelFamily(tied=True, norms=4, head_norms=True, mlp_bias=False, local=6),
    "gpt_neox": _PLAIN(),
    "gpt2": _PLAIN(tied=True),
    "mixtral": _UNBIASED(experts=True, local=1),
    "qwen2_moe": _UNBIASED(qkv_bias=True, experts=True),
    "qwen3_moe": ModelFamily(head_norms=True, mlp_bias=False, experts=True),
    "gpt_oss": ModelFamily(qkv_bias=True, out_bias=True, mlp_bias=True, local=2, experts=True),
    "deepseek_v2": _UNBIASED(experts=True, latent=True),
    "deepseek_v3": _UNBIASED(experts=True, latent=True),
}


@dataclass(frozen=True)
class Config:
    """The settings of a config.json, asked for by any of their names."""

    values: Mapping[str, Any]
    label: str
    family: ModelFamily = field(default_factory=ModelFamily)

    def whole(self, *names: str, default: int | None = None, low: int = 1, high: int = 10_000_000) -> int:
        """A whole number; raises `PairError` where it is missing without a default, or is something else."""
        name, value = next(((n, self.values[n]) for n in names if self.values.get(n) is not None), (names[0], default))
        if value is None:
            raise PairError(f"{CONFIG} of {self.label} has no {name}; give the whole file, as the model has it.")
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise PairError(
                f"{CONFIG} of {self.label} has {name} {shown(value)}; it must be a whole number from {low} to {high:,}."
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A switch; what is neither true nor false counts as the default."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else default


def read_shape(text: bytes, label: str) -> ModelShape:
    """The shape in the text of a config.json of the model that is called `label`.

    Raises `PairError` where it is damaged, too large, lacks a number, contradicts itself, or is of an unknown family.
    """
    return _shape(_config(text, label))


def read_draft(text: bytes, label: str, target: ModelShape) -> ModelShape:
    """The shape in the config.json of a draft: a model of its own, or a one-layer head on the target's features.

    A head is one whose architecture is named after EAGLE or which has a vocabulary of its own (`draft_vocab_size`).
    Raises `PairError` as `read_shape` does, or where the head is for a target of another width.
    """
    config = _config(text, label)
    names = str([config.values.get(key) for key in ("architectures", "wrapper", "model_type")]).lower()
    if "eagle" not in names and config.values.get("draft_vocab_size") is None:
        return _shape(config)
    shape = _shape(config)
    if shape.hidden != target.hidden:
        raise PairError(
            f"{label} is a head for features of width {shape.hidden:,}, and those of {target.name} have "
            f"{target.hidden:,}; give a head that was trained for this target."
        )
    third = "eagle3" in names or config.values.get("draft_vocab_size") is not None
    small = config.whole("draft_vocab_size", default=EAGLE3_VOCABULARY) if third else None
    return replace(eagle_head(shape, small), name=label)


def eagle_head(target: ModelShape, vocabulary: int | None = None) -> ModelShape:
    """A draft head of one dense decoder layer over the target's features.

    Without a vocabulary it is EAGLE's first form: feature and embedding are fused to one width (2 h^2) before the
    layer, and the target's output head follows (Li et al. 2024). With one it is EAGLE-3's: attention reads both, twice
    as wide, and the head has a small output head of its own (Li et al. 2025); fusing the target's three features, once
    per iteration, is left out.
    """
    return replace(
        target,
        name=f"EAGLE{'-3' if vocabulary else ''} head of {target.name}",
        layers=1,
        dense_layers=1,
        tied=True, borrows=not vocabulary,  # the embedding is the target's, the first form's output head too
        vocabulary=vocabulary or target.vocabulary,
        attention=target.attention + (target.hidden * target.projected if vocabulary else 0),
        mlp=3 * target.hidden * target.intermediate,
        expert=0, experts=0, active=0, shared=0, local_layers=0,
        other=target.hidden + (0 if vocabulary else 2 * target.hidden**2),
    )  # fmt: skip


def _config(text: bytes, label: str) -> Config:
    if len(text) > MOST_CONFIG_BYTES:
        raise PairError(f"{CONFIG} of {label} is larger than {MOST_CONFIG_BYTES // 10**6} MB; give a {CONFIG} alone.")
    values = parse_object(text.removeprefix(b"\xef\xbb\xbf"), f"{CONFIG} of {label}")
    check_values(values, label)
    # The language model of one that also sees; a head as Speculators and as vLLM wrap it
    nested = next((values[name] for name in WRAPPED if isinstance(values.get(name), dict)), None)
    if nested is not None:
        check_values(nested, label)
        values = {**values, **nested, "wrapper": [values.get("architectures"), values.get("model_type")]}
    kind = values.get("model_type")
    kind = "gemma3_text" if kind == "gemma3" else kind
    if kind not in FAMILIES:
        raise PairError(
            f"{CONFIG} of {label} has model_type {shown(kind)}, whose parts are not known; "
            f"known are {', '.join(FAMILIES)}."
        )
    return Config(values, label, FAMILIES[kind])


def _shape(config: Config) -> ModelShape:
    """All numbers of a model; what is counted is written beside it."""
    family = config.family
    hidden = config.whole("hidden_size", "n_embd")
    layers = config.whole("num_hidden_layers", "n_layer", high=1_000)
    heads = config.whole("num_attention_heads", "n_head", high=100_000)
    vocabulary = config.whole("vocab_size")
    inner = config.whole("intermediate_size", "n_inner", default=None if family.gated else 4 * hidden)
    parts = _latent(config, hidden, heads) if family.latent else _grouped(config, hidden, heads)
    norm = 2 * hidden if family.norm_bias else hidden
    sparse, moe = _experts(config, hidden, layers)
    local, window = _windows(config, layers)
    return ModelShape(
        name=config.label,
        layers=layers, hidden=hidden, heads=heads, vocabulary=vocabulary,
        tied=config.flag("tie_word_embeddings", family.tied), borrows=False,
        mlp=_mlp(config, hidden, inner),
        dense_layers=layers - sparse,
        local_layers=local, window=window, intermediate=inner,
        other=norm + (config.whole("n_positions", "n_ctx") * hidden if "n_positions" in config.values else 0),
        **moe,
        **{**parts, "attention": parts["attention"] + family.norms * norm},
    )  # fmt: skip


def _mlp(config: Config, hidden: int, inner: int) -> int:
    """Gate, up and down of a gated MLP, or the two matrices of a plain one."""
    family = config.family
    biased = config.flag("mlp_bias", False) if family.mlp_bias is None else family.mlp_bias
    ways_in = 2 if family.gated else 1
    return (ways_in + 1) * hidden * inner + (ways_in * inner + hidden if biased else 0)


def _grouped(config: Config, hidden: int, heads: int) -> dict[str, int]:
    """Multi-head, grouped-query or multi-query attention."""
    family = config.family
    kv_heads = config.whole("num_key_value_heads", default=heads, high=100_000)
    head_dim = config.whole("head_dim", default=hidden // heads, high=100_000)
    if heads % kv_heads:
        raise PairError(
            f"{CONFIG} of {config.label} has {heads} attention heads and {kv_heads} key/value heads; the first must "
            "be a multiple of the second."
        )
    projected = (heads + 2 * kv_heads) * head_dim
    biased = config.flag("attention_bias", False)
    attention = hidden * projected + heads * head_dim * hidden
    attention += projected if (biased if family.qkv_bias is None else family.qkv_bias) else 0
    attention += hidden if (biased if family.out_bias is None else family.out_bias) else 0
    attention += 2 * head_dim if family.head_norms else 0
    attention += heads if config.values.get("model_type") == "gpt_oss" else 0  # attention sinks
    return {
        "attention": attention, "projected": projected, "kv_heads": kv_heads, "head_dim": head_dim,
        "kv_values": 2 * kv_heads * head_dim, "pair_operations": 4 * heads * head_dim,
    }  # fmt: skip


def _latent(config: Config, hidden: int, heads: int) -> dict[str, int]:
    """Multi-head latent attention, whose cache holds one latent row for all heads (DeepSeek-V2, section 2.1).

    Operations are those of the absorbed form that engines decode with: every head attends over the latent row itself.
    """
    rank, rope = config.whole("kv_lora_rank"), config.whole("qk_rope_head_dim")
    nope, value = config.whole("qk_nope_head_dim"), config.whole("v_head_dim")
    query_rank = config.whole("q_lora_rank", default=0, low=0)
    queries = heads * (nope + rope)
    attention = query_rank * (hidden + 1 + queries) if query_rank else hidden * queries
    attention += hidden * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * hidden
    return {
        "attention": attention, "projected": (query_rank or queries) + rank + rope, "kv_heads": 1,
        "head_dim": rank + rope, "kv_values": rank + rope, "pair_operations": 2 * heads * (2 * rank + rope),
    }  # fmt: skip


def _experts(config: Config, hidden: int, layers: int) -> tuple[int, dict[str, int]]:
    family, none = config.family, {"expert": 0, "experts": 0, "active": 0, "shared": 0}
    if not family.experts:
        return 0, none
    experts = config.whole("num_experts", "num_local_experts", "n_routed_experts", high=100_000)
    active = config.whole("num_experts_per_tok", "experts_per_token", high=100_000)
    if active > experts:
        raise PairError(
            f"{CONFIG} of {config.label} routes each token to {active} of {experts} experts; it must be at most all."
        )
    inner = config.whole("moe_intermediate_size", "intermediate_size")
    shared = hidden * experts + (experts if family.mlp_bias else 0)
    shared += config.whole("n_shared_experts", default=0, low=0, high=1000) * _mlp(config, hidden, inner)
    if "shared_expert_intermediate_size" in config.values:
        shared += _mlp(config, hidden, config.whole("shared_expert_intermediate_size")) + hidden
    first = config.whole("first_k_dense_replace", default=0, low=0)
    step = config.whole("decoder_sparse_step", "moe_layer_freq", default=1)
    dense = config.values.get("mlp_only_layers") or ()
    dense = set(dense) if isinstance(dense, list) and all(isinstance(each, int) for each in dense) else set()
    offset = 1 if "decoder_sparse_step" in config.values else 0
    sparse = sum(n >= first and (n + offset) % step == 0 and n not in dense for n in range(layers))
    return sparse, {"expert": _mlp(config, hidden, inner), "experts": experts, "active": active, "shared": shared}


def _windows(config: Config, layers: int) -> tuple[int, int]:
    """Layers with a sliding window, and its rows."""
    if config.values.get("sliding_window") is None or not config.flag("use_sliding_window", True):
        return 0, 0
    window = config.whole("sliding_window")
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return sum(kind == "sliding_attention" for kind in kinds), window
    if config.values.get("use_sliding_window") is True:
        return max(0, layers - config.whole("max_window_layers", default=layers, low=0)), window
    every = config.whole("sliding_window_pattern", default=config.family.local, low=0)
    return (layers if every == 1 else layers - layers // every if every else 0), window
