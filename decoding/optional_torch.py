"""torch where it is installed; elsewhere a stand-in that says so in one sentence when something is to be computed.

    from decoding.optional_torch import Tensor, torch

Methods, verifiers and sampling are records with rules besides what they compute: with this in the place of torch they
can be read, set and shown on a machine that only looks at recorded runs. What runs a model imports torch itself.
"""

from typing import Any, NoReturn

from decoding.errors import NEEDS_TORCH, TorchMissingError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise

    class _Missing:
        """Stands where torch would."""

        def __getattr__(self, name: str) -> NoReturn:
            raise TorchMissingError(NEEDS_TORCH)

    torch: Any = _Missing()
    Tensor = Any

__all__ = ["Tensor", "torch"]
