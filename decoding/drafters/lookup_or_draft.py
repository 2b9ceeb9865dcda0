"""Prompt lookup where the text repeats itself, and a chain of the draft model elsewhere."""

from dataclasses import dataclass

import numpy as np

from decoding.drafters import shared_settings as shared
from decoding.drafters.base import TreeBuilder, deepest_level
from decoding.drafters.prompt_lookup import PromptLookupDrafter
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class LookupOrDraftDrafter(PromptLookupDrafter):
    """Copies what followed at least `shortest` tokens earlier in the text, else asks the draft model for `length`."""

    uses_draft_model = True
    cost = "one draft forward per token, none where the text repeats itself"
    traced = RuleTrace("lookup_or_draft", depth_setting="length")

    shortest: int = shared.shortest(2)
    latest: bool = shared.latest(True)
    length: int = shared.length(5)

    def draft(self, state, source, root_token, draws) -> Draft:
        builder = TreeBuilder(source, root_token)
        if followed := self.found(source.prefix):
            self.copy(builder, followed)
            return builder.finish(self.draft_sampling, state, self.settings())
        node = builder.root_frontier()
        deepest, reason = deepest_level(self.length, source.depth_limit)
        for _ in range(deepest):
            tokens, probs = builder.expand(node, top=1)
            node = builder.add_best(node, np.ones(1, dtype=np.int64), tokens, probs, room=1)
        builder.tree.set_stop_reason(node, reason)
        return builder.finish(self.draft_sampling, state, self.settings())
