"""How the rule that drafted a tree ranks the tokens that compete for places, and which gates a node met.

The gates are those of DynaTree and a fixed tree, in the order of Algorithm 1: pruning, depth, early stop, depth gate,
budget, and for what has passed them all the breadth. Depths are those of the tree on screen, whose first drafted token
has depth 1: one more than the paper's, so that its `d < D` is `depth ≤ D` here.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from decoding.common.formats import beside
from decoding.trace.records import TOP_TOKENS, IterationTrace, RuleTrace, StopReason
from viz.glossary import setting_title


def value_words(rule: RuleTrace) -> str:
    """What tokens that compete for places are ranked by."""
    if rule.value == "chance":
        return "estimated acceptance probability"
    return "decayed path probability" if rule.decay < 1 else "path probability"


def winners(iteration: IterationTrace) -> str:
    """The nodes that won a place, with the setting that says how many there are."""
    if iteration.rule.left_out == "unprofitable":
        return "the nodes expected to give the most tokens per second"
    budget = iteration.settings.get("node_budget")
    count = f"{budget:,} " if isinstance(budget, int | float) else ""
    return f"the {count}nodes of highest {value_words(iteration.rule)} (“{setting_title('node_budget')}”)"


class Places:
    """The competition for places: the value of every token that the draft has scored, where the rule gives it one."""

    def __init__(self, iteration: IterationTrace):
        self.iteration, self.rule = iteration, iteration.rule
        self.by_chance = iteration.rule.value == "chance"
        self.children = self.rule.children or 1 << 30  # scored below a node; unlimited where the rule sets no limit
        nodes, values = iteration.nodes, [1.0]
        if self.by_chance:
            # Products along the paths, from the root down: a node's parent comes before it.
            for node in nodes[1:]:
                confidence, probability = nodes[node.parent_id].confidence, node.draft_probability or 0.0
                other = confidence is not None and probability < confidence
                values.append(values[node.parent_id] * self._chance(probability, other))
        else:
            values = [node.path_probability * self.rule.decay**node.depth for node in nodes]
        self.node_values = np.array(values)
        self._depths = np.array([node.depth for node in nodes])
        self._expanded = [node.node_id for node in nodes if node.stop_reason == "expanded"]

    @property
    def budget(self) -> int:
        """The node budget; the number of verified nodes where no setting gives one."""
        given = self.iteration.settings.get("node_budget")
        return int(given) if isinstance(given, int | float) else self.iteration.verified

    @cached_property
    def last(self) -> float:
        """Value of the last node that has a place; 0 if none has."""
        return min((self.node_values[n] for n in self.iteration.flatten_order if n), default=0.0)

    def value(self, parent: int, rank: int, probability: float) -> float:
        """Value of a child of a node, the draft's `rank`-th choice there."""
        if not self.by_chance:
            return float(self.node_values[parent]) * self.rule.decay * probability
        return float(self.node_values[parent]) * self._chance(probability, rank > 1)

    def rank(self, value: float) -> tuple[int, bool]:
        """Rank of a value among all tokens scored, and whether it is exact or a lower bound."""
        value *= 1 + 1e-9
        # Beyond the recorded top tokens of a node there may be more of equal value.
        exact = self.children <= TOP_TOKENS or self._scored[:, -1].max(initial=0.0) <= value
        return 1 + int((self._scored > value).sum()), exact

    def rank_on_level(self, node_id: int) -> int:
        """Rank of a node among all tokens scored at its depth."""
        scored = self._scored[self._depths[self._expanded] == self._depths[node_id] - 1]
        return 1 + int((scored > self.node_values[node_id] * (1 + 1e-9)).sum())

    @cached_property
    def least_draw(self) -> float:
        """Value of the lowest draw without replacement: path probability times the mass not yet drawn there."""
        left: dict[int, float] = {}
        worths = []
        for node in self.iteration.nodes[1:]:
            mass = left.get(node.parent_id, 1.0)
            worths.append(self.iteration.nodes[node.parent_id].path_probability * mass)
            left[node.parent_id] = max(mass - (node.draft_probability or 0.0), 0.0)
        return min(worths, default=0.0)

    @cached_property
    def _scored(self) -> np.ndarray:
        """Values of the recorded children of every expanded node, `[num_expanded, at most 20]`; 0 where none is."""
        ids, width = self._expanded, min(self.children, TOP_TOKENS)
        if self.iteration.draft_top_probs is None:
            return np.zeros((len(ids), width))
        probs = np.nan_to_num(self.iteration.draft_top_probs[ids, :width].astype(float))
        if self.by_chance:
            chances = self._chance(probs, False)
            chances[:, 1:] = self._chance(probs[:, 1:], True)
            probs = chances
        return self.node_values[ids][:, None] * self.rule.decay * probs

    def _chance(self, probability, other: bool):
        """Acceptance probability in the rule's estimate: the draft's odds times the current factor."""
        first, others = self.rule.factors
        raised = (others if other else first) * probability
        return raised / (1 - probability + raised)


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
    for reason in order if node_id else ("length_limit",):  # nothing else stops the root
        stopped = reason == node.stop_reason
        if found := _gate(iteration, node_id, reason, stopped):
            met.append(Gate(*found, "stopped" if stopped else "passed"))
        if stopped:
            return tuple(met)
    if node.stop_reason == "expanded":
        met.append(Gate("breadth", _breadth(iteration, node_id), "breadth"))
    return tuple(met)


def _gate(iteration: IterationTrace, node_id: int, reason: StopReason, stopped: bool) -> tuple[str, str] | None:
    """Name and comparison of one gate; None where it cannot stop anything with these settings, or a file lacks one."""
    settings, node = iteration.settings, iteration.nodes[node_id]
    values = {name: value for name, value in settings.items() if isinstance(value, int | float)}
    needed = {
        "max_depth": {iteration.rule.depth_setting},
        "early_stop": {"stop_probability"},
        "depth_gate": {"base_depth", "deep_probability"},
        "budget": {"node_budget"},
    }.get(reason, set())
    if not values.keys() >= needed:
        return None
    depth, adaptive = node.depth, bool(settings.get("dynamic_depth", True))

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
        return "depth", f"depth {depth} {'>' if stopped else '≤'} {symbol} {limit:g}"
    if reason == "early_stop":
        return ("early stop", compared("stop_probability", "ρ_stop")) if adaptive else None
    if reason == "depth_gate":
        base = values["base_depth"]
        if not adaptive:
            return None
        if depth <= base:
            return "depth gate", f"depth {depth} ≤ D_0 {base:g}"
        name = "depth gate" if stopped else "deep expansion"
        return name, f"depth {depth} > D_0 {base:g}, {compared('deep_probability', 'ρ_deep')}"
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
