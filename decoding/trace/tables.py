"""A run as CSV: a line per node, or a line per iteration. Needs no torch.

Text that a spreadsheet would take for a formula (it begins with = + - @, a tab or a line break), and text that begins
with an apostrophe, gets an apostrophe in front; taking one leading apostrophe away gives the text back. Text that is a
number stays one.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields

from decoding.trace.records import IterationTrace, NodeTrace, PhaseTimes, RunTrace

FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n", "'")
# ASCII alone and whole, unlike what `float` takes: no space, underscore or digit of another script.
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
COUNTS = ("index", "prefix_length", "drafted", "verified", "tree_depth", "draft_forwards", "target_passes", "in_loop",
          "law", "final_kind", "started_s", "ended_s")  # fmt: skip
TIMES = tuple(field.name for field in fields(PhaseTimes) if field.name != "draft_levels_s")
CACHE = ("rows_before", "rows_written", "rows_freed", "rebuilt", "bytes_moved")


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
    return csv_table(header, map(_iteration_row, run.iterations))


def safe_cell(value: object) -> object:
    """A value as it goes into a cell: text is no formula, None is empty, truth values are words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _iteration_row(it: IterationTrace) -> list[object]:
    row: list[object] = [getattr(it, name) for name in COUNTS]
    row += [len(it.accepted), len(it.committed_ids), "".join(it.committed_texts), it.final_text]
    row += [getattr(it.times, name) for name in TIMES]
    for cache in (it.kv_target, it.kv_draft):
        row += [None if cache is None else getattr(cache, name) for name in CACHE]
    row += [None, None] if it.history is None else [it.history.mean, it.history.decision]
    return [*row, "; ".join(f"{name}={value}" for name, value in it.settings.items())]


def csv_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and rows as comma-separated values, every cell of them a `safe_cell`."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerows([safe_cell(value) for value in row] for row in (header, *rows))
    return file.getvalue()
