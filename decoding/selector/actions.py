"""The actions that a selector chooses from, K, L1 and L2 of a delayed tree (Eq. 8), and what each costs. Torch-free.

Two ways to count the time of an action (Eq. 11), from measured passes of both models:

* `rows`: passes are priced by their rows as measured here, and what goes on around them is added.
* `paper`: Eq. 11 as printed, passes of one row behind a context that has grown by what the tree holds.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from decoding.common.cost_model import CostModel

MOST_PATHS, MOST_LENGTH = 4, 8


class Action(NamedTuple):
    """A delayed tree: a trunk of `trunk` tokens (L_1), then `paths` (K) independent paths of `branch` tokens (L_2)."""

    paths: int
    trunk: int
    branch: int

    @property
    def nodes(self) -> int:
        """Tokens drawn, those drawn twice counted twice."""
        return self.trunk + self.paths * self.branch

    @property
    def level_widths(self) -> tuple[int, ...]:
        """Rows of each draft pass, in order: one for every trunk token and for the branching point, then one per path.

        The first one is of the root.
        """
        return (1,) * self.trunk + ((1,) + (self.paths,) * (self.branch - 1) if self.branch else ())


# In the order of labels and logits: [paths, trunk, branch].
ACTIONS: tuple[Action, ...] = tuple(
    Action(*shape) for shape in product(range(1, MOST_PATHS + 1), range(MOST_LENGTH + 1), range(MOST_LENGTH + 1))
)
SHAPE = (MOST_PATHS, MOST_LENGTH + 1, MOST_LENGTH + 1)

# In the order of `network.Features.scalars`.
SCALARS: tuple[str, ...] = (
    "target_entropy", "draft_entropy", "root_entropy", "target_to_draft", "draft_to_target", "l1_distance", "length",
    "temperature", "top_p", "draft_s", "target_s",
)  # fmt: skip
TimeModel = Literal["rows", "paper"]
WAYS: tuple[TimeModel, ...] = ("rows", "paper")


@dataclass(frozen=True)
class LatencyModel:
    """Measured times of passes of a pair on one machine.

    Attributes:
        costs: passes by number of rows behind one prefix, and what an iteration and a level take beside them.
        lengths: rows of context behind which passes of one row were timed, ascending.
        draft_s, target_s: seconds of such a pass, t_q(l) and t_p(l).
        selector_s: seconds that reading the features and choosing an action takes.
    """

    costs: CostModel
    lengths: tuple[int, ...]
    draft_s: tuple[float, ...]
    target_s: tuple[float, ...]
    selector_s: float

    def draft_pass_s(self, length: np.ndarray | float) -> np.ndarray:
        """t_q(l): seconds of a draft pass of one row."""
        return np.asarray(np.interp(length, self.lengths, self.draft_s))

    def target_pass_s(self, length: np.ndarray | float) -> np.ndarray:
        """t_p(l): seconds of a target pass of one row."""
        return np.asarray(np.interp(length, self.lengths, self.target_s))

    def action_s(self, lengths: np.ndarray, way: TimeModel = "rows", selecting: bool = False) -> np.ndarray:
        """Modelled seconds of an iteration with each action behind contexts, `[len(lengths), len(ACTIONS)]`.

        Args:
            selecting: with what a selector costs: itself, and a draft pass over the root even where nothing is drafted.
        """
        lengths = np.asarray(lengths, dtype=float)[:, None]
        found = (self._by_rows if way == "rows" else self._by_length)(lengths)
        if selecting:
            idle = np.array([not action.level_widths for action in ACTIONS])
            around_s = self.costs.level.seconds(1) - self.draft_pass_s(self.costs.prefix_length) if way == "rows" else 0
            root_s = self.draft_pass_s(lengths) + around_s
            found = found + self.selector_s + idle * root_s
        return found

    def _by_rows(self, lengths: np.ndarray) -> np.ndarray:
        levels_s = np.array([self.costs.level.seconds(np.array(a.level_widths)).sum() for a in ACTIONS])
        counts = np.array([len(action.level_widths) for action in ACTIONS])
        nodes = np.array([1 + action.nodes for action in ACTIONS])
        # The curves were taken behind one prefix: passes behind a longer one cost as much more as those of one row.
        prefix = self.costs.prefix_length
        longer_draft_s = self.draft_pass_s(lengths) - self.draft_pass_s(prefix)
        longer_target_s = self.target_pass_s(lengths) - self.target_pass_s(prefix)
        return levels_s + self.costs.verification.seconds(nodes) + counts * longer_draft_s + longer_target_s

    def _by_length(self, lengths: np.ndarray) -> np.ndarray:
        columns = []
        for paths, trunk, branch in ACTIONS:
            drafting = np.zeros_like(lengths) + sum(self.draft_pass_s(lengths + step) for step in range(trunk))
            drafting = drafting + sum(self.draft_pass_s(lengths + trunk + step * paths) for step in range(branch))
            columns.append(drafting + self.target_pass_s(lengths + trunk + paths * branch))
        return np.concatenate(columns, 1)

    def as_json(self) -> dict[str, Any]:
        """The model as JSON holds it."""
        own = {name: list(getattr(self, name)) for name in ("lengths", "draft_s", "target_s")}
        return {"costs": self.costs.as_json(), **own, "selector_s": self.selector_s}

    @staticmethod
    def from_json(content: dict[str, Any]) -> "LatencyModel":
        """The model that `as_json` wrote; a `ValueError`, `KeyError` or `TypeError` where it is damaged."""
        lengths = tuple(int(length) for length in content["lengths"])
        draft_s, target_s = (tuple(float(s) for s in content[name]) for name in ("draft_s", "target_s"))
        lasting = {len(draft_s), len(target_s)}
        if not lengths or list(lengths) != sorted(set(lengths)) or lasting != {len(lengths)}:
            raise ValueError("a latency model needs ascending lengths with a time of both models for each")
        selector_s = float(content["selector_s"])
        every = (*draft_s, *target_s, selector_s)
        if not all(0 <= seconds < np.inf for seconds in every):
            raise ValueError("a time must be finite and not negative")
        return LatencyModel(CostModel.from_json(content["costs"]), lengths, draft_s, target_s, selector_s)


@lru_cache(maxsize=1)
def same_chain() -> np.ndarray:
    """For each action the first one that drafts trees of the same distribution, `[len(ACTIONS)]`.

    Without a branch the number of paths means nothing, and one path is a chain wherever its trunk ends.
    """
    first: dict[Action, int] = {}
    found = []
    for place, (paths, trunk, branch) in enumerate(ACTIONS):
        chain = paths == 1 or branch == 0
        key = Action(1, trunk + branch, 0) if chain else Action(paths, trunk, branch)
        found.append(first.setdefault(key, place))
    return np.array(found)
