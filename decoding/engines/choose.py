"""Which engine runs a model: what was asked for, or the fastest that gives the library's logits."""

from typing import Any

import numpy as np
import torch

from decoding.engines.base import Engine, Visibility
from decoding.engines.eager import EagerEngine, LibraryForward
from decoding.engines.lean_llama import LlamaForward
from decoding.engines.lean_neox import NeoXForward
from decoding.engines.linear import can_pack
from decoding.errors import PairError
from decoding.pair_checks import TOLERANCE
from decoding.presets import ENGINES

LEAN_FORWARDS = (NeoXForward, LlamaForward)
# Packed weights stand beside the library's: on a CPU auto takes them only where this share of free memory suffices.
PACKED_MEMORY_SHARE = 0.5


def make_engine(
    asked: str, network: Any, name: str, positions: int, free_bytes: int | None = None, **how: Any
) -> Engine:
    """The engine for a loaded network.

    Args:
        asked: one of `presets.ENGINES`; auto takes lean on a CPU where it fits, the library elsewhere.
        name: the model, for messages.
        positions: most positions that a text can have.
        free_bytes: free memory of the device, None if unknown.
        how: `num_layers`, `device`, `dtype`, `mask_kind`, `mask_layer_types` of the model.

    Raises:
        PairError: the engine cannot run this network.
    """
    assert asked in ENGINES
    library = EagerEngine("library", LibraryForward(network), **how)
    if asked == "library" or (asked == "auto" and not _worth_packing(network, free_bytes, **how)):
        return library
    kind = next((kind for kind in LEAN_FORWARDS if kind.fits(network)), None)
    one_device = len(set((getattr(network, "hf_device_map", None) or {"": 0}).values())) == 1
    if kind is None or how["mask_kind"] != "bool" or not one_device:
        if asked == "auto":
            return library
        reason = (
            "spread over devices" if not one_device else f"a {type(network).__name__} with {how['mask_kind']} masks"
        )
        raise PairError(f"{name} is {reason}, for which there is no lean forward; choose engine auto or library.")
    with torch.inference_mode():
        lean = EagerEngine("lean", kind(network, positions), **how)
        difference = _difference(lean, library, network)
    if difference > TOLERANCE.get(how["dtype"], 2e-1):
        if asked == "auto":
            return library
        raise PairError(
            f"The lean forward gives {name} log-probabilities that differ by {difference:.2g}; choose engine library."
        )
    return lean


def _worth_packing(network: Any, free_bytes: int | None, device: torch.device, dtype: torch.dtype, **_: Any) -> bool:
    weights = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    return can_pack(device, dtype) and (free_bytes is None or weights <= PACKED_MEMORY_SHARE * free_bytes)


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
