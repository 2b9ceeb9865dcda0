"""What makes a draft/target pair impossible, found before the first iteration and said in one sentence.

A tree pass as decoding makes it at the end of a context is tried when a model is loaded; what differs is refused.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from decoding.common.errors import PairError, first_line, is_out_of_memory
from decoding.drafters.shared_settings import MOST_NODES
from decoding.engines.base import FORWARD_ERRORS, TOLERANCE, EagerEngine, MaskKind, TransformersForward, Visibility
from decoding.engines.kv_cache import KVCache
from decoding.models.presets import MAX_CONTEXT

ALIBI_MODELS = ("bloom", "mpt")
TREE_LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")
STATE_LAYER_TYPES = {"linear_attention", "conv", "hybrid", "hybrid_sliding", "mamba", "mamba2", "recurrent", "ssm"}


def check_config(config: Any, name: str) -> type:
    """The model class, where the configuration alone does not show that it cannot work.

    Raises `PairError` for no causal model, alibi positions, recurrent layers, quantised weights.
    """
    advice = "choose a decoder-only model such as Pythia, Llama, Qwen2.5 or SmolLM2."
    if getattr(config, "is_encoder_decoder", False):
        raise PairError(f"{name} is an encoder-decoder ({config.model_type}), not a causal language model; {advice}")
    found = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    model_class = found[0] if isinstance(found, tuple) else found
    saved = config.architectures or []
    saved = [saved] if isinstance(saved, str) else saved
    names_causal = not saved or any(
        arch.endswith(("ForCausalLM", "LMHeadModel")) or (model_class and arch == model_class.__name__)
        for arch in saved
    )
    if model_class is None or not names_causal:
        kind = ", ".join(saved) or config.model_type
        raise PairError(f"{name} is a {kind}, not a causal language model; {advice}")
    text = config.get_text_config()
    attn_config = getattr(text, "attn_config", None)
    if text.model_type in ALIBI_MODELS or getattr(text, "alibi", False) or getattr(attn_config, "alibi", False):
        raise PairError(
            f"{name} ({text.model_type}) uses ALiBi positions, which follow the KV slot instead of the tree depth; "
            "choose a model with rotary or learned positions."
        )
    layer_types = getattr(text, "layer_types", None) or ()
    foreign = sorted({str(kind) for kind in layer_types} - set(TREE_LAYER_TYPES))
    advice = "choose a model with plain attention in every layer."
    what = f" ({', '.join(foreign)})" if foreign else ""
    if getattr(model_class, "_is_stateful", False) or STATE_LAYER_TYPES & set(foreign):
        raise PairError(
            f"{name} ({text.model_type}) has layers with a recurrent state{what}, which cannot be rolled back after a "
            f"rejected branch; {advice}"
        )
    if foreign:
        raise PairError(f"{name} ({text.model_type}) has layers that cannot take a tree attention mask{what}; {advice}")
    if getattr(config, "quantization_config", None) is not None:
        raise PairError(f"{name} has quantised weights, which are not supported; choose the unquantised model.")
    return model_class


def longrope_turn(config: Any) -> int | None:
    """Length past which longrope takes its long factors for every position, None where no layer has longrope."""
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    kinds = [rope, *(value for value in rope.values() if isinstance(value, dict))]  # of all layers, or one per type
    own = getattr(text, "original_max_position_embeddings", None)
    turns = [kind.get("original_max_position_embeddings", own) for kind in kinds if kind.get("rope_type") == "longrope"]
    return min(filter(None, turns), default=None)


def max_positions(config: Any) -> int | None:
    """Longest context that the positions of a model reach, None if it does not say."""
    text = config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
    return next((getattr(text, name) for name in names if isinstance(getattr(text, name, None), int)), None)


def check_context(configs: Sequence[tuple[str, Any]], context_length: int) -> int:
    """The context of the pair: the shortest of both models' and the one asked for.

    Raises `PairError` where a sliding window is shorter than that, or longrope turns over before it.
    """
    limits = [limit for limit in (max_positions(config) for _, config in configs) if limit is not None]
    context = min([context_length, *limits])
    for name, config in configs:
        text = config.get_text_config()
        layer_types, windows = getattr(text, "layer_types", None), []
        sliding = getattr(text, "sliding_window", None)
        if sliding and (layer_types is None or "sliding_attention" in layer_types):
            windows.append(sliding)
        if layer_types and "chunked_attention" in layer_types and getattr(text, "attention_chunk_size", None):
            windows.append(text.attention_chunk_size)
        if "local" in (getattr(text, "attention_layers", None) or ()):
            windows.append(text.window_size)
        window = min(windows, default=context)
        if window < context:
            raise PairError(
                f"{name} has a sliding window of {window} tokens, shorter than the context in use ({context}); "
                f"lower context_length to {window} or less."
            )
        turn = longrope_turn(config)
        if turn is not None and turn < context:
            raise PairError(
                f"{name} uses longrope, which changes its factors past {turn} tokens and invalidates the keys cached "
                f"before that, and the context in use is longer ({context}); lower context_length to {turn} or less."
            )
    return context


def check_tokenizers(target: Any, draft: Any, target_name: str, draft_name: str) -> None:
    """Refuse a pair whose tokenizers differ, naming the first token that does.

    Padding of the models' vocabularies does not count: only what the tokenizers hold is compared.
    """
    target_vocab, draft_vocab = target.get_vocab(), draft.get_vocab()
    if target_vocab == draft_vocab:
        return
    by_id = [{i: token for token, i in vocab.items()} for vocab in (target_vocab, draft_vocab)]
    differs = (i for i in sorted(by_id[0].keys() | by_id[1].keys()) if by_id[0].get(i) != by_id[1].get(i))
    first = next(differs, None)
    if first is None:  # two tokens with one id: the sets differ all the same
        what = f"{len(target_vocab)} tokens in the target and {len(draft_vocab)} in the draft"
    else:
        shown = [repr(tokens[first]) if first in tokens else "no token" for tokens in by_id]
        what = f"token {first} is {shown[0]} in the target and {shown[1]} in the draft"
    raise PairError(
        f"{target_name} and {draft_name} have different tokenizers: {what}; choose two models from one family."
    )


# Half precision rounds more in deep models: there a tenth of what ignoring the mask would change is still rounding.
HALF_PRECISION_SHARE = 0.1
# The tree: a root, two children and a grandchild under the first, after a prefix.
PREFIX, DEPTHS = 3, np.array([0, 1, 1, 2])
ANCESTORS = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=bool)
# Tokens of the prefix and of both paths by their number; the second ends with one that nobody before it may see.
PATHS = np.array([[0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 5, 6]])
# The nodes of the first path.
CHAIN = [0, 1, 3]


def let_masks_decide(network: Any) -> None:
    """Have a model hide what its mask hides and nothing else, whatever number a row of the cache or of a pass has.

    The layers of GPT-Neo also hide rows by their number, which is not the position of a tree's nodes: local layers what
    lies `window_size` rows back, and all layers fail past the last position. Every pass is given a whole mask and no
    text is longer than the windows (`check_context`), so nothing is left for them to hide. The token types
    of BERT's relatives, all 0, end after so many tokens of a pass as there are positions; trees may be larger.
    """
    rows = 2 * MAX_CONTEXT
    for module in network.modules():
        if isinstance(module, GPTNeoSelfAttention):
            seen = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=module.bias.device)
            module.register_buffer("bias", seen.expand(1, 1, rows, rows), persistent=False)
        types = getattr(module, "token_type_ids", None)
        if isinstance(types, Tensor) and not types.any():
            module.token_type_ids = types[:, :1].expand(-1, rows)


def check_tree_attention(
    network: Any, name: str, *, sdpa: bool, device: torch.device, context: int
) -> tuple[MaskKind, tuple | None]:
    """Run a small tree over the cache that decoding uses, and its paths plainly: they must give the same probabilities.

    The prefix stands at the first positions, the tree at the last. Between them lie so many hidden rows as the longest
    text and the largest tree could bring: a model that hides or counts by rows in the place of mask and positions shows
    it, whatever its window. Then the model masks by itself over a text of the whole context, all between prefix and
    path padding: layers that look back over less show it.

    Returns the form of mask that works, `bool` or `additive`, and the keys of a mask per layer type (None: one mask).
    Raises `PairError` where the model ignores or misreads a tree mask, explicit positions or the cache, or looks back
    over less.
    """
    text = network.config.get_text_config()
    layer_types = sorted(set(getattr(text, "layer_types", None) or ()))
    keys = tuple(layer_types) if len(layer_types) > 1 else None
    kinds: tuple[MaskKind, ...] = ("bool", "additive") if sdpa else ("additive",)
    forms = [(kind, k) for kind in kinds for k in dict.fromkeys((keys, None))]
    ids = text.vocab_size * np.arange(1, 14, 2) // 16
    worst = ""
    with torch.no_grad():
        try:
            expected, allowed = _plain(network, ids, context, device)
        except FORWARD_ERRORS as error:
            if is_out_of_memory(error):
                raise
            said = f"{name} fails on a plain forward pass ({first_line(error)}); choose another model."
            raise PairError(said) from error
        if expected.isnan().any():
            dtype = str(network.dtype).removeprefix("torch.")
            wider = "" if dtype == "float32" else "choose float32 or "
            raise PairError(
                f"{name} gives nan instead of probabilities in {dtype}: values overflow that dtype, or its weights are "
                f"damaged; {wider}download it again."
            )
        for kind, mask_keys in forms:
            forward, layers = TransformersForward(network, name), text.num_hidden_layers
            engine = EagerEngine("transformers", forward, layers, device, network.dtype, kind, mask_keys)
            cache = _Gapped(layers, len(ids))
            try:
                for found in _trees(engine, cache, ids, context):
                    difference = _difference(found, expected)
                    if difference > allowed:
                        worst = f"log-probabilities differ by {difference:.2g}"
                        break
                else:
                    difference = _difference(_own_mask(network, cache, ids, context, device), expected[CHAIN])
                    if difference <= allowed:
                        return kind, mask_keys
                    raise PairError(
                        f"{name} ({network.config.model_type}) does not attend to all tokens of a context of {context}"
                        ", as a tree mask assumes; lower context_length or choose another model."
                    )
            except FORWARD_ERRORS as error:
                if is_out_of_memory(error):
                    raise
                asks = "it needs more from its cache than keys and values"
                worst = worst or f"the pass fails: {asks if isinstance(error, AttributeError) else first_line(error)}"
    raise PairError(
        f"{name} ({network.config.model_type}) cannot take a tree attention mask ({worst}); "
        "choose a model such as Pythia, Llama, Qwen2.5, GPT-2 or SmolLM2."
    )


def _plain(network: Any, ids: np.ndarray, context: int, device: torch.device) -> tuple[Tensor, float]:
    """Log-probabilities after root, both children and grandchild by a plain forward of both paths, `[4, vocab_size]`.

    The second is the difference that rounding explains.
    """

    def logits(tokens: np.ndarray, places: list[int]) -> Tensor:
        inputs = torch.from_numpy(tokens).to(device)
        positions = torch.tensor(places, device=device).expand(inputs.shape)
        # A mask of ones: without any, positions that jump would mean texts packed into one.
        return network(input_ids=inputs, position_ids=positions, attention_mask=torch.ones_like(inputs)).logits

    start, end = [*range(PREFIX)], context - DEPTHS.max() - 1
    paths = logits(ids[PATHS], [*start, *range(end, context)])
    expected = _log_probs(torch.stack([paths[0, 3], paths[0, 4], paths[1, 4], paths[0, 5]]))
    allowed = TOLERANCE[network.dtype]
    if network.dtype != torch.float32:
        ignoring = logits(ids[None], [*start, *range(end - 1, context)])[0, PREFIX:]
        allowed = max(allowed, HALF_PRECISION_SHARE * _difference(_log_probs(ignoring), expected))
    return expected, allowed


def _trees(engine: EagerEngine, cache: "_Gapped", ids: np.ndarray, context: int) -> Iterator[Tensor]:
    """The same by a pass over the prefix and one over the four nodes, as decoding makes them: close by, and far behind.

    The first comes first because a model that looks positions up by rows ends the CUDA context with the second.
    """
    causal = engine.mask(Visibility.causal(0, PREFIX))
    last = engine.run(cache, ids[:PREFIX], np.arange(PREFIX), causal, 1)
    if len(last) != 1:
        raise ValueError(f"it returns logits for {len(last)} tokens where one was requested")
    positions = context - 1 - DEPTHS.max() + DEPTHS
    for cache.gap in (0, context + MOST_NODES):
        hidden = np.zeros((len(DEPTHS), cache.gap), dtype=bool)
        mask = engine.mask(Visibility(PREFIX, np.concatenate([hidden, ANCESTORS], axis=1)))
        yield _log_probs(engine.run(cache, ids[PREFIX:], positions, mask, 0))
        cache.rollback(PREFIX)


def _own_mask(network: Any, cache: "_Gapped", ids: np.ndarray, context: int, device: torch.device) -> Tensor:
    """The same after root, first child and grandchild, far behind the prefix by a mask of the model's own."""
    path = torch.from_numpy(ids[PATHS[0, PREFIX:]])[None].to(device)
    cache.gap = context - PREFIX - path.shape[1]
    seen = torch.ones((1, context), dtype=torch.long, device=device)
    seen[:, PREFIX : PREFIX + cache.gap] = 0
    positions = torch.arange(context - path.shape[1], context, device=device)[None]
    output = network(input_ids=path, attention_mask=seen, position_ids=positions, past_key_values=cache, use_cache=True)
    return _log_probs(output.logits[0])


class _Gapped(KVCache):
    """The cache with `gap` rows of zeros more after the prefix, which are made for one layer at a time."""

    gap = 0

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_args, **_kwargs) -> tuple[Tensor, Tensor]:
        held, new = super().update(keys, values, layer_idx)
        return self._spread(held), self._spread(new)

    def get_seq_length(self, _layer_idx: int = 0) -> int:
        """See `KVCache.get_seq_length`."""
        return self.length + self.gap

    def _spread(self, rows: Tensor) -> Tensor:
        between = rows.new_zeros(1).expand(*rows.shape[:2], self.gap, rows.shape[3])
        return torch.cat([rows[:, :, :PREFIX], between, rows[:, :, PREFIX:]], dim=2)


def _log_probs(logits: Tensor) -> Tensor:
    return logits.float().log_softmax(-1)


def _difference(found: Tensor, expected: Tensor) -> float:
    return torch.nan_to_num((found - expected).abs(), nan=torch.inf).max().item()
