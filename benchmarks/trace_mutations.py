"""Ways to spoil a saved run: its bytes, its archive, its JSON, its arrays. Each takes a file and a seeded generator.

    spoiled = KINDS["numbers huge"](Saved.of(data), random.Random(7))     # bytes of the spoiled file

Those that write the archive anew keep its checksums right, so that what they spoil reaches the checks behind them.
"""

import io
import json
import struct
import warnings
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from benchmarks.trace_document_mutations import DOCUMENT_KINDS, RUN, Saved, edited, packed
from benchmarks.trace_size_mutations import SIZE_KINDS

NAMES = ("../run.json", "/etc/passwd", "arrays/../../x.npy", "arrays\\a.0.npy", "C:/x", "arrays/", "run.json/", "a\0b",
         "arrays/a.0.npy.gz", "arrays/A.0.npy", "arrays/a.0.npy\n", "x" * 5000, "run.json ", "./run.json")  # fmt: skip
HEADERS = (
    ("'|O'", "False", None), ("'<f4'", "True", None), ("'<f4'", "False", "(1000000000000,)"), ("'<U9'", "False", None),
    ("'<f4'", "False", "(-1, 20)"), ("'<f4'", "False", "(2, 999999999999)"), ("'<f4'", "False", "()"),
    ("'<f4'", "False", "(0,)"), ("'<f4'", "False", "(0, 999999999999)"), ("'<f4'", "False", "(1, 1, 1, 1, 1, 1)"),
    ("'<f4'", "False", "(True, 20)"), ("[('a', '<f4')]", "False", None), ("'<c8'", "False", None),
    ("'>f4'", "False", None), ("'<i4'", "False", f"({2**70},)"), ("'<M8[s]'", "False", None), ("'<f4'", "0", None),
    ("'|b1'", "False", None), ("'<f4'", "False", "(__import__('os').getpid(),)"), ("'<f2'", "False", "(3.0, 4)"),
    ("'<f4'", "False", f"({'1' * 40}"), ("'<f4'", "False", f"(1, {'2' * 40}"), ("'<f4'", "False", f"(1,{' 3,' * 40}"),
)  # fmt: skip


def _bits(saved: Saved, chance: Random) -> bytes:
    data = bytearray(saved.data)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _bytes(saved: Saved, chance: Random) -> bytes:
    """Bytes put in, taken out, doubled or overwritten."""
    data, size = saved.data, chance.choice((1, 2, 4, 100, 5000))
    at = chance.randrange(len(data))
    new = chance.choice((b"\0", b"\xff", b"P", data[: size % 40])) * size
    middle = chance.choice((new + data[at:], data[at + size :], data[at : at + size] + data[at:]))
    return data[:at] + middle


def _cut(saved: Saved, chance: Random) -> bytes:
    end = chance.randrange(len(saved.data))
    return saved.data[chance.choice((0, 0, 0, end // 2)) : end]


def _entry_names(saved: Saved, chance: Random) -> bytes:
    name = chance.choice(NAMES)
    if saved.arrays and chance.random() < 0.5:
        old = chance.choice(sorted(saved.arrays))
        return replace(saved, arrays={name if key == old else key: data for key, data in saved.arrays.items()}).packed()
    return saved.packed(extra=((name, b"x" * chance.choice((0, 1, 1000))),))


def _twice(saved: Saved, chance: Random) -> bytes:
    entries = [(RUN, json.dumps(saved.document).encode()), *saved.arrays.items()]
    spare = chance.choice(entries)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of what is meant here
        return packed([*entries, chance.choice((spare, (spare[0], b"{}")))])


def _bomb(saved: Saved, chance: Random) -> bytes:
    """Much from little: spaces, empty lists in and out of order, zeros, sizes that lie."""
    size, text = chance.choice((2**20, 2**22, 2**24, 2**26)), json.dumps(saved.document)
    way = chance.randrange(6)
    if way == 0:  # an array to which a record refers, and one to which none does
        zeros = npy("'<f4'", "False", f"({size}, 1)", b"\0" * (4 * size))
        name = chance.choice((*saved.arrays, "arrays/draft_logits.7.npy"))
        return replace(saved, arrays={**saved.arrays, name: zeros}).packed()
    if way == 1:
        return saved.packed((text + " " * size).encode())
    if way == 2:
        data = bytearray(saved.packed(text.encode() + b" " * size))
        struct.pack_into("<I", data, data.rindex(b"PK\x01\x02") + 24, chance.choice((0, 10, 2**32 - 2)))
        return bytes(data)
    if way == 3:
        fill = chance.choice(("[],", "{},", "1e9,", "7,", '"",', "[[[[]]]],")) * (size // 4)
    else:  # out of order, so that it packs less well
        pieces = chance.choice((("[],", "{},", "[ ],"), ("1e9,", "2e9,", "7.5,", "1,"), ('"",', '"a",', "null,")))
        fill = "".join(chance.choices(pieces, k=min(size, 2**22) // 2))
    field = chance.choice(("prompt_ids", "prompt_texts", "iterations", "settings"))
    return saved.packed(text.replace(f'"{field}": ', f'"{field}": [{fill}1], "{field}_": ', 1).encode())


def npy(dtype: str, fortran: str, shape: str, body: bytes, version: bytes = b"\x01\x00") -> bytes:
    """An array as numpy writes it, with any header."""
    header = f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(header)) + header + body


def _headers(saved: Saved, chance: Random) -> bytes:
    name, data = chance.choice(sorted(saved.arrays.items()))
    array = np.load(io.BytesIO(data))
    dtype, fortran, shape = chance.choice(HEADERS)
    version = chance.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"))
    whole = npy(dtype, fortran, shape or str(array.shape), array.tobytes(), version)
    ways = (whole, whole[:-4], whole + b"\0" * 4, data[:20], b"", data.replace(b"NUMPY", b"PICKL"), data[:-1])
    return replace(saved, arrays={**saved.arrays, name: chance.choice((whole, whole, *ways))}).packed()


def _values(saved: Saved, chance: Random) -> bytes:
    """Values of an array that no model gives."""
    name, data = chance.choice(sorted(saved.arrays.items()))
    array = np.load(io.BytesIO(data)).copy()
    junk = (np.nan, np.inf, -np.inf, -1.0, 2.0, 1e38) if array.dtype.kind == "f" else (-1, -2, 2**31 - 1, -(2**31), 0)
    flat = array.reshape(-1)
    for _ in range(chance.choice((1, 5, 500))):
        flat[chance.randrange(len(flat))] = chance.choice(junk)
    file = io.BytesIO()
    np.save(file, array)
    return replace(saved, arrays={**saved.arrays, name: file.getvalue()}).packed()


def _swapped(saved: Saved, chance: Random) -> bytes:
    """Arrays that stand in for one another, shapes and types that do not fit, references that point elsewhere."""
    arrays = dict(saved.arrays)
    first, second = chance.choice(sorted(arrays)), chance.choice(sorted(arrays))
    way = chance.randrange(4)
    if way == 0:
        arrays[first], arrays[second] = arrays[second], arrays[first]
    elif way == 1:
        arrays.pop(first)
    elif way == 2:
        array = np.load(io.BytesIO(arrays[first]))
        file = io.BytesIO()
        kind = np.float64 if array.dtype.kind == "f" else np.int64
        shapes = (array.astype(kind), array[:-1], array.reshape(-1), array[:, :0], array[:, ::-1].copy(), array[None])
        np.save(file, chance.choice(shapes))
        arrays[first] = file.getvalue()
    else:

        def change(here: Any, key: Any) -> None:
            name = chance.choice([*sorted(arrays), "x"]).removeprefix("arrays/").removesuffix(".npy")
            here[key] = [name, chance.choice((0, 1, -1, 10**20)), chance.choice((0, 5, here[key][2], 10**20))]

        return edited(saved, chance, change, lambda v: isinstance(v, list) and len(v) == 3 and isinstance(v[0], str))
    return replace(saved, arrays=arrays).packed()


def _archive(saved: Saved, chance: Random) -> bytes:
    """Fields of the archive's own records: flags, methods, checksums, sizes, offsets, comments."""
    data = bytearray(saved.data)
    mark = chance.choice((b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"))
    places = [at for at in range(len(data) - 3) if data[at : at + 4] == mark]
    at = chance.choice(places)
    fields = {b"PK\x01\x02": (6, 8, 10, 16, 20, 24, 28, 30, 32, 42), b"PK\x03\x04": (4, 6, 8, 14, 18, 22, 26, 28)}
    offset = at + chance.choice(fields.get(mark, (4, 6, 8, 10, 12, 16, 20)))
    size = chance.choice((2, 4))
    value = chance.choice((0, 1, 9, 12, 99, 0x8001, 2**16 - 1, chance.randrange(2**32))) % 2 ** (8 * size)
    data[offset : offset + size] = value.to_bytes(size, "little")
    return bytes(data)


def _flagged(saved: Saved, chance: Random) -> bytes:
    """Entries marked as encrypted, or packed by a method that is not deflate, in both of their records."""
    data = bytearray(saved.data)
    central = [at for at in range(len(data) - 3) if data[at : at + 4] == b"PK\x01\x02"]
    at = chance.choice(central)
    (local,) = struct.unpack_from("<I", data, at + 42)
    if chance.random() < 0.5:
        for place in (at + 8, local + 6):
            data[place] |= chance.choice((1, 0x41, 0x21))
    else:
        method = chance.choice((1, 9, 12, 14, 93, 95, 99))
        for place in (at + 10, local + 8):
            struct.pack_into("<H", data, place, method)
    return bytes(data)


KINDS: dict[str, Callable[[Saved, Random], bytes]] = {
    "bits flipped": _bits,
    "bytes put in or taken out": _bytes,
    "file cut": _cut,
    "archive records": _archive,
    "encrypted or other packing": _flagged,
    "names of entries": _entry_names,
    "an entry twice": _twice,
    "bombs": _bomb,
    **DOCUMENT_KINDS,
    "array headers": _headers,
    "array values": _values,
    "arrays swapped": _swapped,
    **SIZE_KINDS,
}
