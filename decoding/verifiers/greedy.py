"""Greedy verification: walk down while a child is the target's most likely token (DynaTree, SelectCommit)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from decoding.sampling.draws import Draws
from decoding.verifiers.base import Decision, Test, Verification, VerifiedTree, Verifier


class Greedy(Decision):
    """Takes no draws: there is one way to walk."""

    @cached_property
    def acceptance_probability(self) -> np.ndarray:
        accepted = {0, *self.walk(None).accepted}
        return np.array([float(node in accepted) for node in self.tree.order])

    def walk(self, draws: Draws | None) -> Verification:
        tree, node, accepted, tests = self.tree, 0, [], []
        while True:
            wanted, found = tree.preferred[tree.row_of[node]], None
            for child in tree.entries[node]:
                matches = tree.tokens[child] == wanted
                tests.append(Test(node, child, tree.tokens[child], float(matches), None, matches))
                if matches:
                    found = child
            if found is None:
                break
            accepted.append(found)
            node = found
        tests.append(Test(node, None, wanted, 1.0, None, True, kind="choice"))
        return self.verification(tuple(accepted), wanted, tests)


@dataclass(frozen=True)
class GreedyVerifier(Verifier):
    """Keeps the longest path whose every token is the target's argmax; takes no draws."""

    name = "greedy"
    label = "Greedy"
    summary = "Accepts the longest path on which every token is the target's most likely one."
    how = "takes the child that is the target's most likely token."
    paper = "DynaTree, SelectCommit"
    lossless_for = ("none", "deterministic", "single_path", "iid", "without_replacement")
    greedy_only = True

    def decide(self, tree: VerifiedTree) -> Greedy:
        return Greedy(tree)
