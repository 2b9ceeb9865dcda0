"""No drafting: the tree is its root, and verification is plain autoregressive decoding."""

from dataclasses import dataclass

from decoding.drafters.base import Drafter, TreeBuilder
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class NoDrafter(Drafter):
    """Autoregressive decoding as the tree that has only a root."""

    draft_sampling = "none"
    drafts = uses_draft_model = False
    traced = RuleTrace("none")

    def draft(self, state, source, root_token, draws) -> Draft:
        return TreeBuilder(source, root_token, capacity=1).finish(self.draft_sampling, state, {})
