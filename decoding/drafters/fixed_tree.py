"""Fixed tree: depth D, B children per node, pruned by path probability (DynaTree's earlier version; its baseline)."""

from dataclasses import dataclass

import numpy as np

from decoding.common.settings import BREADTH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, Growing
from decoding.trace.records import Breadth, RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class FixedTreeDrafter(Drafter):
    """Every node gets the draft's `branching` best children until `max_depth`.

    Depths are the paper's: the first drafted token has depth 0. With `branch_first_level` off, the first level is the
    draft's top token alone, as in the paper. Nodes whose path probability is below `prune_probability` (tau) are not
    expanded, and are removed before verification.
    """

    max_depth: int = shared.max_depth(8, paper="DynaTree")
    branching: int = setting(
        3, 1, 16, step=1, group=BREADTH, label="Children per node", symbol="B", paper="DynaTree",
        help="Every node gets this many children.",
    )  # fmt: skip
    prune_probability: float = shared.prune_probability(0.1, paper="DynaTree")
    node_budget: int = shared.node_budget(256, paper="DynaTree")
    branch_first_level: bool = shared.branch_first_level(False, paper="DynaTree")

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

    def breadths(self, draft: Draft) -> list[Breadth | None]:
        told = super().breadths(draft)
        return told if self.branch_first_level or told[0] is None else ["first_level", *told[1:]]

    def rule(self, settings) -> RuleTrace:
        return RuleTrace(
            "fixed_tree",
            depth_setting="max_depth",
            first_depth=0,
            threshold_setting="prune_probability",
            breadth_setting="branching",
            left_out="improbable",
        )

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
