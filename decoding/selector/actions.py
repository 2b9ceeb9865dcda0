"""The actions that a selector chooses from, K, L1 and L2 of a delayed tree (Eq. 8), what each costs, and the best ones
that are the same at every root, with which a selector is compared. Torch-free.

Two ways to count the time of an action (Eq. 11), from measured passes of both models:

* `rows`: passes are priced by their rows as measured here, and what real iterations take beside them is added, which
  with some verifiers is most of it.
* `paper`: Eq. 11 as printed, passes of one row after a context that has grown by what the tree holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from decoding.common.cost_model import CostModel, restless_words
from decoding.common.trained_store import count_of, number_of

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


def _same_chain() -> np.ndarray:
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


# Of the actions one for each distribution of trees, 233 of 324: their places among all, `[len(DISTINCT)]`, and the
# number of every action among them, `[len(ACTIONS)]`.
PLACES, DISTINCT_OF = np.unique(_same_chain(), return_inverse=True)
DISTINCT: tuple[Action, ...] = tuple(ACTIONS[place] for place in PLACES)


def shared_labels(expected: np.ndarray) -> np.ndarray:
    """Labels `[..., len(ACTIONS)]` to those of the distinct actions, means over those that draft the same trees."""
    which = np.zeros((len(ACTIONS), len(DISTINCT)))
    which[np.arange(len(ACTIONS)), DISTINCT_OF] = 1 / np.bincount(DISTINCT_OF)[DISTINCT_OF]
    return expected @ which


TimeModel = Literal["rows", "paper"]
TIME_MODELS: tuple[TimeModel, ...] = ("rows", "paper")


@dataclass(frozen=True)
class VerifierTimes:
    """What real iterations with one verifier take beside their passes: a line for each K, fitted to measured ones.

    Attributes:
        paths_s: seconds with K paths from 1, `[MOST_PATHS]`; a tree without a branch has one.
        level_s, node_s: more for each draft level and for each node.
    """

    verifier: str
    paths_s: tuple[float, ...]
    level_s: float
    node_s: float
    measured_with: str = ""  # when the costs of passes that were taken off were measured

    def seconds(self, paths: np.ndarray, levels: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Seconds beside the passes of iterations, elementwise."""
        return np.array(self.paths_s)[paths - 1] + self.level_s * levels + self.node_s * nodes

    @staticmethod
    def fitted(verifier: str, actions: Sequence[Action], beside_s: Sequence[float]) -> "VerifierTimes":
        """The lines nearest to measured seconds of some actions, in relative squares; none of their numbers negative.

        Every K must be among the actions that branch, and two chains of different lengths.
        """
        from scipy.optimize import nnls  # takes a while to load, and few need it

        paths, levels, nodes = _sizes(actions)
        columns = [*(paths == k for k in range(1, MOST_PATHS + 1)), levels, nodes]
        seconds = np.asarray(beside_s, dtype=float)
        weights = 1 / np.maximum(np.abs(seconds), 1e-6)
        found = nnls(np.array(columns, dtype=float).T * weights[:, None], seconds * weights)[0].tolist()
        return VerifierTimes(verifier, tuple(found[:MOST_PATHS]), *found[MOST_PATHS:])


def _sizes(actions: Sequence[Action]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Paths (1 without a branch), draft levels and nodes of some actions."""
    rows = [(a.paths if a.branch else 1, len(a.level_widths), a.nodes) for a in actions]
    paths, levels, nodes = np.array(rows).T
    return paths, levels, nodes


@dataclass(frozen=True)
class LatencyModel:
    """Measured times of passes of a pair on one machine.

    Attributes:
        costs: passes by number of rows after one prefix, and what an iteration and a level take beside them.
        lengths: rows of context after which passes of one row were timed, ascending.
        draft_s, target_s: seconds of such a pass, t_q(l) and t_p(l).
        selector_s: seconds more that an iteration takes in which a selector is asked.
        beside: what real iterations with a verifier take beside their passes; None: with any, as `costs` has it.
        spread: of repeats of the same pass of one row, the upper quartile by the lower, typically.
        others: share of the processors that other processes used meanwhile.
    """

    costs: CostModel
    lengths: tuple[int, ...]
    draft_s: tuple[float, ...]
    target_s: tuple[float, ...]
    selector_s: float
    beside: VerifierTimes | None = None
    spread: float = 1.0
    others: float = 0.0

    @property
    def disturbed(self) -> str:
        """What tells that other work disturbed the passes of one row, a clause; empty where nothing does."""
        return restless_words(self.spread)

    def draft_pass_s(self, length: np.ndarray | float) -> np.ndarray:
        """t_q(l): seconds of a draft pass of one row."""
        return np.asarray(np.interp(length, self.lengths, self.draft_s))

    def target_pass_s(self, length: np.ndarray | float) -> np.ndarray:
        """t_p(l): seconds of a target pass of one row."""
        return np.asarray(np.interp(length, self.lengths, self.target_s))

    def action_s(self, lengths: np.ndarray, way: TimeModel = "rows", selecting: bool = False) -> np.ndarray:
        """Modelled seconds of an iteration with each action after contexts, `[len(lengths), len(ACTIONS)]`.

        Args:
            selecting: with what a selector costs: itself, and a draft pass over the root even where nothing is drafted.
        """
        lengths = np.asarray(lengths, dtype=float)[:, None]
        found = self.parts(lengths[:, 0]).sum(0) if way == "rows" else self._by_length(lengths)
        if selecting:
            idle = np.array([not action.level_widths for action in ACTIONS])
            root_s = self.draft_pass_s(lengths)
            if way == "rows":
                one_s = float(self.costs.draft.seconds(1)) - self.draft_pass_s(self.costs.prefix_length)
                root_s = root_s + one_s + (self.beside or self.costs).level_s
            found = found + self.selector_s + idle * root_s
        return found

    def parts(self, lengths: np.ndarray) -> np.ndarray:
        """Seconds of each action by what sets them, `[4, len(lengths), len(ACTIONS)]`; their sum is the way `rows`.

        Drafting; a target pass of one row; what more rows add to it; all that is beside the passes.
        """
        lengths, known = np.asarray(lengths, dtype=float)[:, None], self._known
        # The curves were taken after one prefix: passes after a longer one cost as much more as those of one row.
        prefix = self.costs.prefix_length
        longer_draft_s = self.draft_pass_s(lengths) - self.draft_pass_s(prefix)
        longer_target_s = self.target_pass_s(lengths) - self.target_pass_s(prefix)
        drafting = known[0] + known[4] * longer_draft_s
        return np.stack([drafting, *np.broadcast_arrays(known[1] + longer_target_s, known[2], known[3])])

    @cached_property
    def _known(self) -> np.ndarray:
        """The four parts after the prefix of the curves, and draft levels, `[5, len(ACTIONS)]`."""
        paths, levels, nodes = _sizes(ACTIONS)
        drafting = np.array([self.costs.draft.seconds(np.array(action.level_widths)).sum() for action in ACTIONS])
        one = np.full(len(ACTIONS), self.costs.target.seconds(1))
        rows = self.costs.target.seconds(1 + nodes) - one
        if self.beside is None:
            beside = self.costs.iteration_s + levels * self.costs.level_s
        else:
            beside = self.beside.seconds(paths, levels, nodes)
        return np.stack([drafting, one, rows, beside, levels])

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
        beside = {} if self.beside is None else {"beside": {**vars(self.beside), "paths_s": list(self.beside.paths_s)}}
        load = {"spread": self.spread, "others": self.others}
        return {"costs": self.costs.as_json(), **own, "selector_s": self.selector_s, **beside, **load}

    @staticmethod
    def from_json(content: dict[str, Any]) -> "LatencyModel":
        """The model that `as_json` wrote; a `ValueError`, `KeyError` or `TypeError` where it is damaged."""
        lengths = tuple(int(length) for length in content["lengths"])
        draft_s, target_s = (tuple(float(s) for s in content[name]) for name in ("draft_s", "target_s"))
        lasting = {len(draft_s), len(target_s)}
        if not lengths or list(lengths) != sorted(set(lengths)) or lasting != {len(lengths)}:
            raise ValueError("a latency model needs ascending lengths with a time of both models for each")
        selector_s = float(content["selector_s"])
        beside = None if "beside" not in content else times_from_json(content["beside"])
        load = float(content.get("spread", 1.0)), float(content.get("others", 0.0))
        if not all(0 <= value < np.inf for value in (*draft_s, *target_s, selector_s, *load)):
            raise ValueError("a time, a spread or a load must be finite and not negative")
        costs = CostModel.from_json(content["costs"])
        return LatencyModel(costs, lengths, draft_s, target_s, selector_s, beside, *load)


def times_from_json(content: Mapping[str, Any]) -> VerifierTimes:
    """The times of a verifier as JSON holds their fields; a `ValueError`, `KeyError` or `TypeError` where damaged."""
    paths_s = tuple(float(s) for s in content["paths_s"])
    level_s, node_s = float(content["level_s"]), float(content["node_s"])
    if len(paths_s) != MOST_PATHS or not all(0 <= seconds < np.inf for seconds in (*paths_s, level_s, node_s)):
        raise ValueError("times beside passes are four by K, and none is negative")
    return VerifierTimes(str(content["verifier"]), paths_s, level_s, node_s, str(content["measured_with"]))


SAMPLED = ("temperature", "top_p", "draft_temperature")
STATICS = ("action", "most_tokens", "root_action", "root_most_tokens")


@dataclass(frozen=True)
class StaticShape:
    """The best actions that are the same at every root, chosen on training roots.

    Attributes:
        temperature, top_p, draft_temperature: the sampling they are the best for.
        action: by modelled tokens per second. most_tokens: by tokens per pass.
        root_action, root_most_tokens: the same among trees that branch at the root, i.i.d. paths without a trunk.
        tokens: mean expected tokens of each distinct action, from which the best where passes cost something else is
            found; empty where they were not kept.
    """

    temperature: float
    top_p: float
    draft_temperature: float
    action: Action
    most_tokens: Action
    root_action: Action
    root_most_tokens: Action
    tokens: tuple[float, ...] = ()

    @staticmethod
    def of(sampled: tuple[float, float, float], tokens: np.ndarray, seconds: np.ndarray) -> "StaticShape":
        """The best of the distinct actions by their mean tokens and times, both `[len(DISTINCT)]`.

        Of actions with as many tokens it is the one that takes the least time.
        """
        found = []
        for places in (range(len(DISTINCT)), [place for place, action in enumerate(DISTINCT) if not action.trunk]):
            found.append(DISTINCT[max(places, key=lambda place: tokens[place] / seconds[place])])
            found.append(DISTINCT[max(places, key=lambda place: (round(float(tokens[place]), 3), -seconds[place]))])
        action, most_tokens, root_action, root_most_tokens = found
        temperature, top_p, draft_temperature = sampled
        return StaticShape(
            temperature, top_p, draft_temperature, action, most_tokens, root_action, root_most_tokens,
            tuple(np.round(tokens, 3).tolist()),
        )  # fmt: skip

    def here(self, seconds: np.ndarray) -> "StaticShape":
        """The same where the distinct actions take these times; as it is where tokens were not kept."""
        if not self.tokens:
            return self
        sampled = (self.temperature, self.top_p, self.draft_temperature)
        return StaticShape.of(sampled, np.array(self.tokens), seconds)

    def as_json(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        own = {name: list(value) if name in STATICS else value for name, value in vars(self).items()}
        return own | {"tokens": " ".join(f"{tokens:g}" for tokens in self.tokens)}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "StaticShape":
        """The record that `as_json` wrote; a `ValueError`, `KeyError` or `TypeError` where it is damaged."""
        actions = [Action(*map(count_of, content[name])) for name in STATICS]
        if any(action not in ACTIONS for action in actions):
            raise ValueError
        tokens = tuple(float(number) for number in str(content.get("tokens", "")).split())
        if len(tokens) not in (0, len(DISTINCT)) or not all(1 <= number < np.inf for number in tokens):
            raise ValueError
        named: dict[str, Any] = {name: number_of(content[name]) for name in SAMPLED}
        named |= zip(STATICS, actions, strict=True)
        return StaticShape(**named, tokens=tokens)


def nearest(statics: Sequence[StaticShape], temperature: float, top_p: float, draft_temperature: float) -> StaticShape:
    """Of some samplings the nearest to another: by top-p, then temperature, then that of the draft."""
    apart = ((abs(s.top_p - top_p), abs(s.temperature - temperature), abs(s.draft_temperature - draft_temperature))
             for s in statics)  # fmt: skip
    return min(zip(apart, statics, strict=True), key=lambda pair: pair[0])[1]
