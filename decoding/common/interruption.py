"""Long work asks between its pieces whether it is still wanted; who waits for it decides.

with interruptible(ask):               # in the thread that does the work
    ...
        paused_s = pause_point()       # where `ask` may also let other work go first
        check_wanted()                 # where it may only say that the result is no longer wanted
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class CancelledError(Exception):
    """Raised inside long work when nobody wants its result any more."""


# Called with (may_wait, timed), returns the seconds that it waited, raises `CancelledError`.
Ask = Callable[[bool, bool], float]
_ask: ContextVar[Ask | None] = ContextVar("ask", default=None)
_whole: ContextVar[bool] = ContextVar("whole", default=False)
_turn = 0


@contextmanager
def interruptible(ask: Ask) -> Iterator[None]:
    """Have `ask` called, with (may_wait, timed), at every point where the work inside can be interrupted."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


@contextmanager
def in_one_piece() -> Iterator[None]:
    """Work that holds what others need, such as a lock: inside it nothing waits, but it can be cancelled."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def pause_point(timed: bool = False) -> float:
    """Other work may go first here; returns the seconds that took, which are no part of this work's time.

    With `timed` the caller measures time or comes here very often, so that it should be interrupted seldom. Raises
    `CancelledError` where the result is not wanted any more.
    """
    ask = _ask.get()
    return 0.0 if ask is None else ask(not _whole.get(), timed)


def others_begin() -> None:
    """Said by who shares the models out, whenever they go to other work than before."""
    global _turn
    _turn += 1


def turn() -> int:
    """Another number once other work has had the models: what the device counts for all is then nobody's own."""
    return _turn


def check_wanted() -> None:
    """Raise `CancelledError` where the result is not wanted any more; never waits."""
    ask = _ask.get()
    if ask is not None:
        ask(False, False)
