"""What a part of the first contact finds: steps that fail alone, figures kept at once, and ten lines at the end."""

import argparse
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partialmethod
from typing import Any, Literal

import torch

from decoding.common.errors import DiskError
from decoding.experiments.command import save_figures, typed_command


class Budget:
    """Seconds from now on.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self._clock, self._end = clock, clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, 0 at least."""
        return max(self._end - self._clock(), 0.0)

    def spent(self) -> bool:
        """Whether none is left."""
        return not self.left_s

    def share(self, part: float) -> "Budget":
        """A budget of a share of what is left."""
        return Budget(part * self.left_s, self._clock)


Kind = Literal["wrong", "slow", "works"]
MINUTES, LINES = 8.0, 10
AT_LEAST = 3  # lines of each kind that has so many
# A step that hangs in the driver cannot be asked to end: so much later the program ends itself, its lines printed.
GRACE_S = 45
NO_CUDA = "PyTorch sees no CUDA device here: this was a trial on the CPU, with small models, and no graph was captured"
# What keeping the figures can fail with: a full disk, a value that JSON has no form for, a device that is gone.
KEEP_ERRORS = (DiskError, OSError, TypeError, ValueError, RuntimeError)

Step = tuple[str, Callable[["Report"], None]]


class Report:
    """The findings of one part.

    Attributes:
        args: what was typed.
        cuda: whether there is a CUDA device.
        device: the CUDA device, or the CPU.
        budget: what is left of the time.
        figures: what was measured, by step.
    """

    def __init__(self, part: str, args: argparse.Namespace):
        self.part, self.args = part, args
        self.cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", 0) if self.cuda else torch.device("cpu")
        self.budget = Budget(60 * (args.minutes or MINUTES))
        self.figures: dict[str, Any] = {}
        self._found: dict[Kind, list[str]] = {"wrong": [], "slow": [], "works": []}

    def run(self, steps: Callable[["Report"], Iterable[Step]]) -> int:
        """Take the steps one by one until the time is over, then print the ten lines."""
        started = time.perf_counter()
        overdue = threading.Timer(self.budget.left_s + GRACE_S, self._break_off)
        overdue.daemon = True
        overdue.start()
        if not self.cuda:
            self.wrong(NO_CUDA)
        print(f"first contact: {self.part}, at most {self.budget.left_s / 60:.1f} minutes", flush=True)
        try:
            for name, step in steps(self):
                self._take(name, step)
        except Exception as error:  # noqa: BLE001 - what the steps share, such as the pair: the lines are printed all the same
            self._failed("before a step", error)
        self.keep()
        overdue.cancel()
        print(f"\n{time.perf_counter() - started:.0f} s")
        self._print_lines()
        return 1 if self._found["wrong"] else 0

    def _take(self, name: str, step: Callable[["Report"], None]) -> None:
        if self.budget.spent():
            self.slow(f"{name}: no time was left for it")
            return
        begun = time.perf_counter()
        print(f"\n== {name}", flush=True)
        try:
            step(self)
        except Exception as error:  # noqa: BLE001 - whatever a step fails with is reported, and costs no other its findings
            self._failed(name, error)
        print(f"== {name}: {time.perf_counter() - begun:.1f} s", flush=True)
        self.keep()

    def _failed(self, name: str, error: BaseException) -> None:
        traceback.print_exception(error, file=sys.stdout)
        self.wrong(f"{name}: {first_line(error)}")

    def judge(self, kind: Kind, sentence: str) -> None:
        """Note what fails or gives something else than it should, is slow or was not measured, or works; each once."""
        sentence = _one_line(sentence)
        if sentence not in self._found[kind]:
            self._found[kind].append(sentence)
            print(f"{kind}: {sentence}", flush=True)

    works, slow, wrong = partialmethod(judge, "works"), partialmethod(judge, "slow"), partialmethod(judge, "wrong")

    def forget(self, noted: Iterable[tuple[Kind, str]]) -> None:
        """Leave sentences that others replace out of the ten lines, but none of what is wrong."""
        for kind, sentence in noted:
            if kind != "wrong" and (reported := _one_line(sentence)) in self._found[kind]:
                self._found[kind].remove(reported)

    def keep(self) -> None:
        """Write what is known so far where `--json` or `--save` asks for it; failing to is a finding too."""
        try:
            figures = {"part": self.part, **self.figures, "lines": self.lines()}
            save_figures(self.args, f"first-contact-{self.part}", figures, self.device)
        except KEEP_ERRORS as error:
            self.wrong(f"the figures could not be kept: {first_line(error)}")

    def lines(self) -> list[str]:
        """At most ten: what is wrong first, then what is slow, then what works; the last says how many had no room."""
        found, total = self._found, sum(map(len, self._found.values()))
        kept = {kind: len(sentences) for kind, sentences in found.items()}
        if total > LINES:
            # Every kind has its say; what is wrong takes the rest of the room, then what is slow.
            kept = {kind: min(AT_LEAST, count) for kind, count in kept.items()}
            for kind, sentences in found.items():
                kept[kind] += min(len(sentences) - kept[kind], LINES - 1 - sum(kept.values()))
        listed = [f"{kind + ':':6} {each}" for kind in found for each in found[kind][: kept[kind]]]
        return listed if len(listed) == total else [*listed, f"{total - len(listed)} more findings stand above"]

    def _print_lines(self) -> None:
        print(f"\n--- {self.part}: {typed_command()}")
        print("\n".join(self.lines()), flush=True)

    def _break_off(self, leave: Callable[[int], None] = os._exit) -> None:
        """End the program from beside a step that hangs; the lines come first, as keeping the figures may hang too."""
        try:
            self.wrong("the part had to be broken off: a step did not end in its time")
            self._print_lines()
            faulthandler.dump_traceback(sys.__stderr__)
            faulthandler.dump_traceback_later(GRACE_S, exit=True, file=sys.__stderr__)
            self.keep()
        finally:
            faulthandler.cancel_dump_traceback_later()
            leave(3)


def _one_line(sentence: str) -> str:
    return " ".join(sentence.split())


def first_line(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
