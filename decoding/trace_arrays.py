"""The arrays of a run's file: rows of one field share one `.npy` entry; reading trusts no header."""

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from decoding.trace_codec import RecordError, shown

DTYPES = ("<i4", "<i8", "<f2", "<f4", "<f8")
MAX_DIMENSIONS = 4
PIECE_BYTES = 2**20
MAX_HEADER_BYTES = 256  # numpy pads to 128 and needs no more for these types and shapes
# Version 1.0 of numpy's format with one of DTYPES, rows in C order, and a shape such as (14, 20) or (3,).
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(" + "|".join(DTYPES).encode() + rb")', 'fortran_order': False, "
    rb"'shape': \(([0-9]{1,12},(?: [0-9]{1,12}(?:, [0-9]{1,12})*)?)\), \} *\n",
    re.DOTALL,
)


class ArraysToWrite:
    """Arrays on their way into a file: those of one field, type and row shape share an entry, one after the other."""

    def __init__(self) -> None:
        self._names: dict[tuple[Any, ...], str] = {}
        self._parts: dict[str, dict[tuple[int, int], np.ndarray]] = {}

    def put(self, field: str, array: np.ndarray) -> list[Any]:
        """Keep an array; returns [entry, first row, row after the last]."""
        if not 1 <= array.ndim <= MAX_DIMENSIONS or array.dtype.newbyteorder("<").str not in DTYPES:
            raise RecordError(f"is an array of {array.dtype} that no file can hold", field)
        same_field = sum(name.startswith(f"{field}.") for name in self._parts)
        name = self._names.setdefault((field, array.dtype.str, array.shape[1:]), f"{field}.{same_field}")
        parts = self._parts.setdefault(name, {})
        start = next(reversed(parts))[1] if parts else 0
        parts[start, start + len(array)] = array
        return [name, start, start + len(array)]

    def get(self, reference: Any) -> np.ndarray:
        """The array that `put` gave this reference for."""
        name, start, stop = reference
        return self._parts[name][start, stop]

    @property
    def names(self) -> list[str]:
        """Entries to write."""
        return list(self._parts)

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(part.nbytes for parts in self._parts.values() for part in parts.values())

    def pieces(self, name: str) -> Iterator[bytes]:
        """One entry in numpy's format, piece by piece, without joining the parts in memory."""
        parts = list(self._parts[name].values())
        shape = (sum(map(len, parts)), *parts[0].shape[1:])
        dtype, header = parts[0].dtype.newbyteorder("<"), io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        yield header.getvalue()
        for part in parts:
            values = part.astype(dtype, order="C", copy=False).reshape(-1).view(np.uint8)
            for start in range(0, len(values), PIECE_BYTES):
                yield values[start : start + PIECE_BYTES].tobytes()


class ArraysRead:
    """Arrays of a file; an entry is unpacked when the first record refers to it.

    Records get the rows of an entry as `ArraysToWrite` put them there, one after the other: none twice, or a small file
    would stand for more rows than any memory holds, and none left over.
    """

    def __init__(self) -> None:
        self._unread: dict[str, Callable[[], bytes]] = {}
        self._left: dict[str, np.ndarray] = {}
        self._given: dict[str, int] = {}

    def add(self, name: str, read: Callable[[], bytes]) -> None:
        """Take an entry by what unpacks it."""
        self._unread[name] = read

    def check_all_used(self) -> None:
        """Raise `RecordError` if an entry or a row is left to which no record refers."""
        left = [*self._unread, *(name for name, rows in self._left.items() if len(rows))]
        if left:
            raise RecordError(f"no record refers to the array {shown(left[0])}, or to all of it")

    def get(self, reference: Any) -> np.ndarray:
        """Rows of an entry by [entry, first row, row after the last]."""
        if type(reference) is not list or [type(part) for part in reference] != [str, int, int]:
            raise RecordError("is not a reference to an array")
        name, start, stop = reference
        if name in self._unread:
            self._left[name], self._given[name] = array_of(self._unread.pop(name)()), 0
        if name not in self._left or start != self._given[name] or not 0 <= stop - start <= len(self._left[name]):
            raise RecordError("refers to an array that is not in the file, or not to the rows that follow")
        rows, self._left[name], self._given[name] = *np.split(self._left[name], [stop - start]), stop
        return rows


def array_of(data: bytes) -> np.ndarray:
    """An array from an entry of exactly the kind `ArraysToWrite` writes.

    Numpy's own reader evaluates the header and allocates whatever shape it claims.
    """
    header = HEADER.match(data[:MAX_HEADER_BYTES])
    if header is None:
        raise RecordError("an array has an unknown type")
    shape = tuple(int(part) for part in header[2].split(b",") if part.strip())
    if len(shape) > MAX_DIMENSIONS:
        raise RecordError("an array has too many dimensions")
    values = np.frombuffer(data, header[1].decode(), offset=header.end())
    return values.reshape(shape)  # refuses a shape that does not fit
