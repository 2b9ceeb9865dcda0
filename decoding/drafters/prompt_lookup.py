"""Prompt lookup: what followed the last tokens where they stood earlier in the text, as one chain (Saxena 2023).

Where the text does not repeat itself, `LookupOrDraftDrafter` asks the draft model for a chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from decoding.common.settings import SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, ProbabilitySource, TreeBuilder, deepest_level, note_leaves
from decoding.drafters.levels import LinearDrafter
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class PromptLookupDrafter(Drafter):
    """A chain of up to `length` tokens copied from the text; no model is asked.

    The last `longest` tokens are looked for first, then fewer, down to `shortest`. Each drafted token has draft
    probability 1, as no other could have been drafted.
    """

    uses_draft_model = False
    cost = "no draft forward"
    breadth = "chain"
    traced = RuleTrace("prompt_lookup", depth_setting="length")

    longest: int = setting(
        3, 1, 64, step=1, offered=(1, 16), group=SEARCH, label="Longest match", symbol="n",
        help="So many of the last tokens are looked for first.",
    )  # fmt: skip
    shortest: int = shared.shortest(1)
    latest: bool = shared.latest(False)
    length: int = shared.length(10)

    def draft(self, state, source, root_token, draws) -> Draft:
        return self._copied(state, source, root_token, self.found(source.prefix))

    def found(self, text: Sequence[int]) -> Sequence[int]:
        """All that followed the occurrence that is copied from, empty where there is none."""
        tokens = np.asarray(text)
        for size in range(min(self.longest, len(tokens) - 1), min(self.shortest, self.longest) - 1, -1):
            windows = np.lib.stride_tricks.sliding_window_view(tokens[:-1], size)
            starts = np.flatnonzero((windows == tokens[-size:]).all(1))
            if len(starts):
                return tokens[starts[-1 if self.latest else 0] + size :].tolist()
        return []

    def _copied(self, state: Any, source: ProbabilitySource, root_token: int, followed: Sequence[int]) -> Draft:
        """A chain of the tokens that followed, as long as settings and length allow."""
        builder, node = TreeBuilder(source, root_token), np.zeros(1, dtype=np.int64)
        tree, (deepest, at_deepest) = builder.tree, deepest_level(self.length, source.depth_limit)
        for token in followed[:deepest]:
            node = tree.append(node, np.array([token]), np.ones(1))
        tree.set_stop_reason(node, "no_match")
        note_leaves(tree, deepest, at_deepest)
        return builder.finish(self.draft_sampling, state, self.settings())


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
        if followed := self.found(source.prefix):
            return self._copied(state, source, root_token, followed)
        chain = LinearDrafter(self.length).draft(state, source, root_token, draws)
        return replace(chain, settings=self.settings())
