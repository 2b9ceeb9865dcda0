"""How the tree of one iteration grows, as numbers that a device can follow without asking the host.

A drafter has a rule if its tree depends only on what the draft says about the levels before. It is the same tree, node
by node and reason by reason, that the drafter itself builds on the host.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from decoding.drafters import Eagle2Drafter
from decoding.drafters.base import Drafter, deepest_level
from decoding.drafters.levels import REASONS, WIDTHS, LevelDrafter, LevelRule
from decoding.trace.records import Growth
from decoding.tree.draft import GROWTH_CODE


@dataclass(frozen=True)
class BeamRule:
    """How a beam grows: every level asks about the `top` best nodes of the level above, the best of all stay.

    What it has in common with `LevelRule` goes by the same names.

    Attributes:
        node_budget: nodes verified at most.
        most_forwards: draft forwards where no length limit is near, for which there has to be room.
        at_deepest: why nodes of the last level are not expanded.
    """

    top: int
    node_budget: int
    most_forwards: int
    forwards: int
    at_deepest: Growth

    certain = True
    prune_probability = confidence_low = confidence_high = 0.0
    budget_reason = np.zeros(REASONS, dtype=np.int64)
    table = np.zeros((0, REASONS + WIDTHS))

    @property
    def codes(self) -> np.ndarray:
        """Why a node that stays was not expanded: it is at the deepest level, or it was not in the beam."""
        return np.array([GROWTH_CODE[self.at_deepest]] + [GROWTH_CODE["beam"]] * (REASONS - 1))

    @property
    def nodes(self) -> int:
        """Nodes drafted at most: those asked about, and those that stay."""
        return self.top * (self.most_forwards - 1) + self.node_budget

    @property
    def candidates(self) -> int:
        """Children scored at most."""
        return self.top + (self.most_forwards - 1) * self.top**2

    @property
    def level_sizes(self) -> list[int]:
        """Nodes asked about in each forward."""
        return [1] + [self.top] * (self.forwards - 1)

    @property
    def tree_size(self) -> int:
        """Nodes to verify, the root included."""
        return 1 + min(self.node_budget, self.top * sum(self.level_sizes))


Rule = LevelRule | BeamRule


def device_rule(drafter: Drafter, state: Any, depth_limit: int) -> Rule | None:
    """The rule of a drafter in its state, None if it has none; `depth_limit` is 1 or more."""
    if isinstance(drafter, LevelDrafter) and drafter.law == "deterministic":
        return drafter.rule_in(state, depth_limit)
    if not isinstance(drafter, Eagle2Drafter):
        return None
    forwards, at_deepest = deepest_level(drafter.max_depth, depth_limit)
    return BeamRule(drafter.beam_width, drafter.node_budget, drafter.max_depth, forwards, at_deepest)
