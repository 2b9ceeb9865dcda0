"""Find the best chain and the best tree of a pair on prompts that no benchmark measures.

Successive halving: every candidate runs on few tokens, the faster third on more. Throughput is taken relative to the
autoregressive loop of the same round, of the texts that `--counted` names.
"""

import time
from collections.abc import Callable, Sequence
from itertools import product
from statistics import median

from decoding.common.errors import run_main
from decoding.common.prompts import load_prompts
from decoding.compare.comparison import compare
from decoding.compare.contestants import Contestant, parse_contestant
from decoding.experiments.command import (
    EMBEDDED_KINDS,
    add_counting_argument,
    arguments,
    pair_from,
    print_table,
    save_figures,
)
from decoding.methods.method import Method, fitted
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments, add_sampling_arguments, sampling_from
from decoding.sampling.sampling import Sampling
from decoding.trace.metrics import COUNTINGS, Counting

LARGE_BUDGETS = (63, 95, 127)
# (share of the candidates that run, prompts, tokens) of each round.
ROUNDS = ((1.0, 1, 32), (0.34, 2, 64), (0.12, 4, 128))
CHAINS = [f"linear:length={length}" for length in (1, 2, 3, 4, 5, 6, 8)]


def trees() -> list[str]:
    """Fixed trees, DynaTrees, beams, and the hardware-aware tree with several limits."""
    found = [
        f"fixed_tree:max_depth={depth},branching={width},prune_probability={prune},branch_first_level=true"
        for depth, width, prune in product((2, 3, 4, 5), (2, 3, 4), (0.01, 0.03, 0.08))
    ]
    found += [
        "dynatree:branch_first_level=true,branch_min=2,branch_mid=4,branch_max=6,confidence_high=0.8,"
        f"stop_probability={stop},prune_probability={prune},base_depth={depth},history=false"
        for stop, prune, depth in product((0.03, 0.06, 0.12), (0.006, 0.02), (4, 7))
    ]
    found += [
        f"eagle2:node_budget={nodes},beam_width={beam},max_depth={depth}"
        for nodes, beam, depth in product((6, 8, 12, 20, 32), (2, 3, 6), (1, 2, 3, 5))
    ]
    return found + [f"hardware_aware:node_budget={nodes}" for nodes in (16, 64)]


def large_trees() -> list[str]:
    """Trees for a GPU, where a pass over many tokens costs little more than one over a single one.

    With the root they have 64, 96 or 128 nodes, and levels of beams 8: sizes to which static passes are padded.
    """
    found = [
        f"eagle2:node_budget={nodes},beam_width={beam},max_depth={depth}"
        for nodes, beam, depth in product(LARGE_BUDGETS, (8, 10), (5, 6, 8))
    ]
    found += [
        f"fixed_tree:node_budget={nodes},max_depth={depth},branching={width},prune_probability=0.002,"
        "branch_first_level=true"
        for nodes, depth, width in product(LARGE_BUDGETS, (5, 7), (3, 4))
    ]
    return found + [
        f"dynatree:node_budget={nodes},branch_first_level=true,branch_min=2,branch_mid=4,branch_max=8,"
        f"confidence_high=0.8,stop_probability=0.01,prune_probability=0.002,base_depth={depth},max_depth=8,"
        "history=false"
        for nodes, depth in product(LARGE_BUDGETS, (4, 7))
    ]


def tuning_prompts(pair: Pair) -> list[tuple[str, list[int]]]:
    """The last prompts of each kind, which the benchmarks do not reach."""
    by_kind: dict[str, list] = {}
    for prompt in load_prompts():
        if prompt.kind in EMBEDDED_KINDS:
            by_kind.setdefault(prompt.kind, []).append(prompt)
    last = [prompts[-1] for prompts in by_kind.values()]
    return [(p.title, pair.vocabulary.encode_prompt(p.text)) for p in last[:4]]


def tune(
    pair: Pair,
    candidates: Sequence[str],
    sampling: Sampling,
    engine: str | None = None,
    cancelled: Callable[[], bool] | None = None,
    counting: Counting = "loop_free",
) -> list[tuple[str, float]]:
    """Candidates of the last round with their throughput over the autoregressive loop, the best first.

    Args:
        cancelled: asked between iterations; when True, what the rounds so far have shown is returned.
    """
    left = [(text, 0.0) for text in candidates]
    prompts = tuning_prompts(pair)
    for share, num_prompts, tokens in ROUNDS:
        keep = max(2, round(share * len(candidates)))
        names = [text for text, _ in left[:keep]]
        contestants = [_contestant(name, engine, sampling) for name in ("autoregressive", *names)]
        comparison = compare(pair, contestants, prompts[:num_prompts], tokens, 1, 1, sampling, cancelled=cancelled)
        base = {r.prompt: found.throughput for r in comparison.of(0) if (found := r.counted(counting))}
        speeds = [
            [
                found.throughput / base[r.prompt]
                for r in comparison.of(i)
                if (found := r.counted(counting)) and r.prompt in base
            ]
            for i in range(1, len(contestants))
        ]
        left = sorted(
            ((name, median(values) if values else 0.0) for name, values in zip(names, speeds, strict=True)),
            key=lambda pair: -pair[1],
        )
        if cancelled is not None and cancelled():
            break
    return left


def at_engine(text: str, engine: str) -> str:
    """A contestant in another engine."""
    name, colon, rest = text.partition(":")
    return f"{name}@{engine}{colon}{rest}"


def _contestant(text: str, engine: str | None, sampling: Sampling) -> Contestant:
    parsed = parse_contestant(at_engine(text, engine) if engine else text)
    return Contestant(text, suited(parsed.method, sampling), engine=parsed.engine)


def suited(method: Method, sampling: Sampling) -> Method:
    """The method with greedy verification at temperature 0, which needs no distribution, and one that fits above it."""
    return method.with_settings(verifier="greedy") if sampling.greedy else fitted(method, sampling)


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_sampling_arguments(parser)
    add_counting_argument(parser)
    args = parser.parse_args()
    started = time.perf_counter()
    pair, sampling = pair_from(args), sampling_from(args)
    figures: dict = {"counted": args.counted}
    fitting = [*trees(), *large_trees()] if pair.target.device.type == "cuda" else trees()
    for kind, candidates in (("chain", CHAINS), ("tree", fitting)):
        found = tune(pair, candidates[:: 8 if args.quick else 1], sampling, counting=args.counted)
        figures[kind] = [{"contestant": text, "ratio_to_autoregressive": ratio} for text, ratio in found]
        print(f"\n{COUNTINGS[args.counted]}, best {kind}s on {', '.join(name for name, _ in tuning_prompts(pair))}")
        print_table(("contestant", "x AR"), [(text, f"{ratio:.2f}") for text, ratio in found])
    print(f"{time.perf_counter() - started:.0f} s")
    save_figures(args, "tuning", figures, pair.target.device)
    return 0


if __name__ == "__main__":
    run_main(main)
