"""What a run took and what it ran on: time of each phase; processor, GPU, memory and library versions."""

import os
import platform
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers

from decoding.trace.records import PhaseTimes


class PhaseClock:
    """Adds up intervals by name; every mark closes the interval since the mark before it.

    On CUDA a mark is an event in the stream, read only in `durations`, so that timing adds no synchronisation in
    between; elsewhere it is the host's performance counter.
    """

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        if self._cuda:
            self._stream, self._idle = torch.cuda.current_stream(device), _idle_events(device.index)
        self._stamps: list[tuple[str, Any]] = [("", self._now())]

    def mark(self, name: str) -> None:
        """Close the interval since the last mark and count it as `name`."""
        self._stamps.append((name, self._now()))

    def durations(self) -> list[tuple[str, float]]:
        """Every interval in order as (name, seconds); waits for the device once, and ends this clock."""
        if self._cuda:
            self._stamps[-1][1].synchronize()
        found = [
            (name, before.elapsed_time(after) / 1000 if self._cuda else after - before)
            for (_, before), (name, after) in zip(self._stamps, self._stamps[1:], strict=False)
        ]
        if self._cuda:
            self._idle.extend(event for _, event in self._stamps)
        self._stamps.clear()
        return found

    def _now(self) -> Any:  # an event, or seconds
        if not self._cuda:
            return time.perf_counter()
        try:
            event = self._idle.pop()
        except IndexError:
            event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event


@lru_cache
def _idle_events(_device: int | None) -> list[Any]:
    """Events of a device that nobody waits for any more: to make one takes longer than to record it."""
    return []


def phase_times(clock: PhaseClock, prune_s: float) -> PhaseTimes:
    """Times of one iteration from its marks; pruning happens inside drafting and is taken out of it."""
    intervals = clock.durations()
    sums: dict[str, float] = {}
    for name, seconds in intervals:
        sums[name] = sums.get(name, 0.0) + seconds
    drafting = sums.get("draft_logic", 0.0) + sums.get("draft_level", 0.0)
    return PhaseTimes(
        draft_s=max(drafting - prune_s, 0.0),
        prune_s=prune_s,
        mask_s=sums["mask"],
        verify_s=sums["verify"],
        select_s=sums["select"],
        commit_s=sums["commit"],
        rebuild_s=sums.get("rebuild", 0.0),
        adapt_s=sums["adapt"],
        record_s=0.0,
        total_s=sum(sums.values()),
        draft_levels_s=tuple(seconds for name, seconds in intervals if name == "draft_level"),
    )


@lru_cache
def describe_hardware(device: torch.device) -> dict[str, str]:
    """Processor, cores, memory, device and versions by name."""
    cpuinfo = Path("/proc/cpuinfo")
    described = {
        "processor": processor_name(cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.exists() else ""),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "device": str(device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
    return described


def processor_name(cpuinfo: str) -> str:
    """The processor's name in the text of Linux's `/proc/cpuinfo`, which may be empty.

    With family and model where it has no number, as virtual machines give it: `AMD EPYC` alone is five generations,
    whose passes differ by a factor of two.
    """
    lines = (line.partition(":") for line in cpuinfo.split("\n\n")[0].splitlines())
    entries = {key.strip(): value.strip() for key, _, value in lines}
    name = entries.get("model name") or platform.processor() or platform.machine()
    if {"cpu family", "model"} <= entries.keys() and not re.search(r"\d", name.partition("@")[0]):
        return f"{name} family {entries['cpu family']} model {entries['model']}"
    return name
