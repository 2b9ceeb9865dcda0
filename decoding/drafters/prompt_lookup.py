"""Prompt lookup: what followed the last tokens where they stood earlier in the text, as one chain (Saxena 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decoding.common.settings import SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, TreeBuilder, deepest_level
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
        builder = TreeBuilder(source, root_token)
        self.copy(builder, self.found(source.prefix))
        return builder.finish(self.draft_sampling, state, self.settings())

    def found(self, text: Sequence[int]) -> Sequence[int]:
        """All that followed the occurrence that is copied from, empty where there is none."""
        tokens = np.asarray(text)
        for size in range(min(self.longest, len(tokens) - 1), min(self.shortest, self.longest) - 1, -1):
            windows = np.lib.stride_tricks.sliding_window_view(tokens[:-1], size)
            starts = np.flatnonzero((windows == tokens[-size:]).all(1))
            if len(starts):
                return tokens[starts[-1 if self.latest else 0] + size :].tolist()
        return []

    def copy(self, builder: TreeBuilder, followed: Sequence[int]) -> None:
        """Append a chain of tokens below the root, as long as settings and length allow."""
        tree, node, limit = builder.tree, np.zeros(1, dtype=np.int64), builder.source.depth_limit
        for token in followed[: min(self.length, limit)]:
            tree.branching[node] = 1
            tree.set_stop_reason(node, "expanded")
            node = tree.append(node, np.array([token]), np.ones(1))
        deepest, reason = deepest_level(self.length, limit)
        tree.set_stop_reason(node, reason if tree.size > deepest else "no_match")
