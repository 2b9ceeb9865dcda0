"""Delayed expansion: one sampled trunk, and independent paths only below its end (delayed tree expansion)."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from decoding.common.errors import require
from decoding.common.settings import SHAPE, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, TreeBuilder
from decoding.drafters.iid_paths import grow_iid
from decoding.selector.actions import Action
from decoding.selector.store import find_selector, require_verifier
from decoding.trace.records import DraftSampling, RuleTrace
from decoding.tree.draft import Draft


@dataclass(frozen=True)
class DelayedDrafter(Drafter):
    """A trunk of `trunk` (L_1) samples, then `paths` (K) independent paths of `branch` (L_2) tokens below its end.

    The trunk's tokens are drawn once, so verifiers see one entry there and K at the branching point. Without a branch
    there is only the trunk; without a trunk the paths start at the root.
    """

    optional = ("selector",)
    breadth = "level"
    traced = RuleTrace("delayed")

    paths: int = shared.paths(4, given_by="selector")
    trunk: int = setting(
        2, 0, 16, step=1, group=SHAPE, label="Trunk", symbol="L_1", given_by="selector",
        help="Tokens of the single path before it branches.",
    )  # fmt: skip
    branch: int = setting(
        4, 0, 16, step=1, group=SHAPE, label="Branches", symbol="L_2", given_by="selector",
        help="Tokens of each path below the trunk.",
    )  # fmt: skip
    # Name of a trained selector that chooses all three anew at every root, from the text before it alone; empty: they
    # are as given. Where the text has only one token they are, too
    selector: str = setting(
        "", group=SHAPE, label="Selector",
        help="A trained network chooses K, L_1 and L_2 in every iteration from the text so far.",
    )  # fmt: skip
    chooser: Any = field(default=None, repr=False, compare=False)  # the selector, loaded with its pair

    @property
    def draft_sampling(self) -> DraftSampling:
        return "iid" if self.selector else self.drawn_as  # a selector may choose any shape

    @property
    def drawn_as(self) -> DraftSampling:
        """How a tree of this shape is drawn."""
        return "single_path" if self.paths == 1 or self.branch == 0 else "iid"

    @property
    def moving(self) -> tuple[str, ...]:
        return ("paths", "trunk", "branch") if self.selector else ()

    @property
    def needs_past(self) -> bool:
        return bool(self.selector)

    def with_settings(self, **changes) -> "DelayedDrafter":
        other = changes.get("selector", self.selector) != self.selector
        return replace(self, **changes, chooser=None if other else self.chooser)

    def with_in_force(self, settings) -> "DelayedDrafter":
        """The same drafter with the shape of an iteration: what a selector chose there is taken as if it were given."""
        return super().with_in_force(settings).with_settings(selector="")

    def check_verifier(self, verifier: str) -> None:
        if self.selector:
            known = self.chooser or find_selector(self.selector)
            require_verifier(self.selector, known.verifier, verifier)

    def prepared(self, measured) -> "DelayedDrafter":
        return replace(self, chooser=measured.chooser(self.selector, self.chooser)) if self.selector else self

    def draft(self, state, source, root_token, draws) -> Draft:
        builder, shape, choice, root_distributions = TreeBuilder(source, root_token), self, None, None
        past = source.past() if self.selector and source.depth_limit > 0 else None
        if past is not None:
            message = f"The selector {self.selector} needs a loaded pair: load one and decode with it."
            require(self.chooser is not None, message)
            choice = self.chooser.choose(past)
            shape = _shaped(self, choice.action)
            root_distributions = builder.expand_distributions(builder.root_frontier())  # read for the selector already
        below = (shape.paths, *[1] * (shape.branch - 1))[: shape.branch]
        grow_iid(builder, (*[1] * shape.trunk, *below), draws, root_distributions)
        return builder.finish(shape.drawn_as, state, shape.settings(), choice=choice)


@lru_cache(maxsize=1024)
def _shaped(drafter: DelayedDrafter, action: Action) -> DelayedDrafter:
    """The drafter with the shape of one iteration, which a selector chooses anew in every one."""
    return replace(drafter, chooser=None, **action._asdict())
