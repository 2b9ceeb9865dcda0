"""Processes that outlive the app which starts them, and what they print into a file. Torch-free."""

import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from decoding.common.errors import DraftscopeError

ROOT = Path(__file__).resolve().parents[2]
TAIL_BYTES = 16_000
CLOCK_SLACK_S = 60.0  # a clock that is set while a process runs moves the time at which it seems to have started


def start_process(command: Sequence[str], log: IO[bytes], error: type[DraftscopeError]) -> subprocess.Popen:
    """Start Python in a session of its own, so that neither closing the app nor Ctrl+C there ends it.

    Args:
        command: words behind the interpreter. log: takes all that it prints.

    Raises:
        error: no process can be started.
    """
    try:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as failed:
        reason = failed.strerror or failed
        raise error(f"No process could be started ({reason}): end other programs and try again.") from None
    # Somebody must take note of its end, or it stays in the list of processes for as long as this one lives.
    threading.Thread(target=process.wait, name=f"process-{process.pid}", daemon=True).start()
    return process


def kill_process(pid: int, name: str, error: type[DraftscopeError]) -> None:
    """End a process at once; one that is gone already is none.

    Raises:
        error: it is another user's.
    """
    import psutil

    try:
        psutil.Process(pid).kill()
    except psutil.NoSuchProcess:
        pass
    except psutil.AccessDenied:
        raise error(f"{name} was started by another user: only they can end it.") from None


def printed(log: Path) -> str:
    """The end of what a process printed; a line that was rewritten stands there as it ended."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = (line.rsplit("\r", 1)[-1].replace("\x1b[K", "").rstrip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def remove_folder(folder: Path, error: type[DraftscopeError]) -> None:
    """Delete a folder with all that is in it.

    Raises:
        error: the disk refuses.
    """
    try:
        shutil.rmtree(folder)
    except OSError as failed:
        reason = failed.strerror or failed
        raise error(f"{folder} cannot be deleted ({reason}): delete the folder by hand.") from None


def alive(pid: int, written: float = math.inf) -> bool:
    """Whether the process of this number runs on this machine, one that was there when something was `written`."""
    import psutil

    if pid <= 0:
        return False
    try:
        process = psutil.Process(pid)
        # Numbers are given again: after a restart of the machine another process may have it.
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= written + CLOCK_SLACK_S
    except psutil.NoSuchProcess:
        return False
