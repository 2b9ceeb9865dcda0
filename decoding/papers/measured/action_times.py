"""The latency model of delayed trees (Eq. 11) against measured pass times: `python -m benchmarks.action_times`.

Times come from results of the grid action_times on this machine; the model is the one that selectors are trained and
run with. It is measured twice: as printed, with one-token passes after a context that has grown by the tree, and with
passes costed by their tokens. Both see the same contexts as the passes that were timed. The first iteration, which
reads the prompt, is left out; so is a text of which too few others are counted.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from decoding.common.errors import ExperimentError, run_main
from decoding.costs.latency import latency_model
from decoding.costs.measuring import machine_words
from decoding.experiments.command import (
    add_counting_argument,
    add_job_argument,
    as_job,
    in_both_ways,
    in_steps,
    pair_from,
    print_table,
    save_records,
)
from decoding.experiments.estimates import estimate, recorded
from decoding.experiments.experiment import all_experiments
from decoding.experiments.rows import all_rows
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.papers.judge import grid_name
from decoding.papers.paper_result import protocol_here
from decoding.selector.actions import ACTIONS, TIME_MODELS, Action, LatencyModel
from decoding.session.session import unrecorded
from decoding.trace.metrics import COUNTINGS

GRID = "action_times"
MEASURED = "measured"
LEAST = 3  # counted iterations of a run after its first one


def rows_here(pair: Pair, folders: Iterable[Path]) -> pd.DataFrame:
    """The results of the grid with this pair on this machine; `ExperimentError` without any."""
    rows = all_rows(folders)
    own = rows["experiment"] == grid_name(GRID)
    here = (rows["machine"] == machine_words(pair)) & (rows["pair"] == pair.info.name)
    found = rows[own & here & rows["failure"].isna() & (rows["method"] == "delayed")].drop_duplicates("key")
    if found.empty:
        which = "All results of {} are from another machine or pair" if own.any() else "There are no results of {}"
        raise ExperimentError(
            f"{which.format(GRID)}: first run "
            f"python -m benchmarks.sweep decoding/experiments/grids/{GRID}.toml on this machine."
        )
    return found


def records_of(row: pd.Series, model: LatencyModel) -> list[dict[str, Any]]:
    """Measured and modelled pass times of one run in both ways of counting, medians; none for too few passes."""
    action = Action(*(int(row[f"settings.{name}"]) for name in Action._fields))
    taken, reached = 1e-6 * np.asarray(row["pass_us"])[1:], np.asarray(row["committed_tokens"])
    if len(taken) < LEAST:
        return []
    outside = reached[1:] <= row["loop_free_tokens"]
    outside &= outside.sum() >= LEAST
    place, lengths = ACTIONS.index(action), row["prompt_tokens"] + reached[:-1]
    modelled: dict[str, np.ndarray] = {way: model.action_s(lengths, way)[:, place] for way in TIME_MODELS}
    shape = " ".join(map(str, action))
    return [
        {"line": line, "sample": f"{shape} {row['kind']}/{row['prompt']}", "action": shape, "nodes": action.nodes,
         **in_both_ways(list(zip(of_line, taken, strict=True)), outside, _medians)}
        for line, of_line in {MEASURED: taken, **modelled}.items()
    ]  # fmt: skip


def _medians(passes: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of passes by a line's seconds and the measured ones."""
    seconds, measured = (float(median(each)) for each in zip(*passes, strict=True))
    return {"counted": len(passes), "pass_ms": 1000 * seconds, "of_measured": seconds / measured}


def protocol(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """How the runs were measured, see `decoding.papers.stored`."""
    said = protocol_here(rows)
    names = ("prompts", "prompt_tokens", "new_tokens", "sampling")
    trees = len(rows["line"].unique())
    return {"": {name: getattr(said, name) for name in names} | {
        "repeats": "medians over the passes of one run of each, without the first pass",
        "setup": f"delayed trees of {trees} shapes",
    }}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--save", action="store_true", help="save the figures in decoding/experiments/results")
    add_pair_arguments(parser)
    parser.add_argument("--rows", type=Path, nargs="+", metavar="DIR", help="experiments (default: all that are saved)")
    parser.add_argument("--again", action="store_true", help="re-measure the model even where one is saved")
    add_job_argument(parser)
    add_counting_argument(parser, "whole")
    args = parser.parse_args()
    return as_job(args, measure)


def measure(args: argparse.Namespace) -> None:
    """Measure, print and keep what the arguments ask for."""
    started = time.perf_counter()
    pair = pair_from(args)
    rows = rows_here(pair, args.rows or all_experiments())
    model = latency_model(pair, unrecorded, again=args.again)
    records = [record for _, row in in_steps(args, rows.iterrows(), len(rows)) for record in records_of(row, model)]
    print(f"{pair.info.name} on {machine_words(pair)}, {len(rows)} runs, {COUNTINGS[args.counted]}\n")
    shown, counted = [], recorded(pd.DataFrame(records), args.counted)
    for nodes, here in counted.groupby("nodes") if len(counted) else ():
        of_line = dict(list(here.groupby("line")))
        times = [estimate(of_line[line]["pass_ms"]) for line in (MEASURED, *TIME_MODELS)]
        shares = [f"{estimate(100 * of_line[way]['of_measured']).value:.0f}%" for way in TIME_MODELS]
        shown.append((nodes, *times, *shares, ", ".join(sorted(here["action"].unique()))))
    header = ("nodes", "measured, ms", "by rows, ms", "as printed, ms", "by rows", "as printed", "K L1 L2")
    print_table(header, shown)
    save_records(args, "action_times", pair, records, started, protocol=protocol(rows))


if __name__ == "__main__":
    run_main(main)
