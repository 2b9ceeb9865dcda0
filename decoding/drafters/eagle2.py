"""EAGLE-2: beam search with the draft, then the N best nodes of all that it scored (Li et al. 2024)."""

from dataclasses import dataclass

import numpy as np

from decoding.common.settings import SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter
from decoding.drafters.candidates import CandidateTree
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class Eagle2Drafter(Drafter):
    """Every level expands the `beam_width` (k) best nodes of the level above, k children each, down to `max_depth`.

    The first level, the k best children of the root, has depth 1. Of all k + (max_depth - 1) k^2 children the
    `node_budget` (N) of highest path probability are verified.
    """

    breadth = "ranked"

    node_budget: int = shared.node_budget(60, paper="SALF & TALF")
    beam_width: int = setting(
        10, 1, 256, step=1, offered=(1, 32), group=SEARCH, label="Beam width", symbol="k", paper="SALF & TALF",
        help="Nodes expanded per level, and children of each.",
    )  # fmt: skip
    max_depth: int = shared.max_depth(7, paper="SALF & TALF")

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth, children=self.beam_width)
        levels = [tree.first_level()]
        for _ in range(1, tree.deepest):
            level = tree.expand(levels[-1][: self.beam_width])
            levels.append(tree.best(level, len(level)))
        return tree.finish(self, state, np.concatenate(levels), "beam")

    def rule(self, settings) -> RuleTrace:
        return RuleTrace(
            "eagle2",
            depth_setting="max_depth",
            left_out="outranked",
            value="path",
            children=self.beam_width,
            children_setting="beam_width",
        )
