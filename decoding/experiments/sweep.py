"""Run a grid of methods and settings: `python -m decoding.experiments.sweep GRID.toml --out DIR`.

A row per run is appended to Parquet files in DIR/rows. What is kept is never run again: called again it runs what is
missing, whatever ended it before, also with more in its grid.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from decoding.common.errors import ExperimentError, run_main
from decoding.common.interruption import CancelledError
from decoding.experiments.command import add_counting_argument
from decoding.experiments.estimates import aggregated, best_words, ranked
from decoding.experiments.executors import DeviceExecutor, Executor, LocalExecutor, RayExecutor, Todo, devices_here
from decoding.experiments.experiment import MODULE, SHIPPED, Experiment, experiments_home
from decoding.experiments.grid import Grid, Keep, contestants, kept_grid, read_grid
from decoding.experiments.plan import Block, prompts_of
from decoding.experiments.rows import SERIES, Row
from decoding.jobs.job import Status
from decoding.jobs.process import OFTEN_S, ProgressLine, StoppedError, ending, stop_signals
from decoding.models.pair import load_pair
from decoding.models.presets import WIDTHS, widen_help
from decoding.trace.metrics import COUNTINGS

LEFT_OUT: dict[Keep, tuple[str, ...]] = {"all": (), "tokens": (*SERIES,), "figures": (*SERIES, "output_ids")}
FLUSH_S = 3.0  # of work that an interruption may cost
Report = Callable[[Status], None]


def run_grid(grid: Grid, executor: Executor, folder: Path, report: Report = lambda status: None) -> Status:
    """Run what a grid lacks, block by block; returns how it ended.

    `report` hears how far it is, after every run. A stop that the folder is asked for comes between two iterations,
    and what is at work then is not kept. Raises `ExperimentError` or `PromptError` where the grid, its prompts or the
    folder cannot be used.
    """
    experiment = Experiment(folder)
    plan = executor.plan(grid, prompts_of(grid.prompts))
    experiment.begin(grid)
    work = _Work(experiment, plan, report, LEFT_OUT[grid.keep])
    with suppress(StoppedError), ending(experiment):
        try:
            for row in executor.rows(work.todo, experiment.asked_to_stop):
                work.keep(row)
        except CancelledError:
            raise StoppedError("Stopped; resume runs what is missing.") from None
        finally:
            work.flush()
            experiment.store.compact()
    return experiment.status()


class _Work:
    """What is left of a plan, what of it is kept, and how long the rest may take."""

    def __init__(self, experiment: Experiment, plan: list[Block], report: Report, left_out: tuple[str, ...]):
        self._experiment, self._report, self._left_out = experiment, report, left_out
        failures = experiment.store.table(["failure"]).to_pydict()
        kept = dict(zip(failures["key"], failures["failure"], strict=True))
        todo = [Todo(block, tuple(run for run in block.runs if run.key not in kept)) for block in plan]
        self.todo = [each for each in todo if each.missing]
        self._runs = sum(len(block.runs) for block in plan)
        self._left = sum(len(each.missing) for each in self.todo)
        self._failed = sum(kept.get(run.key) is not None for block in plan for run in block.runs)
        self._made = 0
        self._waiting: list[Row] = []
        self._began = self._kept = time.monotonic()
        self._now = ""
        experiment.write_status(self._status())

    def keep(self, row: Row) -> None:
        """Take a row; it is on disk after `FLUSH_S` at the latest, if another follows."""
        self._waiting.append({name: value for name, value in row.items() if name not in self._left_out})
        self._made += 1
        self._left -= 1
        self._failed += row["failure"] is not None
        self._now = f"{row['label']}: {row['kind']}/{row['prompt']}"
        if time.monotonic() - self._kept > FLUSH_S:
            self.flush()
        self._report(self._status())

    def flush(self) -> None:
        """Keep what waits, and say how much is kept."""
        self._experiment.store.append(self._waiting)
        self._waiting, self._kept = [], time.monotonic()
        self._experiment.write_status(self._status())

    def _status(self) -> Status:
        taken = time.monotonic() - self._began
        left_s = taken / self._made * self._left if self._made else None
        return Status("running", self._now, self._runs - self._left, self._runs, self._failed, left_s=left_s)


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    made.add_argument("grid", type=Path, nargs="?", metavar="GRID.toml", help="see decoding/experiments/grids")
    made.add_argument("--out", type=Path, metavar="DIR", help="folder for the results (default: the user's cache)")
    made.add_argument("--resume", action="store_true", help="run what is missing of the last grid in --out")
    made.add_argument("--save", action="store_true", help="save them in the repository, for benchmarks.papers")
    made.add_argument(
        "--prompts", metavar="SET", help="a folder of .txt files or a data set by name, instead of the grid's"
    )
    made.add_argument("--count", type=int, metavar="N", help="how many prompts, instead of the grid's number")
    made.add_argument("--widen", type=int, choices=WIDTHS, help=f"{widen_help()}, instead of the grid's pair")
    add_counting_argument(made)
    made.add_argument(
        "--ray", nargs="?", const="local", metavar="ADDRESS", help="run on Ray: on this machine, or a cluster's address"
    )
    made.add_argument(
        "--workers", type=int, metavar="N", help="workers on Ray (default: one per GPU, else one per core)"
    )
    made.add_argument("--devices", metavar="A,B", help="such as cuda:0,cuda:1 (default: every GPU)")
    made.add_argument("--dry-run", action="store_true", help="only print what would be run")
    return made


@contextmanager
def executor_for(args: argparse.Namespace, grid: Grid) -> Iterator[Executor]:
    """Who makes the runs: Ray, a process for each device, or this process where there is one device."""
    settings = grid.pair_settings
    devices = tuple(args.devices.split(",")) if args.devices else devices_here(settings)
    executor: RayExecutor | DeviceExecutor
    if args.ray:
        executor = RayExecutor(settings, grid.name, args.ray, args.workers)
    elif len(devices) > 1 or (args.devices and ":" in args.devices):  # which one is chosen for a process, not in it
        executor = DeviceExecutor(settings, devices, grid.name)
    else:
        yield LocalExecutor(load_pair(replace(settings, device=devices[0].partition(":")[0])), grid.name)
        return
    with closing(executor):
        yield executor


def grid_of(args: argparse.Namespace) -> tuple[Grid, Path]:
    """The grid that is asked for, and the folder of its rows; `ExperimentError` where none is named, or can be read."""
    if args.resume and args.out is not None and args.grid is None:
        grid, out = kept_grid(args.out), args.out
    elif args.grid is not None and not args.resume:
        grid, home = read_grid(args.grid), SHIPPED if args.save else experiments_home()
        out = args.out or home / args.grid.stem
    else:
        raise ExperimentError("Name a grid, or with --resume the folder to resume: --out DIR.")
    if args.count is not None:
        if args.count < 1:
            raise ExperimentError(f"--count must be at least 1, not {args.count}.")
        grid = replace(grid, prompts=replace(grid.prompts, count=args.count))
    if args.widen is not None:
        grid = replace(grid, pair={**grid.pair, "widen": args.widen})
    if args.prompts is not None:  # kinds of text are those of the set in the file
        grid = replace(grid, prompts=replace(grid.prompts, set=args.prompts, kinds=()))
    return grid, out


def main() -> int:
    args = parser().parse_args()
    grid, out = grid_of(args)
    found = [contestants(grid, sampling) for sampling in grid.samplings]
    ways, lengths = sum(len(each) for each, _ in found), len(grid.new_tokens) * len(grid.prompts.max_tokens)
    print(f"{grid.name}: {ways} configurations x {lengths} lengths x {grid.repeats} repeats, "
          f"{grid.prompts.count or 'all'} prompts of {grid.prompts.set}")  # fmt: skip
    for said in dict.fromkeys(said for _, left_out in found for said in left_out):
        print(f"left out: {said}")
    if args.dry_run:
        return 0
    with stop_signals(Experiment(out)), executor_for(args, grid) as executor:
        status = run_grid(grid, executor, out, ProgressLine(OFTEN_S))
        rows = Experiment(out).store.frame()
        if len(rows):  # what the folder holds of another pair or grid is no contestant
            planned = {run.key for block in executor.plan(grid, prompts_of(grid.prompts)) for run in block.runs}
            rows = rows[rows["key"].isin(planned)]
    failed = f", {status.failed} failed" if status.failed else ""
    print(f"\n{out}: {status.done} of {status.total} runs{failed}; {status.message or status.state}")
    if len(rows):
        runs = aggregated(rows, args.counted)
        tokens = f"{runs['new_tokens'].mean():,.0f} tokens counted per run, {COUNTINGS[args.counted]}"
        print(f"best by speed: {best_words(ranked(runs, 'throughput'), 'tokens per second', digits=1)} {tokens}")
    return 0 if status.state == "finished" else 1


if __name__ == "__main__":
    run_main(main)
