"""What replays need of torch, computed with numpy where torch is not installed; imported by `optional_torch`.

`Tensor` has the methods of torch.Tensor that verifiers, drafters and stored rows call, under torch's names and argument
names; `torch` (from `numpy_torch`) has the functions. Whatever else is asked of either says that it needs
torch. What runs a model imports torch itself.
"""

from __future__ import annotations  # in the class below `int` and `float` are methods

from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from decoding.common.errors import NEEDS_TORCH, TorchMissingError


class Device(NamedTuple):
    """The host: tensors are nowhere else here."""

    type: str = "cpu"


class Ordered(NamedTuple):
    """Entries in an order, and where they stood."""

    values: Tensor
    indices: Tensor


class Tensor(np.lib.mixins.NDArrayOperatorsMixin):
    """A numpy array with the methods of torch.Tensor that replays call; `dim` counts as in torch.

    Raises:
        TorchMissingError: any other attribute.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any):
        self._array = np.asarray(array)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and numpy ask for protocols that are not there
            raise AttributeError(name)
        raise TorchMissingError(NEEDS_TORCH)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Tensor:
        """Operators; a number in a tensor leaves the dtype of the other operand as it is, and 0 may be divided by."""
        if method != "__call__" or options:
            raise TorchMissingError(NEEDS_TORCH)
        arrays = [plain(each) for each in inputs]
        if any(np.ndim(each) for each in arrays):
            arrays = [each if np.ndim(each) or not isinstance(each, np.ndarray) else each.item() for each in arrays]
        with np.errstate(all="ignore"):
            return Tensor(ufunc(*arrays))

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        return map(Tensor, self._array)

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self._array[_index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[_index(key)] = plain(value)

    def __float__(self) -> float:
        return float(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __bool__(self) -> bool:
        return bool(self._array)

    def __repr__(self) -> str:
        return f"Tensor({self._array!r})"

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def device(self) -> Device:
        return Device()

    def numel(self) -> int:
        return self._array.size

    # The same numbers in another dtype, shape or container.

    def numpy(self) -> np.ndarray:
        return self._array

    def tolist(self) -> Any:
        return self._array.tolist()

    def cpu(self) -> Tensor:
        return self

    def contiguous(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self._array.copy())

    def to(self, like: np.dtype | Tensor | Device | str, *, copy: bool = False) -> Tensor:
        dtype = like if isinstance(like, np.dtype) else like.dtype if isinstance(like, Tensor) else self.dtype
        return Tensor(self._array.astype(dtype, copy=copy))

    def double(self) -> Tensor:
        return Tensor(self._array.astype(np.float64, copy=False))

    def float(self) -> Tensor:
        return Tensor(self._array.astype(np.float32, copy=False))

    def int(self) -> Tensor:
        return Tensor(self._array.astype(np.int32, copy=False))

    def flatten(self, start_dim: int = 0) -> Tensor:
        return Tensor(self._array.reshape(*self.shape[:start_dim], -1))

    def unflatten(self, dim: int, sizes: tuple[int, ...]) -> Tensor:
        return Tensor(self._array.reshape(*self.shape[:dim], *sizes, *self.shape[dim + 1 :]))

    def expand(self, *sizes: int) -> Tensor:
        shape = tuple(own if size < 0 else size for own, size in zip(self.shape, sizes, strict=True))
        return Tensor(np.broadcast_to(self._array, shape))

    def split(self, size: int) -> list[Tensor]:
        return [Tensor(self._array[start : start + size]) for start in range(0, len(self._array), size)]

    def new_zeros(self, *sizes: int) -> Tensor:
        return Tensor(np.zeros(sizes, dtype=self.dtype))

    # One number per row, or of all.

    def sum(self, dim: int | None = None, keepdim: bool = False, *, dtype: np.dtype | None = None) -> Tensor:
        return Tensor(self._array.sum(dim, dtype=dtype, keepdims=keepdim))

    def amax(self, dim: int) -> Tensor:
        return Tensor(self._array.max(dim))

    def amin(self, dim: int) -> Tensor:
        return Tensor(self._array.min(dim))

    def max(self) -> Tensor:
        return Tensor(self._array.max())

    def min(self) -> Tensor:
        return Tensor(self._array.min())

    def all(self) -> Tensor:
        return Tensor(self._array.all())

    def any(self) -> Tensor:
        return Tensor(self._array.any())

    def argmax(self, dim: int | None = None) -> Tensor:
        return Tensor(self._array.argmax(dim))

    def count_nonzero(self, dim: int) -> Tensor:
        return Tensor(np.count_nonzero(self._array, axis=dim))

    # Entry by entry, in place where the name ends in _.

    def abs(self) -> Tensor:
        return Tensor(np.abs(self._array))

    def isfinite(self) -> Tensor:
        return Tensor(np.isfinite(self._array))

    def clamp(self, min: float | None = None, max: float | None = None) -> Tensor:
        return Tensor(np.clip(self._array, min, max))

    def minimum(self, other: Tensor) -> Tensor:
        return Tensor(np.minimum(self._array, other.numpy()))

    def masked_fill(self, mask: Tensor, value: float) -> Tensor:
        filled = self.clone()
        filled[mask] = value
        return filled

    def fill_(self, value: float) -> Tensor:
        self._array.fill(value)
        return self

    def scatter_(self, dim: int, index: Tensor, source: Tensor) -> Tensor:
        np.put_along_axis(self._array, index.numpy(), source.numpy(), dim)
        return self

    def gather(self, dim: int, index: Tensor) -> Tensor:
        return Tensor(np.take_along_axis(self._array, index.numpy(), dim))

    # Orders; equals stay in the order in which they stand.

    def cumsum(self, dim: int) -> Tensor:
        return Tensor(self._array.cumsum(dim, dtype=np.float64)).to(self.dtype)  # torch sums float32 so on a CPU

    def argsort(self, dim: int = -1, descending: bool = False) -> Tensor:
        return Tensor(np.argsort(-self._array if descending else self._array, axis=dim, kind="stable"))

    def sort(self, dim: int = -1, descending: bool = False) -> Ordered:
        order = self.argsort(dim, descending)
        return Ordered(self.gather(dim, order), order)

    def topk(self, k: int, dim: int = -1, *, sorted: bool = True) -> Ordered:
        """The largest, in descending order however `sorted` is set; which of equals at the end are in is not said."""
        if dim not in (-1, self._array.ndim - 1):
            raise TorchMissingError(NEEDS_TORCH)
        found = np.argpartition(self._array, self.shape[-1] - k, axis=-1)[..., -k:]
        places = Tensor(np.sort(found, axis=-1))
        best = self.gather(-1, places).sort(-1, descending=True)
        return Ordered(best.values, places.gather(-1, best.indices))

    def nonzero(self, *, as_tuple: bool) -> tuple[Tensor, ...]:
        return tuple(map(Tensor, np.nonzero(self._array)))


def plain(value: Any) -> Any:
    """The array of a tensor; anything else as it is."""
    return value.numpy() if isinstance(value, Tensor) else value


def _index(key: Any) -> Any:
    return tuple(map(plain, key)) if isinstance(key, tuple) else plain(key)
