"""torch where it is installed; elsewhere numpy under the same names, as far as replays of recorded runs need it.

    from decoding.common.optional_torch import Tensor, torch

Methods, verifiers and sampling are records with rules besides what they compute, and what they compute from stored rows
needs no model: with this in the place of torch all of it works on a machine that only looks at runs. Whatever numpy
does not stand in for says in one sentence that it needs torch. What runs a model imports torch itself.
"""

from typing import Any

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    from decoding.common.numpy_tensor import Tensor
    from decoding.common.numpy_torch import torch as numpy_torch

    torch: Any = numpy_torch

__all__ = ["Tensor", "torch"]
