"""The drafters whose trees can grow on a device, each with its rule.

A drafter has a rule if its tree depends only on what the draft says about the levels before. It is the same tree, node
by node and reason by reason, that the drafter itself builds on the host: thresholds and path probabilities are float64
in both, products of the same float32 probabilities in the same order, so that comparisons agree to the bit.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from decoding.device.rules import ALWAYS, MOST_FORWARDS, NEVER, WIDTHS, BeamRule, LevelRule, Rule
from decoding.drafters import DynaTreeDrafter, Eagle2Drafter, FixedTreeDrafter, LinearDrafter
from decoding.drafters.base import Drafter
from decoding.drafters.dynatree import Adapted


def linear_rule(drafter: LinearDrafter, state: None, depth_limit: int) -> LevelRule:
    """The likeliest token below the likeliest token."""
    depths = np.arange(1, min(drafter.length, depth_limit) + 1)
    thresholds = {"max_depth": _if(depths >= drafter.length), "length_limit": _if(depths >= depth_limit)}
    return _rule(1, drafter.length, 0.0, (0.0, 1.0), np.ones((len(depths), WIDTHS)), thresholds)


def fixed_tree_rule(drafter: FixedTreeDrafter, state: None, depth_limit: int) -> LevelRule:
    """Every node the same number of children, down to a depth."""
    depths = np.arange(1, min(drafter.max_depth + 1, depth_limit) + 1)
    thresholds = {
        "max_depth": _if(depths - 1 >= drafter.max_depth),
        "length_limit": _if(depths >= depth_limit),
        "budget": NEVER,
        "below_threshold": drafter.prune_probability,
    }
    widths = _widths((drafter.branching,) * WIDTHS, len(depths), drafter.branch_first_level)
    return _rule(drafter.branching, drafter.node_budget, drafter.prune_probability, (0.0, 1.0), widths, thresholds)


def dynatree_rule(drafter: DynaTreeDrafter, state: Adapted, depth_limit: int) -> LevelRule:
    """Algorithm 1 of DynaTree with the settings that history has moved."""
    deepest = drafter.max_depth if drafter.dynamic_depth else state.base_depth
    depths = np.arange(1, min(deepest + 1, depth_limit) + 1)
    gated = (depths - 1 >= state.base_depth) & drafter.dynamic_depth
    thresholds = {
        "length_limit": _if(depths >= depth_limit),
        "below_threshold": drafter.prune_probability,
        "max_depth": _if(depths - 1 >= deepest),
        "early_stop": drafter.stop_probability if drafter.dynamic_depth else NEVER,
        "depth_gate": np.where(gated, state.deep_probability, NEVER),
        "budget": NEVER,
    }
    narrow_to_wide = (drafter.branch_min, drafter.branch_mid, drafter.branch_max)
    if not drafter.adaptive_breadth:
        narrow_to_wide = (drafter.branch_mid,) * WIDTHS
    widths = _widths(narrow_to_wide, len(depths), drafter.branch_first_level)
    confidences = (drafter.confidence_low, state.confidence_high)
    top = narrow_to_wide[-1]
    return _rule(top, drafter.node_budget, drafter.prune_probability, confidences, widths, thresholds)


def eagle2_rule(drafter: Eagle2Drafter, state: None, depth_limit: int) -> BeamRule:
    """The beam of EAGLE-2."""
    at_deepest = "max_depth" if drafter.max_depth <= depth_limit else "length_limit"
    forwards = min(drafter.max_depth, depth_limit)
    return BeamRule(drafter.beam_width, drafter.node_budget, drafter.max_depth, forwards, at_deepest)


RULES: dict[type[Drafter], Callable[..., Rule]] = {
    LinearDrafter: linear_rule,
    FixedTreeDrafter: fixed_tree_rule,
    DynaTreeDrafter: dynatree_rule,
    Eagle2Drafter: eagle2_rule,
}


def device_rule(drafter: Drafter, state: object, depth_limit: int) -> Rule | None:
    """The rule of a drafter in its state, None if it has none; `depth_limit` is 1 or more."""
    if type(drafter) not in RULES or drafter.law != "deterministic":
        return None
    if isinstance(state, Adapted):
        state = Adapted(**state.values())  # the window it looks at moves with every iteration, what it decides rarely
    return _cached_rule(drafter, state, min(depth_limit, MOST_FORWARDS + 1))


@lru_cache(maxsize=256)
def _cached_rule(drafter: Drafter, state: object, depth_limit: int) -> Rule:
    return RULES[type(drafter)](drafter, state, depth_limit)


def _rule(top, node_budget, prune_probability, confidences, widths, thresholds: dict) -> LevelRule:
    columns = np.stack([np.broadcast_to(column, len(widths)) for column in thresholds.values()], 1).astype(float)
    return LevelRule(top, node_budget, prune_probability, *confidences, widths, tuple(thresholds), columns)


def _if(holds: np.ndarray) -> np.ndarray:
    return np.where(holds, ALWAYS, NEVER)


def _widths(narrow_to_wide: tuple[int, ...], forwards: int, branch_first_level: bool) -> np.ndarray:
    widths = np.tile(np.array(narrow_to_wide, dtype=float), (forwards, 1))
    if not branch_first_level:
        widths[0] = 1
    return widths
