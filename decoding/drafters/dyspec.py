"""DySpec: always draw next where the draft expects the next draw to be accepted most likely (greedy form, a heap)."""

import heapq
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from decoding.drafters import shared_settings as shared
from decoding.drafters.base import TreeBuilder
from decoding.drafters.drawing import DrawnDrafter, note_stop_reason
from decoding.sampling.draws import Draws
from decoding.trace.records import RuleTrace
from decoding.tree.draft import Draft


class RemainingDistribution:
    """One of `RemainingDistributions` by itself, on the host: drawing here waits for no device.

    Attributes:
        mass: probability that is left; 0 only if every token is drawn.
    """

    __slots__ = ("_probs", "_weights", "mass")

    def __init__(self, probs: Tensor):
        self._weights = probs.to("cpu", copy=True).double()  # running sums of floats that wide need no conversion
        self._probs = self._weights.numpy()
        self.mass = 1.0

    def draw(self, draws: Draws) -> tuple[int, float]:
        """A token and its probability in the whole distribution."""
        token = draws.choose(self._weights)
        prob = float(self._probs[token])
        self._probs[token] = 0.0
        self.mass = float(self._probs.sum(dtype=np.float64))  # a difference could reach 0 too early
        return token, prob


@dataclass(frozen=True)
class DySpecDrafter(DrawnDrafter):
    """Draws `node_budget` nodes, each where the estimated value of one more child is largest.

    The first draw at the root is worth 1. Drawing y with probability D(y) among what is left of a distribution splits
    what the draw was worth: D(y) of it is the worth of the first draw below y, 1 - D(y) that of the next draw beside y.
    So a draw is worth the node's path probability times what is left of the distribution there. Ties go to the draw
    that became possible first.
    """

    cost: ClassVar[str] = "one draft forward per expanded node"
    breadth = "outdrawn"
    traced = RuleTrace("dyspec", depth_setting="max_depth")

    node_budget: int = shared.node_budget(64, paper="DySpec")
    max_depth: int = shared.max_depth(32)

    def draft(self, state, source, root_token, draws) -> Draft:
        builder = TreeBuilder(source, root_token, capacity=self.node_budget + 1)
        deepest = min(self.max_depth, source.depth_limit)
        left: dict[int, RemainingDistribution] = {}
        drawn: list[tuple[int, int, float]] = []  # parent, token, probability of what the tree does not hold yet
        heap, pushed = [(-1.0, 0, int(node), 0, 1.0) for node in builder.root_frontier()], 1
        while heap and builder.tree.size + len(drawn) <= self.node_budget:
            _, _, node, depth, path = heapq.heappop(heap)
            if node not in left:
                self._append(builder, drawn)
                left[node] = RemainingDistribution(builder.expand_distributions(np.array([node]))[0])
            token, prob = left[node].draw(draws)
            child = builder.tree.size + len(drawn)
            drawn.append((node, token, prob))
            if left[node].mass > 0:
                heapq.heappush(heap, (-path * left[node].mass, pushed, node, depth, path))
            if depth + 1 < deepest:
                heapq.heappush(heap, (-path * prob, pushed + 1, child, depth + 1, path * prob))
            pushed += 2
        self._append(builder, drawn)
        note_stop_reason(builder.tree, self.max_depth, source.depth_limit, "outdrawn")
        return builder.finish(self.draft_sampling, state, self.settings())

    @staticmethod
    def _append(builder: TreeBuilder, drawn: list[tuple[int, int, float]]) -> None:
        """Give the tree the nodes drawn since it was last asked about: one by one would cost more than the draws."""
        if drawn:
            builder.tree.append(*(np.array(column) for column in zip(*drawn, strict=True)))
            drawn.clear()
