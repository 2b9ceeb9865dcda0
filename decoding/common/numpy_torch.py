"""The functions of torch that replays call, on `numpy_tensor.Tensor`; under the name `torch` to them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from decoding.common.errors import NEEDS_TORCH, TorchMissingError
from decoding.common.numpy_tensor import Tensor, plain


class NumpyTorch:
    """Stands where torch would.

    Raises:
        TorchMissingError: any other attribute.
    """

    float32, float64, int64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
    inf = float("inf")

    def __init__(self):
        self.special = SimpleNamespace(entr=entr)
        self.nn = SimpleNamespace(functional=SimpleNamespace(one_hot=one_hot))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TorchMissingError(NEEDS_TORCH)

    @staticmethod
    def finfo(dtype: np.dtype) -> np.finfo:
        return np.finfo(dtype)

    @staticmethod
    def from_numpy(array: np.ndarray) -> Tensor:
        return Tensor(array)

    @staticmethod
    def tensor(data: Any, dtype: np.dtype | None = None, device: Any = None) -> Tensor:
        array = np.array(data, dtype=dtype)
        return Tensor(array.astype(np.float32) if dtype is None and array.dtype == np.float64 else array)

    @staticmethod
    def ones(*sizes: int, dtype: np.dtype = float32) -> Tensor:
        return Tensor(np.ones(sizes, dtype=dtype))

    @staticmethod
    def zeros_like(like: Tensor) -> Tensor:
        return Tensor(np.zeros_like(like.numpy()))

    @staticmethod
    def arange(end: int) -> Tensor:
        return Tensor(np.arange(end))

    @staticmethod
    def stack(tensors: Sequence[Tensor]) -> Tensor:
        return Tensor(np.stack([each.numpy() for each in tensors]))

    @staticmethod
    def cat(tensors: Sequence[Tensor]) -> Tensor:
        return Tensor(np.concatenate([each.numpy() for each in tensors]))

    @staticmethod
    def where(condition: Tensor, chosen: Tensor, other: Tensor | float) -> Tensor:
        return Tensor(np.where(condition.numpy(), chosen.numpy(), plain(other)))

    @staticmethod
    def softmax(logits: Tensor, dim: int) -> Tensor:
        """Summed in float64 and rounded once, so each probability is within one rounding of the exact one."""
        wide = logits.numpy().astype(np.float64)
        wide -= wide.max(dim, keepdims=True)
        np.exp(wide, out=wide)
        wide /= wide.sum(dim, keepdims=True)
        return Tensor(wide).to(logits.dtype)


def entr(law: Tensor) -> Tensor:
    """-p ln p, 0 for a p of 0."""
    probs = law.numpy()
    return Tensor(-probs * np.log(np.where(probs > 0, probs, 1.0)))


def one_hot(index: Tensor, num_classes: int) -> Tensor:
    """1 at each index, `[..., num_classes]`."""
    places = index.numpy()[..., None]
    return Tensor((np.arange(num_classes) == places).astype(np.int64))


torch = NumpyTorch()
