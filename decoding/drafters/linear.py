"""Linear chain: the draft's K most likely tokens in a row (Leviathan et al.; the papers' linear baseline)."""

from dataclasses import dataclass

import numpy as np

from decoding.drafters.base import Draft, Drafter, Growing
from decoding.errors import require


@dataclass(frozen=True)
class LinearDrafter(Drafter):
    """A chain of `length` tokens (K)."""

    length: int = 8

    def __post_init__(self):
        require(1 <= self.length <= 64, f"length (K) must be from 1 to 64, not {self.length}.")

    def draft(self, state, source, root_token, draws) -> Draft:
        growing = Growing(source, root_token)
        node = np.zeros(1, dtype=np.int64)
        for _ in range(min(self.length, source.depth_limit)):
            tokens, probs = growing.expand(node, top=1)
            node = growing.add_best(node, np.ones(1, dtype=np.int64), tokens, probs, room=1)
        reached_limit = source.depth_limit < self.length
        growing.tree.set_growth(node, "length_limit" if reached_limit else "max_depth")
        return growing.finish(self.law, state, self.settings())
