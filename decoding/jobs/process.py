"""What the process of a job does: it hears that it is to stop, tells how far it is, and ends with an exit code."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from decoding.common.errors import ENDED, REFUSED, DraftscopeError, OutOfMemoryError, is_out_of_memory, print_error
from decoding.common.formats import about
from decoding.jobs.job import Job, Status

FINISHED = 0  # exit code
# Between two lines of progress where stderr is no terminal: of work of hours, and of minutes.
EVERY_S, OFTEN_S = 60.0, 2.0
BAR = 24
NO_ROOM = "The device ran out of memory: resume with less per step, such as a smaller batch."


class StoppedError(DraftscopeError):
    """Somebody asked the work to stop; what it has is kept."""


def conduct(job: Job, prepare: Callable[[], Callable[[], Any]]) -> int:
    """Work on a job and return the exit code; its status says why it ended, if its folder has been begun.

    `prepare` does what comes before the work itself, and gives what does that; `StoppedError` of either was asked for.
    """
    code = REFUSED
    try:
        with stop_signals(job), ending(job):
            work = prepare()
            code = ENDED
            work()
    except DraftscopeError as error:
        print_error(error, after_progress=True)
        return ENDED if isinstance(error, StoppedError | OutOfMemoryError) else code
    return FINISHED


@contextmanager
def ending(job: Job) -> Iterator[None]:
    """Say in a job's status how the work in it ended, and let what ended it go on.

    Raises:
        OutOfMemoryError: a device had no room, whatever the library calls that.
    """
    try:
        yield
    except StoppedError as error:
        _write(job, state="stopped", message=str(error))
        job.clear_stop()
        raise
    except DraftscopeError as error:
        _write(job, state="failed", message=str(error))
        raise
    except BaseException as error:
        if isinstance(error, RuntimeError | MemoryError) and is_out_of_memory(error):
            _write(job, state="failed", message=NO_ROOM)
            raise OutOfMemoryError(NO_ROOM) from error
        _write(job, state="failed", message=f"It failed with {type(error).__name__}: its output says where.")
        raise
    _write(job, state="finished", left_s=0.0, message="")


@contextmanager
def stop_signals(job: Job) -> Iterator[None]:
    """Ctrl+C and SIGTERM ask the job to stop; a second one ends it at once, as one does that has no folder yet."""

    def ask(number: int, _frame: Any) -> None:
        for each, before in kept.items():
            signal.signal(each, before)
        if not job.path.is_dir():
            raise StoppedError("Stopped before anything was started.")
        job.ask_to_stop()

    kept = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in kept.items():
            signal.signal(number, before)


def preparing(job: Job, phase: str, done: int = 0, total: int | None = None, **more: Any) -> None:
    """Say what comes before the work, and how far that is; `more` are fields of the status. Raises `StoppedError`."""
    if job.asked_to_stop():
        raise StoppedError("Stopped during preparation, which is saved; continue with --resume.")
    job.write_status(Status("preparing", phase, done, total, **more))
    print(phase if total is None else f"{phase}: {done} of {total}", file=sys.stderr, flush=True)


class ProgressLine:
    """One line on stderr, rewritten on a terminal; elsewhere a new one, `every_s` seconds after the last or later."""

    def __init__(self, every_s: float = EVERY_S):
        self._every_s, self._told_s = every_s, float("-inf")

    def __call__(self, status: Status, figures: Mapping[str, float] | None = None) -> None:
        """Show phase, bar, how much is done, figures and the time left."""
        share, left_s, figures = status.share or 0.0, status.left_s, figures or {}
        bar = ("#" * round(share * BAR)).ljust(BAR, ".")
        words = [f"{status.phase} [{bar}] {share:.0%}", f"{status.done}"]
        if status.total is not None:
            words[1] += f" of {status.total}"
        words += [f"{name} {value:.4g}" for name, value in figures.items()]
        if left_s is not None:
            words.append(f"{about(left_s)} left")
        self.show("  ".join(words), status.share == 1.0 or any(name.startswith("held_out") for name in figures))

    def show(self, line: str, at_once: bool = False) -> None:
        """Show any text; an empty one clears the line of a terminal."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif line and (at_once or time.monotonic() - self._told_s >= self._every_s):
            self._told_s = time.monotonic()
            print(line, file=sys.stderr, flush=True)


def _write(job: Job, **changes: Any) -> None:
    """Say where it stands; a full disk must not hide what was wrong before."""
    if not job.path.is_dir():
        return
    try:
        known = job.status()
    except DraftscopeError:  # damaged, and written anew here
        known = Status()
    try:
        job.write_status(replace(known, **changes))
    except DraftscopeError as error:
        print(f"error: {error}", file=sys.stderr)
