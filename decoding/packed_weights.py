"""Trained weights in 6 bits: each row of a matrix as whole numbers from -31 to 31 and one float16 scale.

A matrix `w` becomes `w`, uint8 `[rows, groups, 3]`, four numbers of a row in three bytes, `w.scale`, float16 `[rows]`,
and `w.shape`, int64; vectors and numbers stay float32.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional

from decoding.errors import TrainingError

SCALE, SHAPE = ".scale", ".shape"
_LARGEST = 31
_SHIFTS = torch.tensor([18, 12, 6, 0])  # of four numbers in 24 bits
_BYTES = torch.tensor([16, 8, 0])  # of three bytes in them


def pack(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of floating-point tensors in 6 bits; 0 stays 0.

    Raises:
        TrainingError: a weight is no finite number, or too large for 6 bits with a float16 scale.
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
        whole = (rows / steps[:, None]).round().clamp(-_LARGEST, _LARGEST).long() + _LARGEST
        fours = functional.pad(whole, (0, -whole.shape[1] % 4)).unflatten(1, (-1, 4))
        joined = (fours << _SHIFTS).sum(-1)
        packed[name] = (joined[..., None] >> _BYTES & 0xFF).to(torch.uint8)
        packed[name + SCALE], packed[name + SHAPE] = scale, torch.tensor(weight.shape)
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict in float32, as `pack` was given it but for rounding.

    Raises:
        TrainingError: a matrix, its scale and its shape do not fit.
    """
    names = [name for name in packed if packed[name].dim() > 1]
    beside = {name + end for name in names for end in (SCALE, SHAPE)}
    state = {name: weight.float() for name, weight in packed.items() if name not in beside}
    for name in names:
        scale, shape = packed.get(name + SCALE), packed.get(name + SHAPE)
        if scale is None or shape is None or not _fit(packed[name], scale, shape):
            raise TrainingError(f"The weights {name} have no scale for each row: take the file from its source again.")
        joined = (packed[name].long() << _BYTES).sum(-1, keepdim=True)
        whole = (joined >> _SHIFTS & 0x3F).flatten(1)[:, : math.prod(shape.tolist()[1:])] - _LARGEST
        state[name] = (whole * scale.float()[:, None]).view(*shape.tolist())
    return {name: state[name] for name in packed if name in state}


def _fit(weight: Tensor, scale: Tensor, shape: Tensor) -> bool:
    """Whether bytes `[rows, groups, 3]` and a scale per row are those of a matrix of some shape."""
    if shape.dim() != 1 or shape.dtype != torch.int64 or len(shape) < 2 or shape.min() < 0:
        return False
    rows, *rest = shape.tolist()
    groups = -(-math.prod(rest) // 4)
    return weight.dtype == torch.uint8 and weight.shape == (rows, groups, 3) and scale.shape == (rows,)


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
