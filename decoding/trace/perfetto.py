"""The measured times of runs as a Chrome trace, which ui.perfetto.dev and chrome://tracing open. Needs no torch.

Format: "Trace Event Format", JSON object form: complete events (`X`), counters (`C`) and names (`M`), microseconds.
Every duration is measured; an iteration that was replayed from stored rows has none, and says so. Where a phase
begins inside its iteration is not recorded: phases stand end to end in the order in which they run, and so do the
draft's forward passes inside the draft.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from decoding.trace.records import PHASES, IterationTrace, RunTrace

THREAD = 1
Event = dict[str, Any]


def perfetto_json(runs: Sequence[RunTrace]) -> str:
    """The trace of some runs, each of them a process of its own, as the text of a `.json` file."""
    events = [event for pid, run in enumerate(runs, start=1) for event in _events(pid, run)]
    note = "durations are measured; phases are laid end to end inside their iteration"
    if not all(run.timed for run in runs):
        note += "; iterations of 0 seconds were replayed from stored rows and not measured"
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"source": "Draftscope", "times": note}}
    return json.dumps(document, allow_nan=False)


def _events(pid: int, run: RunTrace) -> Iterator[Event]:
    yield _name(pid, 0, "process_name", f"{run.label} · {run.pair.name} · {run.pair.target.device}")
    yield _name(pid, THREAD, "thread_name", "iterations, phases, draft levels")
    if run.iterations and 0 < run.totals.prefill_s <= run.iterations[0].started_s:
        start_s = run.iterations[0].started_s - run.totals.prefill_s
        yield _slice(pid, "prefill", "prefill", start_s, run.totals.prefill_s, {"prompt_tokens": len(run.prompt_ids)})
    total = 0
    for iteration in run.iterations:
        yield from _iteration(pid, iteration)
        total += len(iteration.committed_ids)
        at_s = iteration.ended_s
        yield _counter(pid, "accepted tokens", at_s, {"accepted": len(iteration.accepted)})
        yield _counter(pid, "tokens of the output", at_s, {"tokens": total})
        rows = iteration.kv_target.rows_before + len(iteration.kv_target.kept_from)
        yield _counter(pid, "target cache rows", at_s, {"rows": rows})


def _iteration(pid: int, iteration: IterationTrace) -> Iterator[Event]:
    """The iteration, its phases inside it, the draft's forwards inside the draft."""
    times = iteration.times
    seconds = iteration.phase_s
    claimed_s = sum(seconds.values())
    told = {
        "drafted": iteration.drafted, "verified": iteration.verified, "accepted": len(iteration.accepted),
        "final": iteration.final_kind, "committed": "".join(iteration.committed_texts),
    }  # fmt: skip
    if not iteration.timed:
        told["time"] = "not measured: replayed from stored rows"
    took_s = max(iteration.ended_s - iteration.started_s, claimed_s)  # rounding must not let a phase stick out
    yield _slice(pid, f"iteration {iteration.index + 1}", "iteration", iteration.started_s, took_s, told)
    at_s = iteration.started_s
    for phase in PHASES:
        phase_s = seconds[phase]
        if phase_s > 0:
            yield _slice(pid, phase, "phase", at_s, phase_s, {})
        if phase == "draft":
            yield from _levels(pid, at_s, phase_s, times.draft_levels_s)
        at_s += phase_s


def _levels(pid: int, start_s: float, draft_s: float, levels_s: Sequence[float]) -> Iterator[Event]:
    end_s = start_s + draft_s
    for level, level_s in enumerate(levels_s, start=1):
        took_s = min(level_s, end_s - start_s)
        if took_s > 0:
            yield _slice(pid, f"draft forward {level}", "draft forward", start_s, took_s, {})
        start_s += level_s


def _slice(pid: int, name: str, category: str, start_s: float, took_s: float, told: dict[str, Any]) -> Event:
    return {
        "ph": "X", "name": name, "cat": category, "pid": pid, "tid": THREAD,
        "ts": _microseconds(start_s), "dur": round(_microseconds(start_s + took_s) - _microseconds(start_s), 3),
        "args": told,
    }  # fmt: skip


def _counter(pid: int, name: str, at_s: float, values: dict[str, int]) -> Event:
    return {"ph": "C", "name": name, "cat": "counts", "pid": pid, "ts": _microseconds(at_s), "args": values}


def _name(pid: int, tid: int, kind: str, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
