"""SALF: optimal tree search that stops at low further gains (Algorithm 2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from decoding.common.settings import SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter
from decoding.drafters.candidates import CandidateTree, best_first
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class SalfDrafter(Drafter):
    """Best-first search that stops when the next `batch` (B) nodes sum to less than `gain_threshold` (th).

    After an early stop the tree holds what had left the queue by then, the batch that was not worth a forward
    included: fewer than `node_budget` (N) nodes as a rule. With `top_up` it holds the N best of those and of the queue,
    which the draft has scored already. The first drafted level has depth 1; the paper has no depth limit.
    """

    cost: ClassVar[str] = "one draft forward per batch of nodes"
    breadth = "ranked"
    traced = RuleTrace("salf", depth_setting="max_depth", left_out="outranked", value="path")

    node_budget: int = shared.node_budget(60, paper="SALF & TALF")
    batch: int = shared.batch(10, paper="SALF & TALF")
    gain_threshold: float = shared.gain_threshold(0.6, paper="SALF & TALF")
    top_up: bool = setting(
        False, group=SEARCH, label="Top up",
        help="After an early stop, the remaining budget goes to the best nodes already scored.",
    )  # fmt: skip
    max_depth: int = shared.max_depth(32)

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth)
        taken, queue, early = best_first(tree, self.batch, self.gain_threshold)
        placed = np.concatenate([taken, queue]) if self.top_up else taken
        return tree.finish(self, state, placed, "low_promise" if early else "outranked")
