"""The frame of bottom-up verifiers: nodes are tested from the leaves upwards; the first that passes ends the path.

Everything but the coin tosses is fixed by the tree, so the chain of tests is computed once: with h_i the probability
of the i-th test, E[tau + 1 | tree] = sum_i prod_{j<i} (1 - h_j) h_i (depth_i + 1).
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import tee

import numpy as np
from torch import Tensor

from decoding.sampling.draws import Draws
from decoding.verifiers.base import Decision, Test, Verification, VerifiedTree


@dataclass(frozen=True)
class Stop:
    """One test of the chain."""

    node: int  # the node tested; the root passes always and is the last
    passes: float  # probability that its path is kept
    final_distribution: Tensor  # the distribution of the final token if it is, `[vocab_size]`, not normalised
    residual: Tensor | None  # what a rejection leaves at the parent, not normalised; None where nothing changes there


def child_weight(weight: float, target: Tensor, draft: Tensor, token: int) -> float:
    """min(1, weight * target / draft): the weight of a child below a node of this weight."""
    drafted = float(draft[token])
    return min(1.0, weight * float(target[token]) / drafted) if drafted > 0 else 0.0


class BottomUp(Decision):
    """Plays a chain of tests.

    Args:
        replaced: a rejected child stays in the draft's distribution; else it leaves it, and repeats are dropped.
    """

    def __init__(self, tree: VerifiedTree, chain: Iterator[Stop], replaced: bool = True):
        super().__init__(tree)
        self.replaced = replaced
        (self._chain,) = tee(chain, 1)

    def stops(self) -> Iterator[Stop]:
        """The tests in order, each computed when first needed."""
        return copy(self._chain)

    def walk(self, draws: Draws) -> Verification:
        tests: list[Test] = []
        for stop in self.stops():
            node, chance = stop.node, stop.passes
            if node == 0:
                break
            passed = draws.accept(chance)
            left, where = None if passed else stop.residual, (self.tree.parents[node], node, self.tree.tokens[node])
            tests.append(Test(*where, chance, draws.last_uniform, passed, weight=chance, residual=left))
            if passed:
                break
        token = draws.choose(stop.final_distribution)
        chance = float(stop.final_distribution[token] / stop.final_distribution.sum())
        tests.append(Test(stop.node, None, token, chance, draws.last_uniform, True, kind="choice"))
        return self.verification(self.tree.path(stop.node), token, tests)

    @cached_property
    def acceptance_probability(self) -> np.ndarray:
        kept, left = np.zeros(len(self.tree.order)), 1.0
        for stop in self.stops():
            kept[self.tree.row_of[stop.node]] += left * stop.passes
            left *= 1 - stop.passes
        # A node is on the path where the path ends at it or below it.
        for row in range(len(kept) - 1, 0, -1):
            kept[self.tree.row_of[self.tree.parents[self.tree.order[row]]]] += kept[row]
        return kept
