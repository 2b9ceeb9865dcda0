"""DynaTree: confidence-aware breadth, dynamic depth, pruning, node budget, history adaptation (Algorithm 1).

The history update is described in the paper but its schedule is not; the one here is that of its public code, run
once per iteration as the paper says. What the paper averages and moves, in its text and in Algorithm 1, is neither what
its public code does nor our default: `DynaTree, Section 3 as described` and `DynaTree, Algorithm 1 as printed` of
`methods.PRESETS` are the paper's. A setting that begins outside the range of its schedule moves only in the
direction that is asked for, where the public code would put it back into the range.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from decoding.common.errors import require
from decoding.common.settings import BREADTH, DEPTH, HISTORY, setting, settings_of
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import IterationFeedback
from decoding.drafters.levels import NEVER, WIDTHS, LevelDrafter, LevelRule, confidence_class, where, widths_by_level
from decoding.trace.records import Breadth, HistoryTrace, IterationTrace, RuleTrace
from decoding.tree.draft import Draft

STATISTICS = {
    "accepted_over_depth": "accepted over depth as verified",
    "accepted_over_drafted_depth": "accepted over depth as drafted",
    "accepted_over_drafted": "accepted over drafted (the paper's text)",
    "committed_over_drafted": "committed over drafted (the paper's Algorithm 1)",
    "committed_over_base_depth": "committed over D_0 + 2 (its public code)",
}
CONFIDENCE: tuple[Breadth, ...] = ("confident", "between", "unsure")
# Where the schedule moves settings: D_0 from here to D_max - 1, the others between two numbers. That of τ_l is ours.
BASE_DEPTH_FLOOR = 2
CONFIDENCE_HIGH_RANGE = (0.5, 0.95)
CONFIDENCE_LOW_RANGE = (0.1, 0.5)
DEEP_PROBABILITY_RANGE = (0.3, 0.8)

_setting = partial(setting, paper="DynaTree")
_children = partial(_setting, low=1, high=16, step=1, group=BREADTH)
_schedule = partial(_setting, in_code=True, group=HISTORY, needs="history")

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Adapted:
    """The settings that history moves, and the window it looks at."""

    base_depth: int
    confidence_high: float
    deep_probability: float
    confidence_low: float
    window: tuple[float, ...] = ()


@dataclass(frozen=True)
class DynaTreeDrafter(LevelDrafter):
    """Settings of DynaTree, each with the paper's symbol; depths have the first drafted token at 0, as in the paper.

    The three mechanisms (`adaptive_breadth`, `dynamic_depth`, `history`) can be switched off for the ablation. Without
    adaptive breadth every node gets `branch_mid` children; without dynamic depth the tree ends at `base_depth`.
    """

    base_depth: int = _setting(
        5,
        1,
        31,
        step=1,
        group=DEPTH,
        label="Base depth",
        symbol="D_0",
        help="Depth that every path may reach; below D_max.",
    )
    max_depth: int = shared.max_depth(8, paper="DynaTree")
    branch_min: int = _children(
        1, needs="adaptive_breadth", label="Children, confident", symbol="B_min", help="At confidence τ_h or above."
    )
    branch_mid: int = _children(
        2, label="Children, medium", symbol="B_mid", help="At confidence between τ_l and τ_h.", in_code=True
    )
    branch_max: int = _children(
        3, needs="adaptive_breadth", label="Children, uncertain", symbol="B_max", help="At confidence below τ_l."
    )
    confidence_high: float = _setting(
        0.9, above=0.0, below=1.0, step=0.01, offered=(0.01, 0.99), group=BREADTH, needs="adaptive_breadth",
        label="High confidence", symbol="τ_h", help="At this confidence or above, B_min children are enough.",
    )  # fmt: skip
    confidence_low: float = _setting(
        0.4, above=0.0, below=1.0, step=0.01, offered=(0.01, 0.99), group=BREADTH, needs="adaptive_breadth",
        label="Low confidence", symbol="τ_l", help="Below this confidence, B_max children are tried.",
    )  # fmt: skip
    stop_probability: float = _setting(
        0.1, 0.0, below=1.0, step=0.01, offered=(0.0, 0.99), group=DEPTH, needs="dynamic_depth", in_code=True,
        label="Early stop", symbol="ρ_stop", help="Nodes with a smaller path probability are not expanded.",
    )  # fmt: skip
    deep_probability: float = _setting(
        0.5, 0.0, below=1.0, step=0.01, offered=(0.0, 0.99), group=DEPTH, needs="dynamic_depth", in_code=True,
        label="Depth gate", symbol="ρ_deep", help="Path probability needed to grow beyond D_0.",
    )  # fmt: skip
    prune_probability: float = shared.prune_probability(0.05, paper="DynaTree", in_code=True)
    node_budget: int = shared.node_budget(256, paper="DynaTree", in_code=True)
    branch_first_level: bool = shared.branch_first_level(False, paper="DynaTree")
    verify_pruned: bool = shared.verify_pruned(False, paper="DynaTree")
    adaptive_breadth: bool = _setting(
        True, group=BREADTH, label="Adaptive breadth",
        help="The number of children follows the draft's confidence; off: every node gets B_mid.",
    )  # fmt: skip
    dynamic_depth: bool = _setting(
        True, group=DEPTH, label="Dynamic depth",
        help="Likely paths may grow beyond D_0, unlikely ones end early; off: all end at D_0.",
    )  # fmt: skip
    history: bool = _setting(
        True, group=HISTORY, label="History adaptation",
        help="Recent acceptance moves D_0, τ_h and ρ_deep between iterations: D_0 from "
        f"{BASE_DEPTH_FLOOR} to D_max - 1, τ_h from {CONFIDENCE_HIGH_RANGE[0]} to {CONFIDENCE_HIGH_RANGE[1]}, "
        f"ρ_deep from {DEEP_PROBABILITY_RANGE[0]} to {DEEP_PROBABILITY_RANGE[1]}.",
    )  # fmt: skip
    history_window: int = _schedule(
        10, 1, 1000, step=1, offered=(1, 50), label="Window", symbol="W", help="Past iterations in the mean acceptance."
    )
    history_target: float = _schedule(
        0.7, above=0.0, below=1.0, step=0.05, offered=(0.05, 0.95), label="Acceptance goal",
        help="Mean acceptance that the adaptation steers towards.",
    )  # fmt: skip
    history_dead_band: float = _schedule(
        0.1, 0.0, below=1.0, step=0.05, offered=(0.0, 0.5), label="Dead band", symbol="±",
        help="No change within this distance of the goal.",
    )  # fmt: skip
    history_minimum: int = _schedule(
        5, 1, 1000, step=1, offered=(1, 50), label="Minimum iterations", help="No change before so many iterations."
    )
    history_depth_step: int = _schedule(1, 0, 8, step=1, label="D_0 step", help="Change of D_0 per adjustment.")
    history_probability_step: float = _schedule(
        0.05, 0.0, 0.5, step=0.01, label="τ_h and ρ_deep step", help="Change of both per adjustment."
    )
    history_statistic: Literal[
        "accepted_over_depth", "accepted_over_drafted_depth", "accepted_over_drafted", "committed_over_drafted",
        "committed_over_base_depth",
    ] = setting(
        "accepted_over_depth", group=HISTORY, needs="history", label="Statistic", choices=STATISTICS,
        help="Accepted tokens over the depth of the tree as verified, which is higher where pruning has made it "
        "shallower, or over its depth as drafted; accepted tokens over drafted ones, as the paper's text defines it; "
        "or committed tokens, which count the target's own, over drafted ones, as its pseudo-code passes them, or over "
        "D_0 + 2 with D_0 as set, as its public code does.",
    )  # fmt: skip

    history_confidence_low: bool = _schedule(
        False, label="Adapt τ_l too",
        help="τ_l moves with τ_h, by the same step and never above it, from "
        f"{CONFIDENCE_LOW_RANGE[0]} to {CONFIDENCE_LOW_RANGE[1]}, as the paper's pseudo-code names it; its public code "
        "leaves it.",
    )  # fmt: skip
    history_deep_probability: bool = _schedule(
        True, label="ρ_deep may move",
        help="ρ_deep moves, as in the paper's public code; the paper names τ_h, τ_l and D_0 alone.",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require(
            self.base_depth < self.max_depth,
            f"base_depth (D_0 = {self.base_depth}) must be below max_depth (D_max = {self.max_depth}): "
            "lower base_depth or raise max_depth.",
        )
        require(
            not self.adaptive_breadth or self.branch_min <= self.branch_mid <= self.branch_max,
            f"branch_min, branch_mid and branch_max must not decrease from one to the next, as "
            f"{self.branch_min}, {self.branch_mid}, {self.branch_max} do.",
        )
        require(
            not self.adaptive_breadth or self.confidence_low <= self.confidence_high,
            f"confidence_low (τ_l = {self.confidence_low}) must not be above confidence_high "
            f"(τ_h = {self.confidence_high}).",
        )
        require(
            not self.dynamic_depth or self.stop_probability <= self.deep_probability,
            f"stop_probability (ρ_stop = {self.stop_probability}) must not be above deep_probability "
            f"(ρ_deep = {self.deep_probability}).",
        )
        require(
            self.history_minimum <= self.history_window,
            f"history_minimum ({self.history_minimum}) must not be above history_window (W = {self.history_window}).",
        )

    optional = ("verify_pruned", "history_confidence_low", "history_deep_probability")

    @property
    def moving(self) -> tuple[str, ...]:
        low = ("confidence_low",) if self.history_confidence_low else ()
        deep = ("deep_probability",) if self.history_deep_probability else ()
        return ("base_depth", "confidence_high", *low, *deep)

    def start(self, prompt_ids) -> Adapted:
        return Adapted(self.base_depth, self.confidence_high, self.deep_probability, self.confidence_low)

    def carried(self, state, before, prompt_ids) -> Adapted:
        """A setting that was changed begins at its new value, the others stay where history has moved them.

        All begin anew where those would not go together: deeper than the tree may be, or the thresholds crossed.
        """
        names = ("base_depth", "confidence_high", "deep_probability", "confidence_low")
        kept = {name: getattr(state, name) for name in names if getattr(self, name) == getattr(before, name)}
        window = state.window if self.history_statistic == before.history_statistic else ()
        start = self.start(prompt_ids)
        moved = replace(start, **kept, window=window)
        shallow = moved.base_depth <= max(self.base_depth, self.max_depth - 1)
        return moved if shallow and moved.confidence_low <= moved.confidence_high else start

    def level_rule(self, settings, depth_limit) -> LevelRule:
        """Lines 13 to 25 of Algorithm 1; a drafted token has there a depth less by 1."""
        base_depth = settings["base_depth"]
        deepest = self.max_depth if self.dynamic_depth else base_depth
        depths = np.arange(1, min(deepest + 1, depth_limit) + 1)
        adaptive = (self.branch_min, self.branch_mid, self.branch_max)
        children = adaptive if self.adaptive_breadth else (self.branch_mid,) * WIDTHS
        gated = self.dynamic_depth & (depths > base_depth)
        return LevelRule(
            top=children[-1],
            node_budget=self.node_budget,
            widths=widths_by_level(children, len(depths), self.branch_first_level),
            thresholds={
                "length_limit": where(depths >= depth_limit),
                "below_threshold": self.prune_probability,
                "max_depth": where(depths > deepest),
                "early_stop": self.stop_probability if self.dynamic_depth else NEVER,
                "depth_gate": np.where(gated, settings["deep_probability"], NEVER),
                "budget": NEVER,
            },
            prune_probability=0.0 if self.verify_pruned else self.prune_probability,
            confidence_low=settings["confidence_low"],
            confidence_high=settings["confidence_high"],
        )

    def breadths(self, draft: Draft) -> list[Breadth | None]:
        breadths = super().breadths(draft)
        if not self.adaptive_breadth:
            return breadths
        low, high = (draft.settings[name] for name in ("confidence_low", "confidence_high"))
        kinds = confidence_class(draft.tree.confidence, low, high)
        with_kinds = zip(breadths, kinds.tolist(), strict=True)
        return [CONFIDENCE[kind] if breadth == self.breadth else breadth for breadth, kind in with_kinds]

    def rule(self, settings) -> RuleTrace:
        return RuleTrace(
            "dynatree",
            depth_setting="max_depth" if self.dynamic_depth else "base_depth",
            first_depth=0,
            threshold_setting="prune_probability",
            breadth_setting="branch_mid",
            left_out=None if self.verify_pruned else "improbable",
        )

    def resumed(self, state: Adapted, iteration: IterationTrace) -> Adapted:
        """The settings and the window that the record says history came to."""
        history = iteration.history
        if history is None:
            return state
        require(history.after.keys() <= set(self.moving), "The record changes settings that DynaTree does not adapt.")
        declared = settings_of(type(self))
        after = {name: declared[name].checked(value) for name, value in history.after.items()}
        return replace(state, **after, window=history.window)

    def observe(self, state: Adapted, outcome: IterationFeedback) -> tuple[Adapted, HistoryTrace | None]:
        if not self.history:
            return state, None
        window = (*state.window, self._statistic(outcome))[-self.history_window :]
        mean = sum(window) / len(window)
        after, decision = state, "hold"
        if len(window) < self.history_minimum:
            decision = "too_few"
        elif mean > self.history_target + self.history_dead_band:
            after, decision = self._adjusted(state, 1), "bolder"
        elif mean < self.history_target - self.history_dead_band:
            after, decision = self._adjusted(state, -1), "more_careful"
        after = replace(after, window=window)
        trace = HistoryTrace(
            statistic=self.history_statistic,
            window=window,
            mean=mean,
            target=self.history_target,
            dead_band=self.history_dead_band,
            before={name: getattr(state, name) for name in self.moving},
            after={name: getattr(after, name) for name in self.moving},
            decision=decision,
        )
        return after, trace

    def _statistic(self, outcome: IterationFeedback) -> float:
        """The statistic of an iteration whose mean over the window is held against the goal."""
        match self.history_statistic:
            case "accepted_over_depth":
                return outcome.accepted / max(outcome.depth, 1)
            case "accepted_over_drafted_depth":
                return outcome.accepted / max(outcome.drafted_depth, 1)
            case "accepted_over_drafted":
                return outcome.accepted / max(outcome.drafted, 1)
            case "committed_over_drafted":
                return outcome.committed / max(outcome.drafted, 1)
            case "committed_over_base_depth":
                return outcome.committed / (self.base_depth + 2)

    def _adjusted(self, state: Adapted, sign: int) -> Adapted:
        """Bolder (1): deeper base, lower thresholds; more careful (-1): the reverse."""
        step = -sign * self.history_probability_step
        low, high, deep = CONFIDENCE_LOW_RANGE, CONFIDENCE_HIGH_RANGE, DEEP_PROBABILITY_RANGE
        confidence_low = state.confidence_low
        if self.history_confidence_low:
            confidence_low = stepped(confidence_low, step, low[0], min(low[1], state.confidence_high))
        confidence_high = stepped(state.confidence_high, step, max(high[0], confidence_low), high[1])
        deep_probability = state.deep_probability
        if self.history_deep_probability:
            deep_probability = stepped(deep_probability, step, max(deep[0], self.stop_probability), deep[1])
        return Adapted(
            base_depth=stepped(state.base_depth, sign * self.history_depth_step, BASE_DEPTH_FLOOR, self.max_depth - 1),
            confidence_high=confidence_high,
            deep_probability=deep_probability,
            confidence_low=confidence_low,
        )


def stepped(value: N, step: N, low: N, high: N) -> N:
    """The value one step on, not past the end of [low, high] that it goes to, and never against its direction."""
    moved = round(value + step, 6)  # so that repeated steps of 0.05 stay exact on screen
    if step > 0:
        return max(value, min(moved, high))
    return min(value, max(moved, low)) if step < 0 else value
