"""What the training commands share: arguments, a folder by default, signals that ask to stop, and exit codes."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from decoding.common.errors import DraftscopeError, needing_torch
from decoding.common.files import training_home
from decoding.training.common.run_folder import RunFolder, Status

FINISHED, ENDED, REFUSED = 0, 1, 2  # exit codes: ENDED is stopped, out of memory or failed, REFUSED cannot be done


def add_common_arguments(parser: argparse.ArgumentParser, minutes: float, learning_rate: float) -> None:
    """Arguments of every training; `minutes` is how long it takes unless told otherwise."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the training; default: a new one")
    parser.add_argument("--resume", action="store_true", help="go on with the training in --out")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, metavar="N", help=f"time to train (default {minutes:g})")
    length.add_argument("--steps", type=int, metavar="N", help="optimiser steps to train")
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "mps", "cpu"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=learning_rate, metavar="RATE")


def folder_of(out: Path | None, words: str) -> RunFolder:
    """The folder asked for, else one below `training_home()` that is not there yet, such as `head-talf-2026-11-22`."""
    if out is not None:
        return RunFolder(out)
    name = f"{words}-{time.strftime('%Y-%m-%d')}"
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, 10_000))
    return RunFolder(next(path for path in (training_home() / name for name in names) if not path.exists()))


def conduct(folder: RunFolder, prepare: Callable[[], Callable[[], Any]]) -> int:
    """Run a training and return the exit code; `status.json` says why it ended, if the folder has been begun.

    Args:
        prepare: does what comes before the first step, and gives what trains; `StoppedError` of either is an end that
            was asked for.
    """
    from decoding.common.errors import is_out_of_memory
    from decoding.training.common.loop import StoppedError

    code = REFUSED
    with stop_signals(folder):
        try:
            train = prepare()
            code = ENDED
            train()
        except StoppedError as error:
            _note(folder, "stopped", str(error))
            folder.clear_stop()
            return ENDED
        except DraftscopeError as error:
            _note(folder, "failed", str(error))
            return code
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                _note(folder, "failed", f"It ended with {type(error).__name__}: its output says where.", said=False)
                raise
            _note(folder, "failed", "The device ran out of memory: resume with less at once, such as a smaller batch.")
            return ENDED
        except BaseException as error:
            _note(folder, "failed", f"It ended with {type(error).__name__}: its output says where.", said=False)
            raise
    _write(folder, replace(folder.status(), state="finished", left_s=0.0, message=""))
    return FINISHED


def run_command(main: Callable[[], int]) -> int:
    """Call a command; what cannot be done as asked, before there is a folder, is one sentence and exit code 2."""
    try:
        with needing_torch():
            return main()
    except DraftscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED


@contextmanager
def stop_signals(folder: RunFolder) -> Iterator[None]:
    """Ctrl+C and SIGTERM ask the training to stop at its next step; a second one ends it at once."""

    def ask(number: int, _frame: Any) -> None:
        for each, before in kept.items():
            signal.signal(each, before)
        folder.ask_to_stop()

    kept = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in kept.items():
            signal.signal(number, before)


def _note(folder: RunFolder, state: str, message: str, said: bool = True) -> None:
    if said:
        print(f"\nerror: {message}" if sys.stderr.isatty() else f"error: {message}", file=sys.stderr)
    try:
        known = folder.status()
    except DraftscopeError:
        known = Status()
    _write(folder, replace(known, state=state, message=message))


def _write(folder: RunFolder, status: Status) -> None:
    """Say where it stands; a full disk must not hide what was wrong before."""
    if not folder.path.is_dir():
        return
    try:
        folder.write_status(status)
    except DraftscopeError as error:
        print(f"error: {error}", file=sys.stderr)
