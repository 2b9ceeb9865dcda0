"""SpecExec: parallel search for the most probable tree of N nodes (Svirschevski et al. 2024)."""

from dataclasses import dataclass
from typing import ClassVar

from decoding.drafters.base import Draft, Drafter
from decoding.drafters.best_first import best_first, check_batch
from decoding.drafters.candidates import CandidateTree, check_search_limits
from decoding.errors import require


@dataclass(frozen=True)
class SpecExecDrafter(Drafter):
    """The `node_budget` (N) nodes of highest path probability within `max_depth`, `batch` of them expanded at a time.

    The first drafted level has depth 1. `children` caps the children of a node (0: no cap; the public code has 16).
    Nodes are ranked by their path probability times `decay` to the power of their depth (the public code has 0.95).
    """

    cost: ClassVar[str] = "one draft forward per batch of nodes"

    node_budget: int = 60
    batch: int = 10
    max_depth: int = 7
    children: int = 0
    decay: float = 1.0

    def __post_init__(self):
        check_search_limits(self)
        check_batch(self)
        require(0 <= self.children <= 4096, f"children must be from 0 (no cap) to 4096, not {self.children}.")
        require(0 < self.decay <= 1, f"decay must be above 0 and at most 1, not {self.decay}.")

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth, self.children, self.decay)
        return tree.finish(self, state, best_first(tree, self.batch).taken, "budget")
