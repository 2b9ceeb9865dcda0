"""How much other processes use the processors, and waiting until they leave them alone."""

import time

import psutil

from decoding.common.cost_model import QUIET
from decoding.common.interruption import check_wanted
from decoding.common.notices import doing

LOOK_S, WAIT_S = 0.2, 3.0  # how long is looked at once, and the longest wait


class OtherWork:
    """How much of the processors other processes have used since it was made."""

    def __init__(self):
        self._begun = self._seconds()

    def share(self) -> float:
        """From 0 to 1, of all processors."""
        (all_s, busy_s, own_s), (all_then, busy_then, own_then) = self._seconds(), self._begun
        return max((busy_s - busy_then) - (own_s - own_then), 0.0) / max(all_s - all_then, 1e-3)

    @staticmethod
    def _seconds() -> tuple[float, float, float]:
        times, own = psutil.cpu_times(), psutil.Process().cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted as user time, too
        whole = sum(times) - guests
        return whole, whole - idle, own.user + own.system


def await_quiet() -> None:
    """Wait until other processes leave the processors alone, `WAIT_S` at most; can be cancelled."""
    until, said = time.monotonic() + WAIT_S, False
    while time.monotonic() < until:
        check_wanted()
        other_work = OtherWork()
        time.sleep(LOOK_S)
        share = other_work.share()
        if share <= QUIET:
            return
        if not said:
            doing(f"other programs use {share:.0%} of the processors: waiting for them, {WAIT_S:g} s at most")
        said = True
