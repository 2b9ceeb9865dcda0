"""Bottom-up verifiers: block (Sun et al. 2024) and traversal (Weng et al. 2025).

Nodes are tested from the leaves upwards; the first that passes ends the path.

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
from decoding.verifiers.base import IID_TREES, SAMPLED_TREES, Decision, Test, Verification, VerifiedTree, Verifier
from decoding.verifiers.specinfer import without
from decoding.verifiers.top_down import positive_part


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


def block_chain(tree: VerifiedTree) -> Iterator[Stop]:
    """Tests of the nodes a_L, ..., a_1, root of the first path; needs no draws.

    With w_i = min(1, w_{i-1} target/draft) and S_i = sum (w_i target - draft)+ after node i, it is kept with
    probability S_i / (S_i + 1 - w_i), the last one with w_L. Keeping it with w_i, as one paper words it, is biased.
    """
    path, weights, distributions = [0], [1.0], [tree.target_distribution(0)]
    while tree.entries[path[-1]]:
        child = tree.entries[path[-1]][0]
        weights.append(
            child_weight(weights[-1], distributions[-1], tree.draft_distribution(path[-1]), tree.tokens[child])
        )
        path.append(child)
        distributions.append(tree.target_distribution(child))
    yield Stop(path[-1], weights[-1] if len(path) > 1 else 1.0, distributions[-1], None)
    for place in range(len(path) - 2, -1, -1):
        weight, probs = weights[place], distributions[place]
        left = (weight * probs - tree.draft_distribution(path[place])).clamp(min=0)
        mass = float(left.sum())
        passes = 1.0 if place == 0 else (mass / (mass + (1 - weight)) if mass > 0 else 0.0)
        yield Stop(path[place], passes, positive_part(left, probs), None)


@dataclass(frozen=True)
class BlockVerifier(Verifier):
    """Keeps the longest prefix of the first path that the weights of the whole block allow."""

    name = "block"
    label = "Block"
    summary = "Tests the first path from its end upwards; a weak token in the middle does not have to end it."
    how = "tests the first path from its end upwards, so a child is tested once all below it was rejected."
    paper = "Sun et al. 2024 (block verification)"
    lossless_for = SAMPLED_TREES
    tests_first_path = True

    def decide(self, tree: VerifiedTree) -> BottomUp:
        return BottomUp(tree, block_chain(tree))


class _Place:
    """A node on the way down: its weight, both distributions as they are now, and the children still to be tested."""

    def __init__(self, tree: VerifiedTree, node: int, weight: float, pending: list[int]):
        self.node, self.weight = node, weight
        self.target = tree.target_distribution(node)
        self.pending = pending
        if pending:  # nothing was drawn below a leaf
            self.draft = tree.draft_distribution(node)

    def reject(self, token: int, replaced: bool) -> None:
        """A child's whole subtree was rejected: what remains to be produced here is (weight * target - draft)+."""
        left = (self.weight * self.target - self.draft).clamp(min=0)
        mass = float(left.sum())
        if mass > 0:
            self.target = left / mass
        self.weight = mass / (mass + (1 - self.weight)) if mass > 0 else 0.0
        if not replaced:
            self.draft = without(self.draft, token)


def traversal_chain(tree: VerifiedTree, replaced: bool) -> Iterator[Stop]:
    """Tests of all nodes in depth-first post-order, children in draw order; needs no draws.

    Args:
        replaced: the children were drawn with replacement: the draft's distribution stays and repeats count as further
            rejections. Otherwise a rejected child leaves the draft's distribution and repeats are dropped.
    """

    def pending(node: int) -> list[int]:
        entries = tree.entries[node]
        return list(entries) if replaced else list(dict.fromkeys(entries))

    visited: set[int] = set()
    way = [_Place(tree, 0, 1.0, pending(0))]
    while True:
        here = way[-1]
        if here.pending:
            child = here.pending.pop(0)
            # A repeat finds nothing left below it: its subtree was tested when it came first.
            below = [] if child in visited else pending(child)
            visited.add(child)
            weight = child_weight(here.weight, here.target, here.draft, tree.tokens[child])
            way.append(_Place(tree, child, weight, below))
            continue
        if len(way) == 1:
            yield Stop(0, 1.0, here.target, None)
            return
        way.pop()
        parent = way[-1]
        if here.weight < 1:
            parent.reject(tree.tokens[here.node], replaced)
        yield Stop(here.node, here.weight, here.target, parent.target)
        if here.weight >= 1:
            return


@dataclass(frozen=True)
class TraversalVerifier(Verifier):
    """For independent draws: shared prefixes are merged, and the list of children keeps every draw."""

    name = "traversal"
    label = "Traversal"
    summary = "Tests the whole tree from its leaves upwards; a token drawn twice is tested twice."
    how = "tests a child once all below it was rejected; a draw that came twice is rejected twice."
    paper = "Weng et al. 2025, with multiplicities"
    lossless_for = IID_TREES

    def decide(self, tree: VerifiedTree) -> BottomUp:
        return BottomUp(tree, traversal_chain(tree, replaced=True))


@dataclass(frozen=True)
class TraversalWithoutReplacementVerifier(Verifier):
    """For draws without replacement; repeats of independent draws are dropped, as in the published code.

    Every child is taken to be drawn from what is left of the draft's distribution after those before it. Where nothing
    is left the drafters here draw no more. A tree with a child of draft probability 0, of a drafter that goes on
    uniformly over the other tokens, stays lossless, but such a child and all below it are never accepted: with the
    draft at (1, 0, 0), the target at (.6, .3, .1) and two children a node to depth 2 that is 1.96 expected tokens,
    where testing them against the uniform distribution has 2.78.
    """

    name = "traversal_wor"
    label = "Traversal, no replacement"
    summary = "Tests the whole tree from its leaves upwards; a rejected child is removed from the draft's distribution."
    how = "tests a child once all below it was rejected; a rejected one leaves the draft's distribution."
    paper = "Weng et al. 2025"
    lossless_for = SAMPLED_TREES

    def decide(self, tree: VerifiedTree) -> BottomUp:
        return BottomUp(tree, traversal_chain(tree, replaced=False), replaced=False)
