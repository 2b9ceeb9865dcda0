"""Files that are there whole or not at all, and what a disk can refuse, in one sentence. Torch-free."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from decoding.common.errors import DiskError

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def disk_errors(place: Path, advice: str = "choose another --out") -> Iterator[None]:
    """Turn what a disk can refuse into one sentence.

    Args:
        advice: what to do where the place cannot be written.

    Raises:
        DiskError: the disk is full, or the place cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskError(f"The disk of {place} is full: free some space and resume; nothing is lost.") from None
        raise DiskError(f"{place} cannot be written ({error.strerror}): {advice}.") from None


def write_whole(file: Path, content: bytes, advice: str = "choose another --out") -> None:
    """Write a file, and the folders above it, so that it is there whole or as it was before.

    Raises:
        DiskError: the disk is full, or the place cannot be written; the file is as it was.
    """
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        with disk_errors(file, advice):
            file.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(file)
    finally:
        with suppress(OSError):  # a disk that takes no file has none to take away
            part.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a folder; one that was not there before goes again where what is to be put into it fails.

    Raises:
        DiskError: the disk does not take it.
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


def cache_home() -> Path:
    """Where on this machine all lies that the program keeps for its user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "draftscope"


def training_home() -> Path:
    """Where trainings are kept that name no other place: `DRAFTSCOPE_TRAINING`, else the user's cache folder."""
    return Path(os.environ.get("DRAFTSCOPE_TRAINING") or cache_home() / "training")
