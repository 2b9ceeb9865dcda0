"""What recording costs: tokens per second with full records, summaries and none, interleaved in one run.

The trees of full records are written when they are read: `full, read` reads each one at once.
"""

import time
from collections.abc import Mapping

from decoding.common.errors import run_main
from decoding.experiments.command import arguments, choose_prompts, goal_line, pair_from, print_table, save_figures
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import spread

READ = "full, read"
RECORDS = ("none", "summary", "full", READ)
GOALS = {"summary": 0.05, "full": 0.10}  # of recording alone: the records of a tree's nodes are made when they are read


def tokens_per_second(pair: Pair, prompt_ids: list[int], record: str, length: int) -> float:
    """Wall-clock throughput of one call, everything included."""
    started = time.perf_counter()
    session = DecodeSession(
        pair,
        METHODS["dynatree"].with_settings(branch_first_level=True),
        prompt_ids,
        limits=Limits(max_new_tokens=length, record=record.removesuffix(", read")),
    )
    for trace in session:
        _ = trace.nodes if record == READ else ()
    return session.new_tokens / (time.perf_counter() - started)


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
    args = parser.parse_args()
    pair = pair_from(args)
    prompts = [pair.vocabulary.encode_prompt(p.text) for p in choose_prompts(args.prompts, 2 if args.quick else 6)]
    repeats, length = (4, 64) if args.quick else (10, 128)
    speeds: dict[str, list[float]] = {record: [] for record in RECORDS}
    for repeat in range(-1, repeats):
        for ids in prompts:
            # The order turns with each repeat, so that none always runs first.
            for step in range(len(RECORDS)):
                record = RECORDS[(repeat + step) % len(RECORDS)]
                speed = tokens_per_second(pair, ids, record, length)
                if repeat >= 0:
                    speeds[record].append(speed)
    costs = {
        record: spread([1 - s / n for s, n in zip(speeds[record], speeds["none"], strict=True)]) for record in RECORDS
    }
    rows, figures = [], {}
    for record in RECORDS:
        speed, cost = spread(speeds[record]), costs[record]
        rows.append((record, f"{speed.median:.1f}", f"{speed.low:.1f}-{speed.high:.1f}", f"{cost.median:+.1%}",
                     f"{cost.low:+.1%} to {cost.high:+.1%}"))  # fmt: skip
        figures[record] = {"tokens_per_second": speed.__dict__, "cost": cost.__dict__}
    print_table(("record", "tok/s", "quartiles", "cost against none", "quartiles"), rows)
    goals = verdicts({record: cost.median for record, cost in costs.items()})
    print(*goals, sep="\n")
    save_figures(args, "recording", {"goals": goals, **figures}, pair.target.device, by_processor=True)
    return 0


if __name__ == "__main__":
    run_main(main)
