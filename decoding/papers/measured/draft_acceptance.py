"""Draft probability against acceptance, node by node (DySpec, Figure 2): are likely draft tokens accepted?

Nodes of DySpec's trees that the verifier tested, in ten bins of the draft's probability given their parent: the share
of tests that passed, and the target's probability of the same tokens. Runs are recorded in full, as sweeps are not:
recording takes time.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from statistics import mean
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
from decoding.models.presets import add_pair_arguments
from decoding.papers.paper_result import between, sampling_words
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import COUNTINGS
from decoding.trace.records import IterationTrace

TEMPERATURES, DRAFT_TEMPERATURE = (0.0, 0.6), 0.6
BINS = 10


def middle(probability: float) -> float:
    """The centre of the bin of a probability."""
    return round((min(int(probability * BINS), BINS - 1) + 0.5) / BINS, 2)


def tests_by_bin(iterations: Iterable[IterationTrace]) -> dict[float, dict[str, float]]:
    """Tests of drafted nodes by the centre of their draft probability's bin, in both ways of counting.

    Given are how many were `tested`, the share `accepted`, and the mean `target_probability` at temperature 1.
    """
    tests: dict[float, list[tuple[bool, float]]] = defaultdict(list)
    outside: dict[float, list[bool]] = defaultdict(list)
    for iteration in iterations:
        for step in iteration.steps:
            if step.kind == "test" and step.child_id is not None:
                node = iteration.nodes[step.child_id]
                if node.draft_probability is not None and node.target_probability is not None:
                    place = middle(node.draft_probability)
                    tests[place].append((step.accepted, node.target_probability))
                    outside[place].append(not iteration.in_loop)
    return {place: in_both_ways(found, outside[place], _shares) for place, found in sorted(tests.items())}


def _shares(tests: Sequence[tuple[bool, float]]) -> dict[str, float]:
    return {
        "counted": len(tests),
        "tested": len(tests),
        "accepted": mean(accepted for accepted, _ in tests),
        "target_probability": mean(probability for _, probability in tests),
    }


def protocol(prompts: Sequence[tuple[Any, list[int]]], new_tokens: int) -> dict[str, dict[str, str]]:
    """How the records are measured, see `decoding.papers.stored`."""
    return {"": {
        "prompt_tokens": between(len(ids) for _, ids in prompts), "new_tokens": f"{new_tokens:,}",
        "sampling": sampling_words((temperature, 1.0, DRAFT_TEMPERATURE) for temperature in TEMPERATURES),
        "repeats": "one run of each", "setup": f"trees of {METHODS['dyspec'].settings()['node_budget']} nodes",
    }}  # fmt: skip


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_job_argument(parser)
    add_counting_argument(parser, "whole")
    args = parse_amounts(parser, count=(16, 4, "prompts"), max_new_tokens=(128, 32, "per prompt"))
    return as_job(args, measure)


def measure(args: argparse.Namespace) -> None:
    """Measure, print and keep what the arguments ask for."""
    started = time.perf_counter()
    pair = pair_from(args)
    prompts = encoded_texts(pair, args.prompts, args.count)
    limits = Limits(args.max_new_tokens, ignore_end_of_text=True, record="full")
    records = []
    runs = list(product(TEMPERATURES, prompts))
    for temperature, (text, ids) in in_steps(args, runs, len(runs)):
        sampling = Sampling(temperature, draft_temperature=DRAFT_TEMPERATURE)
        session = DecodeSession(pair, METHODS["dyspec"], ids, sampling, limits)
        for place, found in tests_by_bin(session).items():
            records.append({"line": f"{temperature:g}", **text, "draft_probability": place, **found})
    print(f"{pair.info.name}, {pair.target.info.device}, {len(prompts)} prompts x {limits.max_new_tokens} tokens, "
          f"DySpec's trees of 64 at draft temperature {DRAFT_TEMPERATURE}; means over prompts, "
          f"{COUNTINGS[args.counted]}\n")  # fmt: skip
    rows = []
    shown = recorded(pd.DataFrame(records), args.counted)
    groups: Any = shown.groupby(["line", "draft_probability"]) if len(shown) else ()
    for (line, place), here in groups:
        bounds = f"{place - 0.5 / BINS:.1f} to {place + 0.5 / BINS:.1f}"
        shares = [estimate(100 * here[name]) for name in ("accepted", "target_probability")]
        rows.append((line, bounds, here["tested"].sum(), *shares))
    header = ("temperature", "draft probability", "tests", "accepted, %", "target's probability, %")
    print_table(header, rows)
    said = protocol(prompts, args.max_new_tokens)
    save_records(args, "draft_acceptance", pair, records, started, protocol=said)


if __name__ == "__main__":
    run_main(main)
