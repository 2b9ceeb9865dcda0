"""Files that are there whole or not at all, what a disk can refuse in one sentence, a user's folders. Torch-free."""

import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path
from platformdirs.unix import Unix

from decoding.common.errors import DiskError

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def disk_errors(place: Path, advice: str = "choose another --out") -> Iterator[None]:
    """Turn what a disk can refuse into a `DiskError`: it is full, or a place cannot be written: `advice` then."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskError(f"The disk of {place} is full: free some space and resume; nothing is lost.") from None
        raise DiskError(f"{place} cannot be written ({error.strerror}): {advice}.") from None


@contextmanager
def whole_file(file: Path, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A stream whose content is there as `file` once all of it is on the disk; before that the file is as it was.

    Raises `OSError` where the disk refuses, or there is a file that nothing may `overwrite`.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if overwrite:
            part.replace(file)
        else:
            os.link(part, file)  # unlike a check beforehand, it fails where a file came meanwhile
    finally:
        with suppress(OSError):  # a disk that takes no file has none to take away
            part.unlink(missing_ok=True)


def write_whole(file: Path, content: bytes, advice: str = "choose another --out") -> None:
    """Write a file, and the folders above it, so that it is there whole or as it was before.

    Raises `DiskError` where the disk is full, or the place cannot be written; the file is as it was.
    """
    with disk_errors(file, advice):
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stream:
            stream.write(content)


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a folder; one that was not there before goes again where what is to be put into it fails.

    Raises `DiskError` where the disk does not take it.
    """
    there = folder.exists()
    try:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        if not there:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def user_folder(content: str) -> Path:
    """Where files of a user lie that name no other place: in the cache folder that the system or XDG_CACHE_HOME names.

    Where there is a folder in `~/.cache`, on whatever system, that goes on being used.
    """
    known = Unix("draftscope").user_cache_path
    kept = known.is_dir() or os.environ.get("XDG_CACHE_HOME")
    return (known if kept else user_cache_path("draftscope", appauthor=False)) / content


def training_home() -> Path:
    """Where trainings are kept that name no other place: `DRAFTSCOPE_TRAINING`, else the user's cache folder."""
    return Path(os.environ.get("DRAFTSCOPE_TRAINING") or user_folder("training"))


def local_stamp() -> str:
    """The time where this machine stands: `2030-01-02T03:04:05`."""
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def utc_stamp() -> str:
    """The time as stored files have it: `2030-01-02T03:04:05Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
