"""SALF: optimal tree search that stops at low further gains (Algorithm 2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from decoding.drafters.base import Draft, Drafter
from decoding.drafters.best_first import best_first, check_batch
from decoding.drafters.candidates import CandidateTree, check_gain_threshold, check_search_limits


@dataclass(frozen=True)
class SalfDrafter(Drafter):
    """Best-first search that stops when the next `batch` (B) nodes sum to less than `gain_threshold` (th).

    After an early stop the tree holds what had left the queue by then, the batch that was not worth a forward
    included: fewer than `node_budget` (N) nodes as a rule. With `top_up` it holds the N best of those and of the queue,
    which the draft has scored already. The first drafted level has depth 1; the paper has no depth limit.
    """

    cost: ClassVar[str] = "one draft forward per batch of nodes"

    node_budget: int = 60
    batch: int = 10
    gain_threshold: float = 0.6
    top_up: bool = False
    max_depth: int = 32

    def __post_init__(self):
        check_search_limits(self)
        check_batch(self)
        check_gain_threshold(self)

    def draft(self, state, source, root_token, draws) -> Draft:
        tree = CandidateTree(source, root_token, self.node_budget, self.max_depth)
        found = best_first(tree, self.batch, self.gain_threshold)
        placed = np.concatenate([found.taken, found.queue]) if self.top_up else found.taken
        return tree.finish(self, state, placed, "early_stop" if found.early else "budget")
