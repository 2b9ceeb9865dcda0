"""What is measured on a GPU with the papers' shapes, and held against goals: ratios, bytes and operations."""

import argparse
import contextlib
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.report import Budget, Report
from benchmarks.methods import STEPS as DYNATREE_STEPS
from benchmarks.methods import figures_of, print_differences, print_figures, ratios
from benchmarks.roofline import measure_ceilings, pass_cost, roofline_figures
from benchmarks.tuning import CHAINS, at_engine, large_trees, suited, trees, tune
from decoding.common.errors import DraftscopeError, PairError
from decoding.common.interruption import CancelledError
from decoding.common.settings import STATIC_HOST
from decoding.compare.comparison import Comparison, compare, measured_call
from decoding.compare.contestants import Contestant, parse_contestant
from decoding.engines.base import FORWARD_ERRORS
from decoding.engines.graphs import Graphs
from decoding.experiments.command import encoded_prompts, engine_lines, goal_line, save_figures
from decoding.models.pair import Pair, PairSettings, embedded_pair, load_pair, release
from decoding.sampling.sampling import Sampling
from decoding.session.session import Limits
from decoding.trace.metrics import COUNTINGS, Counting
from decoding.widen import widened_pair_folders

CONTEXT = 2048


@contextlib.contextmanager
def loaded_pair(report: Report) -> Iterator[Pair]:
    """The pair, its engines reported; gone with the files that it was written to."""
    if not report.cuda:
        pair = embedded_pair("cpu").with_engine("cuda_graph")
        yield pair
        release(pair)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = report.args.folder or Path(temporary)
        begun = time.perf_counter()
        widened_pair_folders(report.args.like, folder, report.args.dtype, "cuda")
        widened = time.perf_counter()
        pair = widened_pair(report.args.like, folder, report.args.dtype, CONTEXT)
        seconds = {"widen_s": widened - begun, "load_s": time.perf_counter() - widened}
        report.figures["pair"] = {"name": pair.info.name, **seconds, "engines": engine_lines(pair)}
        for line, model in zip(engine_lines(pair), (pair.info.target, pair.info.draft), strict=True):
            report.judge("works" if model.engine == "cuda_graph" else "wrong", line)  # CUDA has graphs
        report.works(f"{pair.info.name}: widened in {seconds['widen_s']:.0f} s, loaded in {seconds['load_s']:.0f} s")
        yield pair
        release(pair)


BASELINES = {
    "autoregressive, captured": "autoregressive@cuda_graph",
    "autoregressive, packed": "autoregressive@packed",
    "autoregressive, transformers": "autoregressive@transformers",
    "HF generate": "hf_generate",
    "HF assisted": "hf_assisted",
}
COMPILED = {"HF static cache + compile": "hf_static"}  # minutes of compilation, for each length of a text anew
STEPS = DYNATREE_STEPS | {"Hardware-aware": "hardware_aware"}
# What iterations on the device are worth: the same method on the same graphs, drafted and verified by the host's code.
HOST = ", on the host"
BOTH_WAYS = ("linear, tuned", "tree, tuned", "DynaTree (+ history)")
DEVICE_GOAL = 1.3
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
BANDWIDTH_GOAL, MEMORY_GOAL, WARM_UPS = 0.6, 1.05, 1
MEMORY_NOTE = "peak memory of every method is that of the whole process, in which all weights lie"
# Shares of what is left of the time of a sampling: to tune, and then to try every contestant once.
TUNING_SHARE, TRIAL_SHARE = 0.35, 0.4
ROOFLINE_S = 40  # about what bytes and operations take
RUN_ERRORS = (DraftscopeError, *FORWARD_ERRORS)  # reported where one contestant or part fails with it; costs no other
NO_TIME = "no time was left to try it"


def contestants_for(
    sampling: Sampling, tuned: dict[str, str], engine: str = "cuda_graph", baselines: dict[str, str] = BASELINES
) -> list[Contestant]:
    """Baselines, the tuned chain and tree, and DynaTree step by step; methods of ours run in `engine`.

    Under greedy decoding, which the device can verify, some methods take part a second time, on the host.
    """
    ours = {**tuned, **STEPS}
    methods = {name: at_engine(text, engine) for name, text in ours.items()}
    if sampling.greedy and engine == "cuda_graph":
        methods |= {name + HOST: at_engine(ours[name], STATIC_HOST) for name in BOTH_WAYS if name in ours}
    parsed = [replace(parse_contestant(text), label=label) for label, text in {**baselines, **methods}.items()]
    return [replace(c, method=suited(c.method, sampling)) if c.method else c for c in parsed]


def tuned_for(pair: Pair, sampling: Sampling, every: int, budget: Budget) -> dict[str, str]:
    """The best chain and the best tree of this machine, found on other prompts; the first where none can be found."""
    best, parts = {}, (("linear, tuned", CHAINS), ("tree, tuned", [*large_trees(), *trees()[::3]]))
    for left, (kind, candidates) in zip((0.2, 1.0), parts, strict=True):
        best[kind] = candidates[0]
        try:
            best[kind] = tune(pair, candidates[::every], sampling, "cuda_graph", budget.share(left).spent)[0][0]
        except RUN_ERRORS as error:
            print(f"{kind}: not tuned ({_first_line(error)})")
        print(f"{kind}: {best[kind]}")
    return best


def able(
    pair: Pair,
    contestants: Sequence[Contestant],
    prompt_ids: list[int],
    length: int,
    sampling: Sampling,
    budget: Budget,
    failures: dict[str, str] | None,
) -> list[Contestant]:
    """The contestants that can run: each is tried once, and one that fails is reported and left out.

    Args:
        failures: takes why one failed, by label; not of one that there was no time for.
    """
    found, limits = [], Limits(length, record="summary")
    for contestant in contestants:
        try:
            mine = pair.with_engine(contestant.engine) if contestant.engine else pair
            reason = measured_call(mine, contestant, prompt_ids, limits, sampling, budget.spent).failure
        except CancelledError:
            reason = NO_TIME
        except RUN_ERRORS as error:
            reason = _first_line(error)
        if not reason:
            found.append(contestant)
            continue
        print(f"left out: {contestant.label} ({reason})")
        if failures is not None and reason != NO_TIME:
            failures[contestant.label] = reason
    return found


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def best_tree(figures: list[dict]) -> str | None:
    """The tree that is fastest relative to the autoregressive loop beside which it ran."""
    trees_only = [f for f in figures if f.get("ratio_to_autoregressive") and f["label"] not in BASELINES | COMPILED
                  and not f["label"].startswith("linear")]  # fmt: skip
    best = max(trees_only, key=lambda f: f["ratio_to_autoregressive"]["median"], default=None)
    return best["label"] if best else None


def verdicts(
    figures: list[dict],
    bandwidth_share: float | None,
    ratio: Callable[[str, str], float | None],
    spoilt: Sequence[str] = (),
) -> list[str]:
    """Each goal: reached or missed, and where it is missed what it consists of.

    Args:
        bandwidth_share: what our own loop reaches of the memory-bandwidth limit, None if that is not known.
        ratio: median over prompts and repeats of the ratio of two contestants' throughputs, by label.
        spoilt: what became of graphs without which device and host are not on a par.
    """
    by_label = {f["label"]: f for f in figures}
    lines = ["goal not measured: share of the memory-bandwidth limit"]
    if bandwidth_share is not None:
        what = (f"our captured autoregressive loop runs at {bandwidth_share:.0%} of the memory-bandwidth limit, "
                f"goal {BANDWIDTH_GOAL:.0%}")  # fmt: skip
        lines = [goal_line(bandwidth_share >= BANDWIDTH_GOAL, what)]
    best = best_tree(figures)
    for what, base, goal in RATIO_GOALS:
        name = best if what == "best tree" else what
        value = ratio(name, base) if name else None
        if value is None:
            lines.append(f"goal not measured: {what} over {base}")
            continue
        cause = "" if value >= goal else f" ({_cause(by_label[name], by_label[base])})"
        lines.append(goal_line(value >= goal, f"{name} {value:.2f}x {base}, goal {goal}x{cause}"))
    return lines + device_verdicts(by_label, ratio, spoilt) + memory_verdict(by_label)


def device_verdicts(
    figures: dict[str, dict], ratio: Callable[[str, str], float | None], spoilt: Sequence[str] = ()
) -> list[str]:
    """What iterations on the device are worth, for each method that ran both ways; judged where both ran on graphs."""
    lines = []
    for name in (label.removesuffix(HOST) for label in figures if label.endswith(HOST)):
        if (value := ratio(name, name + HOST)) is None:
            continue
        cold = any(figures[label].get("cold_passes") for label in (name, name + HOST))
        words = f"iterations of {name} on the device {value:.2f}x those on the host"
        if why := [*spoilt, *["graphs were made meanwhile"] * cold]:
            lines.append(f"goal not judged: {words}, as {', '.join(why)}")
        else:
            lines.append(goal_line(value >= DEVICE_GOAL, f"{words}, goal {DEVICE_GOAL}x"))
    return lines


def graphs_of(pair: Pair) -> dict[str, Graphs]:
    """The graphs of each model, by what they are of: iterations on the device, and on the host."""
    found = {}
    for engine in ("cuda_graph", STATIC_HOST):
        for role, model in (("target", pair.target), ("draft", pair.draft)):
            with suppress(PairError):  # its contestants have been left out with this reason
                found[f"{role} ({engine})"] = model.with_engine(engine).engine.graphs
    return found


def spoilt_graphs(pair: Pair) -> list[str]:
    """What became of graphs that failed or were given up, after which passes are not what is to be compared."""
    found = []
    for name, graphs in graphs_of(pair).items():
        if graphs.failure:
            found.append(f"a graph of the {name} could not be captured")
        elif graphs.evicted:
            found.append(f"{graphs.evicted} graphs of the {name} were given up")
    return found


def memory_verdict(figures: dict[str, dict]) -> list[str]:
    """Largest peak memory of a tree over that of the autoregressive loop."""
    base = figures.get("autoregressive, captured", {}).get("peak_memory_bytes")
    peaks = {label: f["peak_memory_bytes"] for label, f in figures.items()
             if label not in BASELINES | COMPILED and f.get("peak_memory_bytes")}  # fmt: skip
    if not base or not peaks:
        return ["goal not measured: peak memory"]
    worst = max(peaks, key=peaks.get)
    value = peaks[worst] / base
    what = f"peak memory of {worst} is {value:.3f}x that of the autoregressive loop"
    return [goal_line(value <= MEMORY_GOAL, f"{what}, goal {MEMORY_GOAL}x ({MEMORY_NOTE})")]


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


def measure(
    pair: Pair,
    contestants: Sequence[Contestant],
    prompts,
    length: int,
    repeats: int,
    sampling: Sampling,
    budget: Budget,
    failures: dict[str, str] | None = None,
) -> Comparison:
    """All contestants that can run, interleaved, each tried on the longest prompt first; until the time is over.

    Args:
        failures: see `able`.
    """
    prompts = sorted(prompts, key=lambda prompt: -len(prompt[1]))
    found = able(pair, contestants, prompts[0][1], length, sampling, budget.share(TRIAL_SHARE), failures)
    if not found:
        raise PairError("No contestant could run: what is said above is why.")
    return compare(pair, found, prompts, length, repeats, WARM_UPS, sampling, cancelled=budget.spent)


def report(pair: Pair, comparison: Comparison, rows: int, counting: Counting = "loop_free") -> dict:
    """Print the tables and verdicts of one sampling, counted in one way.

    Returns:
        The loop-free `figures` with their goals, and those of `whole` texts.
    """
    labels = [contestant.label for contestant in comparison.contestants]
    named = {"autoregressive": "autoregressive, captured", "hf_generate": "HF generate", "hf_assisted": "HF assisted"}
    bases = {base: labels.index(label) for base, label in named.items() if label in labels}
    limit = _bandwidth_limit(pair, rows) if "autoregressive" in bases else None
    spoilt = spoilt_graphs(pair) if any(label.endswith(HOST) for label in labels) else []
    both = {way: _judged(comparison, labels, bases, limit, spoilt, way) for way in COUNTINGS}
    figures, lines, _ = both[counting]
    print(f"{COUNTINGS[counting]}\n")
    print_figures(figures)
    if cold := {f["label"]: f["cold_passes"] for f in figures if f["cold_passes"]}:
        print(f"\nmeasured while CUDA graphs were made, so slower than they are: {cold}")
    print("\n".join(["", *lines]))
    print_differences(comparison)
    figures, lines, share = both["loop_free"]
    return {"figures": figures, "goals": lines, "bandwidth_share": share, "whole": both["whole"][0],
            "prompts": comparison.prompts, "differences": len(comparison.differences)}  # fmt: skip


def _judged(
    comparison: Comparison,
    labels: Sequence[str],
    bases: dict[str, int],
    limit: float | None,
    spoilt: Sequence[str],
    counting: Counting,
) -> tuple[list[dict], list[str], float | None]:
    """Figures and verdicts counted in one way, and what our own loop reaches of the memory-bandwidth limit."""
    figures = [figures_of(comparison, index, bases, counting) for index in range(len(labels))]
    for index, found in enumerate(figures):
        peaks = [r.metrics.peak_memory_bytes for r in comparison.of(index) if r.metrics and r.metrics.peak_memory_bytes]
        found["peak_memory_bytes"] = max(peaks, default=None)
        found["cold_passes"] = sum(result.cold for result in comparison.of(index))
    own = figures[bases["autoregressive"]] if "autoregressive" in bases else {}
    share = own["throughput"]["median"] / limit if limit and "throughput" in own else None

    def ratio(what: str, base: str) -> float | None:
        if not {what, base} <= set(labels):
            return None
        found = ratios(comparison.of(labels.index(what)), comparison.of(labels.index(base)), counting)
        return found.median if found else None

    return figures, verdicts(figures, share, ratio, spoilt), share


def _bandwidth_limit(pair: Pair, rows: int) -> float | None:
    """Tokens per second, one in a pass, at the memory-bandwidth limit; None if it is not known."""
    try:
        ceilings = measure_ceilings(pair.target.device, pair.target.dtype)
    except RUN_ERRORS as error:
        print(f"the ceilings could not be measured: {_first_line(error)}")
        return None
    return ceilings.copy_bytes_per_s / pass_cost(pair.target, 1, rows).bytes


def widened_pair(like: str, folder: Path, dtype: str, context_length: int) -> Pair:
    """The widened pair on the GPU, written to `folder` where it does not lie there yet."""
    target, draft = widened_pair_folders(like, folder, dtype, "cuda")
    return load_pair(PairSettings(str(target), str(draft), "cuda", dtype, context_length=context_length))


def measure_all(args: argparse.Namespace) -> int:
    """Each sampling, then bytes and operations; what is known is written after each."""
    budget, started = Budget(60 * (args.minutes or 9)), time.perf_counter()
    length = min(48, args.max_new_tokens) if args.quick else args.max_new_tokens
    repeats = 1 if args.quick else args.repeats
    samplings = () if args.roofline else (args.sampling,) if args.sampling else tuple(SAMPLINGS)
    name, failed = "roofline" if args.roofline else "gpu", []
    with tempfile.TemporaryDirectory() as temporary:
        pair = widened_pair(args.like, args.folder or Path(temporary) / "pair", args.dtype, 1024 + length)
        print("\n".join(engine_lines(pair)))
        prompts = encoded_prompts(pair, args.prompts, 2 if args.quick else args.num_prompts)
        figures: dict = {"pair": pair.info.name}
        for done, label in enumerate(samplings):
            sampling, mine = SAMPLINGS[label], budget.share(0.85 / (len(samplings) - done))
            setup = f"{pair.info.name} (widened weights), {args.dtype}, {label}, {len(prompts)} x {length} tokens"
            print(f"\n{setup}\n")
            try:
                tuned = tuned_for(pair, sampling, 6 if args.quick else 1, mine.share(TUNING_SHARE))
                baselines = BASELINES | (COMPILED if args.hf_static else {})
                contestants = contestants_for(sampling, tuned, baselines=baselines)
                comparison = measure(pair, contestants, prompts, length, repeats, sampling, mine)
                rows = len(prompts[0][1]) + length // 2
                figures[label] = report(pair, comparison, rows, args.counted) | {"setup": setup, "tuned": tuned}
            except RUN_ERRORS as error:
                traceback.print_exc(file=sys.stdout)
                failed.append(f"{label} could not be measured: {_first_line(error)}")
            save_figures(args, name, figures, pair.target.device, args.sampling)
        if budget.left_s > ROOFLINE_S:
            print()
            engines = ("transformers", "packed", "cuda_graph")
            named = {"autoregressive": "autoregressive", **STEPS}
            methods = [replace(parse_contestant(text).method, label=name) for name, text in named.items()]
            try:
                figures |= roofline_figures(pair, engines, methods, prompts[0][1], min(length, 128))
            except RUN_ERRORS as error:
                traceback.print_exc(file=sys.stdout)
                failed.append(f"bytes and operations could not be measured: {_first_line(error)}")
            save_figures(args, name, figures, pair.target.device, args.sampling)
    print("\n".join([*failed, f"{time.perf_counter() - started:.0f} s"]))
    return 1 if failed else 0
