"""Traversal verification: the whole tree from its leaves upwards, depth first (Weng et al. 2025)."""

from collections.abc import Iterator
from dataclasses import dataclass

from decoding.verifiers.base import IID_TREES, SAMPLED_TREES, VerifiedTree, Verifier
from decoding.verifiers.bottom_up import BottomUp, Stop, child_weight
from decoding.verifiers.specinfer_wor import without


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
