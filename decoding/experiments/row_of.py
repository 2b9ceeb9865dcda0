"""A run and its result as the columns of a row."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from decoding.compare.comparison import Result
from decoding.compare.contestants import format_contestant
from decoding.experiments.columns import LOOP_FREE, MEASURED
from decoding.experiments.plan import Block, Run
from decoding.trace.metrics import RunMetrics
from decoding.trace.records import PHASES


def row_of(block: Block, run: Run, result: Result, started: float) -> dict[str, Any]:
    """The columns that a run has of its own; `circumstances` has the others.

    Args:
        started: seconds since 1970.
    """
    return {
        **_asked(block, run),
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
        "failure": result.failure,
        "loop_free_tokens": result.loop_free_tokens,
        "output_ids": list(result.output_ids),
        **_figures(result.metrics, ""),
        **_figures(result.loop_free, LOOP_FREE),
        **_series(result),
    }


def _asked(block: Block, run: Run) -> dict[str, Any]:
    conditions, contestant = block.conditions, run.contestant
    method, sampling = contestant.method, conditions.sampling
    return {
        "key": run.key,
        "block": block.name,
        "reference": run.reference,
        "method": contestant.baseline or method.name,
        "label": contestant.label,
        "line": format_contestant(contestant),
        "settings": json.dumps({} if method is None else method.settings(), sort_keys=True),
        "prompt_set": conditions.prompt_set,
        "kind": conditions.prompt.kind,
        "prompt": conditions.prompt.name,
        "cut": conditions.cut,
        "prompt_tokens": len(conditions.ids),
        "asked_tokens": conditions.new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "draft_temperature": sampling.draft_temperature,
        "seed": sampling.seed,
        "repeat": conditions.repeat,
    }


def _figures(metrics: RunMetrics | None, prefix: str) -> dict[str, Any]:
    if metrics is None:
        return {}
    phases = metrics.phase_s or {}
    found = {name: getattr(metrics, name) for name in MEASURED if hasattr(metrics, name)}
    return {prefix + name: value for name, value in (found | {f"{p}_s": phases.get(p) for p in PHASES}).items()}


def _series(result: Result) -> dict[str, Any]:
    if result.metrics is None:
        return {}
    timeline, iterations = result.metrics.timeline, None if result.run is None else result.run.iterations
    ended_us = [round(1e6 * seconds) for seconds in timeline.seconds]
    return {
        "accepted_lengths": result.metrics.accepted_lengths and list(result.metrics.accepted_lengths),
        "drafted_nodes": iterations and [each.drafted for each in iterations],
        "committed_tokens": list(timeline.tokens),
        "pass_us": [end - before for before, end in pairwise((0, *ended_us))],
    }
