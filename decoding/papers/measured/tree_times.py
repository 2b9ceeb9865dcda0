"""What drafting a tree takes by its size, token by token and layer by layer, against Equation 3 of DySpec.

The greedy form asks the draft once for every node, so drafting is to take nodes x T_draft; with a threshold it asks
once a layer, which is depth x T_draft (Section 4.3). T_draft is the median of the greedy form's own forwards, which are
of one token each, on the same prompt. Here a node that is a leaf is never asked about, so the greedy form takes fewer.
"""

import time
from collections.abc import Sequence
from statistics import mean, median

from decoding.common.errors import run_main
from decoding.experiments.command import arguments, encoded_prompts, pair_from, print_table, save_records
from decoding.experiments.estimates import estimate
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import IterationTrace

SIZES = (8, 16, 32, 64, 128, 256)
SAMPLING = Sampling(temperature=0.6, draft_temperature=0.6)
LINES = {"greedy": "greedy", "greedy model": "nodes x T_draft", "threshold": "threshold",
         "threshold model": "depth x T_draft"}  # fmt: skip


def passes(pair: Pair, method: str, prompt_ids: list[int], tokens: int, **settings: int) -> list[IterationTrace]:
    """The iterations of a run but the first, which warms up, and those in a loop."""
    chosen, limits = METHODS[method].with_settings(**settings), Limits(tokens, ignore_end_of_text=True)
    found = list(DecodeSession(pair, chosen, prompt_ids, SAMPLING, limits))[1:]
    return [each for each in found if not each.in_loop and each.draft_forwards]


def records_of(
    greedy: Sequence[IterationTrace], threshold: Sequence[IterationTrace], sample: str, size: int
) -> list[dict]:
    """Milliseconds of drafting per pass, measured and by the model, of one prompt and size; none without passes.

    The threshold form is asked for a mean size and seldom meets it: `drafted` is what its trees had.
    """
    if not (greedy and threshold):
        return []
    draft_s = median(seconds for each in greedy for seconds in each.times.draft_levels_s)
    made = []
    for form, found, asked in (
        ("greedy", greedy, mean(each.drafted for each in greedy)),
        ("threshold", threshold, mean(each.draft_forwards for each in threshold)),
    ):
        forwards, drafted = (mean(getattr(each, name) for each in found) for name in ("draft_forwards", "drafted"))
        for line, seconds, count in (
            (form, median(each.times.draft_s for each in found), forwards),
            (f"{form} model", asked * draft_s, asked),
        ):
            made.append({"line": line, "sample": sample, "nodes": size, "draft_ms": 1000 * seconds, "forwards": count,
                         "drafted": drafted})  # fmt: skip
    return made


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    parser.add_argument("--count", type=int, metavar="N", help="prompts (8; 3 with --quick)")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="per prompt and size (64; 24 with --quick)")
    args = parser.parse_args()
    started, tokens = time.perf_counter(), args.max_new_tokens or (24 if args.quick else 64)
    pair, sizes = pair_from(args), SIZES[1:4] if args.quick else SIZES
    prompts, records = encoded_prompts(pair, args.prompts, args.count or (3 if args.quick else 8)), list[dict]()
    for sample, ids in prompts:
        for size in sizes:
            greedy = passes(pair, "dyspec", ids, tokens, node_budget=size)
            threshold = passes(pair, "dyspec_threshold", ids, tokens, node_budget=4 * size, mean_nodes=size)
            records += records_of(greedy, threshold, sample, size)
    print(f"{pair.info.name}, {pair.target.info.device}, {len(prompts)} prompts x {tokens} tokens; ms of drafting\n")
    rows = []
    for size in sizes:
        found = {line: [each["draft_ms"] for each in records if (each["nodes"], each["line"]) == (size, line)]
                 for line in LINES}  # fmt: skip
        rows.append((size, *(estimate(each) if each else "-" for each in found.values())))
    print_table(("nodes", *LINES.values()), rows)
    save_records(args, "tree_times", pair, records, started)
    return 0


if __name__ == "__main__":
    run_main(main)
