"""What recording costs: tokens per second with full records, summaries and none, interleaved in one run.

The trees of full records are written when they are read: `full, read` reads each one at once. `--counted` chooses
whether the tokens of loops count.
"""

import time
from collections.abc import Mapping

from decoding.common.errors import PromptError, run_main
from decoding.experiments.command import (
    add_counting_argument,
    arguments,
    choose_prompts,
    goal_line,
    pair_from,
    print_table,
    save_figures,
)
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import COUNTINGS, Counting, Timeline, measure_timeline, spread, tokens_before_loop

READ = "full, read"
RECORDS = ("none", "summary", "full", READ)
GOALS = {"summary": 0.05, "full": 0.10}  # of recording alone: the records of a tree's nodes are made when they are read
Speeds = dict[Counting, float | None]


def tokens_per_second(pair: Pair, prompt_ids: list[int], record: str, length: int) -> Speeds:
    """Wall-clock throughput of one call in both ways of counting, everything included; None where nothing counts."""
    started, seconds, tokens = time.perf_counter(), list[float](), list[int]()
    session = DecodeSession(
        pair,
        METHODS["dynatree"].with_settings(branch_first_level=True),
        prompt_ids,
        limits=Limits(max_new_tokens=length, record=record.removesuffix(", read")),
    )
    for trace in session:
        _ = trace.nodes if record == READ else ()
        seconds.append(time.perf_counter() - started)
        tokens.append(session.new_tokens)
    whole = Timeline(tuple(seconds), tuple(tokens))
    free = whole.until(tokens_before_loop(session.tokens[len(prompt_ids) :]))
    found = {"whole": measure_timeline(whole, None), "loop_free": measure_timeline(free, None)}
    return {way: each and each.throughput for way, each in found.items()}


def figures_of(measured: dict[str, list[Speeds]], counting: Counting) -> dict[str, dict]:
    """Speed and cost of every kind of record, over the calls on which each has a speed; empty where none is."""
    calls = [each for each in zip(*measured.values(), strict=True) if all(speeds[counting] for speeds in each)]
    found = {}
    for place, record in enumerate(measured if calls else ()):
        speeds, plain = ([call[at][counting] for call in calls] for at in (place, RECORDS.index("none")))
        cost = spread([1 - s / n for s, n in zip(speeds, plain, strict=True)])
        found[record] = {"tokens_per_second": vars(spread(speeds)), "cost": vars(cost)}
    return found


def verdicts(costs: Mapping[str, float]) -> list[str]:
    """What recording costs, judged by the goals, and what reading adds to it, which has none."""
    lines = []
    for record, goal in GOALS.items():
        cost = costs[record]
        lines.append(goal_line(cost < goal, f"record={record} costs {cost:.1%}, goal under {goal:.0%}"))
    return [*lines, f"record=full costs {costs[READ]:.1%} where every tree is read at once, which no goal counts"]


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_counting_argument(parser, "whole")
    args = parser.parse_args()
    pair = pair_from(args)
    prompts = [pair.vocabulary.encode_prompt(p.text) for p in choose_prompts(args.prompts, 2 if args.quick else 6)]
    repeats, length = (4, 64) if args.quick else (10, 128)
    measured: dict[str, list[Speeds]] = {record: [] for record in RECORDS}
    for repeat in range(-1, repeats):
        for ids in prompts:
            # The order turns with each repeat, so that none always runs first.
            for step in range(len(RECORDS)):
                record = RECORDS[(repeat + step) % len(RECORDS)]
                speeds = tokens_per_second(pair, ids, record, length)
                if repeat >= 0:
                    measured[record].append(speeds)
    both = {way: figures_of(measured, way) for way in COUNTINGS}
    if not (figures := both[args.counted]):
        raise PromptError("On every prompt the output loops from its beginning: give other --prompts.")
    rows = []
    for record, found in figures.items():
        speed, cost = found["tokens_per_second"], found["cost"]
        rows.append((record, f"{speed['median']:.1f}", f"{speed['low']:.1f}-{speed['high']:.1f}",
                     f"{cost['median']:+.1%}", f"{cost['low']:+.1%} to {cost['high']:+.1%}"))  # fmt: skip
    print(f"{pair.info.name}, {len(prompts)} prompts x {length} tokens, {COUNTINGS[args.counted]}\n")
    print_table(("record", "tok/s", "quartiles", "cost against none", "quartiles"), rows)
    goals = verdicts({record: found["cost"]["median"] for record, found in figures.items()})
    print(*goals, sep="\n")
    saved = {"goals": goals, **both["whole"], "loop_free": both["loop_free"]}
    save_figures(args, "recording", saved, pair.target.device, by_processor=True)
    return 0


if __name__ == "__main__":
    run_main(main)
