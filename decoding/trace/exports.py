"""A run for other programs: as CSV, a line per node or per iteration, and as a Chrome trace of its measured times.

In a CSV, text that a spreadsheet would take for a formula (it begins with = + - @, a tab or a line break), and text
that begins with an apostrophe, gets an apostrophe in front; taking one leading apostrophe away gives the text back.
Text that is a number stays one.

The Chrome trace, which ui.perfetto.dev and chrome://tracing open, is of the "Trace Event Format", JSON object form:
complete events (`X`), counters (`C`) and names (`M`), microseconds. Every duration is measured; an iteration that was
replayed from stored rows has none, and says so. Where a phase begins inside its iteration is not recorded: phases stand
end to end in the order in which they run, and so do the draft's forward passes inside the draft.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from decoding.trace.records import PHASES, IterationTrace, NodeTrace, PhaseTimes, RunTrace

FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n", "'")
# ASCII alone and whole, unlike what `float` takes: no space, underscore or digit of another script.
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
COUNTS = ("index", "prefix_length", "drafted", "verified", "tree_depth", "draft_forwards", "target_passes", "in_loop",
          "draft_sampling", "final_kind", "started_s", "ended_s")  # fmt: skip
TIMES = tuple(field.name for field in fields(PhaseTimes) if field.name != "draft_levels_s")
CACHE = ("slots_before", "slots_written", "slots_freed", "rebuilt", "bytes_moved")
THREAD = 1
Event = dict[str, Any]


def nodes_csv(run: RunTrace) -> str:
    """Every node of every recorded tree: its iteration, then the fields of `NodeTrace`."""
    names = [field.name for field in fields(NodeTrace)]
    rows = ([it.index, *(getattr(node, name) for name in names)] for it in run.iterations for node in it.nodes)
    return csv_table(["iteration", *names], rows)


def iterations_csv(run: RunTrace) -> str:
    """Every iteration: counts, what was committed, measured seconds of each phase, cache rows, settings in force."""
    header = [*COUNTS, "accepted", "committed", "committed_text", "final_text", *TIMES]
    header += [f"{model}_{name}" for model in ("target", "draft") for name in CACHE]
    header += ["history_mean", "history_decision", "settings"]
    rows = []
    for it in run.iterations:
        row: list[object] = [getattr(it, name) for name in COUNTS]
        row += [len(it.accepted), len(it.committed_ids), "".join(it.committed_texts), it.final_text]
        row += [getattr(it.times, name) for name in TIMES]
        for cache in (it.kv_target, it.kv_draft):
            row += [None if cache is None else getattr(cache, name) for name in CACHE]
        row += [None, None] if it.history is None else [it.history.mean, it.history.decision]
        rows.append([*row, "; ".join(f"{name}={value}" for name, value in it.settings.items())])
    return csv_table(header, rows)


def safe_cell(value: object) -> object:
    """A value as it goes into a cell: text is no formula, None is empty, truth values are words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def csv_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and rows as comma-separated values, every cell of them a `safe_cell`."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerows([safe_cell(value) for value in row] for row in (header, *rows))
    return file.getvalue()


def perfetto_json(runs: Sequence[RunTrace]) -> str:
    """The trace of some runs, each of them a process of its own, as the text of a `.json` file."""
    events = []
    for pid, run in enumerate(runs, start=1):
        process = f"{run.label} · {run.pair.name} · {run.pair.target.device}"
        threads = (0, "process_name", process), (THREAD, "thread_name", "iterations, phases, draft levels")
        for tid, kind, name in threads:
            events.append({"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}})
        took_s = run.totals.prefill_s
        if run.iterations and 0 < took_s <= run.iterations[0].started_s:
            start_s, shown = run.iterations[0].started_s - took_s, {"prompt_tokens": len(run.prompt_ids)}
            events.append(_slice(pid, "prefill", "prefill", start_s, took_s, shown))
        total = 0
        for iteration in run.iterations:
            total += len(iteration.committed_ids)
            events += _iteration(pid, iteration, total)
    note = "durations are measured; phases are laid end to end inside their iteration"
    if not all(run.timed for run in runs):
        note += "; iterations of 0 seconds were replayed from stored logits, not measured"
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"source": "Draftscope", "times": note}}
    return json.dumps(document, allow_nan=False)


def _iteration(pid: int, iteration: IterationTrace, tokens: int) -> Iterator[Event]:
    """The iteration, its phases inside it, the draft's forwards inside the draft; then what the counters show."""
    seconds = iteration.phase_s
    shown = {
        "drafted": iteration.drafted, "verified": iteration.verified, "accepted": len(iteration.accepted),
        "final": iteration.final_kind, "committed": "".join(iteration.committed_texts),
    }  # fmt: skip
    if not iteration.timed:
        shown["time"] = "not measured: replayed from stored logits"
    took_s = max(iteration.ended_s - iteration.started_s, sum(seconds.values()))  # rounding lets no phase stick out
    yield _slice(pid, f"iteration {iteration.index + 1}", "iteration", iteration.started_s, took_s, shown)
    at_s = iteration.started_s
    for phase in PHASES:
        phase_s = seconds[phase]
        end_s = at_s + phase_s
        if phase_s > 0:
            yield _slice(pid, phase, "phase", at_s, phase_s, {})
        if phase == "draft":
            start_s = at_s
            for level, level_s in enumerate(iteration.times.draft_levels_s, start=1):
                took_s = min(level_s, end_s - start_s)
                if took_s > 0:
                    yield _slice(pid, f"draft forward {level}", "draft forward", start_s, took_s, {})
                start_s += level_s
        at_s = end_s
    counters = {
        "accepted tokens": {"accepted": len(iteration.accepted)},
        "tokens of the output": {"tokens": tokens},
        "target KV slots": {"rows": iteration.kv_target.slots_before + len(iteration.kv_target.moved_from)},
    }
    for name, values in counters.items():
        at_us = _microseconds(iteration.ended_s)
        yield {"ph": "C", "name": name, "cat": "counts", "pid": pid, "ts": at_us, "args": values}


def _slice(pid: int, name: str, category: str, start_s: float, took_s: float, shown: dict[str, Any]) -> Event:
    return {
        "ph": "X", "name": name, "cat": category, "pid": pid, "tid": THREAD,
        "ts": _microseconds(start_s), "dur": round(_microseconds(start_s + took_s) - _microseconds(start_s), 3),
        "args": shown,
    }  # fmt: skip


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
