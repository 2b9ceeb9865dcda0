"""How a training is told on stderr: one line that is rewritten on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Mapping

from decoding.training.loop import Report
from decoding.training.run_folder import Status

EVERY_S = 60.0  # between two lines where stderr is no terminal
BAR = 24


def reporter() -> Report:
    """A report for `loop.train`."""
    told_s = float("-inf")

    def report(status: Status, record: Mapping[str, float]) -> None:
        nonlocal told_s
        line = describe(status, record)
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - told_s >= EVERY_S or any(name.startswith("held_out") for name in record):
            told_s = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    return report


def describe(status: Status, record: Mapping[str, float]) -> str:
    """Phase, bar, step, figures and time left in one line."""
    share = status.share or 0.0
    bar = ("#" * round(share * BAR)).ljust(BAR, ".")
    figures = "  ".join(f"{name} {value:.4g}" for name, value in record.items())
    return f"{status.phase} [{bar}] {share:.0%}  step {status.step}  {figures}  {time_left(status.left_s)}"


def time_left(left_s: float | None) -> str:
    """`about 3 min left`, or nothing while unknown."""
    if left_s is None:
        return ""
    return f"about {left_s / 60:.0f} min left" if left_s >= 60 else "under a minute left"
