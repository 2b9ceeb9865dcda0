"""Run a grid of methods and settings: `python -m decoding.experiments.sweep GRID.toml --out DIR`.

A row per run is appended to Parquet files in DIR/rows. Called again it runs what is missing, whatever ended it before.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from decoding.common.errors import ExperimentError, run_main
from decoding.experiments.crews import Crew, DeviceCrew, OwnCrew, devices_here
from decoding.experiments.experiment import Status
from decoding.experiments.grid import Grid, contestants
from decoding.experiments.grid_file import read_grid
from decoding.experiments.homes import SHIPPED, experiments_home
from decoding.experiments.ray_crew import RayCrew
from decoding.experiments.runner import run_grid
from decoding.models.pair import load_pair

EVERY_S = 2.0  # between two lines of progress where stderr is no terminal


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(prog="python -m decoding.experiments.sweep", description=__doc__.splitlines()[0])
    made.add_argument("grid", type=Path, metavar="GRID.toml", help="what to run: see decoding/experiments/grids")
    made.add_argument("--out", type=Path, metavar="DIR", help="where rows are kept (default: the user's cache)")
    made.add_argument("--save", action="store_true", help="keep them with the program, for benchmarks.papers")
    made.add_argument(
        "--prompts", metavar="SET", help="a folder of .txt files or a data set by name, in place of what the grid says"
    )
    made.add_argument("--count", type=int, metavar="N", help="how many prompts, in place of what the grid says")
    made.add_argument(
        "--ray", nargs="?", const="local", metavar="ADDRESS", help="run on Ray: here, or a cluster's address"
    )
    made.add_argument(
        "--workers", type=int, metavar="N", help="workers on Ray (default: one per GPU, else one per core)"
    )
    made.add_argument("--devices", metavar="A,B", help="such as cuda:0,cuda:1 (default: every GPU there is)")
    made.add_argument("--dry-run", action="store_true", help="only say what would be run")
    return made


class Progress:
    """A line that tells how far it is: rewritten on a terminal, now and then a new one elsewhere."""

    def __init__(self):
        self._said, self._terminal = 0.0, sys.stderr.isatty()

    def __call__(self, status: Status) -> None:
        now = time.monotonic()
        if self._terminal or now - self._said > EVERY_S or status.done == status.runs:
            self._said = now
            line = f"{status.done} of {status.runs} runs, {in_words(status.left_s)} left: {status.now}"
            print(f"\r{line[:110]:<110}" if self._terminal else line, end="" if self._terminal else "\n",
                  file=sys.stderr, flush=True)  # fmt: skip


def in_words(seconds: float | None) -> str:
    """A time that is left: `3 min`."""
    if seconds is None:
        return "some time"
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def tell(grid: Grid) -> None:
    """What a grid comes to, and what of it was left out."""
    found = [contestants(grid, sampling) for sampling in grid.samplings]
    ways, lengths = sum(len(each) for each, _ in found), len(grid.new_tokens) * len(grid.prompts.max_tokens)
    print(f"{grid.name}: {ways} ways x {lengths} lengths x {grid.repeats} repeats, "
          f"{grid.prompts.count or 'all'} prompts of {grid.prompts.set}")  # fmt: skip
    for said in dict.fromkeys(said for _, left_out in found for said in left_out):
        print(f"left out: {said}")


@contextmanager
def crew_for(args: argparse.Namespace, grid: Grid) -> Iterator[Crew]:
    """Who makes the runs: Ray, a process for each device, or this process where there is one device."""
    settings = grid.pair_settings
    devices = tuple(args.devices.split(",")) if args.devices else devices_here(settings)
    if args.ray:
        crew = RayCrew(settings, grid.name, args.ray, args.workers)
    elif len(devices) > 1 or (args.devices and ":" in args.devices):  # which one is chosen for a process, not in it
        crew = DeviceCrew(settings, devices, grid.name)
    else:
        yield OwnCrew(load_pair(replace(settings, device=devices[0].partition(":")[0])), grid.name)
        return
    with closing(crew):
        yield crew


def main() -> int:
    args = parser().parse_args()
    grid = read_grid(args.grid)
    if args.count is not None:
        if args.count < 1:
            raise ExperimentError(f"--count must be at least 1, not {args.count}.")
        grid = replace(grid, prompts=replace(grid.prompts, count=args.count))
    if args.prompts is not None:  # kinds of text are those of the set in the file
        grid = replace(grid, prompts=replace(grid.prompts, set=args.prompts, kinds=()))
    tell(grid)
    if args.dry_run:
        return 0
    out = args.out or (SHIPPED if args.save else experiments_home()) / args.grid.stem
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    with crew_for(args, grid) as crew:
        status = run_grid(grid, crew, out, Progress(), lambda: bool(asked))
    failed = f", {status.failed} could not be made" if status.failed else ""
    print(f"\n{out}: {status.done} of {status.runs} runs{failed}; {status.message or status.state}")
    return 0 if status.state == "finished" else 1


if __name__ == "__main__":
    run_main(main)
