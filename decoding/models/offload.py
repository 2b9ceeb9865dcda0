"""Targets larger than their device: weights that wait in CPU memory, or on disk, and come over for every pass."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

# Of the memory that is free, for weights: the conversion of a weight file needs some as well.
CPU_MEMORY_SHARE = 0.9


def placement(max_memory_gib: float | None, device: str, gpus: int, free_cpu_bytes: int | None) -> dict[str, Any]:
    """How `from_pretrained` is to place the layers of a model; what does not fit on a device goes to the next.

    From a GPU that is CPU memory, then disk; from a CPU it is disk, where the weight files are read in place.

    Args:
        max_memory_gib: what weights may take of each device, the largest layer's turn included; None sets no limit.
        gpus: how many GPUs to use, where `device` is one.
        free_cpu_bytes: free CPU memory, None if unknown.
    """
    if max_memory_gib is None:
        return {"device_map": "auto"}
    limit = int(max_memory_gib * 2**30)
    if device == "cpu":
        return {"device_map": "auto", "max_memory": {"cpu": limit}}
    cpu_limit = int(CPU_MEMORY_SHARE * (free_cpu_bytes or 0))
    return {"device_map": "auto", "max_memory": {**dict.fromkeys(range(gpus), limit), "cpu": cpu_limit}}


def is_offloaded(network: nn.Module) -> bool:
    """Whether some weights come to the device only while their layer runs."""
    return any(weight.is_meta for weight in network.parameters())


def is_on(network: nn.Module, device: str) -> bool:
    """Whether any weights stay on a kind of device."""
    return any(weight.device.type == torch.device(device).type for weight in network.parameters())


def fetch_weight(layer: nn.Module) -> Tensor:
    """The weight of a layer, wherever it is kept."""
    return next(held["weight"] for held in _held_weights(layer)) if layer.weight.is_meta else layer.weight


def drop_offloaded(network: nn.Module) -> None:
    """Free the weights that are kept beside a network, whoever still holds it."""
    for layer in network.modules():
        for held in _held_weights(layer):
            getattr(held.dataset, "state_dict", {}).clear()


def _held_weights(layer: nn.Module) -> Iterator[Any]:
    """Weights by name that accelerate's hooks bring to the device when this layer runs."""
    hook = getattr(layer, "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        if getattr(one, "offload", False):
            yield one.weights_map
