"""Makes runs with one pair on one device, each a row with what it ran on; every method is warmed up first."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from decoding.common.files import ROOT
from decoding.common.interruption import CancelledError
from decoding.common.prompts import Prompt
from decoding.compare.comparison import Contestant, Result, measured_call, warm_call
from decoding.compare.contestants import format_contestant
from decoding.costs.measuring import machine_words
from decoding.experiments.grid import Grid
from decoding.experiments.plan import Block, Conditions, Run, blocks
from decoding.experiments.rows import LOOP_FREE, MEASURED, Row
from decoding.models.pair import Pair, pair_identity
from decoding.session.session import Limits
from decoding.trace.metrics import RunMetrics
from decoding.trace.records import PHASES

TOLD = ("torch", "transformers")


def circumstances(pair: Pair) -> dict[str, Any]:
    """The columns of a row that are the same for all runs of one process."""
    target = pair.target.info
    return {
        "pair": pair.info.name,
        "target": target.name,
        "draft": pair.info.draft.name,
        "device": target.device,
        "dtype": target.dtype,
        "engine": target.engine,
        "machine": machine_words(pair),
        "versions": ", ".join(f"{name} {version(name)}" for name in TOLD),
        "commit": code_version(),
    }


def code_version() -> str | None:
    """Commit of the code, with `-dirty` where anything but results differs from it; None where none is known.

    Without git or outside a checkout it is what the environment variable `DRAFTSCOPE_COMMIT` says.
    """
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return os.environ.get("DRAFTSCOPE_COMMIT")
    return commit + ("-dirty" if _git("status", "--porcelain", "--", ".", ":!decoding/experiments/results") else "")


def _git(*words: str) -> str | None:
    try:
        answer = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


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


WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Todo:
    """A block with the runs of it that are not kept yet."""

    block: Block
    missing: tuple[Run, ...]


class OwnCrew:
    """This process, with a pair that is loaded, and which ways to decode have been warmed up with it.

    Args:
        experiment: name of the grid, which stands in every row.
    """

    def __init__(self, pair: Pair, experiment: str):
        self._pair, self._common = pair, {"experiment": experiment, **circumstances(pair)}
        self._warm: set[tuple[str, str | None]] = set()

    def plan(self, grid: Grid, prompts: Sequence[Prompt]) -> list[Block]:
        """See `crews.Crew`."""
        return list(blocks(grid, self._pair, pair_identity(self._pair), prompts))

    def rows(self, todos: Iterable[Todo], stopped: Callable[[], bool]) -> Iterator[Row]:
        """See `crews.Crew`."""
        for todo in todos:
            conditions = todo.block.conditions
            limits = Limits(conditions.new_tokens, conditions.ignore_end_of_text, record="summary")
            for run in todo.missing:
                if stopped():
                    raise CancelledError
                started = time.time()
                result = self._call(run.contestant, conditions, limits, stopped)
                yield self._common | row_of(todo.block, run, result, started)

    def _call(
        self, contestant: Contestant, conditions: Conditions, limits: Limits, stopped: Callable[[], bool]
    ) -> Result:
        pair = self._pair.with_engine(contestant.engine) if contestant.engine else self._pair
        ids, sampling = list(conditions.ids), conditions.sampling
        kind = (contestant.baseline or contestant.method.name, contestant.engine)
        if kind not in self._warm:
            short = replace(limits, max_new_tokens=min(WARM_UP_TOKENS, limits.max_new_tokens))
            measured_call(pair, contestant, ids, short, sampling, stopped)
            self._warm.add(kind)
        return warm_call(pair, partial(measured_call, pair, contestant, ids, limits, sampling, stopped))
