"""Level by level to the tree of most expected tokens per second, for given costs of passes.

With A(v) the chance that node v is reached and accepted, a tree of n nodes gives 1 + sum A(v) tokens in the time of
its draft levels and of an iteration that verifies n + 1 nodes. The rate of the best tree so far is the one to beat: a
node is worth verifying where A(v) exceeds rate x its time, a level worth drafting where the tokens it promises do.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from decoding.common.cost_model import read_curve
from decoding.drafters.base import Drafter, Growing, ProbabilitySource, deepest_level
from decoding.tree.draft import Draft

MOST_CHILDREN = 8
# One more node costs its share of so many more at most: where passes are padded, the next few cost no more than one.
SHARED_BY = 16


@dataclass(frozen=True)
class TreeCosts:
    """Seconds, each `[node_budget + 1]`.

    Attributes:
        verify_s: an iteration without its drafting, by number of verified nodes, the root not counted.
        node_s: one more node then.
        level_s: a draft level, by width.
    """

    verify_s: np.ndarray
    node_s: np.ndarray
    level_s: np.ndarray


@lru_cache(maxsize=32)
def tree_costs(verify_ms: str, level_ms: str, node_budget: int) -> TreeCosts:
    """Costs by size from two curves in milliseconds, as `read_curve` takes them."""
    sizes, more = np.arange(node_budget + 1), np.arange(1, SHARED_BY + 1)
    curve = read_curve(verify_ms, "verify_ms")
    verify_s = curve.seconds(sizes + 1)
    node_s = ((curve.seconds(sizes[:, None] + 1 + more) - verify_s[:, None]) / more).min(1)
    return TreeCosts(verify_s, node_s, read_curve(level_ms, "level_ms").seconds(sizes))


def acceptance(probs: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Chance of acceptance whose odds are those of `probs` times a factor."""
    raised = factors * probs
    return raised / (1 - probs + raised)


class RateSearch:
    """One tree in the making; scored nodes get their place in it when they are expanded or verified.

    A level not yet drafted promises the mean acceptance by rank of the children scored so far, where each node expanded
    weighs as much as it is likely to be reached.

    Args:
        factors: of the odds of acceptance to those of the draft, `[2]`: for the first child of a node, for the others.
    """

    def __init__(
        self, source: ProbabilitySource, root_token: int, costs: TreeCosts, max_depth: int, factors: np.ndarray
    ):
        self._growing, self._costs = Growing(source, root_token), costs
        self._budget = len(costs.verify_s) - 1
        self._deepest, self._at_deepest = deepest_level(max_depth, source.depth_limit)
        self._factors = np.where(np.arange(MOST_CHILDREN) == 0, *factors)
        self._promise, self._weight = np.zeros(MOST_CHILDREN), 0.0  # summed acceptance by rank, summed weights
        self._spent_s = 0.0
        self._best = np.zeros(0)  # values of the best nodes so far, best first
        self._rate, self._count = self._best_rate()
        self._levels: list[tuple[np.ndarray, ...]] = []  # value, parent, token, probability, id of each node scored

    @property
    def tokens(self) -> float:
        """Expected tokens of the best tree."""
        return 1.0 + float(self._best[: self._count].sum())

    @property
    def seconds(self) -> float:
        """What the best tree costs, its drafting included."""
        return float(self._costs.verify_s[self._count] + self._spent_s)

    def grow(self) -> None:
        """Draft level by level, as wide as it pays and as long as it pays."""
        nodes, values = self._growing.root_frontier(), np.ones(1)
        for depth in range(1, self._deepest + 1):
            values = self._score(nodes, values)
            width = self._paying_width(values) if depth < self._deepest else 0
            if not width:
                return
            values, nodes = values[:width], self._append(self._levels[-1], slice(width))

    def finish(self, drafter: Drafter, state: Any) -> Draft:
        """Verify the best nodes scored, in the number that makes the best rate."""
        tree, verified = self._growing.tree, [np.zeros(1, dtype=np.int64)]
        if self._count:
            level = tuple(np.concatenate(columns) for columns in zip(*self._levels, strict=True))
            values, ids = level[0], level[-1]
            # No child is worth more than its parent, and equals stay in order of levels: what wins is connected.
            winners = np.zeros(len(values), dtype=bool)
            winners[np.argsort(-values, kind="stable")[: self._count]] = True
            self._append(level, winners & (ids < 0))
            verified.append(ids[winners])
        keep = np.zeros(tree.size, dtype=bool)
        keep[np.concatenate(verified)] = True
        expanded = tree.level >= 0
        tree.set_growth(np.flatnonzero(~expanded), "unprofitable")
        tree.set_growth(np.flatnonzero(~expanded & (tree.depths >= self._deepest)), self._at_deepest)
        tree.branching[expanded] = np.bincount(tree.parents[keep][1:], minlength=tree.size)[expanded]
        return self._growing.finish(drafter.law, state, drafter.settings(), keep=keep)

    def _score(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Ask the draft about nodes of these values; note their children and return the values of those, best first."""
        tokens, probs = self._growing.expand(nodes, top=MOST_CHILDREN)
        children = probs.shape[1]
        chances = acceptance(probs, self._factors[:children])
        self._promise[:children] += values @ chances
        self._weight += float(values.sum())
        self._spent_s += self._costs.level_s[len(nodes)]
        scored = (values[:, None] * chances).ravel()
        ranked = np.argsort(-scored, kind="stable")[: self._budget]
        ranked = ranked[scored[ranked] > 0]
        found, ids = scored[ranked], np.full(len(ranked), -1)
        self._levels.append((found, nodes[ranked // children], tokens.ravel()[ranked], probs.ravel()[ranked], ids))
        self._best = -np.sort(-np.concatenate([self._best, found]))[: self._budget]
        self._rate, self._count = self._best_rate()
        return found

    def _paying_width(self, values: np.ndarray) -> int:
        """How many of some nodes, best first, to expand: where promised tokens less rate x time are most; 0 if none."""
        chances = self._promise / self._weight
        # Where the budget is used up a newcomer takes the place of the last one.
        place = self._best[-1] if len(self._best) == self._budget else 0.0
        least = max(self._rate * self._costs.node_s[self._count], place)
        promised = np.maximum(values[values * chances.max() > least, None] * chances - least, 0.0).sum(1)
        if not len(promised):
            return 0
        gains = promised.cumsum() - self._rate * self._costs.level_s[1 : len(promised) + 1]
        width = int(gains.argmax()) + 1
        return width if gains[width - 1] > 0 else 0

    def _best_rate(self) -> tuple[float, int]:
        """Expected tokens per second of the best tree so far, and its number of nodes without the root."""
        verify_s = self._costs.verify_s
        alone = 1 / (verify_s[0] + self._spent_s)
        rates = (1.0 + self._best.cumsum()) / (verify_s[1 : len(self._best) + 1] + self._spent_s)
        last = int(rates.argmax()) if len(rates) else 0
        return (float(rates[last]), last + 1) if len(rates) and rates[last] > alone else (float(alone), 0)

    def _append(self, level: tuple[np.ndarray, ...], which: np.ndarray | slice) -> np.ndarray:
        """Give some scored nodes their place in the tree; returns their ids."""
        _, parents, tokens, probs, ids = level
        ids[which] = self._growing.tree.append(parents[which], tokens[which], probs[which])
        return ids[which]
