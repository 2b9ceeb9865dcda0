"""Whether to speculate, and how, by kind of text: a pair's methods and those without a draft model, interleaved.

python -m benchmarks.kinds_of_text --target DIR --draft DIR --dtype bfloat16
"""

import argparse
import time
from collections.abc import Mapping

from benchmarks.methods import figures_of, print_figures
from decoding.analysis.bottom_line import Option, bottom_line, paired
from decoding.common.errors import run_main
from decoding.common.prompts import load_prompts
from decoding.compare.comparison import Comparison, compare
from decoding.compare.contestants import parse_contestant
from decoding.compare.hf_generate import single_row_words
from decoding.compare.identity import HALF_PRECISION_MARGIN
from decoding.experiments.command import add_counting_argument, arguments, pair_from, save_figures
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.sampling.sampling import Sampling
from decoding.trace.metrics import COUNTINGS, Counting
from viz.explain.bottom_line import bottom_line_words

KINDS = ("stories", "encyclopedia", "editing")
PLAIN = "autoregressive"
BASES = {PLAIN: 0, "hf_generate": 1, "hf_assisted": 2}
METHODS = (
    *BASES, "linear:length=3", "dynatree:branch_first_level=true", "hardware_aware", "suffix", "lookup_or_draft",
    "token_recycling",
)  # fmt: skip


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_counting_argument(parser)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), help="kinds of text of the samples")
    parser.add_argument("--count", type=int, default=3, help="prompts of each kind")
    parser.add_argument("--max-new-tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    if args.quick:
        args.kinds, args.count, args.max_new_tokens = args.kinds[:1], 1, 16
    started, pair = time.perf_counter(), pair_from(args)
    found, lines = {}, []
    for warm_ups, kind in zip((1, *[0] * len(args.kinds)), args.kinds, strict=False):
        comparison = measured(pair, kind, args, warm_ups)
        found[kind] = [figures_of(comparison, index, BASES, args.counted) for index in range(len(METHODS))]
        length = f"{args.max_new_tokens} tokens, {COUNTINGS[args.counted]}"
        print(f"\n{kind}, {len(comparison.prompts)} prompts x {length}\n")
        print_figures(found[kind])
        lines += [f"{kind}: {said}" for said in verdicts(comparison, args.counted)]
        lines.append(f"{kind}: {identity(comparison, pair.target.info.dtype)}")
    info = pair.target.info
    lines += over_generate(found, info.device, info.dtype)
    print("\n" + "\n".join(lines))
    figures = {
        "pair": pair.info.name, "took_s": time.perf_counter() - started, "kinds": found, "goals": lines,
        "setup": f"{pair.info.name}, {info.device}, {info.dtype}, greedy, {args.count} prompts "
                 f"of each kind x {args.max_new_tokens} tokens, {COUNTINGS[args.counted]}",
    }  # fmt: skip
    save_figures(args, "kinds_of_text", figures, pair.target.device, pair.target.info.name)
    return 0


def measured(pair: Pair, kind: str, args: argparse.Namespace, warm_ups: int) -> Comparison:
    """All methods in turn on some prompts of a kind."""
    prompts = [prompt for prompt in load_prompts(args.prompts) if prompt.kind == kind][: args.count]
    encoded = [(prompt.title, pair.vocabulary.encode_prompt(prompt.text)) for prompt in prompts]
    contestants = [parse_contestant(text) for text in METHODS]
    return compare(pair, contestants, encoded, args.max_new_tokens, args.repeats, warm_ups, Sampling())


def over_generate(found: Mapping[str, list[dict]], device: str, dtype: str) -> list[str]:
    """Our own loop over `generate` by kind of text, and what to know of that ratio."""
    plain = {kind: figures[0].get("ratio_to_hf_generate") for kind, figures in found.items()}
    said = ", ".join(f"{kind} {ratio['median']:.2f}x" for kind, ratio in plain.items() if ratio)
    notes = single_row_words(device, dtype)
    return [" ".join([f"Autoregressive over Hugging Face generate: {said}.", *notes])] if said else []


def verdicts(comparison: Comparison, counting: Counting) -> list[str]:
    """The bottom line of the methods that need the draft model, and of all."""
    speeds = [
        {
            (each.prompt, each.repeat): found.throughput
            for each in comparison.of(index)
            if (found := each.counted(counting))
        }
        for index in range(len(METHODS))
    ]
    options = [
        Option(contestant.label, paired(mine, speeds[0]), "", text != PLAIN, mine, draft_model=contestant.draft_model)
        for text, contestant, mine in zip(METHODS, comparison.contestants, speeds, strict=True)
        if mine and (text == PLAIN or text not in BASES)
    ]
    with_draft = [option for option in options if option.draft_model]
    plain = comparison.contestants[0].label
    said = (bottom_line_words(bottom_line(each, plain), "on these texts") for each in (with_draft, options))
    return [f"{which}: {words}" for which, words in zip(("with the draft model", "of all"), said, strict=True)]


def identity(comparison: Comparison, dtype: str) -> str:
    """Outputs that are not the reference's, and the largest margin among them."""
    margins = [difference.margin for _, _, difference in comparison.differences]
    if not margins:
        return "every output is the reference's"
    allowed = HALF_PRECISION_MARGIN if dtype in ("bfloat16", "float16") else 0.0
    beyond = sum(margin > allowed for margin in margins)
    return (
        f"{len(margins)} outputs part from the reference where the target's two best logits are at most "
        f"{max(margins):.2g} apart, {beyond} of them by more than rounding in {dtype}"
    )


if __name__ == "__main__":
    run_main(main)
