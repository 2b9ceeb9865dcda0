"""How the rule that drafted a tree ranks the tokens that compete for places, as its record tells."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from decoding.trace.records import TOP_TOKENS, IterationTrace, NodeTrace


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
    """The competition for places: the value of every token that the draft has scored, where the rule gives it one."""

    def __init__(self, iteration: IterationTrace):
        self.iteration, self.rule = iteration, iteration.rule
        self.by_chance = iteration.rule.value == "chance"
        self.node_values = np.array(self._chances_of_paths() if self.by_chance else self._decayed())

    @property
    def budget(self) -> int:
        """Places there are; as many as are taken where no setting tells."""
        given = self.iteration.settings.get("node_budget")
        return int(given) if isinstance(given, int | float) else self.iteration.verified

    @cached_property
    def last(self) -> float:
        """Value of the last node that has a place; 0 if none has."""
        return min((self.node_values[n] for n in self.iteration.flatten_order if n), default=0.0)

    @cached_property
    def children(self) -> int:
        """Children of a node that are scored; as many as can be of use where the rule sets no limit."""
        return self.rule.children or 1 << 30

    def value(self, parent: int, rank: int, probability: float) -> float:
        """Value of a child of a node, the `rank`-th of the draft there."""
        if not self.by_chance:
            return float(self.node_values[parent]) * self.rule.decay * probability
        return float(self.node_values[parent]) * self._chance(probability, rank > 1)

    def rank(self, value: float) -> tuple[int, bool]:
        """Place of a value among all tokens scored, and whether it is exact or at least that."""
        value *= 1 + 1e-9
        # Beyond the recorded top of a node there may be more that are worth as much.
        exact = self.children <= TOP_TOKENS or self._last_recorded <= value
        return 1 + len(self._sorted) - int(np.searchsorted(self._sorted, value, side="right")), exact

    def rank_on_level(self, node_id: int) -> int:
        """Place of a node among all tokens scored at its depth."""
        scored = self._scored_at_depth.get(self.iteration.nodes[node_id].depth, np.zeros(0))
        value = self.node_values[node_id] * (1 + 1e-9)
        return 1 + len(scored) - int(np.searchsorted(scored, value, side="right"))

    @cached_property
    def least_draw(self) -> float:
        """Worth of the least of all draws made without replacement."""
        return min(draw_worths(self.iteration), default=0.0)

    @cached_property
    def _sorted(self) -> np.ndarray:
        return np.sort(self._scored, axis=None)

    @cached_property
    def _scored_at_depth(self) -> dict[int, np.ndarray]:
        """Values of the tokens scored at each depth, the least first."""
        depths = np.array([1 + node.depth for node in self._expanded])
        return {depth: np.sort(self._scored[depths == depth], axis=None) for depth in set(depths.tolist())}

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
        if self.by_chance:
            chances = self._chance(probs, False)
            chances[:, 1:] = self._chance(probs[:, 1:], True)
            probs = chances
        return self.node_values[ids][:, None] * self.rule.decay * probs

    def _decayed(self) -> list[float]:
        return [node.path_probability * self.rule.decay**node.depth for node in self.iteration.nodes]

    def _chances_of_paths(self) -> list[float]:
        """Products along the paths, from the root down: a node's parent comes before it."""
        nodes, values = self.iteration.nodes, [1.0]
        for node in nodes[1:]:
            confidence = nodes[node.parent_id].confidence
            other = confidence is not None and node.draft_probability < confidence
            values.append(values[node.parent_id] * self._chance(node.draft_probability, other))
        return values

    def _chance(self, probability, other: bool):
        """Chance of acceptance as the rule takes it: the draft's odds times the factor in force."""
        first, others = self.rule.factors
        raised = (others if other else first) * probability
        return raised / (1 - probability + raised)


def draw_worths(iteration: IterationTrace) -> list[float]:
    """Worth of every draw without replacement, `[drafted]`: path probability times what was left of the law there."""
    left: dict[int, float] = {}
    worths = []
    for node in iteration.nodes[1:]:
        mass = left.get(node.parent_id, 1.0)
        worths.append(iteration.nodes[node.parent_id].path_probability * mass)
        left[node.parent_id] = max(mass - node.draft_probability, 0.0)
    return worths
