"""Load and check a draft/target pair; devices and dtypes; the embedded pair."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.generation.configuration_utils import GenerationConfig

from decoding.common.errors import OutOfMemoryError, PairError, is_out_of_memory
from decoding.common.interruption import CancelledError, check_wanted
from decoding.common.settings import present_engines
from decoding.engines.base import MaskKind, Visibility
from decoding.engines.choose import Engine, Made, make_engine
from decoding.engines.kv_cache import FeatureRows, KVCache
from decoding.models.checks import (
    check_context,
    check_tokenizers,
    check_tree_attention,
    let_masks_decide,
    max_positions,
)
from decoding.models.loading import (
    WeightsSource,
    check_room,
    drop_offloaded,
    fetch_weight,
    find_model,
    free_bytes,
    free_memory,
    load_network,
    load_tokenizer,
    out_of_memory,
)
from decoding.models.presets import PairSettings, choose_device, choose_dtype, pair_name
from decoding.models.vocabulary import Vocabulary
from decoding.models.widening import embedded_origin
from decoding.trace.records import ModelInfo, PairInfo


@dataclass(eq=False)
class Loaded:
    """The weights of a model, which several `Model`s may share, the engines made for them by name, and draft heads."""

    network: Any
    engines: dict[str, Made] = field(default_factory=dict)
    heads: dict[Any, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Model:
    """A loaded network and the engine that runs it."""

    info: ModelInfo
    device: torch.device  # where input ids, positions and masks go
    dtype: torch.dtype
    # mask_kind, mask_layer_types: as `check_tree_attention` found them
    mask_kind: MaskKind
    mask_layer_types: tuple[str, ...] | None
    num_layers: int  # layers with keys and values
    positions: int  # most positions that a text can have
    _loaded: Loaded

    @property
    def engine(self) -> Engine:
        """What runs the passes of this model; raises `PairError` where the pair was released."""
        return self._make_engine(self.info.engine).engine

    def with_engine(self, asked: str) -> "Model":
        """The same weights run by another engine, one of `presets.ENGINES`; `PairError` where it cannot run them."""
        made = self._make_engine(asked)
        return replace(self, info=replace(self.info, engine=made.engine.name, engine_reason=made.reason(asked)))

    @property
    def network(self) -> Any:
        """The transformers model, in evaluation mode and without gradients; `PairError` where the pair was released."""
        if self._loaded.network is None:
            raise PairError(f"{self.info.name} was released from memory; load the pair again.")
        return self._loaded.network

    @property
    def heads(self) -> dict[Any, Any]:
        """Draft heads that were loaded for this target; they go when it is released."""
        return self._loaded.heads

    @property
    def released(self) -> bool:
        """Whether `release` has dropped the weights."""
        return self._loaded.network is None

    def _make_engine(self, asked: str) -> Made:
        if asked in self._loaded.engines:  # every pass asks
            return self._loaded.engines[asked]
        asked = present_engines(asked)
        how = {name: getattr(self, name) for name in ("num_layers", "device", "dtype", "mask_kind", "mask_layer_types")}
        made = make_engine(asked, self.network, self.info.name, self.positions, free_bytes(self.device.type), **how)
        return made._replace(engine=self._loaded.engines.setdefault(made.engine.name, made).engine)


DraftHead = Any  # drafts in the place of a draft model: see `decoding.heads`


@dataclass(eq=False)
class Pair:
    """A target and a draft that share one tokenizer, checked to work together."""

    target: Model
    draft: Model
    vocabulary: Vocabulary
    info: PairInfo
    settings: PairSettings
    context: int  # most tokens that both models can hold
    logits_size: int  # size of the target's logits; draft logits are matched to it with `match_vocabulary`
    head: DraftHead | None = None  # drafts in the place of `draft`, None where that does; see `decoding.heads`

    @property
    def drafting(self) -> Model | DraftHead:
        """What drafts: the draft head if there is one, or the draft model."""
        return self.head or self.draft

    def generation_config(self, **changes: Any) -> GenerationConfig:
        """Clean greedy settings for `generate`: no penalties, our stop ids; `changes` such as max_new_tokens."""
        stops, tokenizer = sorted(self.vocabulary.stop_ids), self.vocabulary.tokenizer
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (stops[0] if stops else 0)
        settings = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0, "use_cache": True}
        ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": stops or None, "pad_token_id": pad}
        return GenerationConfig(**{**settings, **ids, **changes})

    def with_engine(self, asked: str) -> "Pair":
        """The same weights run by another engine, one of `presets.ENGINES`."""
        target, draft = self.target.with_engine(asked), self.draft.with_engine(asked)
        head = None if self.head is None else replace(self.head, target=target)
        made = replace(self, target=target, draft=draft, info=replace(self.info, target=target.info))
        return made.with_head(head)

    def with_head(self, head: DraftHead | None) -> "Pair":
        """The same models with another draft: a head of this target, or None for the draft model."""
        return replace(self, head=head, info=replace(self.info, draft=(head or self.draft).info))


def pair_identity(pair: Pair) -> dict[str, Any]:
    """What tells a pair from another: its name, the sizes of its models, and a trace of their weights.

    Where a draft head drafts it stands in the place of the draft model. An embedded model made wider also tells which
    one it computes: `widened_from`, with the number of `copies` of its features.
    """
    identity: dict[str, Any] = {"name": pair.info.name}
    for role, model in (("target", pair.target), ("draft", pair.drafting)):
        identity[role] = {name: getattr(model.info, name) for name in ("name", "parameters", "layers", "vocab_size")}
        if isinstance(model, Model):
            head = fetch_weight(model.network.get_output_embeddings())[:64]
            size = float(head.detach().float().abs().mean())
            identity[role]["weights"] = f"{size:.5g}"
            if (origin := embedded_origin(model.network.config)) is not None:
                identity[role]["widened_from"] = origin | {"weights": f"{size * origin['copies']:.5g}"}
        else:
            identity[role]["weights"] = model.digest
    return identity


def match_vocabulary(draft_logits: torch.Tensor, size: int) -> torch.Tensor:
    """Cut draft logits `[..., draft_vocab]` to `[..., size]`, or pad them with -inf: missing ids have probability 0."""
    missing = size - draft_logits.shape[-1]
    if missing <= 0:
        return draft_logits[..., :size] if missing else draft_logits
    return torch.nn.functional.pad(draft_logits, (0, missing), value=-torch.inf)


def tree_forward(
    model: Model,
    cache: KVCache,
    token_ids: np.ndarray,
    positions: np.ndarray,
    mask: Any,
    keep: int = 0,
    features: FeatureRows | None = None,
) -> torch.Tensor:
    """Run a model over tokens of a tree after the rows of a cache; their rows are appended to the cache.

    Args:
        token_ids, positions: `[num_queries]`; a position is the length of the prefix + depth - 1, one for all siblings.
        mask: a `Visibility` of `[num_queries, cache.length + num_queries]`, or what `model.engine.mask` made of it.
        keep: project only the last `keep` rows to logits; 0 projects all.
        features: takes the features of all tokens, for a draft head.

    Returns:
        Raw logits `[num_queries or keep, vocab_size]` on the device of the model's output.
    """
    if isinstance(mask, Visibility):
        mask = model.engine.mask(mask)
    if features is None:
        return model.engine.run(cache, token_ids, positions, mask, keep)
    logits, rows = model.engine.run_with_features(cache, token_ids, positions, mask, 0, keep or None)
    features.append(rows)
    return logits


def load_pair(settings: PairSettings) -> Pair:
    """Load a pair and check that it can decode a draft tree.

    Raises `PairError`, which says what to do, where it cannot be found or cannot work; `OutOfMemoryError` where it does
    not fit, and what had been loaded is freed.
    """
    device = choose_device(settings.device)
    if settings.split and device != "cuda":
        raise PairError("split spreads the target over GPUs, and this machine has none; turn split off.")
    dtype = choose_dtype(settings, device)
    if device == "cuda":
        # cuDNN's attention plans every shape in each thread anew, for tenths of a second, and trees have many shapes.
        torch.backends.cuda.enable_cudnn_sdp(False)
    sources = {
        "target": find_model(settings.target, "target", settings.widen),
        "draft": find_model(settings.draft, "draft"),
    }
    target_source, draft_source = sources["target"], sources["draft"]
    context = check_context([(s.name, s.config) for s in sources.values()], settings.context_length)
    tokenizer = load_tokenizer(target_source)
    check_tokenizers(tokenizer, load_tokenizer(draft_source), target_source.name, draft_source.name)
    vocab_size = target_source.config.get_text_config().vocab_size
    vocabulary = Vocabulary(tokenizer, vocab_size, target_source.eos_ids, settings.chat)
    vocabulary.check(target_source.name)
    models = _load_models(sources, settings, device, dtype, context)
    embedding = models["draft"].network.get_input_embeddings()
    known = embedding.weight.shape[0]
    if known < vocabulary.size:  # ids that the draft has no row for can only lower its acceptance
        embedding.register_forward_pre_hook(lambda _, args: (args[0].clamp(max=known - 1),))
    target, draft = (model.with_engine(settings.engine) for model in models.values())
    info = PairInfo(pair_name(settings), target.info, draft.info, context)
    pair = Pair(target, draft, vocabulary, info, settings, context, vocabulary.size)
    for model in (target, draft):
        # generate() fills what a caller leaves open from here; a model's own penalties would change the output.
        model.network.generation_config = pair.generation_config()
    return pair


def embedded_pair(device: str = "cpu", dtype: str = "float32") -> Pair:
    """The small trained pair that comes with the program; stored in 16 bits, computed in float32."""
    return load_pair(PairSettings(device=device, dtype=dtype))


def release(pair: Pair) -> None:
    """Free the memory of both models at once, even where a session still holds on to them."""
    for model in (pair.target, pair.draft):
        _drop(model)
    free_memory()


def _load_models(
    sources: dict[str, WeightsSource], settings: PairSettings, device: str, dtype: str, context: int
) -> dict[str, Model]:
    models: dict[str, Model] = {}
    try:
        for role, source in sources.items():
            check_wanted()
            check_room(source, role, settings, device, dtype)
            split = settings.places_layers and role == "target"
            models[role] = _load_model(source, settings, device, dtype, split, context)
    except (PairError, OutOfMemoryError, RuntimeError, MemoryError, CancelledError) as error:
        for model in models.values():
            _drop(model)
        if is_out_of_memory(error):
            raise out_of_memory(" and ".join(source.name for source in sources.values()), device, error) from None
        free_memory()
        raise
    return models


def _load_model(
    source: WeightsSource, settings: PairSettings, device: str, dtype: str, split: bool, context: int
) -> Model:
    network = load_network(source, settings, device, dtype, split)
    inputs = network.get_input_embeddings().weight.device
    if inputs.type == "meta":  # offloaded: accelerate moves the inputs itself
        inputs = torch.device(device)
    let_masks_decide(network)
    attention = network.config._attn_implementation
    try:
        mask_kind, mask_keys = check_tree_attention(
            network, source.name, sdpa="sdpa" in attention, device=inputs, context=context
        )
    except (PairError, RuntimeError, MemoryError):
        _empty(network)  # the error's traceback still holds the network
        raise
    text = network.config.get_text_config()
    weights = list(network.parameters())
    placed = (getattr(network, "hf_device_map", None) or {}).values()
    places = {f"cuda:{place}" if isinstance(place, int) else str(place) for place in placed}
    info = ModelInfo(
        name=Path(source.name).name if Path(source.location).is_dir() else source.name,
        architecture=type(network).__name__,
        parameters=sum(weight.numel() for weight in weights),
        layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        context=max_positions(network.config) or settings.context_length,
        device="+".join(sorted(places)) if len(places) > 1 else str(inputs),
        dtype=str(network.dtype).removeprefix("torch."),
        attention=attention,
        weight_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
    )
    positions = min(info.context, settings.context_length)
    loaded = Loaded(network)
    return Model(info, inputs, network.dtype, mask_kind, mask_keys, text.num_hidden_layers, positions, loaded)


def _drop(model: Model) -> None:
    if not model.released:
        _empty(model.network)
        model._loaded.network = None
        model._loaded.engines.clear()
        model._loaded.heads.clear()


def _empty(network: Any) -> None:
    """Give back the memory of all weights, whoever still holds the network."""
    drop_offloaded(network)
    for tensor in (*network.parameters(), *network.buffers()):
        if not tensor.is_meta:  # offloaded: it holds nothing
            tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
