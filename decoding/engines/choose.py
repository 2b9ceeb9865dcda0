"""Which engine runs a model: what was asked for, or the fastest that gives transformers' logits."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from decoding.common.errors import PairError, is_out_of_memory
from decoding.common.settings import STATIC_HOST, is_engine, streamed_rows
from decoding.engines.base import TOLERANCE, EagerEngine, TransformersForward, Visibility
from decoding.engines.cuda_graph import CudaGraphEngine
from decoding.engines.packed import LlamaForward, NeoXForward, PackedForward, StreamingEngine, can_pack
from decoding.engines.packed_cpu import MergedForward
from decoding.engines.packed_cuda import FusedLlamaForward, FusedNeoXForward

Engine = EagerEngine | CudaGraphEngine
# The first that fits a network runs it. In a graph there is nothing of numpy, and rows have fixed addresses.
GRAPHABLE_FORWARDS = (FusedNeoXForward, FusedLlamaForward, NeoXForward, LlamaForward)
PACKED_FORWARDS = (MergedForward, NeoXForward, LlamaForward)
# Packed weights stand beside the original ones: on a CPU auto takes them only where this share of free memory suffices.
PACKED_MEMORY_SHARE = 0.5
# Tokens are compared whose logit is at most so far below the favourite's: in 16 bits those of tokens that nothing would
# ever choose are rounded by more than a wrong mask changes the others.
LIKELY_LOGIT_GAP = 3.0


class Made(NamedTuple):
    """An engine and why it runs a model."""

    engine: Engine
    # Largest difference of log-probabilities of likely tokens from transformers'; None for transformers
    difference: float | None
    why: str  # why auto chose it, or could not choose the faster one

    def reason(self, asked: str) -> str:
        """Why it runs the model that was loaded with engine `asked`, as text for the screen."""
        why = self.why if asked == "auto" else "requested"
        if self.difference is None:
            return why
        return f"{why}; log-probabilities of likely tokens are within {self.difference:.2g} of transformers'"


def make_engine(asked: str, network: Any, name: str, positions: int, free_bytes: int | None = None, **how: Any) -> Made:
    """The engine for a loaded network, and why it is this one; `PairError` where the one asked for cannot run it.

    Of `presets.ENGINES` auto takes cuda_graph on CUDA, packed on a CPU, transformers elsewhere. `positions` are the
    most that a text can have, `free_bytes` of the device None if unknown, and `how` has `num_layers`, `device`,
    `dtype`, `mask_kind`, `mask_layer_types` of the model.
    """
    assert is_engine(asked)
    plain = EagerEngine("transformers", TransformersForward(network, name), **how)
    wanted, why = _fastest(network, free_bytes, **how) if asked == "auto" else (asked, "")
    if wanted == "transformers":
        return Made(plain, None, why)
    kinds = GRAPHABLE_FORWARDS if _has_static_shapes(wanted) else PACKED_FORWARDS
    fitting = [kind for kind in kinds if kind.fits(network) and how["mask_kind"] == "bool"]
    refusal: str | None = None
    if not _on_one_device(network):
        refusal = f"{name} is spread over devices: the {wanted} engine needs one; choose engine auto or transformers."
    elif not fitting and not _has_static_shapes(wanted):
        refusal = (
            f"{name} is a {type(network).__name__} with {how['mask_kind']} masks, which the packed engine does not "
            "support; choose engine auto or transformers."
        )
    else:
        # A faster forward may round more than is borne: the next one is tried.
        for place, kind in enumerate(fitting or (None,)):
            with torch.inference_mode():
                packed = None if kind is None else kind(network, positions)
                engine = _engine(wanted, packed, network, name, how)
                difference, refusal = _checked(engine, plain, network, name, how["dtype"])
            if refusal is None:
                return Made(engine, difference, f"{why}, {fitting[0].__name__} being off by too much" if place else why)
    assert refusal is not None
    if asked == "auto":
        return Made(plain, None, refusal)
    raise PairError(refusal)


def _engine(wanted: str, packed: PackedForward | None, network: Any, name: str, how: dict[str, Any]) -> Engine:
    forward = packed or TransformersForward(network, name)
    if _has_static_shapes(wanted):
        return CudaGraphEngine(forward, **how, name=wanted)
    if (rows := streamed_rows(wanted)) is None:
        return EagerEngine("packed", forward, **how)
    if packed is None or not packed.rotary.keeps_length:
        raise PairError(f"{name} scales its rotary embeddings and cannot rotate them back; choose engine packed.")
    return StreamingEngine(packed, rows, **how)


def _fastest(
    network: Any, free_bytes: int | None, device: torch.device, dtype: torch.dtype, **masks: Any
) -> tuple[str, str]:
    if device.type == "cuda":
        if not _on_one_device(network):
            return "transformers", "the model is spread over devices, which CUDA graphs do not support"
        if masks["mask_kind"] != "bool" or masks["mask_layer_types"]:
            return ("transformers", "CUDA graphs need one boolean mask for all layers, which this model does not use")
        return "cuda_graph", "the fastest on a CUDA GPU"
    if not can_pack(device, dtype):
        return "transformers", f"weights in {str(dtype).removeprefix('torch.')} cannot be packed on this {device.type}"
    weights = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    if free_bytes is not None and weights > PACKED_MEMORY_SHARE * free_bytes:
        return "transformers", "free memory is too small for packed weights in addition to the original ones"
    return "packed", "the fastest on a CPU"


def _has_static_shapes(name: str) -> bool:
    return name in ("cuda_graph", STATIC_HOST)


def _on_one_device(network: Any) -> bool:
    return len(set((getattr(network, "hf_device_map", None) or {"": 0}).values())) == 1


def _checked(
    engine: Engine, plain: Engine, network: Any, name: str, dtype: torch.dtype
) -> tuple[float, None] | tuple[None, str]:
    """How far an engine is from transformers' logits, or in words how it fails to give them."""
    static = _has_static_shapes(engine.name)
    try:
        # The second time on CUDA passes are graphs.
        difference = max(_difference(engine, plain, network) for _ in range(2 if static else 1))
    except RuntimeError as error:
        if not static or is_out_of_memory(error):
            raise
        reason = f"{name} cannot run with static shapes ({str(error).splitlines()[0]}); choose engine transformers."
        warnings.warn(reason, RuntimeWarning, stacklevel=2)
        return None, reason
    if isinstance(engine, CudaGraphEngine) and engine.graphs.failure:
        return None, f"{name} cannot run as CUDA graphs ({engine.graphs.failure}); choose engine transformers."
    if difference <= TOLERANCE[dtype]:
        return difference, None
    return None, (
        f"With the {'cuda_graph' if static else 'packed'} engine, log-probabilities of likely tokens of {name} are off "
        f"by {difference:.2g}; choose engine transformers."
    )


def _difference(engine: Engine, reference: Engine, network: Any) -> float:
    """Largest difference of log-probabilities of likely tokens in a small tree after a cached prefix; inf for nan."""
    vocab = network.config.get_text_config().vocab_size
    ids = np.arange(1, 14, 2) * vocab // 16
    tree = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=bool)
    rows = []
    for one in (engine, reference):
        cache = one.new_cache(16)
        one.run(cache, ids[:3], np.arange(3), one.mask(Visibility.causal(0, 3)), 1)
        logits = one.run(cache, ids[3:], np.array([3, 4, 4, 5]), one.mask(Visibility(3, tree)), 0)
        rows.append(torch.log_softmax(logits.float(), -1))
    found, expected = rows
    unlikely = expected < expected.amax(-1, keepdim=True) - LIKELY_LOGIT_GAP  # not so where it is nan
    apart = torch.nan_to_num((found - expected).abs(), nan=torch.inf)
    return float(apart.masked_fill(unlikely, 0).max())
