"""The smallest change of one setting that would have brought a token into the verified tree of an iteration."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from decoding.common.errors import SettingsError, needing_torch, require
from decoding.common.settings import HISTORY, SettingInfo, settings_of
from decoding.trace.interventions import Path
from decoding.trace.records import IterationTrace, RunTrace, node_paths

with needing_torch():
    from decoding.drafters.base import Drafter
    from decoding.replay.recorded_logits import AskedTooMuch, DraftMemo, LogitsMissing, model_memo, recorded_memo
    from decoding.replay.stored_state import draws_before, iteration_at, method_of, state_before
    from decoding.sampling.draws import GeneratorDraws
    from decoding.tree.draft import Draft

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1023)
GRID = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8)
SHARES = (0.75, 0.5, 0.25, 0.1, 0.03, 0.01, 0.001)


def is_searched(info: SettingInfo) -> bool:
    """Whether other values of a setting are worth trying: texts have no order, history works between iterations."""
    return info.searched and info.group != HISTORY and not isinstance(info.default, str)


def values_to_try(
    iteration: IterationTrace, info: SettingInfo, before: float, path: Path
) -> Iterator[tuple[float, bool]]:
    """Values to try, nearest first, and whether nothing nearer can decide otherwise."""
    if isinstance(before, bool):
        yield not before, True
        return
    if isinstance(before, int):
        low, high = info.offered_with(before)  # what else is accepted makes trees out of all proportion
        for step in STEPS:
            for whole in (before + step, before - step):
                if low <= whole <= high:
                    yield whole, step <= 4
        for end in (low, high):
            if abs(end - before) not in (0, *STEPS):
                yield int(end), False
        return
    if (accepted := info.accepted) is None:
        raise ValueError("a setting that is a fraction says what it accepts")
    deciding = set(_deciding(iteration, path))
    grid = {round(before + sign * step, 6) for step in GRID for sign in (1, -1)} | {before * share for share in SHARES}
    ends = {accepted.low, accepted.high}
    values = {value for value in deciding | grid | ends if value in accepted and value != before}
    for value in sorted(values, key=lambda value: abs(value - before)):
        yield value, value in deciding


def _deciding(iteration: IterationTrace, path: Path) -> Iterator[float]:
    """Probabilities along a path that thresholds are held against, rounded to either side."""
    nodes, paths = iteration.nodes, node_paths(iteration)
    by_path = {known: node for known, node in zip(paths, nodes, strict=True)}
    for depth in range(len(path) + 1):
        node = by_path.get(path[:depth])
        known = [] if node is None else [node.path_probability, node.confidence]
        if node is None and depth and (parent := by_path.get(path[: depth - 1])) is not None:
            top = iteration.draft_top(parent.node_id)
            known = [parent.path_probability * p for token, _, p in top if token == path[depth - 1]]
        for value in known:
            if value is not None and 0 < value < 1:
                yield rounded(value, up=False)
                yield rounded(value, up=True)


def rounded(value: float, up: bool | None = None) -> float:
    """A probability with three significant digits, more where it would become 1; to one side if asked."""
    for digits in range(3, 9):
        unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
        turn: Callable[[float], int] = round if up is None else math.ceil if up else math.floor
        result = float(f"{turn(value / unit) * unit:.{digits}g}")
        if 0 < result < 1:
            return result
    return value


if TYPE_CHECKING:
    from decoding.models.pair import Pair

Asked = Literal["replayed", "live"]
Gap = Literal["missing", "too_much", "time"]  # why a value could not be tried

HALVINGS = 7
MOST_SECONDS = 10.0


@dataclass(frozen=True)
class SettingChange:
    """One setting at another value, with which the token is in the verified tree."""

    setting: str
    # before, after: in force in the iteration, and instead
    before: float
    after: float
    size: float  # how much that is, as a share of the value before; of the whole range where that is 0, 1 for a switch
    # drafted, verified: nodes of the tree with the change
    drafted: int
    verified: int
    asked: Asked  # whether it is read from recorded logits or the draft model was run
    sure: bool = True  # False where a nearer value could not be tried


@dataclass(frozen=True)
class SmallestChanges:
    """What a search came to."""

    changes: tuple[SettingChange, ...]  # the nearest value of each setting that keeps the token, smallest change first
    without: tuple[str, ...]  # settings that keep it at no value tried
    # Settings of which some values could not be tried because rows are missing and no model was at hand
    unknown: tuple[str, ...]
    # Settings of which some values ask the model about more nodes than a search has room for
    too_large: tuple[str, ...]
    untried: tuple[str, ...]  # settings left when time ran out or somebody cancelled
    # drafted, verified: nodes of the tree as it was
    drafted: int
    verified: int
    trees: int  # trees drafted on the way


@dataclass
class ChangeSearch:
    """Drafts the trees of one iteration with other settings, in the state and with the draws that it had."""

    run: RunTrace
    iteration: IterationTrace
    drafter: Drafter  # with the settings in force in the iteration
    state: Any  # of the run's drafter before the iteration
    stored: DraftMemo
    model: DraftMemo | None
    draws: GeneratorDraws
    trees: int = 0  # trees drafted so far
    _known: dict[Drafter, tuple[Draft, Asked]] = field(default_factory=dict)

    def draft(self, drafter: Drafter) -> tuple[Draft, Asked]:
        """The tree of a drafter, and whether it is read from recorded logits or the model was run.

        Raises `LogitsMissing` where stored rows cannot tell, and there is no model.
        """
        if drafter not in self._known:
            self.trees += 1
            made: tuple[Draft, Asked]
            try:
                made = self._drafted(drafter, self.stored), "replayed"
            except LogitsMissing:
                if self.model is None:
                    raise
                made = self._drafted(drafter, self.model), "live"
            self._known[drafter] = made
        return self._known[drafter]

    def number(self, name: str) -> float:
        """A setting in force that is searched (see `is_searched`)."""
        value = getattr(self.drafter, name)
        if isinstance(value, str):
            raise ValueError(f"{name} is a text, which has no order")
        return value

    def _drafted(self, drafter: Drafter, distributions: DraftMemo) -> Draft:
        state, root_token = drafter.taken_over(self.state), self.iteration.nodes[0].token_id
        return drafter.draft(state, distributions.source(), root_token, self.draws.fork())


def change_search(run: RunTrace, index: int, pair: "Pair | None" = None) -> ChangeSearch:
    """Get ready to draft an iteration's tree with other settings.

    `pair` is asked where stored rows cannot answer; with None or another pair than the run's, they alone answer. Raises
    `SettingsError` where nothing was drafted in the iteration, or it does not fit this program.
    """
    iteration = iteration_at(run, index)
    require(
        iteration.tree_was_drafted, "Nothing was drafted in this iteration, so no setting of its tree can be changed."
    )
    require(bool(iteration.nodes), "This iteration was recorded without its tree: re-run it to analyse it.")
    method = method_of(run)
    drafter, state = method.drafter.with_in_force(iteration.settings), state_before(run, index, method)
    model = None
    if pair is not None and pair.info.name == run.pair.name and not pair.draft.released:
        model = model_memo(pair, run, index)
    return ChangeSearch(run, iteration, drafter, state, recorded_memo(run, index), model, draws_before(run, index))


def smallest_changes(
    search: ChangeSearch,
    path: Path,
    proceed: Callable[[int, int], bool] = lambda _done, _total: True,
    most_s: float = MOST_SECONDS,
) -> SmallestChanges:
    """The nearest value of every setting with which a token is verified.

    `path` has the token ids from the root, left out, down to the token. `proceed` is called after each setting with how
    many of how many are done; its False ends the search. Raises `LogitsMissing` where not even the tree as it was can
    be drafted again; `SettingsError` where it becomes another one: a fork or an edit made it.
    """
    ends_s = time.perf_counter() + most_s
    now, _ = search.draft(search.drafter)
    nodes = zip(search.iteration.nodes, node_paths(search.iteration), strict=True)
    verified = [path for node, path in nodes if node.flat_index is not None]
    require(
        len(now.order) == len(search.iteration.flatten_order) and all(keeps(now, each) for each in verified),
        f"The run's method drafts another tree in iteration {search.iteration.index + 1}: this tree is from an edit or "
        "from another method before a fork, so no setting of the run explains why the token is missing.",
    )
    names = [name for name, info in settings_of(type(search.drafter)).items() if is_searched(info)]
    found: list[SettingChange] = []
    without, unknown, too_large, done = list[str](), list[str](), list[str](), 0
    for name in names:
        change, gaps = _nearest(search, name, path, ends_s)
        if change is not None:
            found.append(change)
        elif "time" in gaps:
            break
        else:
            (unknown if "missing" in gaps else too_large if gaps else without).append(name)
        done += 1
        if not proceed(done, len(names)) or time.perf_counter() > ends_s:
            break
    return SmallestChanges(
        changes=tuple(sorted(found, key=lambda change: (change.size, change.verified))),
        without=tuple(without),
        unknown=tuple(unknown),
        too_large=tuple(too_large),
        untried=tuple(names[done:]),
        drafted=now.tree.size - 1,
        verified=len(now.order) - 1,
        trees=search.trees,
    )


def keeps(draft: Draft, path: Path) -> bool:
    """Whether the verified tree holds a path of tokens."""
    tree, node = draft.tree, 0
    children = {(int(tree.parents[place]), int(tree.tokens[place])): int(place) for place in draft.order}
    for token in path:
        if (node, token) not in children:
            return False
        node = children[node, token]
    return True


def _nearest(search: ChangeSearch, name: str, path: Path, ends_s: float) -> tuple[SettingChange | None, set[Gap]]:
    """The nearest value of a setting that keeps the path, and why some values could not be tried."""
    before = search.number(name)
    info, gaps = settings_of(type(search.drafter))[name], set[Gap]()
    nearer = {True: before, False: before}  # the last value tried in vain, upward and downward
    for value, exact in values_to_try(search.iteration, info, before, path):
        if time.perf_counter() > ends_s:
            return None, {"time"}
        change = _tried(search, name, value, path)
        if isinstance(change, SettingChange):
            change = change if exact else _closer(search, name, nearer[value > before], change, path)
            return replace(change, sure=change.sure and not gaps), gaps
        if change is not None:
            gaps.add(change)
        nearer[value > before] = value
    return None, gaps


def _tried(search: ChangeSearch, name: str, value: float, path: Path) -> SettingChange | Gap | None:
    """The change if it keeps the path, None if it does not or contradicts other settings, else why nobody can tell."""
    before = search.number(name)
    try:
        draft, asked = search.draft(search.drafter.with_settings(**{name: value}))
    except SettingsError:
        return None
    except AskedTooMuch:
        return "too_much"
    except LogitsMissing:
        return "missing"
    if not keeps(draft, path):
        return None
    low, high = settings_of(type(search.drafter))[name].offered or (0, 1)
    size = 1.0 if isinstance(before, bool) else abs(value - before) / (abs(before) or high - low)
    return SettingChange(name, before, value, size, draft.tree.size - 1, len(draft.order) - 1, asked)


def _closer(search: ChangeSearch, name: str, nearer: float, found: SettingChange, path: Path) -> SettingChange:
    """Halve the way between a value that does not keep the path and one that does."""
    whole = isinstance(found.after, int)
    for _ in range(10 if whole else HALVINGS):  # ten halvings settle any whole number of the ranges
        far = found.after
        if whole and abs(far - nearer) <= 1:
            break
        middle = (nearer + far) // 2 if whole else rounded((nearer + far) / 2)
        if middle in (nearer, far):
            break
        change = _tried(search, name, middle, path)
        if isinstance(change, SettingChange):
            found = replace(change, sure=found.sure)
        else:
            nearer = middle
            found = replace(found, sure=found.sure and change is None)
    return found
