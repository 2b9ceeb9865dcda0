"""Fixed tree: depth D, B children per node, pruned by path probability (DynaTree's earlier version; its baseline)."""

from dataclasses import dataclass, replace

import numpy as np

from decoding.common.settings import BREADTH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.levels import NEVER, WIDTHS, LevelDrafter, LevelRule, where, widths_by_level
from decoding.trace.records import RuleTrace


@dataclass(frozen=True)
class FixedTreeDrafter(LevelDrafter):
    """Every node gets the draft's `branching` best children until `max_depth`.

    Depths are the paper's: the first drafted token has depth 0. With `branch_first_level` off, the first level is the
    draft's top token alone, as in the paper. Nodes whose path probability is below `prune_probability` (tau) are not
    expanded, and are removed before verification unless `verify_pruned`.
    """

    traced = RuleTrace(
        "fixed_tree",
        depth_setting="max_depth",
        first_depth=0,
        threshold_setting="prune_probability",
        breadth_setting="branching",
        left_out="improbable",
    )

    max_depth: int = shared.max_depth(8, paper="DynaTree")
    branching: int = setting(
        3, 1, 16, step=1, group=BREADTH, label="Children per node", symbol="B", paper="DynaTree",
        help="Every node gets this many children.",
    )  # fmt: skip
    prune_probability: float = shared.prune_probability(0.1, paper="DynaTree")
    node_budget: int = shared.node_budget(256, paper="DynaTree")
    branch_first_level: bool = shared.branch_first_level(False, paper="DynaTree")
    verify_pruned: bool = shared.verify_pruned(False, paper="DynaTree")

    optional = ("verify_pruned",)

    def rule(self, settings) -> RuleTrace:
        return replace(self.traced, left_out=None) if self.verify_pruned else self.traced

    def level_rule(self, settings, depth_limit) -> LevelRule:
        depths = np.arange(1, min(self.max_depth + 1, depth_limit) + 1)
        return LevelRule(
            top=self.branching,
            node_budget=self.node_budget,
            widths=widths_by_level((self.branching,) * WIDTHS, len(depths), self.branch_first_level),
            thresholds={
                "max_depth": where(depths > self.max_depth),
                "length_limit": where(depths >= depth_limit),
                "budget": NEVER,
                "below_threshold": self.prune_probability,
            },
            prune_probability=0.0 if self.verify_pruned else self.prune_probability,
        )
