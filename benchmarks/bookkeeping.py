"""What is spent above the models: heaps, queues, draws and pruning at 1,024 nodes, everything else at 64.

Every drafter grows as large a tree as it can on the embedded pair. Goals: building a tree of 1,024 nodes takes under
10% of the iteration beside the draft's forwards; with 64 nodes, decoded greedily, all that is no forward does. Whole
texts count: what is asked is time by tree size.
"""

import statistics
import time
from dataclasses import dataclass

from decoding.common.errors import run_main
from decoding.experiments.command import arguments, choose_prompts, goal_line, print_table, save_figures
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, embedded_pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits

NODES, GOAL = 1024, 0.10
# The draft is warm enough for flat trees and cold enough for deep ones.
SAMPLING = Sampling(temperature=1.0, draft_temperature=0.6)
LARGE: dict[str, Method] = {
    "fixed tree": METHODS["fixed_tree"].with_settings(
        node_budget=NODES, prune_probability=0.0, branch_first_level=True, verifier="nss"
    ),
    "DynaTree": METHODS["dynatree"].with_settings(
        node_budget=NODES, branch_first_level=True, stop_probability=0.0, deep_probability=0.0, prune_probability=0.0,
        branch_mid=3, branch_max=4, history=False, verifier="nss",
    ),
    "DySpec greedy": METHODS["dyspec"].with_settings(node_budget=NODES),
    "DySpec threshold": METHODS["dyspec_threshold"].with_settings(node_budget=NODES, threshold=0.0003),
    "SpecInfer widths": METHODS["specinfer"].with_settings(widths="8,4,4,2,2,1"),
    "Sequoia": METHODS["sequoia"].with_settings(node_budget=NODES, max_depth=12),
    "OPT-Tree": METHODS["opt_tree"].with_settings(node_budget=NODES, gain_threshold=0.0, max_depth=12),
    "hardware-aware": METHODS["hardware_aware"].with_settings(
        node_budget=NODES, max_depth=12, verify_ms="1", level_ms="0", odds="1 1", verifier="nss"
    ),
    "EAGLE-2 beam": METHODS["eagle2"].with_settings(node_budget=NODES, beam_width=14, max_depth=8),
    "SpecExec optimal": METHODS["specexec"].with_settings(node_budget=NODES, batch=64, max_depth=12),
    "SALF": METHODS["salf"].with_settings(node_budget=NODES, batch=64, gain_threshold=0.0, max_depth=12),
    "i.i.d. paths": METHODS["iid_paths"].with_settings(paths=16, length=16),
    "delayed expansion": METHODS["delayed"].with_settings(paths=16, trunk=2, branch=16),
}  # fmt: skip

SMALL: dict[str, Method] = {
    name: method.with_settings(node_budget=64, **({"max_depth": 6} if "max_depth" in method.settings() else {}))
    for name, method in LARGE.items()
    if "node_budget" in method.settings()
} | {"EAGLE-2 beam": METHODS["eagle2"].with_settings(node_budget=64, beam_width=10, max_depth=6)}


@dataclass(frozen=True)
class Figures:
    """Medians over iterations, in milliseconds."""

    nodes: float
    forwards: float
    iteration_ms: float
    forward_ms: float
    bookkeeping_ms: float
    share: float


def measure(
    pair: Pair, method: Method, prompts: list[list[int]], iterations: int, sampling: Sampling, whole: bool = False
) -> Figures:
    """Decode some iterations of each prompt; the first of each warms up.

    Args:
        whole: count all of the iteration that is no forward, and the target's forward among the forwards.
    """
    rows = []
    for ids in prompts:
        session = DecodeSession(pair, method, ids, sampling, Limits(200, ignore_end_of_text=True, record="summary"))
        for number in range(iterations + 1):
            if session.finished:
                break
            trace = session.step()
            if number:
                times = trace.times
                forwards = sum(times.draft_levels_s) + (times.verify_s if whole else 0.0)
                own = times.total_s - forwards if whole else times.draft_s - forwards + times.prune_s
                rows.append((trace.drafted, trace.draft_forwards, times.total_s, forwards, own, own / times.total_s))
    nodes, forwards, total, levels, own, share = (statistics.median(column) for column in zip(*rows, strict=True))
    return Figures(nodes, forwards, 1000 * total, 1000 * levels, 1000 * own, share)


def main() -> int:
    args = arguments(__doc__.splitlines()[0]).parse_args()
    started = time.perf_counter()
    pair = embedded_pair()
    prompts = [pair.vocabulary.encode(p.text) for p in choose_prompts(args.prompts, 1 if args.quick else 4)]
    few, many = (2, 12) if args.quick else (5, 30)
    large = {name: measure(pair, method, prompts, few, SAMPLING) for name, method in LARGE.items()}
    small = {
        name: measure(pair, method.with_settings(verifier="greedy"), prompts, many, Sampling(), whole=True)
        for name, method in SMALL.items()
    }
    title = f"at most {NODES} nodes, T=1, draft temperature {SAMPLING.draft_temperature}"
    goals = [print_figures(title, "building the tree", large), print_figures("64 nodes, greedy", "above models", small)]
    print(f"{time.perf_counter() - started:.0f} s")
    figures = {
        "goals": goals,
        "large": {n: vars(f) for n, f in large.items()},
        "small": {n: vars(f) for n, f in small.items()},
    }
    save_figures(args, "bookkeeping", figures, pair.target.device, by_processor=True)
    return 0


def print_figures(title: str, what: str, figures: dict[str, Figures]) -> str:
    """Print a table and its verdict; return the verdict."""
    print(f"embedded pair, {title}; medians, ms\n")
    print_table(
        ("drafter", "nodes", "forwards", "iteration", "in forwards", what, "share"),
        [(name, f"{f.nodes:.0f}", f"{f.forwards:.0f}", f"{f.iteration_ms:.1f}", f"{f.forward_ms:.1f}",
          f"{f.bookkeeping_ms:.1f}", f"{f.share:.1%}") for name, f in figures.items()],
    )  # fmt: skip
    missed = [name for name, f in figures.items() if f.share > GOAL]
    by = f"{', '.join(missed)}: " if missed else ""
    verdict = goal_line(not missed, f"{by}{what} under {GOAL:.0%} of the iteration")
    print(f"\n{verdict}\n")
    return verdict


if __name__ == "__main__":
    run_main(main)
