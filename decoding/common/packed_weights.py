"""Trained weights in 6 bits: each row of a matrix as whole numbers from -31 to 31 and one float16 scale.

A matrix `w` becomes `w`, int8 of its shape, and `w.scale`, float16 `[rows]`; vectors and numbers stay float32. They are
kept as safetensors in xz, which finds that two bits of eight are empty and that small numbers are the usual ones.
"""

import lzma
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from decoding.common.errors import TrainingError

SCALE = ".scale"
_LARGEST = 31
_MOST_BYTES = 1 << 34  # that a file may unpack to where nobody said how large its network is


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
        whole = (rows / steps[:, None]).round().clamp(-_LARGEST, _LARGEST)
        packed[name], packed[name + SCALE] = whole.to(torch.int8).view(weight.shape), scale
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict in float32, as `pack` was given it but for rounding.

    Raises:
        TrainingError: a matrix has no scale for each of its rows.
    """
    matrices = {name for name in packed if packed[name].dim() > 1}
    state: dict[str, Tensor] = {}
    for name, weight in packed.items():
        if name in matrices:
            scale = packed.get(name + SCALE)
            if scale is None or weight.dtype != torch.int8 or scale.shape != weight.shape[:1]:
                raise TrainingError(
                    f"The weights {name} have no scale for each row: take the file from its source again."
                )
            state[name] = (weight.flatten(1) * scale.float()[:, None]).view(weight.shape)
        elif name.removesuffix(SCALE) not in matrices:
            state[name] = weight.float()
    return state


def rounded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict as it will be read back after it was packed: what is shipped is what should be measured."""
    return unpack(pack(state))


def packed_bytes(state: Mapping[str, Tensor]) -> bytes:
    """The content of a file of packed weights; the same weights give the same bytes."""
    return lzma.compress(save(pack(state)))


def load_packed(file: Path, most_bytes: int = _MOST_BYTES) -> dict[str, Tensor]:
    """The state dict in a file that `packed_bytes` made, float32 on the CPU; nothing in the file is run.

    Args:
        most_bytes: that the file may unpack to.

    Raises:
        TrainingError: there is no such file, or it is damaged.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise TrainingError(f"{file} cannot be read ({error.strerror}): give the folder of a trained model.") from None
    try:
        unpacking = lzma.LZMADecompressor()
        whole = unpacking.decompress(content, most_bytes)
        if not unpacking.eof:
            raise lzma.LZMAError("it ends too early" if unpacking.needs_input else "it is too large")
        return unpack(load(whole))
    except (lzma.LZMAError, SafetensorError) as error:
        raise TrainingError(f"{file} is damaged ({error}): take it from its source again or train again.") from None
