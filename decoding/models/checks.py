"""What makes a draft/target pair impossible, found before the first iteration and said in one sentence."""

from collections.abc import Sequence
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from decoding.common.errors import PairError

ALIBI_MODELS = ("bloom", "mpt")
TREE_LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")
STATE_LAYER_TYPES = {"linear_attention", "conv", "hybrid", "hybrid_sliding", "mamba", "mamba2", "recurrent", "ssm"}


def causal_class(config: Any) -> type | None:
    """The causal language model class of a configuration, None if it has none."""
    try:
        found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except KeyError:
        return None
    return found[0] if isinstance(found, tuple) else found


def check_config(config: Any, name: str) -> type:
    """Refuse what the configuration alone shows cannot work; returns the model class.

    Raises:
        PairError: not a causal model, alibi positions, recurrent layers, quantised weights.
    """
    model_class = _check_causal(config, name)
    text = config.get_text_config()
    _check_positions(text, name)
    _check_layers(text, model_class, name)
    if getattr(config, "quantization_config", None) is not None:
        raise PairError(f"{name} holds quantised weights, which are not supported; choose the unquantised model.")
    return model_class


def _check_causal(config: Any, name: str) -> type:
    advice = "choose a decoder-only model such as Pythia, Llama, Qwen2.5 or SmolLM2."
    if getattr(config, "is_encoder_decoder", False):
        raise PairError(f"{name} is an encoder-decoder ({config.model_type}), not a causal language model; {advice}")
    model_class = causal_class(config)
    saved = config.architectures or []
    saved = [saved] if isinstance(saved, str) else saved
    names_causal = not saved or any(
        arch.endswith(("ForCausalLM", "LMHeadModel")) or (model_class and arch == model_class.__name__)
        for arch in saved
    )
    if model_class is None or not names_causal:
        kind = ", ".join(saved) or config.model_type
        raise PairError(f"{name} holds {kind}, which is not a causal language model; {advice}")
    return model_class


def _check_positions(text: Any, name: str) -> None:
    attn_config = getattr(text, "attn_config", None)
    if text.model_type in ALIBI_MODELS or getattr(text, "alibi", False) or getattr(attn_config, "alibi", False):
        raise PairError(
            f"{name} ({text.model_type}) has alibi positions, which count cache rows instead of tree depth; "
            "choose a model with rotary or learned positions."
        )


def _check_layers(text: Any, model_class: type, name: str) -> None:
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


def attention_window(config: Any) -> int | None:
    """Fewest tokens that any layer looks back over, None if all layers see everything."""
    text = config.get_text_config()
    layer_types = getattr(text, "layer_types", None)
    windows = []
    sliding = getattr(text, "sliding_window", None)
    if sliding and (layer_types is None or "sliding_attention" in layer_types):
        windows.append(sliding)
    if layer_types and "chunked_attention" in layer_types and getattr(text, "attention_chunk_size", None):
        windows.append(text.attention_chunk_size)
    if "local" in (getattr(text, "attention_layers", None) or ()):
        windows.append(text.window_size)
    return min(windows, default=None)


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
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"):
        if isinstance(getattr(text, name, None), int):
            return getattr(text, name)
    return None


def check_context(configs: Sequence[tuple[str, Any]], context_length: int) -> int:
    """The context of the pair: the shortest of both models' and the one asked for.

    Raises:
        PairError: a sliding window is shorter than that, or longrope turns over before it.
    """
    limits = [limit for limit in (max_positions(config) for _, config in configs) if limit is not None]
    context = min([context_length, *limits])
    for name, config in configs:
        window = attention_window(config)
        if window is not None and window < context:
            raise PairError(
                f"{name} has a sliding window of {window} tokens, shorter than the context in use ({context}); "
                f"lower context_length to {window} or less."
            )
        turn = longrope_turn(config)
        if turn is not None and turn < context:
            raise PairError(
                f"{name} has longrope positions, which take other factors past {turn} tokens, so that keys cached "
                f"before fit no more, and the context in use is longer ({context}); lower context_length to {turn} or "
                "less."
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
        what = f"{len(target_vocab)} tokens against {len(draft_vocab)}"
    else:
        shown = [repr(tokens[first]) if first in tokens else "no token" for tokens in by_id]
        what = f"token {first} is {shown[0]} in the target and {shown[1]} in the draft"
    raise PairError(
        f"{target_name} and {draft_name} have different tokenizers: {what}; choose two models of one family."
    )
