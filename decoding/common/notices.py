"""Sentences about what was done unasked, such as costs that were measured again: for who listens, else on stderr.

with heard_by(job.notices.append, job.doing):   # in the thread that does the work
    doing("waiting for other programs")           # for the moment
    tell("What passes cost was measured again.")  # to stay
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Hear = Callable[[str], None]


def _print(words: str) -> None:
    # On a terminal a line of progress may stand there.
    print(f"\r\x1b[K{words}" if sys.stderr.isatty() else words, file=sys.stderr, flush=True)


_listeners: ContextVar[tuple[Hear, Hear]] = ContextVar("listeners", default=(_print, _print))


@contextmanager
def heard_by(keep: Hear, show: Hear) -> Iterator[None]:
    """Have `keep` called with every sentence of `tell` inside, and `show` with those of `doing`."""
    token = _listeners.set((keep, show))
    try:
        yield
    finally:
        _listeners.reset(token)


def tell(sentence: str) -> None:
    """Say what was done unasked."""
    _listeners.get()[0](sentence)


def doing(words: str) -> None:
    """Say what takes a while, as it begins."""
    _listeners.get()[1](words)
