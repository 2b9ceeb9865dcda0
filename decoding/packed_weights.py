"""Trained weights in 8 bits: each row of a matrix as whole numbers from -127 to 127 and one float16 scale.

A matrix `w` becomes `w`, int8 `[rows, ...]`, and `w.scale`, float16 `[rows]`; vectors and numbers stay float32.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from decoding.errors import TrainingError

SCALE = ".scale"
_LARGEST = 127


def pack(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of floating-point tensors in 8 bits; 0 stays 0.

    Raises:
        TrainingError: a weight is no finite number, or too large for 8 bits with a float16 scale.
    """
    packed: dict[str, Tensor] = {}
    for name, weight in state.items():
        weight = weight.detach().float().cpu()
        if not torch.isfinite(weight).all() or weight.abs().max() > _LARGEST * torch.finfo(torch.float16).max:
            raise TrainingError(f"The weights {name} hold no usable numbers: train again with a lower --learning-rate.")
        if weight.dim() < 2:
            packed[name] = weight.contiguous()
            continue
        rows = weight.flatten(1)
        scale = (rows.abs().amax(1) / _LARGEST).half()
        # A row too small for float16 becomes 0: dividing by its scale would not.
        steps = torch.where(scale > 0, scale.float(), torch.inf)
        whole = (rows / steps[:, None]).round().clamp(-_LARGEST, _LARGEST)
        packed[name] = whole.to(torch.int8).view(weight.shape).contiguous()
        packed[name + SCALE] = scale
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict in float32, as `pack` was given it but for rounding.

    Raises:
        TrainingError: a matrix and its scale do not fit.
    """
    state: dict[str, Tensor] = {}
    for name, weight in packed.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in packed:
            continue
        if weight.dim() < 2:
            state[name] = weight.float()
            continue
        scale = packed.get(name + SCALE)
        if scale is None or scale.shape != weight.shape[:1]:
            raise TrainingError(f"The weights {name} have no scale for each row: take the file from its source again.")
        state[name] = weight.float() * scale.float().view(-1, *[1] * (weight.dim() - 1))
    return state


def rounded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict as it will be read back after it was packed: what is shipped is what should be measured."""
    return unpack(pack(state))


def packed_bytes(state: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file of packed weights."""
    return save(pack(state))


def load_packed(file: Path) -> dict[str, Tensor]:
    """The state dict in a file that `packed_bytes` made, float32 on the CPU; nothing in the file is run.

    Raises:
        TrainingError: there is no such file, or it is damaged.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise TrainingError(f"{file} cannot be read ({error.strerror}): give the folder of a trained model.") from None
    try:
        return unpack(load(content))
    except SafetensorError as error:
        raise TrainingError(f"{file} is damaged ({error}): take it from its source again or train again.") from None
