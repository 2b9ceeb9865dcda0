"""The names of engines, which run a model's passes, as settings, files and addresses hold them. Torch-free."""

import re

ENGINES = ("auto", "library", "lean", "static")
# The static engine whose trees are drafted and verified by the host's code, to measure what the device's is worth.
STATIC_HOST = "static-host"
# Attention sinks and a window, so many rows together: `streaming` or `streaming-512`. Another law than the target's.
STREAMING = re.compile(r"streaming(?:-(\d{1,7}))?")
SINKS, STREAMED_ROWS, FEWEST_STREAMED = 4, 256, 64


def is_engine(name: str) -> bool:
    """Whether an engine has this name: one of `ENGINES`, `static-host`, or `streaming` with or without a number."""
    return name in (*ENGINES, STATIC_HOST) or streamed_rows(name) is not None


def streamed_rows(name: str) -> int | None:
    """Rows that a token sees with a streaming engine, sinks included; None for the name of any other."""
    found = STREAMING.fullmatch(name)
    rows = int(found[1] or STREAMED_ROWS) if found else 0
    return rows if rows >= FEWEST_STREAMED else None


def same_engine(one: str, other: str) -> bool:
    """Whether two names of engines mean the same: `streaming` is `streaming-256`."""
    rows = streamed_rows(one)
    return one == other if rows is None else rows == streamed_rows(other)
