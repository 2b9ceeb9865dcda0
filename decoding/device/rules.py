"""How the tree of one iteration grows, as numbers that a device can follow without asking the host."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from decoding.tree.token_tree import GROWTH_CODE, NOT_DRAFTED

MOST_FORWARDS = 64  # the longest chain
REASONS = 7  # why a new node is not expanded, at most six, and behind them "it is"
WIDTHS = 3  # children at high, middle and low confidence
ALWAYS, NEVER = math.inf, -1.0


class Rule(Protocol):
    """How the tree of one iteration grows.

    Attributes:
        top: children looked at per node.
        node_budget: nodes at most, of those drafted or of those verified.
        forwards: draft forwards at most.
        nodes: nodes drafted at most.
        certain: whether the size of every level is known before the draft has said anything.
        level_sizes, tree_size: nodes asked about in each forward, the root first, and nodes to verify, the root
            included, of a certain rule; bounds where the draft gives tokens the probability 0.
        codes, budget_reason, prune_probability, confidence_low, confidence_high, table: what the device reads.
    """

    top: int
    node_budget: int
    forwards: int
    nodes: int
    certain: bool
    level_sizes: list[int]
    tree_size: int
    codes: np.ndarray
    budget_reason: np.ndarray
    prune_probability: float
    confidence_low: float
    confidence_high: float
    table: np.ndarray


@dataclass(frozen=True, eq=False)
class LevelRule:
    """A `Rule` by thresholds; row f of a table belongs to the f-th draft forward, whose new nodes have depth f + 1.

    Attributes:
        top: children looked at per node.
        node_budget: nodes drafted at most.
        prune_probability: nodes with a smaller path probability are not verified.
        confidence_low, confidence_high: where the widths change.
        widths: children per node at high, middle and low confidence, `[forwards, 3]`.
        growths: reasons why a new node is not expanded, in order of precedence.
        thresholds: a reason holds for new nodes with a smaller path probability, `[forwards, num_growths]`; `budget`
            holds where the tree has more nodes than `node_budget`, whatever stands there.
    """

    top: int
    node_budget: int
    prune_probability: float
    confidence_low: float
    confidence_high: float
    widths: np.ndarray
    growths: tuple[str, ...]
    thresholds: np.ndarray

    @property
    def forwards(self) -> int:
        """Draft forwards at most."""
        return len(self.widths)

    @property
    def nodes(self) -> int:
        """Nodes drafted at most."""
        return self.node_budget

    @cached_property
    def table(self) -> np.ndarray:
        """Thresholds and widths as the device reads them, `[MOST_FORWARDS, REASONS + WIDTHS]`."""
        rows = np.full((MOST_FORWARDS, REASONS + WIDTHS), NEVER)
        rows[: self.forwards, : len(self.growths)] = self.thresholds
        rows[:, REASONS - 1] = ALWAYS
        rows[: self.forwards, REASONS:] = self.widths
        return rows

    @cached_property
    def codes(self) -> np.ndarray:
        """Codes of the reasons, `[REASONS]`; the last is that of a node about to be expanded."""
        names = [GROWTH_CODE[growth] for growth in self.growths]
        return np.array(names + [NOT_DRAFTED] * (REASONS - len(names)))

    @cached_property
    def budget_reason(self) -> np.ndarray:
        """1 where the reason is the budget, `[REASONS]`."""
        return np.array([growth == "budget" for growth in self.growths] + [False] * (REASONS - len(self.growths)))

    @cached_property
    def certain(self) -> bool:
        """Whether the size of every level is known before the draft has said anything."""
        finite = self.thresholds[np.isfinite(self.thresholds)]
        return bool((finite <= 0).all() and (self.widths == self.widths[:, :1]).all() and self.prune_probability <= 0)

    @cached_property
    def level_sizes(self) -> list[int]:
        """Nodes asked about in each forward of a certain rule, the root first."""
        sizes, frontier, drafted = [], 1, 0
        for width, thresholds in zip(self.widths[:, 0].tolist(), self.thresholds, strict=True):
            sizes.append(frontier)
            new = min(frontier * int(width), self.node_budget - drafted)
            drafted += new
            blocked = (thresholds == ALWAYS).any() or ("budget" in self.growths and drafted >= self.node_budget)
            frontier = 0 if blocked else new
            if not frontier:
                break
        return sizes

    @cached_property
    def tree_size(self) -> int:
        """Nodes of the tree of a certain rule, the root included."""
        new = (int(width) * size for width, size in zip(self.widths[:, 0], self.level_sizes, strict=False))
        return 1 + min(sum(new), self.node_budget)


@dataclass(frozen=True)
class BeamRule:
    """The `Rule` of a beam: every level asks about the `top` best nodes of the level above, the best of all stay.

    Attributes:
        most_forwards: draft forwards where no length limit is near, for which there has to be room.
        at_deepest: why nodes of the last level are not expanded.
    """

    top: int
    node_budget: int
    most_forwards: int
    forwards: int
    at_deepest: str

    certain = True
    prune_probability = confidence_low = confidence_high = 0.0
    budget_reason = np.zeros(REASONS, dtype=np.int64)
    table = np.zeros((MOST_FORWARDS, REASONS + WIDTHS))

    @property
    def codes(self) -> np.ndarray:
        """Why a node that stays was not expanded: it is at the deepest level, or it was not in the beam."""
        return np.array([GROWTH_CODE[self.at_deepest]] + [GROWTH_CODE["beam"]] * (REASONS - 1))

    @property
    def nodes(self) -> int:
        """Nodes drafted at most: those asked about, and those that stay."""
        return self.top * (self.most_forwards - 1) + self.node_budget

    @property
    def candidates(self) -> int:
        """Children scored at most."""
        return self.top + (self.most_forwards - 1) * self.top**2

    @property
    def level_sizes(self) -> list[int]:
        """Nodes asked about in each forward."""
        return [1] + [self.top] * (self.forwards - 1)

    @property
    def tree_size(self) -> int:
        """Nodes to verify, the root included."""
        return 1 + min(self.node_budget, self.top * sum(self.level_sizes))
