"""The rule that drafted a tree, told by its settings, and how it ranks the tokens that compete for places."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from decoding.trace import TOP_TOKENS, IterationTrace, NodeTrace

Rule = Literal[
    "none", "linear", "fixed_tree", "dynatree", "widths", "paths", "delayed", "sequoia", "dyspec", "dyspec_threshold",
    "opt_tree", "eagle2", "specexec", "salf", "hardware_aware", "other",
]  # fmt: skip
# A setting that only this rule has; the first that is there tells.
TELLING: tuple[tuple[str, Rule], ...] = (
    ("base_depth", "dynatree"),
    ("branching", "fixed_tree"),
    ("widths", "widths"),
    ("trunk", "delayed"),
    ("paths", "paths"),
    ("length", "linear"),
    ("acceptance", "sequoia"),
    ("threshold", "dyspec_threshold"),
    ("beam_width", "eagle2"),
    ("decay", "specexec"),
    ("top_up", "salf"),
    ("gain_threshold", "opt_tree"),
    ("level_ms", "hardware_aware"),
)
# Rules whose tokens compete for places by their value.
RANKED: tuple[Rule, ...] = ("opt_tree", "eagle2", "specexec", "salf", "hardware_aware")
SCORED_CHILDREN = 8  # of a node, by the hardware-aware rule


def rule_of(settings: Mapping) -> Rule:
    """The rule behind some settings in force."""
    found = next((rule for name, rule in TELLING if name in settings), None)
    if found is None:
        found = "dyspec" if set(settings) == {"node_budget", "max_depth"} else "other" if settings else "none"
    return found


@dataclass(frozen=True)
class DraftRank:
    """What the draft thinks of a token after a node.

    Attributes:
        rank: 1 for its likeliest token; None where it is not recorded.
        probability: None where it is not recorded.
        floor: the least probability recorded there; an unrecorded one is not above it.
    """

    rank: int | None
    probability: float | None
    floor: float


class DraftRanks:
    """The draft's rank and probability of tokens, from its recorded top or, for the rank, its raw row."""

    def __init__(self, iteration: IterationTrace):
        self._iteration, self._known = iteration, {}

    def of(self, parent: int, token: int) -> DraftRank:
        """What the draft thinks of a token after a node."""
        if parent not in self._known:
            top = self._iteration.draft_top(parent)
            floor = top[-1][2] if len(top) == TOP_TOKENS else 0.0
            told = {known: DraftRank(rank, p, floor) for rank, (known, _, p) in enumerate(top, start=1)}
            self._known[parent] = told, floor
        told, floor = self._known[parent]
        if token in told:
            return told[token]
        return DraftRank(self._iteration.draft_rank(parent, token), None, floor)


class Places:
    """The competition for places under a rule of `RANKED`: the value of every token that the draft has scored."""

    def __init__(self, iteration: IterationTrace):
        self.iteration, self.rule = iteration, rule_of(iteration.settings)
        self.decay = float(iteration.settings.get("decay", 1.0))
        self.node_values = np.array([self._node_value(node) for node in iteration.nodes])

    @property
    def budget(self) -> int:
        """Places there are."""
        return int(self.iteration.settings["node_budget"])

    @cached_property
    def last(self) -> float:
        """Value of the last node that has a place; 0 if none has."""
        return min((self.node_values[n] for n in self.iteration.flatten_order if n), default=0.0)

    @cached_property
    def children(self) -> int:
        """Children of a node that are scored; as many as can be of use where the rule sets no limit."""
        if self.rule == "hardware_aware":
            return SCORED_CHILDREN
        limit = {"eagle2": "beam_width", "specexec": "children"}.get(self.rule, "")
        return int(self.iteration.settings.get(limit, 0)) or 1 << 30

    def value(self, parent: int, rank: int, probability: float) -> float:
        """Value of a child of a node, the `rank`-th of the draft there."""
        if self.rule != "hardware_aware":
            return float(self.node_values[parent]) * self.decay * probability
        return float(self.node_values[parent]) * self._chance(probability, rank > 1)

    def rank(self, value: float) -> tuple[int, bool]:
        """Place of a value among all tokens scored, and whether it is exact or at least that."""
        value *= 1 + 1e-9
        # Beyond the recorded top of a node there may be more that are worth as much.
        exact = self.children <= TOP_TOKENS or self._last_recorded <= value
        return 1 + len(self._sorted) - int(np.searchsorted(self._sorted, value, side="right")), exact

    def rank_on_level(self, node_id: int) -> int:
        """Place of a node among all tokens scored at its depth."""
        depth = self.iteration.nodes[node_id].depth
        parents = [node.node_id for node in self._expanded if node.depth == depth - 1]
        rows = [place for place, node in enumerate(self._expanded) if node.node_id in parents]
        return 1 + int((self._scored[rows] > self.node_values[node_id] * (1 + 1e-9)).sum())

    @cached_property
    def least_draw(self) -> float:
        """Worth of the least of all draws made without replacement."""
        return min(draw_worths(self.iteration), default=0.0)

    @cached_property
    def _sorted(self) -> np.ndarray:
        return np.sort(self._scored, axis=None)

    @cached_property
    def _last_recorded(self) -> float:
        return float(self._scored[:, -1].max(initial=0.0))

    @cached_property
    def _expanded(self) -> list[NodeTrace]:
        return [node for node in self.iteration.nodes if node.growth == "expanded"]

    @cached_property
    def _scored(self) -> np.ndarray:
        """Values of the recorded children of every expanded node, `[num_expanded, 20 at most]`; 0 where none is."""
        ids = [node.node_id for node in self._expanded]
        width = min(self.children, TOP_TOKENS)
        if self.iteration.draft_top_probs is None:
            return np.zeros((len(ids), width))
        probs = np.nan_to_num(self.iteration.draft_top_probs[ids, :width].astype(float))
        if self.rule == "hardware_aware":
            chances = self._chance(probs, False)
            chances[:, 1:] = self._chance(probs[:, 1:], True)
            probs = chances
        return self.node_values[ids][:, None] * self.decay * probs

    def _node_value(self, node: NodeTrace) -> float:
        if self.rule != "hardware_aware":
            return node.path_probability * self.decay**node.depth
        value = 1.0
        while node.parent_id >= 0:
            parent = self.iteration.nodes[node.parent_id]
            other = parent.confidence is not None and node.draft_probability < parent.confidence
            value *= self._chance(node.draft_probability, other)
            node = parent
        return value

    def _chance(self, probability, other: bool):
        """Chance of acceptance as the hardware-aware rule takes it: the draft's odds times the factor in force."""
        first, others = self._factors
        raised = (others if other else first) * probability
        return raised / (1 - probability + raised)

    @cached_property
    def _factors(self) -> tuple[float, float]:
        words = str(self.iteration.settings.get("odds", "")).split()
        return (float(words[0]), float(words[1])) if len(words) == 2 else (1.0, 1.0)


def draw_worths(iteration: IterationTrace) -> list[float]:
    """Worth of every draw without replacement, `[drafted]`: path probability times what was left of the law there."""
    left: dict[int, float] = {}
    worths = []
    for node in iteration.nodes[1:]:
        mass = left.get(node.parent_id, 1.0)
        worths.append(iteration.nodes[node.parent_id].path_probability * mass)
        left[node.parent_id] = max(mass - node.draft_probability, 0.0)
    return worths
