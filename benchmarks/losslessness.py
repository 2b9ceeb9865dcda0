"""Losslessness by enumeration: over every draft and every draw the emitted tokens have the target's distribution.

Each pair of drafter and verifier that is allowed must be exact to 1e-9 on every small table. A verifier that is refused
for a kind of tree must be biased by more than 1e-3 on some of that kind: not on all, as one chain whose every token
the draft is sure of is a point mass, on which all verifiers for chains are alike. With --embedded the allowed pairs are
tested on the embedded pair instead, by the probability integral transform of the tokens they emit.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from benchmarks.enumeration import (
    DRAFTERS_BY_SIZE,
    SAMPLED,
    Path,
    Tables,
    all_drafts,
    all_tables,
    bias,
    block_distribution,
)
from decoding.common.errors import run_main
from decoding.drafters.base import Drafter
from decoding.experiments.command import arguments, print_table, save_figures
from decoding.verifiers import VERIFIERS

EXACT, BIASED = 1e-9, 1e-3
# On one chain every solver that looks at the draft is naive, and traversal is block verification.
ON_A_CHAIN = {
    "naive": ("naive_tree", "spectr", "specinfer", "specinfer_wor", "khisti"),
    "block": ("traversal", "traversal_wor"),
}


@dataclass(frozen=True)
class Case:
    """One drafter on one pair of tables."""

    size: int
    name: str
    drafter: Drafter
    tables: Tables


@dataclass(frozen=True)
class CaseResult:
    """What one case came to.

    Attributes:
        biases: largest error of the joint distribution by verifier.
        identity: largest difference between distributions that must be the same, None unless the tree is a chain.
        runs: drafts enumerated, times verifiers.
    """

    case: Case
    biases: dict[str, float]
    identity: float | None
    runs: int


def cases(quick: bool) -> Iterator[Case]:
    """Every drafter on every table; the quick ones in three vocabularies' worth of tokens only."""
    for size, drafters in DRAFTERS_BY_SIZE.items():
        if quick and size > 3:
            continue
        for tables in all_tables(size, count_random=1 if quick else 3):
            for name, of_name in drafters.items():
                for drafter in of_name[:1] if quick else of_name:
                    yield Case(size, name, drafter, tables)


def examine(case: Case) -> CaseResult:
    """Enumerate one case under every verifier."""
    torch.set_num_threads(1)
    distributions: dict[str, dict[Path, float]] = {name: defaultdict(float) for name in VERIFIERS}
    runs = 0
    for draft, chance in all_drafts(case.drafter, case.tables):
        for name, kind in VERIFIERS.items():
            runs += 1
            for block, share in block_distribution(kind(), draft, case.tables).items():
                distributions[name][block] += chance * share
    chain = case.drafter.draft_sampling == "single_path"
    identity = (
        max(_difference(distributions[a], distributions[b]) for a, same in ON_A_CHAIN.items() for b in same)
        if chain
        else None
    )
    return CaseResult(case, {name: bias(probs, case.tables) for name, probs in distributions.items()}, identity, runs)


def _difference(one: dict[Path, float], other: dict[Path, float]) -> float:
    return max(abs(one.get(block, 0.0) - other.get(block, 0.0)) for block in {*one, *other})


def summarise(results: list[CaseResult]) -> tuple[list[dict], list[str]]:
    """Figures per (drafter, verifier), and what is wrong with them."""
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    distributions = {result.case.name: result.case.drafter.draft_sampling for result in results}
    for result in results:
        # A sampled drafter that draws only one chain is no worse than its distribution says; the wider distribution is
        # the claim.
        if result.case.drafter.draft_sampling != "single_path":
            distributions[result.case.name] = result.case.drafter.draft_sampling
        for verifier, value in result.biases.items():
            key = (result.case.name, verifier)
            if value >= worst.get(key, (-1.0, ""))[0]:
                worst[key] = value, f"{result.case.drafter} on {result.case.tables.name}, V={result.case.size}"
    figures, problems, refused = [], [], dict[tuple[str, str], float]()
    for (drafter, verifier), (value, where) in worst.items():
        refusal = VERIFIERS[verifier]().refusal(distributions[drafter], SAMPLED)
        figures.append({"drafter": drafter, "verifier": verifier, "allowed": refusal is None, "bias": value})
        if refusal is None and not value <= EXACT:
            problems.append(f"{drafter} with {verifier} is allowed and biased by {value:.1e}: {where}")
        if refusal is not None:
            kind = distributions[drafter], verifier
            refused[kind] = max(value, refused.get(kind, 0.0))
    problems += [
        f"{verifier} is refused for {kind} trees and biased by only {value:.1e}"
        for (kind, verifier), value in refused.items()
        if not value > BIASED
    ]
    chains = [result.identity for result in results if result.identity is not None]
    if not chains or max(chains) > EXACT:
        problems.append(f"on a chain the verifiers that must agree differ by {max(chains, default=float('nan')):.1e}")
    return figures, problems


def _weight(case: Case) -> int:
    settings = case.drafter.settings()
    return case.size ** (settings.get("paths", 1) * (settings.get("length", 0) + settings.get("branch", 0)))


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--embedded", action="store_true", help="test emitted tokens of the embedded pair instead")
    args = parser.parse_args()
    if args.embedded:
        from benchmarks.transform_test import test_embedded

        return test_embedded(args)
    started = time.perf_counter()
    todo = sorted(cases(args.quick), key=_weight, reverse=True)  # so that no worker is left with a large one at the end
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        results = list(workers.map(examine, todo))
    figures, problems = summarise(results)
    print("largest error of the joint distribution of the emitted tokens; in brackets: refused\n")
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for f in figures:
        shown = f"{f['bias']:.0e}" if f["bias"] else "0"
        rows[f["drafter"]][f["verifier"]] = shown if f["allowed"] else f"[{shown}]"
    print_table(("drafter", *VERIFIERS), [(name, *(cells[v] for v in VERIFIERS)) for name, cells in rows.items()])
    allowed, refused = ([f["bias"] for f in figures if f["allowed"] == kind] for kind in (True, False))
    drafts = sum(result.runs for result in results)
    print(f"\n{len(todo)} drafters on tables, {drafts:,} drafts with a verifier, every draw of each")
    print(f"allowed pairs: {len(allowed)}, largest bias {max(allowed):.1e}, goal at most {EXACT:.0e}")
    print(f"refused pairs: {len(refused)}, largest bias {max(refused):.1e}, by kind of tree above {BIASED:.0e}")
    chains = [result.identity for result in results if result.identity is not None]
    print(f"on a chain, solvers against naive and traversal against block: differ by {max(chains):.1e} at most")
    for problem in problems:
        print(f"FAILED: {problem}")
    print("FAILED" if problems else "every goal reached", f"in {time.perf_counter() - started:.0f} s")
    save_figures(args, "losslessness", {"pairs": figures, "problems": problems}, torch.device("cpu"))
    return 1 if problems else 0


if __name__ == "__main__":
    run_main(main)
