"""Linear chain: K tokens in a row, the draft's most likely ones or sampled ones (Leviathan et al.)."""

from dataclasses import dataclass

import numpy as np

from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, Growing
from decoding.drafters.iid_paths import grow_iid
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class LinearDrafter(Drafter):
    """A chain of `length` tokens (K), each the draft's most likely one or, with `sampled`, drawn from its law."""

    breadth = "chain"

    length: int = shared.length(8, paper="DynaTree")
    sampled: bool = shared.sampled(False)

    @property
    def law(self):
        """What verifiers may assume follows from whether tokens are drawn."""
        return "single_path" if self.sampled else "deterministic"

    def draft(self, state, source, root_token, draws) -> Draft:
        growing = Growing(source, root_token)
        if self.sampled:
            grow_iid(growing, [1] * self.length, draws)
        else:
            self._grow_likeliest(growing)
        return growing.finish(self.law, state, self.settings())

    def rule(self, settings) -> RuleTrace:
        return RuleTrace("linear", depth_setting="length")

    def _grow_likeliest(self, growing: Growing) -> None:
        node, limit = np.zeros(1, dtype=np.int64), growing.source.depth_limit
        for _ in range(min(self.length, limit)):
            tokens, probs = growing.expand(node, top=1)
            node = growing.add_best(node, np.ones(1, dtype=np.int64), tokens, probs, room=1)
        growing.tree.set_growth(node, "length_limit" if limit < self.length else "max_depth")
