"""Throughput of tuned methods on the same prompts, interleaved in one run, against Hugging Face `generate`.

Figures are medians over prompts and repeats of whole texts or of what came before the output began to loop; quartiles
stand beside them, and the JSON has both ways of counting. Ratios are taken per prompt and repeat, so that drift
of the machine cancels.
"""

import time
from dataclasses import replace

from decoding.common.errors import run_main
from decoding.common.prompts import load_prompts
from decoding.compare.comparison import Comparison, Result, compare
from decoding.compare.contestants import Contestant, format_contestant, parse_contestant
from decoding.compare.hf_generate import single_row_words
from decoding.experiments.command import (
    add_counting_argument,
    arguments,
    encoded_prompts,
    goal_line,
    pair_from,
    parse_amounts,
    print_table,
    save_figures,
)
from decoding.methods.method import fitted
from decoding.models.pair import Pair
from decoding.models.presets import EMBEDDED, add_pair_arguments, add_sampling_arguments, sampling_from
from decoding.trace.metrics import COUNTINGS, Counting, Spread, spread
from decoding.trace.records import PHASES

# Found by `benchmarks.tuning` on prompts that the benchmark does not measure.
TUNED = {
    "linear, tuned": "linear:length=2",
    "fixed tree, tuned": "fixed_tree:max_depth=2,branching=3,prune_probability=0.03,branch_first_level=true",
    "DynaTree, tuned": (
        "dynatree:branch_first_level=true,branch_min=2,branch_mid=4,branch_max=6,confidence_high=0.8,"
        "stop_probability=0.12,prune_probability=0.02,base_depth=4,history=false"
    ),
    "EAGLE-2 beam, tuned": "eagle2:node_budget=6,beam_width=3,max_depth=2,verifier=greedy",
    "hardware-aware": "hardware_aware",
}
NOT_TREES = ("autoregressive", "linear", "hf_")
# By how many times the target of the embedded pair is widened: how many times as fast as a base the best tree is to be,
# our own loop than `generate`, and which share of an iteration the draft phase may take.
GOALS = {
    1: {"autoregressive": 1.6, "hf_generate": 2.1, "hf_assisted": 1.8},
    4: {"autoregressive": 2.3, "hf_generate": 2.5, "hf_assisted": 1.8},
}
OWN_LOOP = {1: 1.3, 4: 1.1}
DRAFT_SHARE = {4: 0.05}
STEPS = {
    "fixed tree D5 B2": "fixed_tree:max_depth=5,branching=2",
    "fixed tree D8 B3": "fixed_tree",
    "+ breadth": "dynatree:dynamic_depth=false,history=false",
    "+ breadth + depth": "dynatree:history=false",
    "DynaTree (+ history)": "dynatree",
}
PUBLISHED = {
    "autoregressive (ours)": "autoregressive",
    "autoregressive, transformers engine": "autoregressive@transformers",
    "HF generate": "hf_generate",
    "HF assisted": "hf_assisted",
    **STEPS,
    "DynaTree, first level branches": "dynatree:branch_first_level=true",
    "DynaTree, rollback + rebuild": "dynatree:cache_policy=rebuild",
}


def contestants_from(texts: list[str] | None) -> list[Contestant]:
    """Contestants named on the command line, or the published and tuned ones."""
    if texts:
        return [parse_contestant(text) for text in texts]
    return [replace(parse_contestant(text), label=label) for label, text in {**PUBLISHED, **TUNED}.items()]


def prompts_from(args, pair: Pair) -> list[tuple[str, list[int]]]:
    """One prompt from the command line, or samples."""
    if args.prompt:
        named = {prompt.title: prompt.text for prompt in load_prompts()}
        return [(args.prompt[:40], pair.vocabulary.encode_prompt(named.get(args.prompt, args.prompt)))]
    return encoded_prompts(pair, args.prompts, 2 if args.quick else 12)


def ratios(results: list[Result], base: list[Result], counting: Counting) -> Spread | None:
    """Throughput over that of the base, per prompt and repeat."""
    theirs = {(r.prompt, r.repeat): r.counted(counting) for r in base}
    values = [
        own.throughput / other.throughput
        for r in results
        if (own := r.counted(counting)) and (other := theirs.get((r.prompt, r.repeat)))
    ]
    return spread(values) if values else None


def figures_of(comparison: Comparison, index: int, bases: dict[str, int], counting: Counting = "loop_free") -> dict:
    """All figures of one contestant; times are medians, counts are sums over prompts and repeats."""
    results = comparison.of(index)
    free = list(filter(None, (r.counted(counting) for r in results)))
    figures: dict = {
        "label": comparison.contestants[index].label,
        "contestant": format_contestant(comparison.contestants[index]),
        "failures": sorted({r.failure for r in results if r.failure}),
        "looping_tokens": sum(len(r.output_ids) - r.loop_free_tokens for r in results),
        "tokens": sum(len(r.output_ids) for r in results),
        "counted_tokens": sum(m.new_tokens for m in free),
    }
    if not free:
        return figures
    iterations = sum(m.iterations for m in free)
    figures |= {
        "throughput": spread([m.throughput for m in free]).__dict__,
        "ttft_ms": spread([1000 * m.ttft_s for m in free]).__dict__,
        "tpot_ms": spread([1000 * m.tpot_s for m in free if m.tpot_s]).__dict__
        if any(m.tpot_s for m in free)
        else None,
        "tokens_per_iteration": sum(m.new_tokens for m in free) / iterations,
    }
    for name, base in bases.items():
        ratio = ratios(results, comparison.of(base), counting)
        figures[f"ratio_to_{name}"] = ratio.__dict__ if ratio else None
    if free[0].drafted:
        accepted = sum(m.accepted for m in free)
        figures |= {
            "accepted_mean": accepted / iterations,
            "acceptance_drafted": accepted / max(1, sum(m.drafted for m in free)),
            "acceptance_verified": accepted / max(1, sum(m.verified for m in free)),
            "verified_per_iteration": sum(m.verified for m in free) / iterations,
            "draft_forwards_per_iteration": sum(m.draft_forwards for m in free) / iterations,
        }
    if free[0].phase_s:
        figures["phase_ms_per_iteration"] = {
            phase: 1000 * sum(m.phase_s[phase] for m in free) / iterations for phase in PHASES
        }
    return figures


def goals(figures: list[dict], bases: dict[str, int], widen: int) -> list[str]:
    """What the embedded pair with a target `widen` times as wide is to reach, and the measured cause of what it misses.

    The best tree is another one for each base, if so it is.
    """
    if widen not in GOALS or not GOALS[widen].keys() <= bases.keys():
        return []
    plain = figures[bases["autoregressive"]]
    trees = [f for f in figures if "throughput" in f and not f["contestant"].startswith(NOT_TREES)]
    judged = [(plain, "hf_generate", OWN_LOOP[widen])]
    for base, goal in GOALS[widen].items() if trees else ():
        judged.append((max(trees, key=lambda f: f[f"ratio_to_{base}"]["median"]), base, goal))
    lines = []
    for figure, base, goal in judged:
        value = figure[f"ratio_to_{base}"]["median"]
        why = f"; {_cause(figure, plain)}" if value < goal and base == "autoregressive" else ""
        said = f"{figure['label']} {value:.2f}x {figures[bases[base]]['label']}, goal {goal}x{why}"
        lines.append(goal_line(value >= goal, said))
    if trees and widen in DRAFT_SHARE:
        best = next(figure for figure, base, _ in judged if base == "autoregressive")
        phases, goal = best["phase_ms_per_iteration"], DRAFT_SHARE[widen]
        share = phases["draft"] / sum(phases.values())
        said = (
            f"{best['label']} drafts for {share:.1%} of an iteration, goal at most {goal:.0%}; "
            f"{best['draft_forwards_per_iteration']:.2f} draft forwards take {phases['draft']:.2f} ms"
        )
        lines.append(goal_line(share <= goal, said))
    return lines


def _cause(tree: dict, plain: dict) -> str:
    """What the speed-up of a tree over plain decoding is made of: tokens of a pass, and what an iteration takes."""
    own, base = (figures["phase_ms_per_iteration"] for figures in (tree, plain))
    its, plains = sum(own.values()), sum(base.values())
    return (
        f"measured cause: {tree['tokens_per_iteration']:.2f} tokens per pass, and an iteration takes "
        f"{its / plains:.2f} times as long, {its:.2f} ms (draft {own['draft']:.2f}, verify {own['verify']:.2f}) "
        f"instead of {plains:.2f} (verify {base['verify']:.2f})"
    )


def part_of(pair: Pair) -> str:
    """What names the file of a pair beside that of the embedded one in float32, which keeps its own."""
    settings, dtype = pair.settings, pair.target.info.dtype
    return "-".join([
        *([pair.target.info.name] if settings.target != EMBEDDED else []),
        *([f"widened-{settings.widen}x"] if settings.widen > 1 else []),
        *([dtype] if dtype != "float32" else []),
    ])  # fmt: skip


def print_figures(figures: list[dict]) -> None:
    """The two tables: throughput with acceptance, and time per phase."""
    rows, phases = [], []
    for f in figures:
        if "throughput" not in f:
            print(f"{f['label']}: not measured; {'; '.join(f['failures']) or 'nothing before the loop'}")
            continue
        speed = f["throughput"]
        rows.append((
            f["label"], f"{f['counted_tokens']:,}", f"{speed['median']:.1f}",
            f"{speed['low']:.0f}-{speed['high']:.0f}", _ratio(f, "hf_generate"),
            _ratio(f, "hf_assisted"), _ratio(f, "autoregressive"), f"{f['tokens_per_iteration']:.2f}",
            _share(f, "acceptance_drafted"), _share(f, "acceptance_verified"),
            f"{f['ttft_ms']['median']:.1f}", f"{f['tpot_ms']['median']:.2f}" if f["tpot_ms"] else "-",
        ))  # fmt: skip
        if "phase_ms_per_iteration" in f:
            per = f["phase_ms_per_iteration"]
            phases.append((f["label"], *(f"{per[p]:.2f}" for p in PHASES), f"{sum(per.values()):.2f}"))
    header = ("method", "tokens counted", "tok/s", "quartiles", "x generate", "x assisted", "x AR", "tok/iter",
              "acc/drafted", "acc/verified", "TTFT ms", "TPOT ms")  # fmt: skip
    print_table(header, rows)
    print("\nms per iteration")
    print_table(("method", *PHASES, "sum"), phases)


def print_differences(comparison: Comparison) -> None:
    """A line for each output that is not the reference's."""
    for contestant, prompt, difference in comparison.differences:
        label = comparison.contestants[contestant].label
        print(f"differs: {label} on {comparison.prompts[prompt]}: {difference.explanation}")


def _ratio(figures: dict, base: str) -> str:
    ratio = figures.get(f"ratio_to_{base}")
    return f"{ratio['median']:.2f}" if ratio else "-"


def _share(figures: dict, name: str) -> str:
    return f"{figures[name]:.0%}" if figures.get(name) is not None else "-"


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_sampling_arguments(parser)
    add_counting_argument(parser)
    parser.add_argument("--methods", nargs="+", metavar="NAME[:setting=value,...]", help="what to compare")
    parser.add_argument("--prompt", help="a text, or kind/name of a sample prompt")
    parser.add_argument("--warmup", type=int, default=1)
    args = parse_amounts(parser, max_new_tokens=(128, 48, "per prompt"), repeats=(3, 2, "measured calls of each"))
    started = time.perf_counter()
    pair = pair_from(args)
    sampling = sampling_from(args)
    contestants = [
        replace(c, method=fitted(c.method, sampling)) if c.method else c for c in contestants_from(args.methods)
    ]
    prompts, length = prompts_from(args, pair), args.max_new_tokens
    comparison = compare(pair, contestants, prompts, length, args.repeats, args.warmup, sampling)
    bases = {}
    for index, contestant in enumerate(contestants):
        name = contestant.baseline or contestant.method.name
        if name in ("hf_generate", "hf_assisted", "autoregressive"):
            bases.setdefault(name, index)
    both = {way: [figures_of(comparison, index, bases, way) for index in range(len(contestants))] for way in COUNTINGS}
    figures = both[args.counted]
    info = pair.target.info
    decoding = "greedy" if sampling.greedy else f"T={sampling.temperature:g}, top-p {sampling.top_p:g}"
    setup = (
        f"{pair.info.name}, {info.device}, {info.dtype}, {decoding}, {len(comparison.prompts)} prompts x {length} "
        "tokens, medians over prompts and repeats"
    )
    print(f"{setup}, {COUNTINGS[args.counted]}\n")
    print_figures(figures)
    looping, total = figures[0]["looping_tokens"], figures[0]["tokens"]
    print(f"\n{looping} of {total} tokens were in loops; --counted chooses whether they count above, the JSON has both")
    widen = args.widen if args.target == EMBEDDED else 0
    notes = single_row_words(info.device, info.dtype) if "hf_generate" in bases else []
    print(*goals(figures, bases, widen), *notes, sep="\n")
    print_differences(comparison)
    if not sampling.greedy:
        print("outputs are sampled: they are not compared")
    elif not comparison.differences:
        print("all outputs are identical")
    print(f"{time.perf_counter() - started:.0f} s")
    saved = {
        "setup": f"{setup}, loops left out", "goals": [*goals(both["loop_free"], bases, widen), *notes],
        "figures": both["loop_free"], "whole": both["whole"], "prompts": comparison.prompts,
    }  # fmt: skip
    save_figures(args, "methods", saved, pair.target.device, part_of(pair), by_processor=True)
    return 0


if __name__ == "__main__":
    run_main(main)
