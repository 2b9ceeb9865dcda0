"""Labels of the selector: exact expected tokens E[tau + 1 | tree] of every action under every verifier.

Verifiers are never sampled: for solvers it is the sum over nodes of the chance to reach them (Eq. 3), for traversal
the closed form of its chain of tests. What is left to chance is which tree was drawn, hence the mean over some.
"""

from dataclasses import dataclass

import numpy as np

from decoding.optional_torch import Tensor, torch
from decoding.selector.actions import MOST_PATHS
from decoding.training.selector_branching import branching, lone_chance
from decoding.training.selector_chain import traversal_tokens
from decoding.training.selector_trees import SuperTrees

# One selector is trained for each.
VERIFIER_NAMES: tuple[str, ...] = ("nss", "naive_tree", "spectr", "specinfer", "khisti", "traversal")


@dataclass(frozen=True)
class RootLaws:
    """Super-trees below a root with the laws of both models.

    Attributes:
        target: the target's laws under one sampling, `[num_rows, vocab_size]` in float64.
        draft: the laws that tokens were drawn from, the same shape and dtype.
    """

    trees: SuperTrees
    target: Tensor
    draft: Tensor

    def expected(self, verifier: str) -> np.ndarray:
        """Mean over the super-trees of E[tau + 1 | tree] of each action, `[paths, trunk, branch]` as `ACTIONS`."""
        tokens = traversal_tokens(self) if verifier == "traversal" else self._top_down_tokens(verifier)
        return tokens.mean(0)

    def at(self, laws: Tensor, rows: np.ndarray, tokens: np.ndarray) -> Tensor:
        """What laws give some tokens, in the shape of `rows`, on the CPU."""
        return laws[index(laws, rows), index(laws, tokens)].cpu()

    def _top_down_tokens(self, verifier: str) -> np.ndarray:
        """Eq. 3 for every action of every super-tree, `[trees, paths, trunk, branch]`."""
        trees = self.trees
        trunk, paths = (
            lone_chance(verifier, self.at(self.target, *place), self.at(self.draft, *place)).numpy()
            for place in ((trees.trunk[:, :-1], trees.trunk_tokens), (trees.rows, trees.tokens))
        )
        # [trees, points, K, path, depth]: the chance of a path's token at a node depends on the first K paths.
        chances = np.repeat(paths[:, :, None], MOST_PATHS, 2)
        for rows, tokens, source, place in trees.lists.by_length:
            nodes = index(self.target, rows)
            found = branching(verifier, self.target[nodes], self.draft[nodes], index(self.target, tokens))
            chances.reshape(-1)[place] = found.cpu().numpy().reshape(-1)[source]
        below = np.where(trees.counted, chances.cumprod(-1), 0.0).sum(3).cumsum(-1)  # [trees, points, K, branch]
        subtree = 1.0 + np.concatenate([np.zeros_like(below[..., :1]), below], -1)
        reached = np.concatenate([np.ones_like(trunk[:, :1]), trunk.cumprod(1)], 1)
        above = reached.cumsum(1) - reached
        tokens = above[:, :, None, None] + reached[:, :, None, None] * subtree
        return tokens.swapaxes(1, 2)


def index(like: Tensor, numbers: np.ndarray) -> Tensor:
    """Numbers to index a tensor with, on its device."""
    return torch.from_numpy(numbers).to(like.device)
