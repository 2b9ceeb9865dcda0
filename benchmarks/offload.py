"""A target held mostly off its device: speed-up over autoregressive decoding beside tokens per pass.

Where bringing the weights over takes nearly all the time, a pass over a tree costs what a pass over one token costs,
and the speed-up comes near the tokens per pass. What is missing is the draft and what the larger pass computes; both
are printed. From a GPU the weights wait in CPU memory, from a CPU on disk: there the system is made to forget the
weight files before every pass, as memory too small for them would.
"""

import os
import time
from dataclasses import replace

from benchmarks.methods import TUNED, print_differences
from decoding.common.errors import require, run_main
from decoding.compare.comparison import Comparison, compare
from decoding.compare.contestants import Contestant, format_contestant, parse_contestant
from decoding.experiments.command import (
    add_counting_argument,
    arguments,
    encoded_prompts,
    goal_line,
    print_table,
    save_figures,
)
from decoding.models.pair import Pair, load_pair
from decoding.models.presets import (
    add_pair_arguments,
    choose_device,
    choose_dtype,
    model_folder,
    model_shape,
    pair_settings,
)
from decoding.trace.metrics import COUNTINGS, Counting, RunMetrics, spread

# Weights that stay on the device where --max-memory-gib does not say: the embedding and a little more.
SHARE_ON_DEVICE = 0.25
GOAL = 0.15
CONTESTANTS = {
    "autoregressive": "autoregressive",
    "DynaTree, tuned": TUNED["DynaTree, tuned"],
    "DynaTree, wide": (
        "dynatree:branch_first_level=true,branch_min=2,branch_mid=4,branch_max=6,confidence_high=0.8,"
        "stop_probability=0.02,prune_probability=0.002,base_depth=7,history=false"
    ),
    "EAGLE-2 beam": "eagle2",
}


def bytes_off_device(pair: Pair) -> int:
    """Bytes of the target that come to the device for every pass."""
    weights = pair.target.network.parameters()
    return sum(weight.numel() * weight.element_size() for weight in weights if weight.is_meta)


def forget_files(pair: Pair) -> bool:
    """Have every pass of a target on a CPU read its weight files from disk; False where that cannot be asked for."""
    if pair.target.device.type != "cpu" or not hasattr(os, "posix_fadvise"):
        return False
    files = sorted(model_folder(pair.settings.target, "target").glob("*.safetensors"))

    def forget(*_) -> None:
        for file in files:
            with file.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    pair.target.network.register_forward_pre_hook(forget)
    return True


def tokens_per_pass(metrics: RunMetrics) -> float | None:
    """Tokens per iteration after the first, which may have read the prompt; None if there is no other."""
    tokens = metrics.timeline.tokens
    return (tokens[-1] - tokens[0]) / (len(tokens) - 1) if len(tokens) > 1 else None


def figures_of(comparison: Comparison, index: int, base: int, counting: Counting) -> dict:
    """Medians over prompts and repeats of one contestant."""
    label = comparison.contestants[index].label
    own = {(r.prompt, r.repeat): r for r in comparison.of(index)}
    pairs = [(own[place], r) for r in comparison.of(base) if (place := (r.prompt, r.repeat)) in own]
    pairs = [(a.counted(counting), b.counted(counting)) for a, b in pairs]
    pairs = [(a, b) for a, b in pairs if a and b and a.tpot_s and b.tpot_s]
    figures = {
        "label": label,
        "contestant": format_contestant(comparison.contestants[index]),
        "failures": sorted({r.failure for r in own.values() if r.failure}),
        "count": len(pairs),
        "counted_tokens": sum(a.new_tokens for a, _ in pairs),
    }
    if not pairs:
        return figures
    iterations = sum(a.iterations for a, _ in pairs)
    phases = {phase: 1000 * sum(a.phase_s[phase] for a, _ in pairs) / iterations for phase in pairs[0][0].phase_s}
    return figures | {
        "decode_tokens_per_s": spread([1 / a.tpot_s for a, _ in pairs]).__dict__,
        "speed_up": spread([b.tpot_s / a.tpot_s for a, b in pairs]).__dict__,
        "speed_up_with_prefill": spread([a.throughput / b.throughput for a, b in pairs]).__dict__,
        "tokens_per_pass": spread([tokens_per_pass(a) for a, _ in pairs]).__dict__,
        "share_reached": spread([b.tpot_s / a.tpot_s / tokens_per_pass(a) for a, b in pairs]).__dict__,
        "verified_per_pass": sum(a.verified or 0 for a, _ in pairs) / iterations,
        "phase_ms_per_iteration": phases,
    }


def print_figures(figures: list[dict]) -> None:
    """One row per contestant: the speed-up, what it could be, and where the difference goes."""
    rows = []
    for f in figures:
        if not f["count"]:
            print(f"{f['label']}: not measured; {'; '.join(f['failures']) or 'too few tokens before the loop'}")
            continue
        phases, share = f["phase_ms_per_iteration"], f["share_reached"]
        rest = sum(phases.values()) - phases["verify"] - phases["draft"]
        rows.append((
            f["label"], f"{f['counted_tokens']:,}", f"{f['decode_tokens_per_s']['median']:.1f}",
            f"{f['speed_up']['median']:.2f}",
            f"{f['tokens_per_pass']['median']:.2f}", f"{share['median']:.0%}",
            f"{share['low']:.0%}-{share['high']:.0%}", f"{f['verified_per_pass']:.0f}", f"{phases['verify']:.1f}",
            f"{phases['draft']:.1f}", f"{rest:.1f}",
        ))  # fmt: skip
    header = ("method", "tokens counted", "tok/s", "x AR", "tok/pass", "reached", "quartiles", "nodes", "verify ms",
              "draft ms", "rest ms")  # fmt: skip
    print_table(header, rows)


def goals(figures: list[dict]) -> list[str]:
    """For each tree, whether its speed-up is within `GOAL` of its tokens per pass."""
    lines = []
    for f in (f for f in figures[1:] if f["count"]):
        reached = f["share_reached"]["median"]
        gain = f"{f['speed_up']['median']:.2f}x AR at {f['tokens_per_pass']['median']:.2f} tokens per pass"
        what = f"{f['label']} is {gain} ({reached:.0%}), goal within {GOAL:.0%}"
        lines.append(goal_line(abs(1 - reached) <= GOAL, what))
    return lines


def contestants_from(texts: list[str] | None) -> list[Contestant]:
    """Autoregressive decoding and the methods named on the command line, or the standard ones."""
    named = CONTESTANTS if texts is None else {text: text for text in ("autoregressive", *texts)}
    parsed = [(label, parse_contestant(text)) for label, text in named.items()]
    require(all(c.method for _, c in parsed), "Phases are measured in methods of ours only: leave out baselines.")
    return [Contestant(c.label if texts else label, c.method) for label, c in parsed]


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    help_text = "what the target's weights may take of the device; by default a quarter of what they need"
    parser.add_argument("--max-memory-gib", type=float, metavar="GIB", help=help_text)
    parser.add_argument("--methods", nargs="+", metavar="NAME[:setting=value,...]", help="what to compare with AR")
    parser.add_argument("--max-new-tokens", type=int)
    add_counting_argument(parser)
    args = parser.parse_args()
    started = time.perf_counter()
    settings = pair_settings(args)
    if settings.max_memory_gib is None:
        shape = model_shape(args.target, "target")
        known = shape is not None
        require(known, f"The size of {args.target} is not known before it is loaded: give --max-memory-gib.")
        weights = shape.weight_bytes(choose_dtype(settings, choose_device(args.device)))
        settings = replace(settings, max_memory_gib=SHARE_ON_DEVICE * weights / 2**30)
    pair = load_pair(settings)
    where = "from disk" if forget_files(pair) else "from CPU memory"
    prompts = encoded_prompts(pair, args.prompts, 1 if args.quick else 6)
    length, repeats = args.max_new_tokens or (24 if args.quick else 96), 2 if args.quick else 3
    comparison = compare(pair, contestants_from(args.methods), prompts, length, repeats, warmup=1)
    contestants = range(len(comparison.contestants))
    both = {way: [figures_of(comparison, index, 0, way) for index in contestants] for way in COUNTINGS}
    figures = both[args.counted]
    away, total = bytes_off_device(pair), pair.target.info.weight_bytes
    setup = (f"{pair.info.name}, {pair.target.info.device}, {pair.target.info.dtype}, {away / total:.0%} of "
             f"{total / 2**20:.0f} MiB of weights come {where} for every pass, {len(prompts)} prompts x {length} "
             "tokens, medians over prompts and repeats, prefill left out")  # fmt: skip
    print(f"{setup}, {COUNTINGS[args.counted]}\n")
    print_figures(figures)
    verdicts = goals(figures)
    print("\n" + "\n".join(verdicts))
    print_differences(comparison)
    print(f"{'' if comparison.differences else 'all outputs are identical; '}{time.perf_counter() - started:.0f} s")
    saved = {"setup": f"{setup}, loops left out", "goals": goals(both["loop_free"]), "bytes_per_pass": away,
             "figures": both["loop_free"], "whole": both["whole"], "prompts": comparison.prompts}  # fmt: skip
    save_figures(args, "offload", saved, pair.target.device, by_processor=True)
    return 0


if __name__ == "__main__":
    run_main(main)
