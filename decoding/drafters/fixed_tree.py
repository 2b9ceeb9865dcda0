"""Fixed tree: depth D, B children per node, pruned by path probability (DynaTree's earlier version; its baseline)."""

from dataclasses import dataclass

import numpy as np

from decoding.drafters.base import Draft, Drafter, Growing
from decoding.errors import require


def check_tree_limits(drafter) -> None:
    """Check the settings that fixed and adaptive trees share."""
    require(1 <= drafter.max_depth <= 32, f"max_depth must be from 1 to 32, not {drafter.max_depth}.")
    require(1 <= drafter.node_budget <= 4096, f"node_budget (N_max) must be from 1 to 4096, not {drafter.node_budget}.")
    require(
        0 <= drafter.prune_probability < 1,
        f"prune_probability (tau) must be at least 0 and below 1, not {drafter.prune_probability}.",
    )


@dataclass(frozen=True)
class FixedTreeDrafter(Drafter):
    """Every node gets the draft's `branching` best children until `max_depth`.

    Depths are the paper's: the first drafted token has depth 0. With `branch_first_level` off, the first level is the
    draft's top token alone, as in the paper. Nodes whose path probability is below `prune_probability` (tau) are not
    expanded, and are removed before verification.
    """

    max_depth: int = 8
    branching: int = 3
    prune_probability: float = 0.1
    node_budget: int = 256
    branch_first_level: bool = False

    def __post_init__(self):
        check_tree_limits(self)
        require(1 <= self.branching <= 16, f"branching (B) must be from 1 to 16, not {self.branching}.")

    def draft(self, state, source, root_token, draws) -> Draft:
        growing = Growing(source, root_token)
        tree, frontier = growing.tree, growing.root_frontier()
        while len(frontier):
            at_root = frontier[0] == 0
            tokens, probs = growing.expand(frontier, top=self.branching)
            width = 1 if at_root and not self.branch_first_level else self.branching
            new = growing.add_best(
                frontier, np.full(len(frontier), width), tokens, probs, room=self.node_budget - (tree.size - 1)
            )
            frontier = self._expandable(tree, new, source.depth_limit)
        return growing.finish(self.law, state, self.settings(), self.prune_probability)

    def _expandable(self, tree, new: np.ndarray, depth_limit: int) -> np.ndarray:
        """Nodes of the new level to expand; notes on every other why not."""
        if not len(new):
            return new
        depth = int(tree.depths[new[0]])
        if depth - 1 >= self.max_depth or depth >= depth_limit or tree.size > self.node_budget:
            by_depth = "max_depth" if depth - 1 >= self.max_depth else "length_limit"
            budget = depth - 1 < self.max_depth and depth < depth_limit
            tree.set_growth(new, "budget" if budget else by_depth)
            return new[:0]
        low = tree.path_probs[new] < self.prune_probability
        tree.set_growth(new[low], "below_threshold")
        return new[~low]
