"""Runs what a grid still lacks, block by block, and keeps a row of every run.

What is kept is never run again, so an experiment that ended anywhere goes on where it was, also with more in its grid.
"""

import time
from collections.abc import Callable, Collection
from pathlib import Path

from decoding.common.errors import DraftscopeError
from decoding.common.interruption import CancelledError
from decoding.experiments.crews import Crew, Todo
from decoding.experiments.experiment import Experiment, State, Status
from decoding.experiments.grid import Grid, Keep
from decoding.experiments.plan import Block
from decoding.experiments.prompt_sets import prompts_of
from decoding.experiments.rows import SERIES, Row

LEFT_OUT: dict[Keep, tuple[str, ...]] = {"all": (), "tokens": (*SERIES,), "figures": (*SERIES, "output_ids")}
FLUSH_S = 3.0  # of work that an interruption may cost
Report = Callable[[Status], None]


def run_grid(
    grid: Grid,
    crew: Crew,
    folder: Path,
    report: Report = lambda status: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Status:
    """Run what a grid lacks; returns how it ended.

    Args:
        report: hears how far it is, after every run.
        stopped: asked between iterations; what is at work then is not kept.

    Raises:
        ExperimentError, PromptError: the grid, its prompts or the folder cannot be used.
    """
    experiment = Experiment(folder)
    plan = crew.plan(grid, prompts_of(grid.prompts))
    experiment.begin(grid)
    work = Work(experiment, plan, report, LEFT_OUT[grid.keep])
    try:
        for row in crew.rows(work.todo, lambda: stopped() or experiment.asked_to_stop()):
            work.keep(row)
    except CancelledError:
        return work.end("stopped", "Stopped; run the grid again to go on.")
    except DraftscopeError as error:
        work.end("failed", str(error))
        raise
    except BaseException as error:
        work.end("failed", f"{type(error).__name__}: {error}")
        raise
    return work.end("finished")


class Work:
    """What is left of a plan, what of it is kept, and how long the rest may take.

    Args:
        report: hears of every row. left_out: columns that are not kept.
    """

    def __init__(self, experiment: Experiment, plan: list[Block], report: Report, left_out: Collection[str] = ()):
        self._experiment, self._report, self._left_out = experiment, report, left_out
        failures = experiment.store.table(["failure"]).to_pydict()
        kept = dict(zip(failures["key"], failures["failure"], strict=True))
        todo = [Todo(block, tuple(run for run in block.runs if run.key not in kept)) for block in plan]
        self.todo = [each for each in todo if each.missing]
        self._runs = sum(len(block.runs) for block in plan)
        self._left = sum(len(each.missing) for each in self.todo)
        self._failed = sum(kept.get(run.key) is not None for block in plan for run in block.runs)
        self._made, self._waiting = 0, []
        self._began = self._kept = time.monotonic()
        experiment.write_status(self._status("running", ""))

    def keep(self, row: Row) -> None:
        """Take a row; it is on disk after `FLUSH_S` at the latest, if another follows."""
        self._waiting.append({name: value for name, value in row.items() if name not in self._left_out})
        self._made += 1
        self._left -= 1
        self._failed += row["failure"] is not None
        status = self._status("running", f"{row['label']}: {row['kind']}/{row['prompt']}")
        if time.monotonic() - self._kept > FLUSH_S:
            self._flush()
            self._experiment.write_status(status)
        self._report(status)

    def end(self, state: State, message: str = "") -> Status:
        """Keep what waits, and say how it ended, also where that cannot be kept."""
        try:
            self._flush()
        except BaseException as error:
            self._experiment.write_status(self._status("failed", "", message or str(error)))
            raise
        if state == "finished":
            self._experiment.store.compact()
        status = self._status(state, "", message)
        self._experiment.write_status(status)
        return status

    def _flush(self) -> None:
        self._experiment.store.append(self._waiting)
        self._waiting, self._kept = [], time.monotonic()

    def _status(self, state: State, now: str, message: str = "") -> Status:
        taken = time.monotonic() - self._began
        left_s = taken / self._made * self._left if self._made else None
        return Status(state, self._runs - self._left, self._runs, self._failed, now, left_s, message)
