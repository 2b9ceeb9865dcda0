"""OPT-Tree: the most probable tree of N nodes, level by level until a level adds too little (Wang et al. 2025)."""

from dataclasses import dataclass

import numpy as np

from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter
from decoding.drafters.candidates import CandidateTree
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class OptTreeDrafter(Drafter):
    """Levels are added while the summed value of the `node_budget` (N) best nodes grows by more than `gain_threshold`.

    The value of a node is its path probability. The next level is drafted below those nodes of the last one that are
    among the N best so far; below the others nothing could be, so the tree is the one that expanding all N best nodes
    of the level gives. The first drafted level has depth 1 and is held against a sum of 0.
    """

    breadth = "ranked"
    traced = RuleTrace("opt_tree", depth_setting="max_depth", left_out="outranked", value="path")

    node_budget: int = shared.node_budget(60)
    gain_threshold: float = shared.gain_threshold(0.2)
    max_depth: int = shared.max_depth(8)

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth)
        nodes, before = tree.first_level(), 0.0
        for depth in range(1, tree.deepest):
            least, values = tree.bar(nodes), tree.values[nodes]
            grows, mass = (tree.depths[nodes] == depth) & (values > least), values.sum()
            if not grows.any():
                break
            if mass - before <= self.gain_threshold:
                return tree.finish(self, state, nodes, "low_gain")
            level = tree.expand(nodes[grows], least)
            nodes, before = tree.best(np.concatenate([nodes, level]), self.node_budget), mass
        return tree.finish(self, state, nodes)
