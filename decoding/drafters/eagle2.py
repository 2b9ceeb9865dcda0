"""EAGLE-2: beam search with the draft, then the N best nodes of all that it scored (Li et al. 2024)."""

from dataclasses import dataclass

import numpy as np

from decoding.drafters.base import Draft, Drafter
from decoding.drafters.candidates import CandidateTree, check_search_limits
from decoding.errors import require


@dataclass(frozen=True)
class Eagle2Drafter(Drafter):
    """Every level expands the `beam_width` (k) best nodes of the level above, k children each, down to `max_depth`.

    The first level, the k best children of the root, has depth 1. Of all k + (max_depth - 1) k^2 children the
    `node_budget` (N) of highest path probability are verified.
    """

    node_budget: int = 60
    beam_width: int = 10
    max_depth: int = 7

    def __post_init__(self):
        check_search_limits(self)
        require(1 <= self.beam_width <= 256, f"beam_width (k) must be from 1 to 256, not {self.beam_width}.")

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth, children=self.beam_width)
        levels = [tree.first_level()]
        for _ in range(1, tree.deepest):
            levels.append(tree.expand(levels[-1], slice(self.beam_width)))
        return tree.finish(self, state, np.concatenate(levels), "budget")
