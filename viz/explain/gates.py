"""The gates that a node of DynaTree or of a fixed tree met after it was drafted, in order, each with its numbers.

The order is that of the drafters, which is that of Algorithm 1: pruning, depth, early stop, depth gate, budget, and for
what has passed them all the breadth. Depths are the paper's: the first drafted token has depth 0.
"""

from dataclasses import dataclass
from typing import Literal

from decoding.trace.records import IterationTrace, StopReason
from viz.formats import beside

# By drafter the gates in the order in which they are asked.
ORDER: dict[str, tuple[StopReason, ...]] = {
    "dynatree": ("length_limit", "below_threshold", "max_depth", "early_stop", "depth_gate", "budget"),
    "fixed_tree": ("max_depth", "length_limit", "budget", "below_threshold"),
}


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: its name, what was compared, and whether the node came through; `breadth` is what came of it."""

    name: str
    words: str
    outcome: Literal["passed", "stopped", "breadth"]


def gates_met(iteration: IterationTrace, node_id: int) -> tuple[Gate, ...]:
    """The gates in order up to the one that stopped the node; empty for other drafters and nodes added by hand."""
    node, order = iteration.nodes[node_id], ORDER.get(iteration.rule.drafter, ())
    if not order or node.breadth == "forced" or node.stop_reason not in (*order, "expanded"):
        return ()
    met = []
    for reason in order if node_id else ():
        stopped = reason == node.stop_reason
        if found := _gate(iteration, node_id, reason, stopped):
            met.append(Gate(*found, "stopped" if stopped else "passed"))
        if stopped:
            return tuple(met)
    if node.stop_reason == "expanded":
        met.append(Gate("breadth", _breadth(iteration, node_id), "breadth"))
    return tuple(met)


def _needed(iteration: IterationTrace, reason: StopReason) -> set[str]:
    """Settings with whose numbers a gate compares."""
    return {
        "max_depth": {iteration.rule.depth_setting},
        "early_stop": {"stop_probability"},
        "depth_gate": {"base_depth", "deep_probability"},
        "budget": {"node_budget"},
    }.get(reason, set())


def _gate(iteration: IterationTrace, node_id: int, reason: StopReason, stopped: bool) -> tuple[str, str] | None:
    """Name and comparison of one gate; None where it cannot stop anything with these settings, or a file lacks one."""
    settings, node = iteration.settings, iteration.nodes[node_id]
    values = {name: value for name, value in settings.items() if isinstance(value, int | float)}
    if not values.keys() >= _needed(iteration, reason):
        return None
    depth, adaptive = node.depth - 1, bool(settings.get("dynamic_depth", True))

    def compared(setting: str, symbol: str) -> str:
        limit = values[setting]
        return f"p {beside(node.path_probability, limit)} {'<' if stopped else '≥'} {symbol} {limit:g}"

    if reason == "length_limit":
        return ("length", "the text may not become longer") if stopped else None
    if reason == "below_threshold":
        if not values.get("prune_probability"):
            return None
        then = "not verified" if iteration.rule.left_out else "verified all the same"
        return "pruning", compared("prune_probability", "τ") + (f", {then}" if stopped else "")
    if reason == "max_depth":
        symbol = {"base_depth": "D_0", "max_depth": "D_max"}[iteration.rule.depth_setting]
        limit = values[iteration.rule.depth_setting]
        return "depth", f"d {depth} {'=' if stopped else '<'} {symbol} {limit:g}"
    if reason == "early_stop":
        return ("early stop", compared("stop_probability", "ρ_stop")) if adaptive else None
    if reason == "depth_gate":
        base = values["base_depth"]
        if not adaptive:
            return None
        if depth < base:
            return "depth gate", f"d {depth} < D_0 {base:g}"
        name = "depth gate" if stopped else "deep expansion"
        return name, f"d {depth} ≥ D_0 {base:g}, {compared('deep_probability', 'ρ_deep')}"
    budget = f"N_max {values['node_budget']:g}"
    return "budget", f"{budget} used up" if stopped else f"node {node_id} of {budget}"


def _breadth(iteration: IterationTrace, node_id: int) -> str:
    """The class of an expanded node's confidence and the children it gets."""
    node, (low, high) = iteration.nodes[node_id], map(iteration.settings.get, ("confidence_low", "confidence_high"))
    if node.confidence is not None and isinstance(low, int | float) and isinstance(high, int | float):
        said = beside(node.confidence, high, low, digits=2)
        if node.breadth == "confident":
            return f"c {said} ≥ τ_h {high:g}: B_min {node.branching}"
        if node.breadth == "unsure":
            return f"c {said} < τ_l {low:g}: B_max {node.branching}"
        if node.breadth == "between":
            return f"τ_l {low:g} ≤ c {said} < τ_h {high:g}: B_mid {node.branching}"
    if node.breadth == "first_level":
        return "first level: the top token alone"
    return f"B {node.branching}, the same for all"
