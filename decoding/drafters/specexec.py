"""SpecExec: parallel search for the most probable tree of N nodes (Svirschevski et al. 2024)."""

from dataclasses import dataclass
from typing import ClassVar

from decoding.common.settings import SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter
from decoding.drafters.candidates import CandidateTree, best_first
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class SpecExecDrafter(Drafter):
    """The `node_budget` (N) nodes of highest path probability within `max_depth`, `batch` of them expanded at a time.

    The first drafted level has depth 1. `children` caps the children of a node (0: no cap; the public code has 16).
    Nodes are ranked by their path probability times `decay` to the power of their depth (the public code has 0.95).
    """

    cost: ClassVar[str] = "one draft forward per batch of nodes"
    breadth = "ranked"

    node_budget: int = shared.node_budget(60, paper="SALF & TALF")
    batch: int = shared.batch(10, paper="SALF & TALF")
    max_depth: int = shared.max_depth(7)
    children: int = setting(
        0, 0, 4096, step=1, offered=(0, 64), group=SEARCH, label="Maximum children",
        help="Most children per node; 0 for no limit.",
    )  # fmt: skip
    decay: float = setting(
        1.0, above=0.0, high=1.0, step=0.01, offered=(0.5, 1.0), group=SEARCH, label="Decay",
        help="Nodes are ranked by path probability times this factor per level.",
    )  # fmt: skip

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth, self.children, self.decay)
        taken, _, _ = best_first(tree, self.batch)
        return tree.finish(self, state, taken)

    def rule(self, settings) -> RuleTrace:
        return RuleTrace(
            "specexec",
            depth_setting="max_depth",
            left_out="outranked",
            value="path",
            decay=self.decay,
            children=self.children,
            children_setting="children" if self.children else "",
        )
