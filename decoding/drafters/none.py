"""No drafting: the tree is its root, and verification is plain autoregressive decoding."""

from dataclasses import dataclass

from decoding.drafters.base import Drafter, Growing
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class NoDrafter(Drafter):
    """Autoregressive decoding as the tree that has only a root."""

    law = "none"
    uses_draft_model = False
    traced = RuleTrace("none")

    def draft(self, state, source, root_token, draws) -> Draft:
        return Growing(source, root_token, capacity=1).finish(self.law, state, {})
