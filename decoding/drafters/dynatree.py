"""DynaTree: confidence-aware breadth, dynamic depth, pruning, node budget, history adaptation (Algorithm 1).

The history update is described in the paper but its schedule is not; the one here is that of its public code, run
once per iteration as the paper says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from decoding.drafters.base import Draft, Drafter, Growing, Outcome
from decoding.drafters.fixed_tree import check_tree_limits
from decoding.errors import require
from decoding.trace import HistoryTrace, Setting

STATISTICS = ("accepted_over_depth", "committed_over_drafted")
BASE_DEPTH_FLOOR = 2
CONFIDENCE_HIGH_RANGE = (0.5, 0.95)
DEEP_PROBABILITY_RANGE = (0.3, 0.8)


@dataclass(frozen=True)
class Adapted:
    """The settings that history moves, and the window it looks at."""

    base_depth: int
    confidence_high: float
    deep_probability: float
    window: tuple[float, ...] = ()

    def values(self) -> dict[str, Setting]:
        """The adapted settings by name."""
        return {
            "base_depth": self.base_depth,
            "confidence_high": self.confidence_high,
            "deep_probability": self.deep_probability,
        }


@dataclass(frozen=True)
class DynaTreeDrafter(Drafter):
    """Settings of DynaTree; the symbol of the paper stands behind each.

    Attributes:
        base_depth, max_depth: D_0 and D_max, with the first drafted token at depth 0 as in the paper.
        branch_min, branch_mid, branch_max: children at high, middle and low confidence (B_min, B_mid, B_max).
        confidence_high, confidence_low: thresholds on the largest draft probability (tau_h, tau_l).
        stop_probability: nodes with a smaller path probability are not expanded (rho_stop).
        deep_probability: path probability needed to go beyond `base_depth` (rho_deep).
        prune_probability: leaves with a smaller path probability are removed before verification (tau).
        node_budget: nodes drafted at most (N_max).
        branch_first_level: let the first level branch by confidence; off is the paper's single top token.
        adaptive_breadth, dynamic_depth, history: the three mechanisms, each switchable for the ablation. Without
            adaptive breadth every node gets `branch_mid` children; without dynamic depth the tree ends at `base_depth`.
        history_window, history_target, history_dead_band, history_minimum, history_statistic: W and the schedule.
        history_depth_step, history_probability_step: by how much one adjustment moves the settings.
    """

    base_depth: int = 5
    max_depth: int = 8
    branch_min: int = 1
    branch_mid: int = 2
    branch_max: int = 3
    confidence_high: float = 0.9
    confidence_low: float = 0.4
    stop_probability: float = 0.1
    deep_probability: float = 0.5
    prune_probability: float = 0.05
    node_budget: int = 256
    branch_first_level: bool = False
    adaptive_breadth: bool = True
    dynamic_depth: bool = True
    history: bool = True
    history_window: int = 10
    history_target: float = 0.7
    history_dead_band: float = 0.1
    history_minimum: int = 5
    history_depth_step: int = 1
    history_probability_step: float = 0.05
    history_statistic: Literal["accepted_over_depth", "committed_over_drafted"] = "accepted_over_depth"

    def __post_init__(self):
        check_tree_limits(self)
        require(
            1 <= self.base_depth < self.max_depth,
            f"base_depth (D_0 = {self.base_depth}) must be at least 1 and below max_depth (D_max = {self.max_depth}): "
            "lower base_depth or raise max_depth.",
        )
        require(
            1 <= self.branch_min <= self.branch_mid <= self.branch_max <= 16,
            f"branch_min, branch_mid and branch_max must rise from 1 to at most 16, not "
            f"{self.branch_min}, {self.branch_mid}, {self.branch_max}.",
        )
        require(
            0 < self.confidence_low < self.confidence_high < 1,
            f"confidence_low (tau_l = {self.confidence_low}) must be above 0 and below confidence_high "
            f"(tau_h = {self.confidence_high}), which must be below 1.",
        )
        require(
            0 <= self.stop_probability <= self.deep_probability < 1,
            f"stop_probability (rho_stop = {self.stop_probability}) must be at least 0 and not above deep_probability "
            f"(rho_deep = {self.deep_probability}), which must be below 1.",
        )
        require(
            1 <= self.history_minimum <= self.history_window,
            f"history_minimum ({self.history_minimum}) must be from 1 to history_window (W = {self.history_window}).",
        )
        require(
            0 < self.history_target < 1 and 0 <= self.history_dead_band < 1,
            f"history_target ({self.history_target}) must be between 0 and 1, history_dead_band "
            f"({self.history_dead_band}) at least 0 and below 1.",
        )
        require(
            0 <= self.history_depth_step <= 8 and 0 <= self.history_probability_step <= 0.5,
            f"history_depth_step ({self.history_depth_step}) must be from 0 to 8, history_probability_step "
            f"({self.history_probability_step}) from 0 to 0.5.",
        )
        require(
            self.history_statistic in STATISTICS,
            f"history_statistic must be one of {', '.join(STATISTICS)}, not {self.history_statistic!r}.",
        )

    def start(self, prompt_ids) -> Adapted:
        return Adapted(self.base_depth, self.confidence_high, self.deep_probability)

    def draft(self, state: Adapted, source, root_token, draws) -> Draft:
        rules = self.settings() | state.values()
        growing = Growing(source, root_token)
        tree, frontier = growing.tree, growing.root_frontier()
        while len(frontier):
            tokens, probs = growing.expand(frontier, top=self.branch_max if self.adaptive_breadth else self.branch_mid)
            branching = self._branching(rules, probs[:, 0], at_root=frontier[0] == 0)
            new = growing.add_best(frontier, branching, tokens, probs, room=self.node_budget - (tree.size - 1))
            frontier = self._expandable(rules, tree, new, source.depth_limit)
        return growing.finish(self.law, state, rules, self.prune_probability)

    def _branching(self, rules: Mapping[str, Setting], confidence: np.ndarray, at_root: bool) -> np.ndarray:
        """Children per node from the draft's confidence, `[num_nodes]`."""
        if at_root and not self.branch_first_level:
            return np.ones(1, dtype=np.int64)
        if not self.adaptive_breadth:
            return np.full(len(confidence), self.branch_mid)
        branching = np.where(confidence < self.confidence_low, self.branch_max, self.branch_mid)
        return np.where(confidence >= rules["confidence_high"], self.branch_min, branching)

    def _expandable(self, rules: Mapping[str, Setting], tree, new: np.ndarray, depth_limit: int) -> np.ndarray:
        """Nodes of the new level to expand (lines 13-25 of Algorithm 1); notes on every other why not."""
        if not len(new):
            return new
        depth, path = int(tree.depths[new[0]]), tree.path_probs[new]
        paper_depth = depth - 1
        blocked = np.zeros(len(new), dtype=bool)
        deepest = self.max_depth if self.dynamic_depth else rules["base_depth"]
        for growth, hit in (
            ("length_limit", depth >= depth_limit),
            ("below_threshold", path < self.prune_probability),
            ("max_depth", paper_depth >= deepest),
            ("early_stop", self.dynamic_depth and path < self.stop_probability),
            (
                "depth_gate",
                self.dynamic_depth and paper_depth >= rules["base_depth"] and path < rules["deep_probability"],
            ),
            ("budget", tree.size > self.node_budget),
        ):
            hit = np.broadcast_to(hit, len(new)) & ~blocked
            tree.set_growth(new[hit], growth)
            blocked |= hit
        return new[~blocked]

    def observe(self, state: Adapted, outcome: Outcome) -> tuple[Adapted, HistoryTrace | None]:
        if not self.history:
            return state, None
        if self.history_statistic == "accepted_over_depth":
            value = outcome.accepted / max(outcome.depth, 1)
        else:
            value = outcome.committed / max(outcome.drafted, 1)
        window = (*state.window, value)[-self.history_window :]
        mean = sum(window) / len(window)
        decision = self._decision(mean, len(window))
        after = replace(self._adjusted(state, decision), window=window)
        trace = HistoryTrace(
            statistic=self.history_statistic,
            window=window,
            mean=mean,
            target=self.history_target,
            dead_band=self.history_dead_band,
            before=state.values(),
            after=after.values(),
            decision=decision,
        )
        return after, trace

    def _decision(self, mean: float, entries: int) -> str:
        if entries < self.history_minimum:
            return "too_few"
        if mean > self.history_target + self.history_dead_band:
            return "bolder"
        return "more_careful" if mean < self.history_target - self.history_dead_band else "hold"

    def _adjusted(self, state: Adapted, decision: str) -> Adapted:
        """Bolder: deeper base, lower thresholds; more careful: the reverse; never beyond the ranges."""
        if decision not in ("bolder", "more_careful"):
            return state
        sign = 1 if decision == "bolder" else -1
        depth = state.base_depth + sign * self.history_depth_step
        step = sign * self.history_probability_step
        return Adapted(
            base_depth=_clip(depth, min(BASE_DEPTH_FLOOR, self.max_depth - 1), self.max_depth - 1),
            confidence_high=_clip(
                state.confidence_high - step,
                max(CONFIDENCE_HIGH_RANGE[0], self.confidence_low),
                CONFIDENCE_HIGH_RANGE[1],
            ),
            deep_probability=_clip(
                state.deep_probability - step,
                max(DEEP_PROBABILITY_RANGE[0], self.stop_probability),
                DEEP_PROBABILITY_RANGE[1],
            ),
            window=state.window,
        )


def _clip(value, low, high):
    """Into [low, high], rounded so that repeated steps of 0.05 stay exact on screen."""
    return round(min(max(value, low), high), 6)
