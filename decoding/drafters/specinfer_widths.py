"""SpecInfer's expansion-based tree: every level has its own width, such as <1,1,3,1,1,1,1,1>."""

import re
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np

from decoding.common.errors import require
from decoding.common.settings import SHAPE, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, TreeBuilder
from decoding.drafters.drawing import note_stop_reason
from decoding.drafters.iid_paths import grow_iid
from decoding.trace.records import DraftSampling, RuleTrace
from decoding.tree.draft import Draft

MOST_LEVELS, MOST_CHILDREN = 64, 16
ENTRY = re.compile(r"[1-9]\d?(\*[1-9]\d?)?")


@dataclass(frozen=True)
class SpecInferWidthsDrafter(Drafter):
    """Every node of level d gets the d-th of `widths` (a comma-separated list) children; `1*7` is a 1 for seven levels.

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
