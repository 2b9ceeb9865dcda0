"""Modelled times against whole runs: how far off the times are that claims of the papers are judged by.

    python -m benchmarks.modelled_times [--save]

Every run is made twice, one right after the other: with the embedded pair, and whole with its target 4 times as wide.
Passes of both targets are measured between the runs of each prompt, and the time of the wide run is modelled from the
plain one and these passes (`decoding.papers.rows.modelled`): what a machine's changing speed does is no error here.
Every run is read in both ways of counting; `--counted` chooses which is shown.
"""

import time
from collections.abc import Iterator

import pandas as pd
import torch

from decoding.common.cost_model import CostModel
from decoding.common.errors import run_main
from decoding.costs.batches import measure_batches
from decoding.costs.measuring import cost_model
from decoding.experiments.command import (
    add_counting_argument,
    arguments,
    goal_line,
    parse_amounts,
    print_table,
    save_figures,
)
from decoding.experiments.estimates import Estimate, counted, estimate, recorded
from decoding.experiments.executors import LocalExecutor, Todo
from decoding.experiments.grid import Grid, MethodAxis, PromptSet
from decoding.experiments.plan import prompts_of
from decoding.experiments.rows import LOOP_FREE
from decoding.models.embedded import EMBEDDED_NAME
from decoding.models.pair import Pair, load_pair
from decoding.models.presets import PairSettings
from decoding.papers.rows import modelled
from decoding.sampling.sampling import Sampling
from decoding.session.session import unrecorded
from decoding.trace.metrics import COUNTINGS

WIDTH = 4
WITHIN = 0.05  # goal for modelled times in the mean
METHODS = ("linear:length=3", "dynatree", "hardware_aware", "dyspec", "sequoia", "SpecInfer, 8 sequences of 8")
SAMPLINGS = (Sampling(), Sampling(temperature=0.6, draft_temperature=0.6))


def grid(prompts: int, new_tokens: int) -> Grid:
    """What is run: parts of long texts, greedy and at a temperature."""
    texts = PromptSet("long", prompts, max_tokens=(128,), parts=4)
    return Grid("modelled times", tuple(map(MethodAxis, METHODS)), texts, SAMPLINGS, (new_tokens,), keep="tokens")


def compared_runs(what: Grid, plain: Pair, wide: Pair) -> Iterator[dict]:
    """Milliseconds per token of every run with the wide pair in both ways of counting: as measured, and as modelled
    from the plain one.
    """
    alone = {id(pair): cost_model(pair, unrecorded) for pair in (plain, wide)}

    def passes(pair: Pair) -> CostModel:
        return measure_batches(pair, alone[id(pair)], (1,))[1]

    executors = [LocalExecutor(pair, what.name) for pair in (plain, wide)]
    prompts = prompts_of(what.prompts)
    for blocks in zip(*(each.plan(what, prompts) for each in executors), strict=True):
        own, other, rows = passes(plain), passes(wide), []
        for runs in zip(*(block.runs for block in blocks), strict=True):
            todos = zip(executors, blocks, runs, strict=True)
            rows.append([row for it, block, run in todos for row in it.rows([Todo(block, (run,))], lambda: False)])
        of_plain, of_wide = (pd.DataFrame(each) for each in zip(*rows, strict=True))
        named = of_wide[["method", "label", "kind", "prompt", "temperature"]]
        both = {
            f"{prefix}{name}_ms": 1000 * found["wall_s"] / found["new_tokens"]
            for way, prefix in (("whole", ""), ("loop_free", LOOP_FREE))
            for name, found in (
                ("measured", counted(of_wide, way)),
                ("modelled", modelled(counted(of_plain, way), own, other)),
            )
        }
        for _, row in named.assign(**both).iterrows():
            yield row.dropna().to_dict()


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_counting_argument(parser, "whole")
    args = parse_amounts(parser, count=(15, 1, "prompts"), max_new_tokens=(64, 12, "per prompt"))
    started = time.perf_counter()
    plain, wide = (load_pair(PairSettings(device="cpu", widen=width)) for width in (1, WIDTH))
    rows = []
    for row in compared_runs(grid(args.count, args.max_new_tokens), plain, wide):
        rows.append(row)
        for shown in recorded(pd.DataFrame([row]), args.counted).to_dict("records"):
            times = f"{shown['modelled_ms']:.1f} ms a token modelled, {shown['measured_ms']:.1f} measured"
            print(f"{row['kind']}/{row['prompt']}, {row['label']}, T = {row['temperature']:g}: {times}", flush=True)
    frame = recorded(pd.DataFrame(rows), args.counted)
    frame = frame.assign(share=frame["modelled_ms"] / frame["measured_ms"])
    whole = of_texts(frame)
    by = {method: of_texts(each) for method, each in frame.groupby("method", sort=False)}
    print_table(("method", "modelled over measured"), [(method, str(each)) for method, each in by.items()])
    runs = f"{len(frame)} whole runs, {COUNTINGS[args.counted]}"
    what = f"{whole} of the times of {runs}, in the mean, goal within {WITHIN:.0%}"
    print(goal_line(abs(whole.value - 1) <= WITHIN, what))
    figures = {
        "pair": EMBEDDED_NAME, "took_s": time.perf_counter() - started, "counted": args.counted, "runs": len(frame),
        "modelled": vars(whole), "by_method": {method: vars(each) for method, each in by.items()}, "rows": rows,
    }  # fmt: skip
    save_figures(args, "modelled_times", figures, torch.device("cpu"), by_processor=True)
    return 0


def of_texts(rows: pd.DataFrame) -> Estimate:
    """Modelled over measured time, the mean over texts with its interval."""
    return estimate(rows.groupby(["kind", "prompt"])["share"].mean().to_numpy())


if __name__ == "__main__":
    run_main(main)
