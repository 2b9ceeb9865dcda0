"""Naive speculative sampling on the first path that was drawn (Leviathan et al. 2023; Chen et al. 2023)."""

from dataclasses import dataclass

from decoding.verifiers.base import SAMPLED_LAWS
from decoding.verifiers.naive_tree import NaiveSolver
from decoding.verifiers.top_down import TopDown, TopDownVerifier
from decoding.verifiers.verified_tree import VerifiedTree


@dataclass(frozen=True)
class NaiveVerifier(TopDownVerifier):
    """Sees only the first child drawn at each node and stops at the first rejection."""

    name = "naive"
    label = "Naive"
    summary = "Tests the tokens of the first path one by one and stops at the first rejection."
    paper = "Leviathan et al. 2023, Chen et al. 2023"
    lossless_for = SAMPLED_LAWS

    def solver(self):
        return NaiveSolver

    def decide(self, tree: VerifiedTree) -> TopDown:
        return TopDown(tree, NaiveSolver, {}, first_child_only=True)
