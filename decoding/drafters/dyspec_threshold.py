"""DySpec's threshold form: level by level, draw siblings while one more is likely enough to be accepted."""

import math
from dataclasses import dataclass, replace

import numpy as np

from decoding.common.settings import SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import TreeBuilder
from decoding.drafters.drawing import DrawnDrafter, RemainingDistributions, note_stop_reason
from decoding.sampling.draws import Draws
from decoding.trace.records import Breadth, RuleTrace
from decoding.tree.draft import Draft, TokenTree

PACE = 0.2  # how far the threshold moves where a tree is twice as large as wanted, as a logarithm
LOWEST = 1e-6


@dataclass(frozen=True)
class SoughtThreshold:
    """The threshold that trees of the wanted mean size have led to."""

    threshold: float


@dataclass(frozen=True)
class DySpecThresholdDrafter(DrawnDrafter):
    """Draws at every node while the estimated value of the next draw is at least `threshold`.

    As in the greedy form a draw is worth the node's path probability times what is left of the distribution there. The
    nodes of a level draw in rounds, in the order of their ids; `node_budget` ends a round early.

    With `mean_nodes` N the threshold is sought: after a tree of n nodes it is multiplied by exp(`PACE` (n / N - 1)),
    which leaves it alone where trees have N nodes on average. It depends on earlier trees alone, so nothing is biased.
    """

    breadth = "budget"
    optional = ("mean_nodes",)
    traced = RuleTrace("dyspec_threshold", depth_setting="max_depth", threshold_setting="threshold")

    threshold: float = setting(
        1 / 64, above=0.0, high=1.0, step=0.001, offered=(0.001, 0.5), group=SEARCH, label="Threshold", symbol="θ",
        paper="DySpec", help="Siblings are drawn while the next one has at least this value.",
    )  # fmt: skip
    node_budget: int = shared.node_budget(256)
    max_depth: int = shared.max_depth(32)
    mean_nodes: int = setting(
        0, 0, shared.MOST_NODES, step=1, offered=(0, 256), group=SEARCH, label="Mean tree size",
        help="The threshold moves so that trees have this many nodes on average; 0: it stays as set.",
    )  # fmt: skip

    @property
    def moving(self) -> tuple[str, ...]:
        return ("threshold",) if self.mean_nodes else ()

    def start(self, prompt_ids) -> SoughtThreshold | None:
        return SoughtThreshold(self.threshold) if self.mean_nodes else None

    def carried(self, state, before, prompt_ids) -> SoughtThreshold | None:
        """The threshold that was found so far, where it began at the same one."""
        return state if self.mean_nodes and self.threshold == before.threshold else self.start(prompt_ids)

    def observe(self, state, outcome):
        if not self.mean_nodes:
            return state, None
        moved = state.threshold * math.exp(PACE * (outcome.drafted / self.mean_nodes - 1))
        return replace(state, threshold=min(max(moved, LOWEST), 1.0)), None

    def draft(self, state, source, root_token, draws) -> Draft:
        builder, seeks = TreeBuilder(source, root_token), self.mean_nodes and state is not None
        threshold = state.threshold if seeks else self.threshold
        tree, frontier = builder.tree, builder.root_frontier()
        while len(frontier):
            nodes = self._grow_level(builder, frontier, threshold, draws)
            deeper = tree.path_probs[nodes] >= threshold
            tree.set_stop_reason(nodes[~deeper], "below_threshold")
            at_end = tree.depths[nodes[0]] >= min(self.max_depth, source.depth_limit)
            frontier = nodes[deeper][: 0 if at_end else self._room(tree)]  # each of them draws at least once
        note_stop_reason(tree, self.max_depth, source.depth_limit)
        return builder.finish(self.draft_sampling, state, self.in_force(state))

    def breadths(self, draft: Draft) -> list[Breadth | None]:
        tree, left = draft.tree, np.ones(draft.tree.size)
        for parent, prob in zip(tree.parents[1:].tolist(), tree.draft_probs[1:].tolist(), strict=True):
            left[parent] = max(left[parent] - prob, 0.0)
        too_little = (tree.path_probs * left < float(draft.settings["threshold"])).tolist()
        breadths = zip(super().breadths(draft), too_little, strict=True)
        return [breadth and ("worth" if worthless else breadth) for breadth, worthless in breadths]

    def _grow_level(self, builder: TreeBuilder, frontier: np.ndarray, threshold: float, draws: Draws) -> np.ndarray:
        """Draw below the nodes of a level, round by round; returns the new nodes."""
        distributions, paths = (
            RemainingDistributions(builder.expand_distributions(frontier)),
            builder.tree.path_probs[frontier],
        )
        nodes: list[np.ndarray] = []
        while True:
            worth = paths * distributions.mass
            rows = np.flatnonzero((worth >= threshold) & (distributions.support > 0))[: self._room(builder.tree)]
            if not len(rows):
                return np.concatenate(nodes)
            tokens, probs = distributions.draw(rows, draws)
            nodes.append(builder.tree.append(frontier[rows], tokens, probs))

    def _room(self, tree: TokenTree) -> int:
        return self.node_budget + 1 - tree.size
