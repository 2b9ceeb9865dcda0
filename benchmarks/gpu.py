"""Speed on a CUDA GPU with the papers' shapes: widened Pythia-2.8B + 70M, batch 1, interleaved, against its limits.

The widened pair computes what the embedded pair computes, at the cost of the papers' models (see `decoding.widen`):
acceptance is that of a real trained pair, time that of the papers' shapes.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.common import (
    arguments,
    choose_prompts,
    encode,
    run_main,
    save_figures,
)
from benchmarks.methods import figures_of, print_figures, ratios
from benchmarks.roofline import measure_ceilings, pass_cost, pass_rows, phase_rows, print_roofline
from benchmarks.tuning import chains, suited, trees, tune
from decoding.comparison import Comparison, Contestant, compare
from decoding.contestants import parse_contestant
from decoding.errors import PairError
from decoding.pair import Pair, PairSettings, embedded_pair, load_pair
from decoding.sampling import Sampling
from decoding.widen import widened_pair_folders

BASELINES = {
    "autoregressive, captured": "autoregressive@static",
    "autoregressive, lean": "autoregressive@lean",
    "autoregressive, library": "autoregressive@library",
    "HF generate": "hf_generate",
    "HF static cache + compile": "hf_static",
    "HF assisted": "hf_assisted",
}
STEPS = {
    "fixed tree D5 B2": "fixed_tree:max_depth=5,branching=2",
    "fixed tree D8 B3": "fixed_tree",
    "+ breadth": "dynatree:dynamic_depth=false,history=false",
    "+ breadth + depth": "dynatree:history=false",
    "DynaTree (+ history)": "dynatree",
    "Hardware-aware": "hardware_aware",
}
# (what, against what, at least this ratio of throughput)
RATIO_GOALS = (
    ("autoregressive, captured", "HF generate", 3.0),
    ("best tree", "autoregressive, captured", 2.0),
    ("best tree", "HF generate", 6.0),
    ("best tree", "HF assisted", 2.0),
    ("DynaTree (+ history)", "fixed tree D5 B2", 1.16),
    ("DynaTree (+ history)", "fixed tree D8 B3", 1.09),
)
SAMPLINGS = {"greedy": Sampling(), "T=1": Sampling(temperature=1.0)}
BANDWIDTH_GOAL, MEMORY_GOAL, WARM_UPS = 0.6, 1.05, 2
MEMORY_NOTE = "peak memory of every method is that of the whole process, in which all weights lie"


def contestants_for(sampling: Sampling, tuned: dict[str, str], engine: str = "static") -> list[Contestant]:
    """Baselines, the tuned chain and tree, and DynaTree step by step; methods of ours run in `engine`."""
    methods = {name: _at(text, engine) for name, text in {**tuned, **STEPS}.items()}
    parsed = [replace(parse_contestant(text), label=label) for label, text in {**BASELINES, **methods}.items()]
    return [replace(c, method=suited(c.method, sampling)) if c.method else c for c in parsed]


def tuned_for(pair: Pair, sampling: Sampling, engine: str, every: int) -> dict[str, str]:
    """The best chain and the best tree of this machine, found on other prompts."""
    best = {kind: tune(pair, candidates[::every], sampling, engine)[0][0]
            for kind, candidates in (("linear, tuned", chains()), ("tree, tuned", trees()))}  # fmt: skip
    print("\n".join(f"{kind}: {text}" for kind, text in best.items()), "\n")
    return best


def best_tree(figures: list[dict]) -> str | None:
    """The tree that is fastest relative to the autoregressive loop beside which it ran."""
    trees_only = [f for f in figures if "throughput" in f and f["label"] not in BASELINES
                  and not f["label"].startswith("linear")]  # fmt: skip
    best = max(trees_only, key=lambda f: f["ratio_to_autoregressive"]["median"], default=None)
    return best["label"] if best else None


def verdicts(figures: list[dict], bandwidth_share: float, ratio: Callable[[str, str], float | None]) -> list[str]:
    """Each goal: reached or missed, and where it is missed what it consists of.

    Args:
        ratio: median over prompts and repeats of the ratio of two contestants' throughputs, by label.
    """
    by_label = {f["label"]: f for f in figures}
    lines = [f"goal {_word(bandwidth_share >= BANDWIDTH_GOAL)}: our captured autoregressive loop runs at "
             f"{bandwidth_share:.0%} of the memory-bandwidth limit, goal {BANDWIDTH_GOAL:.0%}"]  # fmt: skip
    best = best_tree(figures)
    for what, base, goal in RATIO_GOALS:
        name = best if what == "best tree" else what
        value = ratio(name, base) if name else None
        if value is None:
            lines.append(f"goal not measured: {what} over {base}")
            continue
        cause = "" if value >= goal else f" ({_cause(by_label[name], by_label[base])})"
        lines.append(f"goal {_word(value >= goal)}: {name} {value:.2f}x {base}, goal {goal}x{cause}")
    return lines + memory_verdict(by_label)


def memory_verdict(figures: dict[str, dict]) -> list[str]:
    """Largest peak memory of a tree over that of the autoregressive loop."""
    base = figures.get("autoregressive, captured", {}).get("peak_memory_bytes")
    peaks = {label: f["peak_memory_bytes"] for label, f in figures.items()
             if label not in BASELINES and f.get("peak_memory_bytes")}  # fmt: skip
    if not base or not peaks:
        return ["goal not measured: peak memory"]
    worst = max(peaks, key=peaks.get)
    value = peaks[worst] / base
    return [f"goal {_word(value <= MEMORY_GOAL)}: peak memory of {worst} is {value:.3f}x that of the autoregressive "
            f"loop, goal {MEMORY_GOAL}x ({MEMORY_NOTE})"]  # fmt: skip


def _cause(figures: dict, base: dict) -> str:
    """What a ratio is made of: tokens per iteration against time per iteration."""
    parts = []
    for one in (figures, base):
        per_iteration = 1000 * one["tokens_per_iteration"] / one["throughput"]["median"]
        phases = one.get("phase_ms_per_iteration", {})
        largest = sorted(phases, key=phases.get, reverse=True)[:2]
        shares = ", ".join(f"{phase} {phases[phase]:.2f}" for phase in largest)
        parts.append(
            f"{one['tokens_per_iteration']:.2f} tokens in {per_iteration:.2f} ms" + (f": {shares}" * bool(shares))
        )
    return " against ".join(parts)


def _word(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def _at(text: str, engine: str) -> str:
    name, colon, rest = text.partition(":")
    return f"{name}@{engine}{colon}{rest}"


def measure(pair: Pair, prompts, length: int, repeats: int, sampling: Sampling, tuned, engine: str) -> Comparison:
    """All contestants interleaved; two rounds on the longest prompt warm up, the second of which captures graphs."""
    prompts = sorted(prompts, key=lambda prompt: -len(prompt[1]))
    return compare(pair, contestants_for(sampling, tuned, engine), prompts, length, repeats, WARM_UPS, sampling)


def report(pair: Pair, comparison: Comparison, rows: int) -> dict:
    """Print the tables and verdicts of one sampling; return the figures."""
    labels = [contestant.label for contestant in comparison.contestants]
    bases = {"autoregressive": labels.index("autoregressive, captured"), "hf_generate": labels.index("HF generate"),
             "hf_assisted": labels.index("HF assisted")}  # fmt: skip
    figures = [figures_of(comparison, index, bases) for index in range(len(labels))]
    for index, found in enumerate(figures):
        peaks = [r.metrics.peak_memory_bytes for r in comparison.of(index) if r.metrics and r.metrics.peak_memory_bytes]
        found["peak_memory_bytes"] = max(peaks, default=None)
    print_figures(figures)
    captured, ceilings = figures[bases["autoregressive"]], measure_ceilings(pair.target.device, pair.target.dtype)
    limit_s = pass_cost(pair.target, 1, rows).bytes / ceilings.copy_bytes_per_s
    share = limit_s * captured["throughput"]["median"]

    def ratio(what: str, base: str) -> float | None:
        found = ratios(comparison.of(labels.index(what)), comparison.of(labels.index(base)))
        return found.median if found else None

    lines = verdicts(figures, share, ratio)
    print("\n".join(["", *lines]))
    for contestant, prompt, difference in comparison.differences:
        print(f"differs: {labels[contestant]} on {comparison.prompts[prompt]}: {difference.explanation}")
    return {"figures": figures, "goals": lines, "bandwidth_share": share, "prompts": comparison.prompts,
            "differences": len(comparison.differences)}  # fmt: skip


def roofline_figures(pair: Pair, engines: tuple[str, ...], prompt_ids: list[int], max_new_tokens: int) -> dict:
    """Measure the ceilings, the passes of each engine and the phases of some methods; print them."""
    ceilings = measure_ceilings(pair.target.device, pair.target.dtype)
    passes = [row for engine in engines for row in pass_rows(pair.with_engine(engine), ceilings)]
    named = {"autoregressive": "autoregressive", **STEPS}
    methods = [replace(parse_contestant(text).method, label=name) for name, text in named.items()]
    phases = [row for method in methods for row in phase_rows(pair, method, prompt_ids, max_new_tokens, ceilings)]
    print(f"{pair.info.name}, {pair.target.info.device}, {pair.target.info.dtype}")
    print_roofline(ceilings, passes, phases)
    return {"ceilings": ceilings.__dict__, "passes": passes, "phases": phases}


def widened_pair(like: str, folder: Path, dtype: str, context_length: int) -> Pair:
    """The widened pair on the GPU, written to `folder` where it does not lie there yet."""
    target, draft = widened_pair_folders(like, folder, dtype)
    return load_pair(PairSettings(str(target), str(draft), "cuda", dtype, context_length=context_length))


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--like", default="pythia-2.8b", help="whose shapes the widened pair takes")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--folder", type=Path, help="where the widened pair lies or is written; a temporary one")
    parser.add_argument("--num-prompts", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sampling", choices=tuple(SAMPLINGS), help="only this one")
    parser.add_argument("--roofline", action="store_true", help="only bytes and operations against the ceilings; "
                        "without a GPU of the embedded pair on the CPU")  # fmt: skip
    args = parser.parse_args()
    started = time.perf_counter()
    if not torch.cuda.is_available():
        if not args.roofline:
            raise PairError("This benchmark needs a CUDA GPU; on a CPU run python -m benchmarks.methods.")
        pair = embedded_pair("cpu")
        prompt_ids = encode(pair, choose_prompts(args.prompts, 1)[0].text)
        figures = {"pair": pair.info.name, **roofline_figures(pair, ("library", "lean"), prompt_ids, 128)}
        save_figures(args, "roofline", figures, pair.target.device)
        return 0
    length = 48 if args.quick else args.max_new_tokens
    with tempfile.TemporaryDirectory() as temporary:
        pair = widened_pair(args.like, args.folder or Path(temporary) / "pair", args.dtype, 1024 + length)
        chosen = choose_prompts(args.prompts, 2 if args.quick else args.num_prompts)
        prompts = [(f"{p.kind}/{p.name}", encode(pair, p.text)) for p in chosen]
        figures: dict = {"pair": pair.info.name}
        if not args.roofline:
            for name in (args.sampling,) if args.sampling else SAMPLINGS:
                setup = f"{pair.info.name} (widened weights), {args.dtype}, {name}, {len(prompts)} x {length} tokens"
                print(f"\n{setup}\n")
                tuned = tuned_for(pair, SAMPLINGS[name], "static", 6 if args.quick else 1)
                repeats = 1 if args.quick else args.repeats
                comparison = measure(pair, prompts, length, repeats, SAMPLINGS[name], tuned, "static")
                rows = len(prompts[0][1]) + length // 2
                figures[name] = report(pair, comparison, rows) | {"setup": setup, "tuned": tuned}
        print()
        figures |= roofline_figures(pair, ("library", "lean", "static"), prompts[0][1], min(length, 128))
        print(f"{time.perf_counter() - started:.0f} s")
        save_figures(args, "roofline" if args.roofline else "gpu", figures, pair.target.device, args.sampling)
    return 0


if __name__ == "__main__":
    run_main(main)
