"""Records to plain JSON values and back, driven by the type hints of the dataclasses in `decoding.trace.records`.

A tuple of records becomes one list per field (columns), which is what makes a file small. Arrays go into an array
store and leave a reference. Reading checks every value against its hint.
"""

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

MAX_INT = 2**64
MAX_TEXT = 2**12  # characters of any one text: far above the longest token, name or sentence


class RecordError(Exception):
    """A value does not fit the contract; `str()` names the field and what is wrong with it."""

    def __init__(self, problem: str, where: str = ""):
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem, self.where = problem, where

    def inside(self, name: str) -> "RecordError":
        """The same problem seen from the record around it."""
        return RecordError(self.problem, f"{name}.{self.where}" if self.where else name)


def shown(name: str) -> str:
    """A name out of a file as an error quotes it: short, whatever it holds."""
    return ascii(name[:40])[:60]


Put = Callable[[str, np.ndarray], list[Any]]  # keeps the array of a field elsewhere, returns a reference to it
Get = Callable[[Any], np.ndarray]  # the array of a reference, `RecordError` if there is none
Reader = Callable[[Any, Get], Any]


def to_json(record: Any, put: Put) -> dict[str, Any]:
    """A record as JSON values; its arrays go through `put`."""
    return _write(type(record), record, put, "")


def from_json(record_type: type, value: Any, get: Get) -> Any:
    """A record of `record_type` from JSON values; anything that does not fit raises `RecordError`."""
    return _reader(record_type)(value, get)


@cache
def _hints(record_type: type) -> dict[str, tuple[Field, Any]]:
    hints = get_type_hints(record_type)
    return {field.name: (field, hints[field.name]) for field in fields(record_type)}


def _write(hint: Any, value: Any, put: Put, name: str) -> Any:
    """Only the shape matters here: what is written is read back, and checked, before it goes to a file."""
    if is_dataclass(value):
        return {key: _write(kind, getattr(value, key), put, key) for key, (_, kind) in _hints(type(value)).items()}
    if isinstance(value, np.ndarray):
        return put(name, value)
    if isinstance(value, tuple):
        item = get_args(hint)[0] if get_origin(hint) is tuple else None
        if not is_dataclass(item):
            return list(value)
        columns = _hints(item).items()
        return {key: [_write(kind, getattr(row, key), put, key) for row in value] for key, (_, kind) in columns}
    if isinstance(value, Mapping):
        return {str(key): entry for key, entry in value.items()}
    return value


@cache
def _reader(hint: Any) -> Reader:
    """A function that reads and checks one value of type `hint`."""
    if is_dataclass(hint):
        return lambda value, get: _read_record(hint, value, get)
    if hint is np.ndarray:
        return lambda value, get: get(value)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union_reader(args)
    if origin is tuple:
        return _tuple_reader(args[0])
    if origin is Literal:
        return _literal_reader(args)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_reader(*args)
    return _SCALARS[hint]


def _read_record(record_type: type, value: Any, get: Get) -> Any:
    if type(value) is not dict:
        raise RecordError("is not a record")
    known = _hints(record_type)
    _refuse_unknown(value, known)
    read = {}
    for name, (field, hint) in known.items():
        if name in value:
            read[name] = _inside(name, _reader(hint), value[name], get)
        else:
            read[name] = _default(field)
    return record_type(**read)


def _read_table(record_type: type, value: Any, get: Get) -> tuple[Any, ...]:
    """Rows from columns."""
    known = _hints(record_type)
    if type(value) is not dict or not all(type(column) is list for column in value.values()):
        raise RecordError("is not a table")
    _refuse_unknown(value, known)
    lengths = {len(column) for column in value.values()}
    if len(lengths) != 1:
        raise RecordError("has columns of different lengths")
    rows = lengths.pop()
    columns = []
    for name, (field, hint) in known.items():
        if name in value:
            read = _reader(hint)
            columns.append([_inside(name, read, entry, get) for entry in value[name]])
        else:
            columns.append([_default(field) for _ in range(rows)])
    return tuple(record_type(*row) for row in zip(*columns, strict=True))


def _inside(name: str, read: Reader, value: Any, get: Get) -> Any:
    try:
        return read(value, get)
    except RecordError as error:
        raise error.inside(name) from None


def _refuse_unknown(value: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in value:
        if name not in known:
            raise RecordError(f"has an unknown field {shown(name)}")


def _default(field: Field) -> Any:
    """Value of a field that an older file of the same format does not have."""
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    raise RecordError("is missing", field.name)


def _union_reader(args: tuple[Any, ...]) -> Reader:
    kinds = [kind for kind in args if kind is not NoneType]
    if len(kinds) == 1:  # X | None
        read = _reader(kinds[0])
        return lambda value, get: None if value is None else read(value, get)

    def read_setting(value: Any, get: Get) -> Any:
        for kind in kinds:
            if type(value) is kind or (kind in (float, str) and isinstance(value, kind)):
                return _SCALARS[kind](value, get)
        raise RecordError("is not a number, text or truth value")

    return read_setting


def _tuple_reader(item: Any) -> Reader:
    if is_dataclass(item):
        return lambda value, get: _read_table(item, value, get)
    read = _reader(item)

    def read_list(value: Any, get: Get) -> tuple[Any, ...]:
        if type(value) is not list:
            raise RecordError("is not a list")
        return tuple([read(entry, get) for entry in value])

    return read_list


def _literal_reader(allowed: tuple[Any, ...]) -> Reader:
    def read_literal(value: Any, _get: Get) -> Any:
        if type(value) is not str or value not in allowed:
            raise RecordError(f"is none of {', '.join(map(str, allowed))}")
        return value

    return read_literal


def _mapping_reader(key_type: type, value_type: Any) -> Reader:
    read = _reader(value_type)

    def read_mapping(value: Any, get: Get) -> dict[Any, Any]:
        if type(value) is not dict:
            raise RecordError("is not a mapping")
        return {_key(key, key_type): read(entry, get) for key, entry in value.items()}

    return read_mapping


def _key(key: str, key_type: type) -> Any:
    if key_type is str:
        return _read_str(key)
    if not (key.isascii() and key.isdigit() and len(key) < 20):
        raise RecordError(f"has a key that is not a number: {shown(key)}")
    return int(key)


def _read_int(value: Any, _get: Get | None = None) -> int:
    if type(value) is not int or abs(value) > MAX_INT:
        raise RecordError("is not a whole number")
    return value


def _read_float(value: Any, _get: Get | None = None) -> float:
    if type(value) is int:
        return float(_read_int(value))
    if not isinstance(value, float) or not math.isfinite(value):
        raise RecordError("is not a finite number")
    return float(value)


def _read_bool(value: Any, _get: Get | None = None) -> bool:
    if type(value) is not bool:
        raise RecordError("is not true or false")
    return value


def _read_str(value: Any, _get: Get | None = None) -> str:
    if not isinstance(value, str):  # torch's version number is a kind of str
        raise RecordError("is not text")
    if len(value) > MAX_TEXT:
        raise RecordError(f"is longer than {MAX_TEXT:,} characters")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RecordError("is not valid Unicode text") from None
    return str(value)


_SCALARS: dict[type, Callable[[Any, Get | None], Any]] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_str,
}


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
