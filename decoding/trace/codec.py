"""Records to plain JSON values and back, driven by the types of the dataclasses in `decoding.trace.records`.

A tuple of records becomes one list per field (columns), which is what makes a file small. Arrays go into an array
store and leave a reference. Reading checks every value against its type, bounds included.
"""

import io
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from types import GenericAlias, NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType


class RecordError(Exception):
    """A value does not fit the contract; `str()` names the field and what is wrong with it."""

    def __init__(self, problem: str, where: str = ""):
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem, self.where = problem, where

    def inside(self, name: str) -> "RecordError":
        """The same problem seen from the record around it."""
        return RecordError(self.problem, f"{name}.{self.where}" if self.where else name)


def shown(value: object) -> str:
    """A value out of a file as an error quotes it: short, whatever it holds."""
    return reprlib.repr(value).encode("ascii", "backslashreplace").decode()[:60]


Put = Callable[[str, np.ndarray], list[Any]]  # keeps the array of a field elsewhere, returns a reference to it
Get = Callable[[Any], np.ndarray]  # the array of a reference, `RecordError` if there is none
Make = Callable[[Any, Get], Any]
PLACE = re.compile(r"\.(\w+)|\[(\d+)\]")  # a step on the way to a value in an error of msgspec; it ends at a mapping


def to_json(record: Any, put: Put) -> dict[str, Any]:
    """A record as JSON values; its arrays go through `put`."""
    return _write(type(record), record, put, "")


def from_json(record_type: type, value: Any, get: Get) -> Any:
    """A record of `record_type` from JSON values; anything that does not fit raises `RecordError`."""
    form, make = _form(record_type)
    try:
        read = msgspec.convert(value, form, str_keys=True)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        where = ""
        for step in PLACE.finditer(place):
            where += step[0]
            value = value[step[1] or int(step[2])]
        wrong = f"{shown(value)} is invalid, {problem[0].lower()}{problem[1:]}"
        raise RecordError(wrong, where.removeprefix(".")) from None
    return read if make is None else make(read, get)


@cache
def _fields(record_type: type) -> dict[str, tuple[Field, Any]]:
    types = get_type_hints(record_type, include_extras=True)
    return {field.name: (field, types[field.name]) for field in fields(record_type)}


def _row_of(kind: Any) -> type | None:
    """The record of which a field is a table, None where it is none."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    row = get_args(kind)[0] if get_origin(kind) is tuple else None
    return row if isinstance(row, type) and is_dataclass(row) else None


def _write(kind: Any, value: Any, put: Put, name: str) -> Any:
    """Only the shape matters here: what is written is read back, and checked, before it goes to a file."""
    if is_dataclass(value):
        record_type: Any = type(value)
        return {key: _write(each, getattr(value, key), put, key) for key, (_, each) in _fields(record_type).items()}
    if isinstance(value, np.ndarray):
        return put(name, value)
    if isinstance(value, tuple):
        row = _row_of(kind)
        if row is None:
            return list(value)
        return {
            key: [_write(each, getattr(one, key), put, key) for one in value] for key, (_, each) in _fields(row).items()
        }
    if isinstance(value, Mapping):
        return {str(key): entry for key, entry in value.items()}
    return value


@cache
def _form(kind: Any) -> tuple[Any, Make | None]:
    """The type that a field has in JSON, and what makes its value of that; None where it is its value already."""
    row = _row_of(kind)
    if row is not None or is_dataclass(kind):
        makes = {name: (field, _form(each)[1]) for name, (field, each) in _fields(row or kind).items()}
        if row is None:
            return _struct(kind, lambda form: form), partial(_record, kind, makes)
        bounds = get_args(kind)[1:] if get_origin(kind) is Annotated else (Meta(),)
        return _struct(row, lambda form: Annotated[(GenericAlias(list, form), *bounds)]), partial(_table, row, makes)
    if kind is np.ndarray:
        return tuple[str, int, int], lambda reference, get: get(reference)
    if NoneType in get_args(kind):
        form, make = _form(get_args(kind)[0])
        return form | None, make and (lambda value, get: None if value is None else make(value, get))
    return kind, None


def _struct(record_type: type, wrapped: Callable[[Any], Any]) -> type:
    """What stands for records in JSON; fields with a default may be missing, as in older files of a format."""
    listed = []
    for name, (field, kind) in _fields(record_type).items():
        form = wrapped(_form(kind)[0])
        required = field.default is MISSING and field.default_factory is MISSING
        listed.append((name, form) if required else (name, form | UnsetType, UNSET))
    return msgspec.defstruct(record_type.__name__, listed, kw_only=True, forbid_unknown_fields=True)


def _record(record_type: type, makes: dict[str, tuple[Field, Make | None]], read: Any, get: Get) -> Any:
    values = {name: value for name in makes if (value := getattr(read, name)) is not UNSET}
    for name, value in values.items():
        if (make := makes[name][1]) is not None:
            (values[name],) = _inside(name, make, [value], get)
    return record_type(**values)


def _table(record_type: type, makes: dict[str, tuple[Field, Make | None]], read: Any, get: Get) -> tuple[Any, ...]:
    columns = {name: getattr(read, name) for name in makes}
    lengths = {len(column) for column in columns.values() if column is not UNSET}
    if len(lengths) > 1:
        raise RecordError(f"has columns of different lengths: {', '.join(map(str, sorted(lengths)))}")
    rows = lengths.pop()
    for name, (field, make) in makes.items():
        if columns[name] is UNSET:
            value = field.default if field.default_factory is MISSING else field.default_factory()
            columns[name] = [value] * rows
        elif make is not None:
            columns[name] = _inside(name, make, columns[name], get)
    return tuple(map(record_type, *columns.values()))


def _inside(name: str, make: Make, values: list[Any], get: Get) -> list[Any]:
    try:
        return [make(value, get) for value in values]
    except RecordError as error:
        raise error.inside(name) from None


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
    """Arrays on their way into a file: those of one field, type and row shape share an entry, one after the other.

    Attributes:
        parts: by entry, the arrays that it holds by their first row and the row after their last.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[Any, ...], str] = {}
        self.parts: dict[str, dict[tuple[int, int], np.ndarray]] = {}

    def put(self, field: str, array: np.ndarray) -> list[Any]:
        """Keep an array; returns [entry, first row, row after the last]."""
        if field.endswith("_logits"):
            half = array.astype(np.float16)  # half the bytes, where nothing is lost by it
            array = half if np.array_equal(half, array, equal_nan=True) else array
        if not 1 <= array.ndim <= MAX_DIMENSIONS or array.dtype.newbyteorder("<").str not in DTYPES:
            raise RecordError(f"is an array of {array.dtype}, which cannot be saved", field)
        same_field = sum(name.startswith(f"{field}.") for name in self.parts)
        name = self._names.setdefault((field, array.dtype.str, array.shape[1:]), f"{field}.{same_field}")
        parts = self.parts.setdefault(name, {})
        start = next(reversed(parts))[1] if parts else 0
        parts[start, start + len(array)] = array
        return [name, start, start + len(array)]

    def get(self, reference: Any) -> np.ndarray:
        """The array that `put` gave this reference for."""
        name, start, stop = reference
        return self.parts[name][start, stop]

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays, once they are read."""
        halves = (
            part.nbytes * (1 + (part.dtype == np.float16)) for each in self.parts.values() for part in each.values()
        )
        return sum(halves)

    def pieces(self, name: str) -> Iterator[bytes]:
        """One entry in numpy's format, piece by piece, without joining the parts in memory."""
        parts = list(self.parts[name].values())
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

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes  # in memory, where logits that were written in half precision take twice their bytes
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
            raise RecordError(f"no record uses the array {shown(left[0])}, or not all of it")

    def get(self, reference: Any) -> np.ndarray:
        """Rows of an entry by [entry, first row, row after the last]."""
        name, start, stop = reference
        if name in self._unread:
            self._left[name], self._given[name] = array_of(self._unread.pop(name)()), 0
            self._room -= self._left[name].nbytes
            if self._room < 0:
                raise RecordError("its arrays take more memory than a run may")
        if name not in self._left or start != self._given[name] or not 0 <= stop - start <= len(self._left[name]):
            rows = f"rows {start} to {stop} of {shown(name)}"
            raise RecordError(f"{rows} are not in the file, or out of order")
        found, self._left[name] = np.split(self._left[name], [stop - start])
        self._given[name] = stop
        return found


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
    values = values.astype(np.float32) if values.dtype == np.float16 else values  # which no record holds: see `put`
    return values.reshape(shape)  # refuses a shape that does not fit
