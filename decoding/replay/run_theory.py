"""What theory says about the nodes of a whole run: acceptance by depth, by draft probability, tokens per verifier.

All of it is computed from stored rows under one sampling; no model is run.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from decoding.replay.replay import has_rows, replay, stored_tree
from decoding.sampling.sampling import Sampling
from decoding.trace.records import IterationTrace
from decoding.verifiers.theory import SOLVERS, acceptance_rate, best_acceptance, l1_distance

DRAWS = (1, 2, 4)
BINS = 10


@dataclass(frozen=True)
class Mean:
    """A mean over `count` values; `error` is its standard error, None for a single value."""

    value: float
    error: float | None
    count: int


@dataclass(frozen=True)
class DepthRow:
    """Nodes of one depth that have both rows; the root has depth 0, its children are drafted at depth 1."""

    depth: int
    rates: dict[tuple[str, int], Mean]  # acceptance rate of each solver by (name, independent draws)
    best: dict[int, Mean]  # alpha_opt by independent draws: no solver accepts more
    l1: Mean  # L1 distance between both distributions


@dataclass(frozen=True)
class ProbabilityBin:
    """Drafted tokens whose draft probability lies in [low, high)."""

    low: float
    high: float
    accepted: Mean  # min(1, target / draft): the chance to be accepted of one draw that is tested first
    target: Mean  # the target's probability


@dataclass(frozen=True)
class RunTheory:
    """Aggregates of a run.

    Attributes:
        trees: iterations that have rows and a drafted tree; `without_logits`: drafted ones whose rows were not kept.
        nodes: nodes with both rows. tokens: drafted tokens that were verified.
        bins: by draft probability, empty ones left out.
        expected: exact expected tokens per tree by verifier; a verifier that refuses these trees is missing.
    """

    sampling: Sampling
    trees: int
    without_logits: int
    nodes: int
    tokens: int
    depths: tuple[DepthRow, ...]
    bins: tuple[ProbabilityBin, ...]
    expected: dict[str, Mean]


def run_theory(
    iterations: Sequence[IterationTrace],
    sampling: Sampling,
    proceed: Callable[[int, int], bool] = lambda done, total: True,
) -> RunTheory | None:
    """Aggregate a run; every distinct node counts once.

    Args:
        sampling: temperature and top-p may differ from the run's, the draft's temperature may not.
        proceed: called after each tree with how many of how many are done; its False ends the work with None.
    """
    drafted = [iteration for iteration in iterations if iteration.drafted]
    chosen = [iteration for iteration in drafted if has_rows(iteration)]
    nodes: dict[int, list[dict]] = defaultdict(list)  # by depth, what is computed of each node
    tokens: dict[int, list[tuple[float, float]]] = defaultdict(list)  # by bin, what draft and target give each token
    expected: dict[str, list[float]] = defaultdict(list)
    for done, iteration in enumerate(chosen, start=1):
        tree = stored_tree(iteration, sampling)
        rows = iteration.draft_logits
        for node in (node for node in tree.order if rows is not None and not np.isnan(rows[node]).any()):
            target, draft = tree.target_distribution(node), tree.draft_distribution(node)
            nodes[iteration.nodes[node].depth].append(_of_node(target, draft))
            ids = [tree.tokens[child] for child in dict.fromkeys(tree.entries[node])]
            for pair in zip(draft[ids].tolist(), target[ids].tolist(), strict=True):
                tokens[min(int(pair[0] * BINS), BINS - 1)].append(pair)  # probability 1 belongs to the last bin
        for replayed in replay(iteration, replace(sampling, seed=0), rerolls=0):
            if replayed.refusal is None:
                expected[replayed.verifier.name].append(replayed.expected_tokens)
        if not proceed(done, len(chosen)):
            return None
    return RunTheory(
        sampling=sampling,
        trees=len(chosen),
        without_logits=len(drafted) - len(chosen),
        nodes=sum(map(len, nodes.values())),
        tokens=sum(map(len, tokens.values())),
        depths=tuple(_depth_row(depth, nodes[depth]) for depth in sorted(nodes)),
        bins=tuple(_bin(place, tokens[place]) for place in sorted(tokens)),
        expected={name: mean_of(values) for name, values in expected.items()},
    )


def mean_of(values: Sequence[float]) -> Mean:
    """Mean and standard error of some values."""
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None
    return Mean(float(np.mean(values)), spread, len(values))


def _of_node(target: Tensor, draft: Tensor) -> dict:
    """L1 distance, alpha_opt by independent draws, acceptance rates by (solver, independent draws)."""
    rates = {(name, draws): acceptance_rate(name, target, draft, draws) for name in SOLVERS for draws in DRAWS}
    best = {draws: best_acceptance(target, draft, draws) for draws in DRAWS}
    return {"l1": l1_distance(target, draft), **best, **rates}


def _depth_row(depth: int, nodes: Sequence[dict]) -> DepthRow:
    means = {key: mean_of([node[key] for node in nodes]) for key in nodes[0]}
    rates = {(name, draws): means[name, draws] for name in SOLVERS for draws in DRAWS}
    return DepthRow(depth, rates, {draws: means[draws] for draws in DRAWS}, means["l1"])


def _bin(place: int, tokens: Sequence[tuple[float, float]]) -> ProbabilityBin:
    accepted = mean_of([min(1.0, target / draft) if draft > 0 else 0.0 for draft, target in tokens])
    return ProbabilityBin(place / BINS, (place + 1) / BINS, accepted, mean_of([target for _, target in tokens]))
