"""Linear chain: K tokens in a row, the draft's most likely ones or sampled ones (Leviathan et al.)."""

from dataclasses import dataclass

import numpy as np

from decoding.drafters import shared_settings as shared
from decoding.drafters.base import TreeBuilder
from decoding.drafters.iid_paths import grow_iid
from decoding.drafters.levels import WIDTHS, LevelDrafter, LevelRule, where
from decoding.trace.records import DraftSampling, RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class LinearDrafter(LevelDrafter):
    """A chain of `length` tokens (K), each the draft's most likely one or, with `sampled`, one that it draws."""

    breadth = "chain"
    traced = RuleTrace("linear", depth_setting="length")

    length: int = shared.length(8, paper="DynaTree")
    sampled: bool = shared.sampled(False)

    @property
    def draft_sampling(self) -> DraftSampling:
        return "single_path" if self.sampled else "deterministic"

    def draft(self, state, source, root_token, draws) -> Draft:
        if not self.sampled:
            return super().draft(state, source, root_token, draws)
        builder = TreeBuilder(source, root_token)
        grow_iid(builder, [1] * self.length, draws)
        return builder.finish(self.draft_sampling, state, self.settings())

    def level_rule(self, settings, depth_limit) -> LevelRule:
        depths = np.arange(1, min(self.length, depth_limit) + 1)
        return LevelRule(
            top=1,
            node_budget=self.length,
            widths=np.ones((len(depths), WIDTHS), dtype=np.int64),
            thresholds={"max_depth": where(depths >= self.length), "length_limit": where(depths >= depth_limit)},
        )
