"""Trees of independent draws: paths that share their beginnings, SpecInfer's widths by level, delayed expansion."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from torch import Tensor

from decoding.common.errors import require
from decoding.common.settings import SHAPE, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, TreeBuilder
from decoding.drafters.drawing import draw_rows, note_stop_reason
from decoding.sampling.draws import Draws
from decoding.selector.store import find_selector, require_verifier
from decoding.trace.records import DraftSampling, RuleTrace
from decoding.tree.draft import Draft

MOST_LEVELS, MOST_CHILDREN = 64, 16
ENTRY = re.compile(r"[1-9]\d?(\*[1-9]\d?)?")


def grow_iid(
    builder: TreeBuilder, widths: Sequence[int], draws: Draws, root_distributions: Tensor | None = None
) -> None:
    """Give every draw of a level `widths[depth]` independent draws below it, level by level.

    One draft forward per level over the distinct nodes. Draws that chose the same token share a node, and each of
    them has its own draws below it: a node drawn m times gets m * width. A width above 1 at depth 0 alone makes paths.

    Args:
        root_distributions: the root's distribution where the draft has been asked for it already, `[1, vocab_size]`.
    """
    ends, distributions = builder.root_frontier(), root_distributions
    for width in widths[: builder.source.depth_limit]:
        frontier, rows = np.unique(ends, return_inverse=True)
        distributions = builder.expand_distributions(frontier) if distributions is None else distributions
        tokens, probs = draw_rows(draws, distributions, np.repeat(rows, width))
        ends, distributions = builder.add_drawn(np.repeat(ends, width), tokens, probs), None
    note_stop_reason(builder.tree, len(widths), builder.source.depth_limit)


@dataclass(frozen=True)
class IIDPathsDrafter(Drafter):
    """`paths` (K) independent paths of `length` (L) tokens from the root (SpecTr, SpecInfer), drawn level by level.

    Length 0 drafts nothing.
    """

    breadth = "level"
    traced = RuleTrace("iid_paths", depth_setting="length")

    paths: int = shared.paths(4)
    length: int = shared.length(4, low=0, high=32)

    @property
    def draft_sampling(self) -> DraftSampling:
        return "single_path" if self.paths == 1 else "iid"

    def draft(self, state, source, root_token, draws) -> Draft:
        builder = TreeBuilder(source, root_token)
        grow_iid(builder, (self.paths, *[1] * (self.length - 1))[: self.length], draws)
        return builder.finish(self.draft_sampling, state, self.settings())


@dataclass(frozen=True)
class SpecInferWidthsDrafter(Drafter):
    """SpecInfer: a node of level d gets the d-th of `widths` children, a list by commas; `1*7` is a 1 for seven levels.

    Sampled, they are independent draws, and each draw of a node has its own below it; else they are the draft's most
    likely tokens.
    """

    breadth = "level"
    traced = RuleTrace("specinfer", breadth_setting="widths")

    widths: str = setting(
        "1,1,3,1,1,1,1,1", group=SHAPE, label="Widths",
        help="Children per node, level by level, separated by commas; 1*7 is 1 for seven levels.",
    )  # fmt: skip
    sampled: bool = shared.sampled(True)

    def __post_init__(self):
        super().__post_init__()
        whole = all(ENTRY.fullmatch(entry.strip()) for entry in self.widths.split(","))
        require(
            whole and 1 <= len(self.by_level) <= MOST_LEVELS and max(self.by_level) <= MOST_CHILDREN,
            f"widths must be 1 to {MOST_LEVELS} whole numbers from 1 to {MOST_CHILDREN} separated by commas, "
            f"not {self.widths!r}.",
        )
        nodes = sum(accumulate(self.by_level, mul))
        require(
            nodes <= shared.MOST_NODES,
            f"widths {self.widths} give {nodes} nodes: at most {shared.MOST_NODES} are allowed.",
        )

    @property
    def by_level(self) -> tuple[int, ...]:
        """Children per node, level by level from the root."""
        pieces = [entry.strip().partition("*") for entry in self.widths.split(",")]
        return tuple(int(width) for width, _, levels in pieces for _ in range(int(levels or 1)))

    @property
    def draft_sampling(self) -> DraftSampling:
        if not self.sampled:
            return "deterministic"
        return "single_path" if max(self.by_level) == 1 else "iid"

    def draft(self, state, source, root_token, draws) -> Draft:
        builder = TreeBuilder(source, root_token)
        if self.sampled:
            grow_iid(builder, self.by_level, draws)
        else:
            frontier = builder.root_frontier()
            for width in self.by_level[: source.depth_limit]:
                tokens, probs = builder.expand(frontier, top=width)
                every = np.full(len(frontier), tokens.shape[1])
                frontier = builder.add_best(frontier, every, tokens, probs, room=shared.MOST_NODES)
            note_stop_reason(builder.tree, len(self.by_level), source.depth_limit)
        return builder.finish(self.draft_sampling, state, self.settings())


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
        chain = not self.selector and (self.paths == 1 or self.branch == 0)  # a selector may choose any shape
        return "single_path" if chain else "iid"

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
            shape = replace(self, **choice.action._asdict())
            root_distributions = builder.expand_distributions(builder.root_frontier())  # read for the selector already
        below = (shape.paths, *[1] * (shape.branch - 1))[: shape.branch]
        grow_iid(builder, (*[1] * shape.trunk, *below), draws, root_distributions)
        made = builder.finish(replace(shape, selector="").draft_sampling, state, shape.settings())
        return made if choice is None else replace(made, choice=choice)
