"""Block verification of the first path that was drawn, from its end upwards (Sun et al. 2024)."""

from collections.abc import Iterator
from dataclasses import dataclass

from decoding.verifiers.base import SAMPLED_TREES, VerifiedTree, Verifier
from decoding.verifiers.bottom_up import BottomUp, Stop, child_weight
from decoding.verifiers.top_down import positive_part


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
