"""What makes a draft/target pair impossible, found before the first iteration and said in one sentence."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from decoding.errors import MEMORY_SIGNS, PairError

ALIBI_MODELS = ("bloom", "mpt")
TREE_LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")
STATE_LAYER_TYPES = {"linear_attention", "conv", "hybrid", "hybrid_sliding", "mamba", "mamba2", "recurrent", "ssm"}
# Largest difference of log-probabilities between a tree forward and plain forwards that rounding explains.
TOLERANCE = {torch.float32: 2e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
# Half precision rounds more in deep models: there a tenth of what ignoring the mask would change is still rounding.
HALF_PRECISION_SHARE = 0.1
FORWARD_ERRORS = (
    TypeError,
    ValueError,
    RuntimeError,
    LookupError,
    AttributeError,
    NotImplementedError,
    AssertionError,
)


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
        PairError: a sliding window is shorter than that.
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


def check_tree_attention(network: Any, name: str, *, sdpa: bool, device: torch.device) -> tuple[str, tuple | None]:
    """Run a tiny tree and plain sequences through the model and compare: they must give the same probabilities.

    The tree has a root, two children and a grandchild under the first, after a cached prefix of three tokens.

    Returns:
        the form of mask that works (`bool` or `additive`) and the keys of a mask per layer type (None: one mask).

    Raises:
        PairError: the model ignores or misreads a tree mask or explicit positions.
    """
    layer_types = sorted(set(getattr(network.config.get_text_config(), "layer_types", None) or ()))
    keys = tuple(layer_types) if len(layer_types) > 1 else None
    forms = [
        (kind, k) for kind in (("bool", "additive") if sdpa else ("additive",)) for k in dict.fromkeys((keys, None))
    ]
    vocab = network.config.get_text_config().vocab_size
    ids = torch.tensor([[vocab * (2 * i + 1) // 16 for i in range(7)]], device=device)
    worst = ""
    with torch.no_grad():
        try:
            expected = _sequential(network, ids)
            ignored = _difference(_log_probs(network(input_ids=ids).logits[0, 3:]), expected)
        except FORWARD_ERRORS as error:
            _reraise_memory(error)
            raise PairError(
                f"{name} fails on a plain forward pass ({_first_line(error)}); choose another model."
            ) from error
        for kind, mask_keys in forms:
            try:
                found = _tree(network, ids, kind, mask_keys)
            except FORWARD_ERRORS as error:
                _reraise_memory(error)
                worst = worst or _first_line(error)
                continue
            error = _difference(found, expected)
            share = 0.0 if network.dtype == torch.float32 else HALF_PRECISION_SHARE * ignored
            if error <= max(TOLERANCE.get(network.dtype, 2e-1), share):
                return kind, mask_keys
            worst = f"log-probabilities differ by {error:.2g}"
    raise PairError(
        f"{name} ({network.config.model_type}) cannot take a tree attention mask ({worst}); "
        "choose a model such as Pythia, Llama, Qwen2.5, GPT-2 or SmolLM2."
    )


def _sequential(network: Any, ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities after root, first child, second child, grandchild, by plain forwards, `[4, vocab_size]`."""
    deep = network(input_ids=ids[:, [0, 1, 2, 3, 4, 6]]).logits[0]
    flat = network(input_ids=ids[:, [0, 1, 2, 3, 5]]).logits[0]
    return _log_probs(torch.stack([deep[3], deep[4], flat[4], deep[5]]))


def _tree(network: Any, ids: torch.Tensor, kind: str, mask_keys: tuple | None) -> torch.Tensor:
    """The same by one forward of the four nodes over a cached prefix, with a mask and positions by depth."""
    cache = DynamicCache(config=network.config)
    network(input_ids=ids[:, :3], past_key_values=cache, use_cache=True)
    rows = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=torch.bool, device=ids.device)
    mask = torch.cat([torch.ones(4, 3, dtype=torch.bool, device=ids.device), rows], dim=1)[None, None]
    if kind == "additive":
        floor = torch.finfo(network.dtype).min
        mask = torch.zeros(mask.shape, dtype=network.dtype, device=ids.device).masked_fill(~mask, floor)
    logits = network(
        input_ids=ids[:, 3:],
        attention_mask=mask if mask_keys is None else dict.fromkeys(mask_keys, mask),
        position_ids=torch.tensor([[3, 4, 4, 5]], device=ids.device),
        past_key_values=cache,
        use_cache=True,
    ).logits[0]
    return _log_probs(logits)


def _log_probs(logits: torch.Tensor) -> torch.Tensor:
    return logits.float().log_softmax(-1)


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, infinite if either side holds a nan."""
    return torch.nan_to_num((found - expected).abs(), nan=torch.inf).max().item()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def _reraise_memory(error: BaseException) -> None:
    if is_out_of_memory(error):
        raise error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any device means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(sign in text for sign in MEMORY_SIGNS)
    )
