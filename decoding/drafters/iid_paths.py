"""K independent paths of L tokens that share their common beginnings (the i.i.d. trees of SpecTr and SpecInfer)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, TreeBuilder
from decoding.drafters.drawing import draw_rows, note_stop_reason
from decoding.sampling.draws import Draws
from decoding.trace.records import DraftSampling, RuleTrace
from decoding.tree.draft import Draft


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
    """`paths` (K) independent paths of `length` (L) tokens from the root; drawn level by level, path by path.

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
