"""What drafting a tree takes by its size, token by token and layer by layer, against Equation 3 of DySpec.

The greedy form asks the draft once for every node, so drafting is to take nodes x T_draft; with a threshold it asks
once a layer, which is depth x T_draft (Section 4.3). T_draft is the median of the greedy form's own forwards, which are
of one token each, on the same prompt. Here a node that is a leaf is never asked about, so the greedy form takes fewer.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean, median
from typing import Any

import pandas as pd

from decoding.common.errors import run_main
from decoding.experiments.command import (
    add_counting_argument,
    add_job_argument,
    arguments,
    as_job,
    encoded_texts,
    in_both_ways,
    in_steps,
    pair_from,
    parse_amounts,
    print_table,
    save_records,
)
from decoding.experiments.estimates import estimate, recorded
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.papers.paper_result import between, sampling_words
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import COUNTINGS
from decoding.trace.records import IterationTrace

SIZES = (8, 16, 32, 64, 128, 256)
SAMPLING = Sampling(temperature=0.6, draft_temperature=0.6)
LINES = {"greedy": "greedy", "greedy model": "nodes x T_draft", "threshold": "threshold",
         "threshold model": "depth x T_draft"}  # fmt: skip


def passes(pair: Pair, method: str, prompt_ids: list[int], tokens: int, **settings: int) -> list[IterationTrace]:
    """The iterations of a run that draft, without the first, which warms up."""
    chosen, limits = METHODS[method].with_settings(**settings), Limits(tokens, ignore_end_of_text=True)
    return [each for each in list(DecodeSession(pair, chosen, prompt_ids, SAMPLING, limits))[1:] if each.draft_forwards]


def records_of(
    greedy: Sequence[IterationTrace], threshold: Sequence[IterationTrace], text: Mapping[str, str], size: int
) -> list[dict]:
    """Milliseconds of drafting per pass, measured and by the model, of one prompt and size; none without passes.

    The threshold form is asked for a mean size and seldom meets it: `drafted` is what its trees had.
    """
    if not (greedy and threshold):
        return []
    draft_s = median(seconds for each in greedy for seconds in each.times.draft_levels_s)
    made = []
    for form, found, of_model in (("greedy", greedy, "drafted"), ("threshold", threshold, "draft_forwards")):
        outside = [not each.in_loop for each in found]
        for line, figures in (
            (form, _measured),
            (f"{form} model", partial(_modelled, asked=of_model, draft_s=draft_s)),
        ):
            made.append({"line": line, **text, "nodes": size, **in_both_ways(found, outside, figures)})
    return made


def _measured(passes: Sequence[IterationTrace]) -> dict[str, float]:
    return {
        "counted": len(passes),
        "draft_ms": 1000 * median(each.times.draft_s for each in passes),
        "forwards": mean(each.draft_forwards for each in passes),
        "drafted": mean(each.drafted for each in passes),
    }


def _modelled(passes: Sequence[IterationTrace], asked: str, draft_s: float) -> dict[str, float]:
    forwards = mean(getattr(each, asked) for each in passes)
    return _measured(passes) | {"draft_ms": 1000 * forwards * draft_s, "forwards": forwards}


def protocol(prompts: Sequence[tuple[Any, list[int]]], new_tokens: int, sizes: Sequence[int]) -> dict[str, dict]:
    """How the records are measured, see `decoding.papers.stored`."""
    return {"": {
        "prompt_tokens": between(len(ids) for _, ids in prompts), "new_tokens": f"{new_tokens:,}",
        "sampling": sampling_words([(SAMPLING.temperature, SAMPLING.top_p, SAMPLING.draft_temperature)]),
        "repeats": "medians over the passes of one run of each, without the first pass",
        "setup": f"trees of {', '.join(map(str, sizes))} nodes, those of the threshold form on average",
    }}  # fmt: skip


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_job_argument(parser)
    add_counting_argument(parser, "whole")
    args = parse_amounts(parser, count=(8, 3, "prompts"), max_new_tokens=(64, 24, "per prompt and size"))
    return as_job(args, measure)


def measure(args: argparse.Namespace) -> None:
    """Measure, print and keep what the arguments ask for."""
    started, tokens = time.perf_counter(), args.max_new_tokens
    pair, sizes = pair_from(args), SIZES[1:4] if args.quick else SIZES
    prompts, records = encoded_texts(pair, args.prompts, args.count), list[dict]()
    for text, ids in in_steps(args, prompts, len(prompts)):
        for size in sizes:
            greedy = passes(pair, "dyspec", ids, tokens, node_budget=size)
            threshold = passes(pair, "dyspec_threshold", ids, tokens, node_budget=4 * size, mean_nodes=size)
            records += records_of(greedy, threshold, text, size)
    print(f"{pair.info.name}, {pair.target.info.device}, {len(prompts)} prompts x {tokens} tokens, "
          f"{COUNTINGS[args.counted]}; ms of drafting\n")  # fmt: skip
    rows, shown = [], recorded(pd.DataFrame(records), args.counted)
    for nodes, here in shown.groupby("nodes") if len(shown) else ():
        of_line = dict(list(here.groupby("line")["draft_ms"]))
        rows.append((nodes, *(estimate(of_line[line]) if line in of_line else "-" for line in LINES)))
    print_table(("nodes", *LINES.values()), rows)
    save_records(args, "tree_times", pair, records, started, protocol=protocol(prompts, tokens, sizes))


if __name__ == "__main__":
    run_main(main)
