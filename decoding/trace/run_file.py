"""One run in one file: a zip of `run.json` and plain `.npy` arrays, versioned, without pickle, read within limits.

A file may come from anyone, so every part of it is bounded before it is read and checked before it is used.
"""

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from decoding.common.errors import TraceFileError, printable
from decoding.common.files import whole_file
from decoding.trace.codec import ArraysRead, ArraysToWrite, RecordError, from_json, shown, to_json
from decoding.trace.older import drop_sentences, rename_engines, rename_fields, upgraded
from decoding.trace.records import FORMAT_VERSION, RunTrace
from decoding.trace.validation import check_run

FORMAT = "draftscope-run"
MAX_BYTES = 512 * 2**20  # the app's upload limit in .streamlit/config.toml is the same
# A value takes up to 130 bytes in memory and as few as 2 in the JSON, whose text takes 4 bytes a character where one of
# them is outside Latin-1: within both bounds the records of a file stay below 768 MiB while they are read.
MAX_JSON_BYTES = 48 * 2**20
MAX_VALUES = 5 * 2**20
MAX_ROW_BYTES = MAX_BYTES - 2 * MAX_JSON_BYTES  # of raw logits: leaves room for everything else in a file
MAX_RATIO, FREE_BYTES = 100, 2**20  # largest compression ratio of an entry, beyond its first bytes
OLD_FREE_BYTES = 2**27  # of arrays of format 1, which also stored the empty logits of methods without a draft
LEVEL, ZLIB_FRAME_BYTES = 6, 6  # level of deflate; bytes that zlib adds and a zip file does not
MAX_ENTRIES = 64
MAX_DIRECTORY_BYTES = 16 * 2**10
RUN_ENTRY = "run.json"
ARRAY_ENTRY = re.compile(r"arrays/([a-z_]+\.[0-9]+)\.npy")
# What zipfile, zlib, json and numpy raise for damaged files.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    msgspec.DecodeError,
    ValueError,
    OverflowError,
    RuntimeError,  # RecursionError and NotImplementedError too
)

MAX_DETAIL = 160  # characters
NO_MEMORY = "There is not enough free memory to open this file: close other runs or programs, then open it again."
NOT_A_RUN = "This file is not a Draftscope run: choose a file saved with Draftscope."


def save_run(run: RunTrace, target: str | Path | BinaryIO, *, overwrite: bool = True) -> None:
    """Write a run to a path or an open binary file; a run that would not load again is refused with `TraceFileError`.

    A path is written whole or not at all; with `overwrite` off an existing file is left alone and reported.
    """
    arrays = ArraysToWrite()
    try:
        document = {"format": FORMAT, "version": FORMAT_VERSION, "run": to_json(run, arrays.put)}
        # Unlike msgspec it refuses what is not finite instead of writing null.
        text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
        check_run(from_json(RunTrace, msgspec.json.decode(text)["run"], arrays.get))
    except (RecordError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise TraceFileError(f"This run cannot be saved: its record is invalid ({error}); run it again.") from None
    num_bytes = len(text) + arrays.num_bytes
    if len(text) > MAX_JSON_BYTES or _num_values(text) > MAX_VALUES or num_bytes > MAX_BYTES:
        records = f"{MAX_JSON_BYTES // 2**20} MiB or {MAX_VALUES:,} values of records"
        limit = f"{records}, and {MAX_BYTES // 2**20} MiB in all"
        size = f"{num_bytes // 2**20} MiB"
        raise TraceFileError(
            f"This run takes {size}, and a file holds at most {limit}: record fewer tokens, or no full logits."
        )
    if not isinstance(target, str | Path):
        _write_zip(target, text, arrays)
        return
    try:
        with whole_file(Path(target), overwrite) as file:
            _write_zip(file, text, arrays)
    except OSError as error:
        reason = error.strerror or error
        raise TraceFileError(f"The run could not be written to {target} ({reason}): choose another location.") from None


def load_run(source: str | Path | BinaryIO) -> RunTrace:
    """Read a run from a path or an open binary file.

    Neither the file nor what it unpacks to may be larger than `MAX_BYTES`. A file that is damaged, too large, of
    another version or not a run raises `TraceFileError`.
    """
    if not isinstance(source, str | Path):
        return _load(source)
    try:
        with open(source, "rb") as file:
            return _load(file)
    except OSError as error:
        reason = error.strerror or error
        raise TraceFileError(f"{source} could not be read ({reason}): choose a file saved with Draftscope.") from None


def _write_zip(file: BinaryIO, text: bytes, arrays: ArraysToWrite) -> None:
    entries = {RUN_ENTRY: lambda: iter([text])}
    entries |= {f"arrays/{name}.npy": partial(arrays.pieces, name) for name in arrays.parts}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, pieces in entries.items():
            info = zipfile.ZipInfo(name)  # without a date, so that the same run gives the same file
            # What compresses too well is stored uncompressed, or reading would take it for a zip bomb.
            info.compress_type = zipfile.ZIP_STORED if _packs_too_well(pieces()) else zipfile.ZIP_DEFLATED
            with archive.open(info, "w") as entry:
                for piece in pieces():
                    entry.write(piece)


def _packs_too_well(pieces: Iterator[bytes]) -> bool:
    """Whether an entry would be taken for a zip bomb; once its compressed bytes allow for the largest file, the rest
    need not be compressed to know."""
    deflate, num_bytes, packed_bytes = zlib.compressobj(LEVEL), 0, 0
    for piece in pieces:
        num_bytes += len(piece)
        packed_bytes += len(deflate.compress(piece))
        if not _is_bomb(MAX_BYTES, packed_bytes):
            return False
    return _is_bomb(num_bytes, packed_bytes + len(deflate.flush()) - ZLIB_FRAME_BYTES)


def _is_bomb(num_bytes: int, packed_bytes: int, free_bytes: int = FREE_BYTES) -> bool:
    return num_bytes > free_bytes + MAX_RATIO * packed_bytes


def _load(file: BinaryIO) -> RunTrace:
    _check_outside(file)
    with _damage_as_error(), zipfile.ZipFile(file) as archive:
        entries = {info.filename: info for info in archive.infolist()}
        if RUN_ENTRY not in entries:
            raise TraceFileError(NOT_A_RUN)
        _check_sizes(archive.infolist(), file.seek(0, io.SEEK_END))
        _check_ratio(entries[RUN_ENTRY], FREE_BYTES)
        text = _read_entry(archive, entries.pop(RUN_ENTRY), MAX_JSON_BYTES)
        if _num_values(text) > MAX_VALUES:
            raise RecordError(f"{RUN_ENTRY} has more values than a run can have")
        document = msgspec.json.decode(text)
        if type(document) is not dict or document.get("format") != FORMAT:
            raise TraceFileError(NOT_A_RUN)
        version = document.get("version")
        if type(version) is not int or version < 1:
            raise RecordError("its version is not a number")
        if version > FORMAT_VERSION:
            found = f"format {str(version)[:20]}; this version reads up to {FORMAT_VERSION}"
            raise TraceFileError(f"This run was saved by a newer Draftscope ({found}): update Draftscope to open it.")
        for info in entries.values():
            _check_ratio(info, FREE_BYTES if version > 1 else OLD_FREE_BYTES)
        if version == 1:
            drop_sentences(document)
        if version < 3:
            rename_fields(document)
        rename_engines(document)
        arrays = ArraysRead(MAX_BYTES)
        for name, info in entries.items():
            match = ARRAY_ENTRY.fullmatch(name)
            if match is None:
                raise RecordError(f"has an unknown entry {shown(name)}")
            arrays.add(match[1], partial(_read_entry, archive, info, MAX_BYTES))
        run = from_json(RunTrace, document.get("run"), arrays.get)
        arrays.check_all_used()
        if run.format_version == version:
            run = replace(run, format_version=FORMAT_VERSION)
        check_run(run)
        return upgraded(run) if version == 1 else run


def _num_values(text: bytes) -> int:
    """At least as many as the values and names in a JSON text."""
    return sum(text.count(sign) for sign in (b",", b":", b"[", b"{"))


@contextmanager
def _damage_as_error() -> Iterator[None]:
    try:
        yield
    except RecordError as error:
        raise _damaged(str(error)) from None
    except DAMAGE as error:
        raise _damaged(str(error) or type(error).__name__) from None
    except MemoryError:
        raise TraceFileError(NO_MEMORY) from None


def _damaged(detail: str) -> TraceFileError:
    # Library messages quote the file: line breaks and odd characters in it would break the sentence.
    again = "copy or save it again, or open it with the version that wrote it"
    return TraceFileError(f"This Draftscope run is damaged ({printable(detail[:MAX_DETAIL])}): {again}.")


def _too_large(num_bytes: int, limit_bytes: int) -> TraceFileError:
    size, limit = f"{num_bytes / 2**20:,.1f} MiB", f"{limit_bytes / 2**20:,.1f} MiB"
    return TraceFileError(f"This file takes {size}, and the limit is {limit}: save the run with fewer tokens.")


def _check_outside(file: BinaryIO) -> None:
    """Check size, signature and the directory's length before zipfile reads the directory into memory."""
    size = file.seek(0, io.SEEK_END)
    if size > MAX_BYTES:
        raise _too_large(size, MAX_BYTES)
    file.seek(0)
    if file.read(4) != b"PK\x03\x04":
        raise TraceFileError(NOT_A_RUN)
    file.seek(max(0, size - 42))
    end = file.read(42)
    # The end record as `save_run` writes it: no comment after it, no 64-bit locator before it.
    if len(end) < 42 or end[20:24] != b"PK\x05\x06" or end[40:] != b"\0\0" or end[:4] == b"PK\x06\x07":
        raise _damaged("its end is missing or was written by another program")
    count, directory_bytes = struct.unpack_from("<HI", end, 30)
    if count > MAX_ENTRIES or directory_bytes > MAX_DIRECTORY_BYTES:
        raise TraceFileError(NOT_A_RUN)
    file.seek(0)


def _check_sizes(entries: list[zipfile.ZipInfo], file_bytes: int) -> None:
    if len({info.filename for info in entries}) != len(entries):
        raise RecordError("two entries have the same name")
    for info in entries:
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RecordError(f"entry {shown(info.filename)} is encrypted or uses another compression")
    if sum(info.compress_size for info in entries) > file_bytes:
        raise RecordError("its entries claim more bytes than the file has")
    total = sum(info.file_size for info in entries)
    if total > MAX_BYTES:
        raise _too_large(total, MAX_BYTES)


def _check_ratio(info: zipfile.ZipInfo, free_bytes: int) -> None:
    if _is_bomb(info.file_size, info.compress_size, free_bytes):
        size = f"{info.file_size / 2**20:,.0f} MiB of repetitions"
        raise RecordError(f"entry {shown(info.filename)} expands to {size}")


def _read_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    """Unpack one entry, never more than `limit` bytes of it, whatever its header claims."""
    with archive.open(info) as entry:
        data = entry.read(limit + 1)
    if len(data) > limit:
        raise _too_large(len(data), limit)
    return data
