"""Trees that grow level by level after a rule: width by the draft's confidence, depth by path probability, a budget.

What the settings say stands in a table, a row per draft forward; `confidence_class` and `first_reason` read it. The
host grows its trees by them here, a GPU whole iterations (`decoding.device`): thresholds and path probabilities are
float64 in both, products of the same float32 probabilities in the same order, so that comparisons agree to the bit.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from decoding.drafters.base import Drafter, TreeBuilder
from decoding.trace.records import Breadth, Setting, StopReason
from decoding.tree.draft import NOT_DRAFTED, STOP_REASON_CODE, Draft

MOST_FORWARDS = 64  # the longest chain
REASONS = 7  # why a new node is not expanded, at most six, and after them "it is"
WIDTHS = 3  # children where the draft is sure, in between, and unsure
ALWAYS, NEVER = math.inf, -1.0  # thresholds

Array = TypeVar("Array", np.ndarray, Tensor)


def confidence_class(confidence: Array, low: Any, high: Any) -> Array:
    """0 where the draft is sure, its largest probability `high` or more; 2 where it is below `low`; else 1."""
    return (1 + (confidence < low)) * (confidence < high)


def first_reason(path_probs: Array, thresholds: Array, over_budget: Array) -> Array:
    """Place of the first reason not to expand each new node, `[num_nodes]`.

    Args:
        thresholds: a reason holds for nodes of a smaller path probability, `[REASONS]`; the last one always does.
        over_budget: whether a reason holds for all, as the budget does where the tree is larger, bool `[REASONS]`.
    """
    holds = (path_probs[:, None] < thresholds) | over_budget
    return (holds * 1).argmax(1)


@dataclass(frozen=True, eq=False)
class LevelRule:
    """How the tree of one iteration grows; row f is of the f-th draft forward, whose new nodes have depth f + 1."""

    top: int  # children looked at per node
    node_budget: int  # nodes drafted at most
    widths: np.ndarray  # children per node where the draft is sure, in between, and unsure, `[forwards, WIDTHS]`
    # Reasons why a new node is not expanded, in order of precedence, each with the path probability that it needs, one
    # or `[forwards]`; `budget` holds where the tree has more nodes than `node_budget` as well
    thresholds: Mapping[StopReason, np.ndarray | float]
    prune_probability: float = 0.0  # nodes with a smaller path probability are not verified
    # confidence_low, confidence_high: where the widths change
    confidence_low: float = 0.0
    confidence_high: float = 1.0

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
        """Thresholds, then widths, `[forwards, REASONS + WIDTHS]`."""
        rows = np.full((self.forwards, REASONS + WIDTHS), NEVER)
        for place, threshold in enumerate(self.thresholds.values()):
            rows[:, place] = threshold
        rows[:, REASONS - 1] = ALWAYS
        rows[:, REASONS:] = self.widths
        return rows

    @cached_property
    def codes(self) -> np.ndarray:
        """Codes of the reasons, `[REASONS]`; the last is that of a node about to be expanded."""
        names = [STOP_REASON_CODE[stop_reason] for stop_reason in self.thresholds]
        return np.array(names + [NOT_DRAFTED] * (REASONS - len(names)))

    @cached_property
    def budget_reason(self) -> np.ndarray:
        """Where the reason is the budget, bool `[REASONS]`."""
        return self.codes == STOP_REASON_CODE["budget"]

    @cached_property
    def certain(self) -> bool:
        """Whether the size of every level is known before the draft has said anything."""
        thresholds = self.table[:, :REASONS]
        known = (thresholds[np.isfinite(thresholds)] <= 0).all() and self.prune_probability <= 0
        return bool(known and (self.widths == self.widths[:, :1]).all())

    @cached_property
    def level_sizes(self) -> list[int]:
        """Nodes asked about in each forward of a certain rule, the root first."""
        sizes, frontier, drafted = [], 1, 0
        for width, thresholds in zip(self.widths[:, 0].tolist(), self.table[:, : REASONS - 1], strict=True):
            sizes.append(frontier)
            new = min(frontier * width, self.node_budget - drafted)
            drafted += new
            blocked = (thresholds == ALWAYS).any() or ("budget" in self.thresholds and drafted >= self.node_budget)
            frontier = 0 if blocked else new
            if not frontier:
                break
        return sizes

    @cached_property
    def tree_size(self) -> int:
        """Nodes of the tree of a certain rule, the root included."""
        new = (width * size for width, size in zip(self.widths[:, 0].tolist(), self.level_sizes, strict=False))
        return 1 + min(sum(new), self.node_budget)


def where(holds: np.ndarray) -> np.ndarray:
    """Thresholds of a reason that holds in some forwards, whatever the path probability."""
    return np.where(holds, ALWAYS, NEVER)


def widths_by_level(children: tuple[int, ...], forwards: int, branch_first_level: bool) -> np.ndarray:
    """Children per node by forward and confidence class, `[forwards, WIDTHS]`; 1 below a root that may not branch."""
    widths = np.tile(children, (forwards, 1))
    if not branch_first_level:
        widths[:1] = 1
    return widths


class LevelDrafter(Drafter):
    """A drafter whose tree depends only on what the draft says about the levels before."""

    def level_rule(self, settings: Mapping[str, Setting], depth_limit: int) -> LevelRule:
        """The rule with these settings in force, where no node may be deeper than `depth_limit`."""
        raise NotImplementedError

    def rule_in(self, state: Any, depth_limit: int) -> LevelRule:
        """The rule of an iteration that begins in a state; what history looks back on moves it rarely."""
        moved = tuple(getattr(state, name) for name in self.moving)
        return _rule(self, moved, min(depth_limit, MOST_FORWARDS + 1))

    def breadths(self, draft: Draft) -> list[Breadth | None]:
        breadths = super().breadths(draft)
        alone = breadths[0] is not None and not getattr(self, "branch_first_level", True)
        return ["first_level", *breadths[1:]] if alone else breadths

    def draft(self, state, source, root_token, draws) -> Draft:
        builder, rule = TreeBuilder(source, root_token), self.rule_in(state, source.depth_limit)
        tree, frontier = builder.tree, builder.root_frontier()
        for thresholds, widths in zip(rule.table[:, :REASONS], rule.widths, strict=True):
            if not len(frontier):
                break
            tokens, probs = builder.expand(frontier, top=rule.top)
            kinds = confidence_class(probs[:, 0], rule.confidence_low, rule.confidence_high)
            new = builder.add_best(frontier, widths[kinds], tokens, probs, room=rule.node_budget + 1 - tree.size)
            over_budget = rule.budget_reason & (tree.size > rule.node_budget)
            reasons = first_reason(tree.path_probs[new], thresholds, over_budget)
            tree.stop_reason[new] = rule.codes[reasons]
            frontier = new[reasons == REASONS - 1]
        return builder.finish(self.draft_sampling, state, self.in_force(state), rule.prune_probability)


@lru_cache(maxsize=256)
def _rule(drafter: LevelDrafter, moved: tuple[Setting, ...], depth_limit: int) -> LevelRule:
    return drafter.level_rule(drafter.settings() | dict(zip(drafter.moving, moved, strict=True)), depth_limit)
