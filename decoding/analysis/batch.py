"""When speculation stops paying: speed-up of the best chain and of the best tree by the number of sequences in a batch.

    points = speed_by_batch(costs, Rates((0.7, 0.6), (0.65, 0.1)))     # costs: {1: CostModel, 8: CostModel, ...}
    points[0].tree.speedup, crossings(points, "tree")

A batch of one leaves an accelerator waiting for the weights, so that verifying more tokens costs next to nothing; a
large batch fills it, and each further token costs its full share. Tokens are expected ones, seconds modelled from the
costs given, measured or not. Every sequence of a batch drafts a tree of the same shape. Rates are an engine's,
a run's, or typed. Torch-free.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise, takewhile
from math import exp, log
from typing import Literal

import numpy as np

from decoding.common.cost_model import CostModel
from decoding.common.errors import SettingsError, require
from decoding.trace.engine_metrics import EngineMetrics
from decoding.trace.records import IterationTrace, RunTrace

MOST_DEPTH, MOST_NODES = 16, 64


@dataclass(frozen=True)
class Rates:
    """How often drafted tokens are accepted once all before them are."""

    by_depth: tuple[float, ...]  # of the first child at each depth from 1 on; the last one holds for all depths beyond
    # Chance that the child of each rank is the accepted one, over all depths; empty where only chains are known. A
    # further child is accepted as often, of the times that the first one is not, at every depth.
    by_rank: tuple[float, ...] = ()
    deepest: int = MOST_DEPTH  # no draft is deeper: an engine's K, beyond which it has seen nothing

    def __post_init__(self):
        require(self.deepest >= 1, "Rates must be of one depth at least.")
        rates = (*self.by_depth, *self.by_rank)
        require(
            bool(self.by_depth) and all(0 <= rate <= 1 for rate in rates) and sum(self.by_rank) < 1 + 1e-6,
            "Acceptance rates must be from 0 to 1, one by depth at least, and those by rank sum up to at most 1.",
        )

    def chances(self, depth: int) -> np.ndarray:
        """Chance that each child of an accepted node is accepted at a depth, `[max(1, num_ranks)]`."""
        first = self.by_depth[min(depth, len(self.by_depth)) - 1]
        others = np.array(self.by_rank[1:])
        missed = 1 - self.by_rank[0] if self.by_rank else 0.0
        return np.append(first, others * (1 - first) / missed if missed > 0 else np.zeros(len(others)))


@dataclass(frozen=True)
class DraftShape:
    """A draft by its size; `widths`: nodes that each draft level asks the draft model about, the root's first."""

    nodes: int  # drafted and verified, the root not counted
    widths: tuple[int, ...]
    tokens: float  # expected per pass, the one of the target included

    @property
    def depth(self) -> int:
        """Draft levels."""
        return len(self.widths)

    def seconds(self, costs: CostModel) -> float:
        """Of an iteration, by the costs of one batch."""
        return float(costs.verification.seconds(self.nodes + 1) + costs.level.seconds(np.array(self.widths)).sum())

    def speedup(self, costs: CostModel) -> float:
        """Tokens per second over those of plain decoding."""
        return self.tokens * costs.plain_iteration_s / self.seconds(costs)


@dataclass(frozen=True)
class Choice:
    """A shape, and its tokens per second over those of plain decoding at the same batch."""

    shape: DraftShape
    speedup: float


@dataclass(frozen=True)
class BatchPoint:
    """One batch size: the best chain and the best tree (None where acceptance by rank is unknown)."""

    batch: int
    plain: float  # tokens per second of the whole batch without speculation
    chain: Choice
    tree: Choice | None


def chains(acceptance: Rates, most: int = MOST_DEPTH) -> tuple[DraftShape, ...]:
    """Chains of 1 to `most` tokens, none deeper than the rates."""
    most = min(most, acceptance.deepest)
    reached = np.cumprod([acceptance.chances(depth)[0] for depth in range(1, most + 1)])
    return tuple(DraftShape(k, (1,) * k, 1.0 + float(reached[:k].sum())) for k in range(1, most + 1))


def trees(acceptance: Rates, most: int = MOST_NODES, deepest: int = MOST_DEPTH) -> tuple[DraftShape, ...]:
    """For every depth, the trees of 1 to `most` nodes that are likeliest to be accepted (Sequoia's model of a tree)."""
    deepest = min(deepest, acceptance.deepest)
    return tuple(shape for depth in range(1, deepest + 1) for shape in _trees(acceptance, most, depth))


def _trees(acceptance: Rates, most: int, deepest: int) -> list[DraftShape]:
    """Best first: no child is worth more than its parent, so each of these is a tree."""
    chances = [acceptance.chances(depth) for depth in range(1, deepest + 1)]
    waiting: list[tuple[float, int, int, int]] = []  # value (negative), number, depth, parent
    number, widths, asked, tokens, found = 0, [0] * deepest, set[int](), 1.0, list[DraftShape]()

    def offer(value: float, depth: int, parent: int) -> None:
        nonlocal number
        for chance in chances[depth - 1].tolist():
            number += 1
            if value * chance > 0:
                heappush(waiting, (-value * chance, number, depth, parent))

    offer(1.0, 1, 0)
    while waiting and len(found) < most:
        value, node, depth, parent = heappop(waiting)
        tokens -= value
        if parent not in asked:
            asked.add(parent)
            widths[depth - 1] += 1
        found.append(DraftShape(len(found) + 1, tuple(width for width in widths if width), tokens))
        if depth < deepest:
            offer(-value, depth + 1, node)
    return found


def chain_gains(costs: CostModel, acceptance: Rates, most: int = MOST_DEPTH) -> tuple[float, ...]:
    """Speed-ups over plain decoding of chains of 1 to `most` tokens at the costs of one batch."""
    return tuple(each.speedup(costs) for each in chains(acceptance, most))


def speed_by_batch(costs: Mapping[int, CostModel], acceptance: Rates, most: int = MOST_DEPTH) -> tuple[BatchPoint, ...]:
    """The best chain of at most `most` tokens and the best tree of every batch size, ascending."""
    straight, branching = chains(acceptance, most), trees(acceptance) if acceptance.by_rank else ()

    def best(shapes: Sequence[DraftShape], model: CostModel) -> Choice:
        return max((Choice(each, each.speedup(model)) for each in shapes), key=lambda choice: choice.speedup)

    return tuple(
        BatchPoint(
            batch, batch / model.plain_iteration_s, best(straight, model), best(branching, model) if branching else None
        )
        for batch, model in sorted(costs.items())
    )


def chain_by_batch(points: Sequence[BatchPoint]) -> list[tuple[int, int, int]]:
    """First and last batch size, and the best chain's tokens there, 0 where plain decoding is faster.

    Between two sizes of which one loses, the range ends where `crossings` does; else a batch between two sizes takes
    the chain of the larger one.
    """
    found: list[tuple[int, int, int]] = []
    ends = iter(crossings(tuple(points), "chain"))
    for point in points:
        tokens = point.chain.shape.nodes if point.chain.speedup > 1 else 0
        if found and (found[-1][2] > 0) != (tokens > 0):
            found[-1] = (found[-1][0], min(int(next(ends)), point.batch - 1), found[-1][2])
        if found and found[-1][2] == tokens:
            found[-1] = (found[-1][0], point.batch, tokens)
        else:
            found.append((found[-1][1] + 1 if found else 1, point.batch, tokens))
    return found


def iterations_speedup(iterations: Sequence[IterationTrace], costs: CostModel) -> float | None:
    """Modelled speed-up over plain decoding of iterations' own trees at a batch's costs; None without tokens."""
    tokens = sum(len(each.committed_ids) for each in iterations)
    if not tokens:
        return None
    seconds = sum(
        float(costs.verification.seconds(each.verified + 1) + costs.level.seconds(_widths(each)).sum())
        for each in iterations
    )
    return tokens * costs.plain_iteration_s / seconds


def _widths(iteration: IterationTrace) -> np.ndarray:
    """Nodes that each draft level asked about; their mean after the root where no tree was recorded."""
    if iteration.nodes or not iteration.draft_forwards:
        levels = [node.draft_level for node in iteration.nodes if node.draft_level is not None]
        return np.unique(levels, return_counts=True)[1]
    slots = iteration.kv_draft.slot_nodes if iteration.kv_draft else ()
    asked, forwards = sum(node > 0 for node in slots), iteration.draft_forwards
    return np.array([1.0, *[asked / (forwards - 1)] * (forwards - 1)]) if forwards > 1 else np.ones(1)


def best_choice(point: BatchPoint) -> Choice:
    """The faster of a batch size's best chain and best tree."""
    return max((each for each in (point.chain, point.tree) if each), key=lambda choice: choice.speedup)


def crossings(points: tuple[BatchPoint, ...], kind: Literal["chain", "tree"]) -> tuple[float, ...]:
    """Batch sizes at which the best chain or tree becomes slower than plain decoding, or faster again, between those
    known; a model with experts can lose at small batches and win at larger ones.
    """
    known = [(each.batch, choice.speedup) for each in points if (choice := getattr(each, kind)) is not None]
    found = []
    for (before, gain), (batch, after) in pairwise(known):
        if (gain > 1) != (after > 1):
            share = log(gain) / (log(gain) - log(after))
            found.append(exp(log(before) + share * log(batch / before)))
    return tuple(found)


FEWEST_TESTS = 8  # of a rate: a deeper depth or a later rank with fewer says nothing


def typed_acceptance(by_depth: str, by_rank: str = "") -> Rates:
    """Rates as a person types them, `0.8,0.7`."""

    def rates(text: str) -> tuple[float, ...]:
        try:
            return tuple(float(each) for each in text.replace(",", " ").split())
        except ValueError:
            raise SettingsError(f"Acceptance must be rates from 0 to 1 such as 0.8,0.7, not {text!r}.") from None

    return Rates(rates(by_depth), rates(by_rank))


def even_acceptance(mean_length: float, draft_length: int) -> Rates:
    """The one rate at every depth that gives a mean acceptance length, the bonus token counted, at a draft length."""
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        shorter = sum(rate**depth for depth in range(draft_length + 1)) < mean_length
        low, high = (rate, high) if shorter else (low, rate)
    return Rates((high,), deepest=draft_length)


def engine_acceptance(metrics: EngineMetrics, draft_length: int | None = None) -> Rates:
    """Conditional rates by position; or, where an engine tells none, the one rate that gives its mean length.

    `draft_length`: its draft tokens per pass where it does not tell them. Raises `SettingsError` where it tells
    neither.
    """
    rates = []
    for each in metrics.positions:
        if each.conditional is None:
            break
        rates.append(each.conditional)
    if rates:  # where none of a position passes, none of those after it does
        known = max(len(rates), metrics.draft_length or 0) if rates[-1] == 0 else len(rates)
        return Rates(tuple(rates), deepest=known)
    mean, length = metrics.value("mean acceptance length"), metrics.draft_length or draft_length
    if mean is None or not length or not 1 <= mean <= length + 1:
        raise SettingsError(
            f"{metrics.engine} tells neither acceptance by position nor a mean length with its number of draft tokens "
            "here: type the rates, or take those of a run."
        )
    return even_acceptance(mean, length)


def run_acceptance(*runs: RunTrace) -> Rates:
    """What the own trees of runs accepted, by depth of the first child and by rank among siblings in draft order.

    Counted are nodes that the verifier came to and that had a child. A rank's rate is the share of those with so many
    children whose acceptance fell on it, given that it fell on none before. Raises `SettingsError` where nothing was
    drafted or no tree recorded.
    """
    by_depth, by_rank = defaultdict[int, list[bool]](list), defaultdict[int, list[bool]](list)
    for iteration in (each for run in runs for each in run.iterations[run.own_from :]):
        for depth, (siblings, taken) in enumerate(_tests(iteration)):
            by_depth[depth].append(taken == 0)
            for rank in range(siblings if taken is None else taken + 1):
                by_rank[rank].append(taken == rank)
    if not by_depth:
        raise SettingsError("This run drafted nothing, or its trees were not recorded: decode one that drafts.")
    ranks, left = [], 1.0
    for share in _shares(by_rank):
        ranks.append(left * share)
        left *= 1 - share
    return Rates(_shares(by_depth), tuple(ranks) if len(ranks) > 1 else ())


def _shares(tests: dict[int, list[bool]]) -> tuple[float, ...]:
    """Of each depth or rank that passed, as far as there are enough tests; of the first in any case."""
    enough = takewhile(lambda place: not place or len(tests[place]) >= FEWEST_TESTS, sorted(tests))
    return tuple(sum(tests[place]) / len(tests[place]) for place in enough)


def _tests(iteration: IterationTrace) -> list[tuple[int, int | None]]:
    """Of every node that the verifier came to: how many children it had, and which was accepted (None: none)."""
    cut = iteration.final_kind == "none"  # the end of the text hides what would have come
    if not iteration.nodes or iteration.interventions or cut:
        return []
    found: list[tuple[int, int | None]] = []
    for place, node in enumerate((0, *iteration.accepted)):
        children = [c for c in iteration.children(node) if iteration.nodes[c].flat_index is not None]
        if children:
            next_one = iteration.accepted[place] if place < len(iteration.accepted) else None
            found.append((len(children), children.index(next_one) if next_one is not None else None))
    return found
