"""What theory says about the nodes of a whole run: acceptance by depth, by draft probability, tokens per verifier.

All of it is computed from stored rows under one sampling; no model is run.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from decoding.replay.replay import has_rows, replay, stored_tree
from decoding.sampling.sampling import Sampling
from decoding.trace.records import IterationTrace
from decoding.verifiers.base import VerifiedTree
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
    """Nodes of one depth that have both rows; the root has depth 0, its children are drafted at depth 1.

    Attributes:
        rates: acceptance rate of each solver by (name, independent draws).
        best: alpha_opt by independent draws: no solver accepts more.
        l1: L1 distance between both laws.
    """

    depth: int
    rates: dict[tuple[str, int], Mean]
    best: dict[int, Mean]
    l1: Mean


@dataclass(frozen=True)
class ProbabilityBin:
    """Drafted tokens whose draft probability lies in [low, high).

    Attributes:
        accepted: min(1, target / draft): the chance to be accepted of one draw that is tested first.
        target: the target's probability.
    """

    low: float
    high: float
    accepted: Mean
    target: Mean


@dataclass(frozen=True)
class RunTheory:
    """Aggregates of a run.

    Attributes:
        trees: iterations that have rows and a drafted tree; `without_rows`: drafted ones whose rows were not kept.
        nodes: nodes with both rows. tokens: drafted tokens that were verified.
        bins: by draft probability, empty ones left out.
        expected: exact expected tokens per tree by verifier; a verifier that refuses these trees is missing.
    """

    sampling: Sampling
    trees: int
    without_rows: int
    nodes: int
    tokens: int
    depths: tuple[DepthRow, ...]
    bins: tuple[ProbabilityBin, ...]
    expected: dict[str, Mean]


@dataclass
class _Gathered:
    """Values on the way to their means."""

    rates: dict[tuple[int, str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    best: dict[tuple[int, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    l1: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    tokens: list[tuple[float, float]] = field(default_factory=list)
    expected: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def run_theory(
    iterations: Sequence[IterationTrace],
    sampling: Sampling,
    proceed: Callable[[int, int], bool] = lambda done, total: True,
) -> RunTheory | None:
    """Aggregate a run; every distinct node counts once.

    Args:
        sampling: temperature and top-p may differ from the run's, the draft's temperature may not.
        proceed: told after each tree how many of how many are done; its False ends the work, and None is returned.
    """
    drafted = [iteration for iteration in iterations if iteration.drafted]
    chosen = [iteration for iteration in drafted if has_rows(iteration)]
    found = _Gathered()
    for done, iteration in enumerate(chosen, start=1):
        _gather(iteration, stored_tree(iteration, sampling), found)
        for replayed in replay(iteration, replace(sampling, seed=0), rerolls=0):
            if replayed.refusal is None:
                found.expected[replayed.verifier.name].append(replayed.expected_tokens)
        if not proceed(done, len(chosen)):
            return None
    return RunTheory(
        sampling=sampling,
        trees=len(chosen),
        without_rows=len(drafted) - len(chosen),
        nodes=sum(map(len, found.l1.values())),
        tokens=len(found.tokens),
        depths=tuple(_depth_row(depth, found) for depth in sorted(found.l1)),
        bins=_bins(found.tokens),
        expected={name: mean_of(values) for name, values in found.expected.items()},
    )


def mean_of(values: Sequence[float]) -> Mean:
    """Mean and standard error of some values."""
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None
    return Mean(float(np.mean(values)), spread, len(values))


def _gather(iteration: IterationTrace, tree: VerifiedTree, found: _Gathered) -> None:
    """Values of every node of a tree after which both laws are known."""
    asked = ~np.isnan(iteration.draft_logits).any(axis=1)
    for node in tree.order:
        if asked[node]:
            target, draft = tree.target_law(node), tree.draft_law(node)
            _gather_node(iteration.nodes[node].depth, target, draft, found)
            tokens = [tree.tokens[child] for child in dict.fromkeys(tree.entries[node])]
            found.tokens.extend(zip(draft[tokens].tolist(), target[tokens].tolist(), strict=True))


def _gather_node(depth: int, target: Tensor, draft: Tensor, found: _Gathered) -> None:
    found.l1[depth].append(l1_distance(target, draft))
    for draws in DRAWS:
        found.best[depth, draws].append(best_acceptance(target, draft, draws))
        for name in SOLVERS:
            found.rates[depth, name, draws].append(acceptance_rate(name, target, draft, draws))


def _depth_row(depth: int, found: _Gathered) -> DepthRow:
    return DepthRow(
        depth=depth,
        rates={(name, draws): mean_of(found.rates[depth, name, draws]) for name in SOLVERS for draws in DRAWS},
        best={draws: mean_of(found.best[depth, draws]) for draws in DRAWS},
        l1=mean_of(found.l1[depth]),
    )


def _bins(tokens: Sequence[tuple[float, float]]) -> tuple[ProbabilityBin, ...]:
    """Drafted tokens by draft probability; a token of probability 1 belongs to the last bin."""
    members: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for draft, target in tokens:
        members[min(int(draft * BINS), BINS - 1)].append((draft, target))
    return tuple(
        ProbabilityBin(
            low=place / BINS,
            high=(place + 1) / BINS,
            accepted=mean_of([min(1.0, target / draft) if draft > 0 else 0.0 for draft, target in members[place]]),
            target=mean_of([target for _, target in members[place]]),
        )
        for place in sorted(members)
    )
