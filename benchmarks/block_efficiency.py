"""Tokens per verification pass: all drafters at equal node budgets, all verifiers at equal trees.

Trees are drafted at evenly spaced roots of the target's own text; the expectation over verification is exact, so only
prompts, roots and drafts vary. Means are over prompts with 95% intervals; whether roots where the text repeats itself
count is chosen by `--counted`. A last table decodes for real, for what the roots of decoding make of it.
"""

import os
import statistics
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from benchmarks.offline_trees import mass_gap, methods_at_budget
from decoding.common.errors import run_main
from decoding.experiments.command import (
    add_counting_argument,
    arguments,
    choose_prompts,
    print_table,
    save_figures,
)
from decoding.methods.method import fitting
from decoding.models.pair import Pair, embedded_pair
from decoding.papers.measured.depth_divergence import Root, Tree, roots
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import COUNTINGS, Counting

COLDEST_DRAFT = 0.2
# The draft is as warm as the target, but for greedy decoding, where a distribution is needed to draw from.
SAMPLINGS = {
    f"T={t:g}": Sampling(temperature=t, draft_temperature=max(t, COLDEST_DRAFT))
    for t in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
} | {f"top-p {p:g}": Sampling(temperature=1.0, top_p=p) for p in (0.9, 0.99)}
BUDGETS = (16, 32, 64, 128)
EQUAL_BUDGET = 32  # trees of this size are given to every verifier
EQUAL_TREES = ("i.i.d. paths", "delayed expansion", "Sequoia", "DySpec greedy", "linear, sampled")
SOLVERS = ("nss", "naive", "naive_tree", "spectr", "specinfer", "specinfer_wor", "khisti", "block", "traversal",
           "traversal_wor")  # fmt: skip
ROUNDING = 1e-6  # nodes are ranked in float32
Key = tuple


@dataclass
class BlockEfficiency:
    """What one prompt gave under one sampling.

    Attributes:
        values: figures by key, one per root outside loops. loops: the same for roots inside.
    """

    sampling: str
    prompt: str
    values: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    loops: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))

    def counted(self, key: Key, counting: Counting) -> list[float]:
        """A figure at the roots that count."""
        return [*self.values.get(key, ()), *(self.loops.get(key, ()) if counting == "whole" else ())]


@lru_cache(maxsize=1)
def worker_pair() -> Pair:
    """The embedded pair, once per process, on one thread each."""
    torch.set_num_threads(1)
    return embedded_pair()


def examine(job: tuple[str, str, str, tuple[int, ...], tuple[int, ...]]) -> BlockEfficiency:
    """Every drafter and verifier at the roots of one prompt under one sampling."""
    name, prompt, text, positions, budgets = job
    pair, found = worker_pair(), BlockEfficiency(name, prompt)
    for root in roots(pair, pair.vocabulary.encode(text), SAMPLINGS[name], positions):
        into = found.loops if root.in_loop else found.values
        into["roots",].append(1.0)
        for budget in budgets:
            _budget(root, budget, SAMPLINGS[name], into)
    return found


def _budget(root: Root, budget: int, sampling: Sampling, into: dict[Key, list[float]]) -> None:
    methods = methods_at_budget(budget)
    for drafter, method in methods.items():
        tree: Tree = root.tree(method)
        verifier = "nss" if method.verifier.greedy_only else method.verifier.name
        asked = {verifier}
        if budget == EQUAL_BUDGET and drafter in EQUAL_TREES:
            asked |= {name for name in fitting(tree.draft.draft_sampling, sampling) if name != "greedy"}
        expected = tree.expected(tuple(asked))
        into["drafter", budget, drafter].append(expected[verifier])
        into["nodes", budget, drafter].append(tree.nodes)
        into["forwards", budget, drafter].append(tree.draft_forwards)
        if len(asked) > 1:
            for name, tokens in expected.items():
                into["equal", drafter, name].append(tokens)
            into["naive tree - naive",].append(expected["naive_tree"] - expected["naive"])
            into["block - naive",].append(expected["block"] - expected["naive"])
    into["optimal - beam",].append(mass_gap(root, methods["SpecExec optimal"], methods["EAGLE-2 beam"]))


@dataclass(frozen=True)
class EfficiencyMean:
    """Mean over prompts and half the width of its 95% interval."""

    value: float
    half: float
    prompts: int

    def __str__(self):
        return f"{self.value:.2f}±{self.half:.2f}"


def mean_over(
    found: list[BlockEfficiency], key: Key, samplings: tuple[str, ...], counting: Counting
) -> EfficiencyMean | None:
    """Mean of a figure: over the roots of a prompt and the samplings, then over prompts."""
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for each in found:
        if each.sampling in samplings and (values := each.counted(key, counting)):
            by_prompt[each.prompt].append(statistics.mean(values))
    means = [statistics.mean(each) for each in by_prompt.values()]
    if not means:
        return None
    spread = statistics.stdev(means) if len(means) > 1 else 0.0
    return EfficiencyMean(statistics.mean(means), 1.96 * spread / len(means) ** 0.5, len(means))


def drafter_tables(
    found: list[BlockEfficiency], budgets: tuple[int, ...], names: tuple[str, ...], counting: Counting
) -> dict:
    """Drafters at equal node budgets."""
    figures = {}
    for budget in budgets:
        print(f"\ntokens per verification pass, at most {budget} nodes, each drafter with its own verifier")
        rows = []
        for drafter, method in methods_at_budget(budget).items():
            key = ("drafter", budget, drafter)
            cells = [mean_over(found, key, (name,), counting) for name in names]
            nodes, forwards = (
                mean_over(found, (what, budget, drafter), names, counting) for what in ("nodes", "forwards")
            )
            whole = mean_over(found, key, names, counting)
            verifier = "nss" if method.verifier.greedy_only else method.verifier.name
            rows.append((f"{drafter} ({verifier})", *(f"{c.value:.2f}" if c else "-" for c in cells), str(whole),
                         f"{nodes.value:.0f}", f"{forwards.value:.1f}"))  # fmt: skip
            figures[f"{budget}: {drafter}"] = {n: vars(c) if c else None for n, c in zip(names, cells, strict=True)}
            figures[f"{budget}: {drafter}"]["all"] = vars(whole)
        print_table(("drafter", *names, "all", "nodes", "forwards"), rows)
    return figures


def equal_table(found: list[BlockEfficiency], names: tuple[str, ...], counting: Counting) -> dict:
    """Verifiers on the same trees of several drafters."""
    print(f"\nverifiers on the same trees, at most {EQUAL_BUDGET} nodes, all samplings; - where it would be biased")
    rows, figures = [], {}
    for verifier in SOLVERS:
        means = {tree: mean_over(found, ("equal", tree, verifier), names, counting) for tree in EQUAL_TREES}
        rows.append((verifier, *(str(mean) if mean else "-" for mean in means.values())))
        figures[verifier] = {tree: vars(mean) if mean else None for tree, mean in means.items()}
    print_table(("verifier", *EQUAL_TREES), rows)
    return figures


def guarantees(found: list[BlockEfficiency]) -> list[str]:
    """What theory guarantees and does not hold here; empty if all of it does."""

    def all_of(name: str) -> list[float]:
        return [value for each in found for part in (each.values, each.loops) for value in part.get((name,), ())]

    problems = []
    for name, words in (
        ("optimal - beam", "draft-probability mass of optimal search over beam search, same depth, no caps"),
        ("naive tree - naive", "naive tree over naive on the same tree"),
    ):
        values = all_of(name)
        least = min(values)
        print(f"{words}: {len(values)} trees, least {least:+.2e}, mean {statistics.mean(values):+.4f}")
        if least < -ROUNDING:
            problems.append(f"{words} is negative: {least:.2e}")
    values = all_of("block - naive")
    error = statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.mean(values)
    print(f"block over naive in expectation: {len(values)} trees, mean {mean:+.4f} ± {1.96 * error:.4f}")
    if mean < -1.96 * error:
        problems.append(f"block verification is below naive in expectation: {mean:.4f} ± {1.96 * error:.4f}")
    return problems


def decode_for_real(job: tuple[str, str, str, int, int, Counting]) -> tuple[str, str, int, int, int]:
    """One real run; returns sampling, drafter, iterations and tokens that count, and tokens in loops."""
    name, drafter, text, budget, tokens, counting = job
    pair = worker_pair()
    method = methods_at_budget(budget)[drafter]
    if method.verifier.greedy_only:
        method = method.with_settings(verifier="nss")
    limits = Limits(tokens, ignore_end_of_text=True, record="summary")
    session = DecodeSession(pair, method, pair.vocabulary.encode(text), SAMPLINGS[name], limits)
    run = [(iteration.in_loop, len(iteration.committed_ids)) for iteration in session]
    kept = [committed for in_loop, committed in run if counting == "whole" or not in_loop]
    return name, drafter, len(kept), sum(kept), sum(committed for in_loop, committed in run if in_loop)


def real_table(prompts, workers, names: tuple[str, ...], budget: int, tokens: int, counting: Counting) -> dict:
    """Tokens per iteration of real runs, beside nothing but themselves: roots of decoding are not evenly spaced."""
    jobs = [(name, drafter, p.text, budget, tokens, counting) for name in names
            for drafter in methods_at_budget(budget) for p in prompts]  # fmt: skip
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, drafter, *counts in workers.map(decode_for_real, jobs, chunksize=4):
        totals[name, drafter] = [a + b for a, b in zip(totals[name, drafter], counts, strict=True)]
    print(f"\nreal decoding, at most {budget} nodes, {len(prompts)} prompts x {tokens} tokens, tokens per pass")
    rows = []
    for drafter in methods_at_budget(budget):
        cells = [totals[name, drafter] for name in names]
        rows.append((drafter, *(f"{c[1] / max(1, c[0]):.2f}" for c in cells), *(str(c[2]) for c in cells)))
    print_table(("drafter", *names, *(f"{name}, tokens in loops" for name in names)), rows)
    return {f"{drafter} at {name}": counts for (name, drafter), counts in totals.items()}


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_counting_argument(parser)
    parser.add_argument("--count", type=int, help="prompts (40; 4 with --quick)")
    parser.add_argument("--roots", type=int, help="roots per prompt (3; 1 with --quick)")
    args = parser.parse_args()
    started = time.perf_counter()
    names = ("T=0", "T=0.6", "T=1") if args.quick else tuple(SAMPLINGS)
    budgets = BUDGETS[:2] if args.quick else BUDGETS
    positions = tuple(8 + 16 * place for place in range(args.roots or (1 if args.quick else 3)))
    prompts = choose_prompts(args.prompts, args.count or (4 if args.quick else 40))
    jobs = [(name, f"{p.kind}/{p.name}", p.text, positions, budgets) for p in prompts for name in names]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        found = list(workers.map(examine, jobs))
        kinds = {p.kind for p in prompts}
        outside = sum(len(each.values.get(("roots",), ())) for each in found)
        inside = sum(len(each.loops.get(("roots",), ())) for each in found)
        print(f"embedded pair, {len(prompts)} prompts of {len(kinds)} kinds, {outside} roots and {inside} in loops, "
              f"{COUNTINGS[args.counted]}; draft temperature that of the target, at least {COLDEST_DRAFT}")  # fmt: skip
        figures: dict = {"counted": args.counted, "drafters": drafter_tables(found, budgets, names, args.counted)}
        figures["equal"] = equal_table(found, names, args.counted)
        real = prompts[:2] if args.quick else prompts[:16]
        figures["real"] = real_table(real, workers, ("T=0", "T=1"), budgets[-1] if args.quick else 64,
                                     24 if args.quick else 64, args.counted)  # fmt: skip
    print()
    problems = guarantees(found)
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{'FAILED' if problems else 'what theory guarantees holds'}; {time.perf_counter() - started:.0f} s")
    save_figures(args, "block_efficiency", figures | {"problems": problems}, torch.device("cpu"))
    return 1 if problems else 0


if __name__ == "__main__":
    run_main(main)
