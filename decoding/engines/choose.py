"""Which engine runs a model: what was asked for, or the fastest that gives the library's logits."""

import warnings
from typing import Any

import numpy as np
import torch

from decoding.engines.base import Engine, Visibility
from decoding.engines.eager import EagerEngine, LibraryForward
from decoding.engines.lean_llama import LlamaForward
from decoding.engines.lean_neox import NeoXForward
from decoding.engines.linear import can_pack
from decoding.engines.static import StaticEngine
from decoding.engines.streaming import StreamingEngine
from decoding.errors import PairError
from decoding.pair_checks import TOLERANCE, is_out_of_memory
from decoding.presets import is_engine, streamed_rows

LEAN_FORWARDS = (NeoXForward, LlamaForward)
# Packed weights stand beside the library's: on a CPU auto takes them only where this share of free memory suffices.
PACKED_MEMORY_SHARE = 0.5


def make_engine(
    asked: str, network: Any, name: str, positions: int, free_bytes: int | None = None, **how: Any
) -> Engine:
    """The engine for a loaded network.

    Args:
        asked: one of `presets.ENGINES`; auto takes static on CUDA and lean on a CPU where they fit, else the library.
        name: the model, for messages.
        positions: most positions that a text can have.
        free_bytes: free memory of the device, None if unknown.
        how: `num_layers`, `device`, `dtype`, `mask_kind`, `mask_layer_types` of the model.

    Raises:
        PairError: the engine cannot run this network.
    """
    assert is_engine(asked)
    library = EagerEngine("library", LibraryForward(network, name), **how)
    wanted = _fastest(network, free_bytes, **how) if asked == "auto" else asked
    if wanted == "library":
        return library
    kind = next((kind for kind in LEAN_FORWARDS if kind.fits(network) and how["mask_kind"] == "bool"), None)
    refusal = _refusal(wanted, kind, network, name, how["mask_kind"])
    if refusal is None:
        with torch.inference_mode():
            engine = _own_engine(wanted, kind, network, name, positions, how)
            refusal = _wrong(engine, library, network, name, how["dtype"])
    if refusal is None:
        return engine
    if asked == "auto":
        return library
    raise PairError(refusal)


def _own_engine(asked: str, kind: type | None, network: Any, name: str, positions: int, how: dict[str, Any]) -> Engine:
    """The engine of a name, made but not yet tried.

    Args:
        kind: of the lean forward, None where there is none.
    """
    forward, rows = LibraryForward(network, name) if kind is None else kind(network, positions), streamed_rows(asked)
    if asked == "static":
        return StaticEngine(forward, **how)
    if rows is None:
        return EagerEngine("lean", forward, **how)
    if not forward.rotary.keeps_length:
        raise PairError(f"{name} scales what it rotates, so nothing can be turned back; choose engine lean.")
    return StreamingEngine(forward, forward.rotary, rows, **how)


def _fastest(network: Any, free_bytes: int | None, device: torch.device, dtype: torch.dtype, **masks: Any) -> str:
    """The engine that auto tries."""
    if device.type == "cuda":
        one_mask = masks["mask_kind"] == "bool" and not masks["mask_layer_types"]
        return "static" if one_mask and _on_one_device(network) else "library"
    weights = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    fits = free_bytes is None or weights <= PACKED_MEMORY_SHARE * free_bytes
    return "lean" if can_pack(device, dtype) and fits else "library"


def _on_one_device(network: Any) -> bool:
    return len(set((getattr(network, "hf_device_map", None) or {"": 0}).values())) == 1


def _refusal(wanted: str, kind: type | None, network: Any, name: str, mask_kind: str) -> str | None:
    """Why an engine cannot run a network, None if it can."""
    if not _on_one_device(network):
        return f"{name} is spread over devices, which the {wanted} engine is not; choose engine auto or library."
    if wanted not in ("library", "static") and kind is None:
        network_name = f"a {type(network).__name__} with {mask_kind} masks"
        return f"{name} is {network_name}, for which there is no lean forward; choose engine auto or library."
    return None


def _wrong(engine: Engine, library: Engine, network: Any, name: str, dtype: torch.dtype) -> str | None:
    """How an engine fails to give the library's logits, None if it gives them."""
    try:
        # The second time on CUDA static passes are graphs.
        difference = max(_difference(engine, library, network) for _ in range(2 if engine.name == "static" else 1))
    except RuntimeError as error:
        if engine.name != "static" or is_out_of_memory(error):
            raise
        reason = f"{name} cannot run as CUDA graphs ({str(error).splitlines()[0]}); choose engine library."
        warnings.warn(reason, RuntimeWarning, stacklevel=2)
        return reason
    if difference <= TOLERANCE.get(dtype, 2e-1):
        return None
    forward = "static engine" if engine.name == "static" else "lean forward"
    return f"The {forward} gives {name} log-probabilities that differ by {difference:.2g}; choose engine library."


def _difference(engine: Engine, reference: Engine, network: Any) -> float:
    """Largest difference of log-probabilities in a small tree behind a cached prefix."""
    vocab = network.config.get_text_config().vocab_size
    ids = np.arange(1, 14, 2) * vocab // 16
    tree = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=bool)
    rows = []
    for one in (engine, reference):
        cache = one.new_cache(16)
        one.run(cache, ids[:3], np.arange(3), one.mask(Visibility(0, np.tri(3, dtype=bool))), 1)
        logits = one.run(cache, ids[3:], np.array([3, 4, 4, 5]), one.mask(Visibility(3, tree)), 0)
        rows.append(torch.log_softmax(logits.float(), -1))
    return float((rows[0] - rows[1]).abs().max())
