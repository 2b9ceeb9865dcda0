"""The verdict on each node and the code of its reason; what a person changes by hand: nodes, verdicts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from decoding.common.errors import SettingsError
from decoding.trace.records import (
    InterventionKind,
    IterationTrace,
    LeftOut,
    NodeTrace,
    Reason,
    Verdict,
    VerificationStep,
    node_paths,
)

Path = tuple[int, ...]
# By path of the row: the only token left, or None, and the tokens removed.
ChangedRows = dict[Path, tuple[int | None, tuple[int, ...]]]

# What each kind of edit is called after the token it is about.
WORDS: dict[InterventionKind, str] = {
    "force_in": "forced in",
    "force_out": "forced out",
    "accept": "force-accepted",
    "reject": "force-rejected",
}


@dataclass(frozen=True)
class Interventions:
    """Changes to one iteration; a node is named by its path of token ids from the root, the root left out.

    Raises `SettingsError` where a path is empty, or two edits contradict each other.
    """

    # The last token of the path is added below the rest, which must be there; a drafted node that was pruned is
    # verified all the same
    force_in: tuple[Path, ...] = ()
    force_out: tuple[Path, ...] = ()  # the node and all below it leave the tree before verification
    accept: tuple[Path, ...] = ()  # as if the target gave this token, and each before it, probability 1 at its parent
    reject: tuple[Path, ...] = ()  # as if the target gave this token probability 0 at its parent

    def __post_init__(self):
        for _, path in self:
            if not path:
                raise SettingsError("The root is already committed and cannot be edited: choose a node below it.")
        wanted: dict[Path, int] = {}
        for parent, token in accepted_steps(self.accept):
            if wanted.setdefault(parent, token) != token:
                raise SettingsError("Two siblings cannot both be force-accepted: choose one of them.")
        for path in self.reject:
            if wanted.get(path[:-1]) == path[-1]:
                raise SettingsError("A node cannot be both force-accepted and force-rejected: choose one.")
        for kind in ("force_in", "accept"):
            for path in getattr(self, kind):
                if any(path[: len(out)] == out for out in self.force_out):
                    raise SettingsError(
                        f"A node {WORDS[kind]} is inside a branch that is forced out: undo one of the two edits."
                    )

    def __bool__(self) -> bool:
        return bool(self.force_in or self.force_out or self.accept or self.reject)

    def __iter__(self) -> Iterator[tuple[InterventionKind, Path]]:
        """Every edit as its kind and its path."""
        for kind in WORDS:
            for path in getattr(self, kind):
                yield kind, path

    @property
    def rows(self) -> ChangedRows:
        """What changes in the target's rows."""
        changed: ChangedRows = {}
        for parent, token in accepted_steps(self.accept):
            changed[parent] = token, ()
        for path in self.reject:
            only, removed = changed.get(path[:-1], (None, ()))
            changed[path[:-1]] = only, (*removed, path[-1])
        return changed

    def words(self, text_of: Callable[[int], str]) -> str:
        """The edits in words, of texts as they are to be shown: `·cat forced in · ·dog force-rejected`."""
        return " · ".join(f"{text_of(path[-1])} {WORDS[kind]}" for kind, path in self)


def interventions_of(forced: Iterable[tuple[str, Path]]) -> Interventions:
    """The edits of these kinds and paths, each once however often it is named.

    Raises `SettingsError` where they contradict each other.
    """
    named = dict.fromkeys(forced)
    return Interventions(**{kind: tuple(path for of, path in named if of == kind) for kind in WORDS})


def interventions_at(iterations: Iterable[IterationTrace], index: int) -> Interventions:
    """What was changed by hand in the iteration with this index; nothing where it is yet to come."""
    return interventions_of(
        (each.kind, each.path) for it in iterations if it.index == index for each in it.interventions
    )


def accepted_steps(accepted: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Parent's path and token of each step on the way to accepted nodes."""
    for path in accepted:
        for depth in range(len(path)):
            yield path[:depth], path[depth]


def intervened_nodes(iteration: IterationTrace, interventions: Interventions) -> tuple[NodeTrace, ...]:
    """The nodes of a record, with reasons and breadths that say what was edited."""
    rows, put_in_below = interventions.rows, {path[:-1] for path in interventions.force_in}
    nodes = []
    for node, path in zip(iteration.nodes, node_paths(iteration), strict=True):
        # A node is added to those that the drafter has allowed, so their number is no longer its doing alone.
        breadth = "forced" if path in put_in_below else node.breadth
        nodes.append(replace(node, reason=_reason(node, path, interventions, rows), breadth=breadth))
    return tuple(nodes)


def _reason(node: NodeTrace, path: Path, interventions: Interventions, rows: ChangedRows) -> Reason | None:
    """Why a node of an edited iteration has its verdict; what was forced in vain is not why."""
    if any(path[: len(out)] == out for out in interventions.force_out):
        return "forced_out" if path in interventions.force_out else "below_forced_out"
    only, removed = rows.get(path[:-1], (None, ())) if path else (None, ())
    if path and path[-1] in removed:
        return "forced_fail" if node.verdict == "rejected" else node.reason
    if path and path[-1] == only:
        return "forced_pass" if node.verdict == "accepted" else node.reason
    if (only is None and not removed) or node.verdict not in ("accepted", "rejected"):
        return node.reason
    return "sibling_forced_fail" if only is None else "sibling_forced_pass"


def touches_first_child(iteration: IterationTrace, interventions: Interventions) -> bool:
    """Whether a node put in or taken out of a recorded iteration is the first verified child of its parent."""
    paths = node_paths(iteration)
    edited = {path for kind, path in interventions if kind in ("force_in", "force_out")}
    seen: set[int] = set()
    for node in iteration.drawn or range(1, len(iteration.nodes)):
        parent, path = iteration.nodes[node].parent_id, paths[node]
        verified = iteration.nodes[node].flat_index is not None
        if parent in seen or not (verified or path in edited):
            continue
        seen.add(parent)
        if path in edited:
            return True
    return False


class Verdicts:
    """What the tests of one iteration mean for its nodes.

    Args:
        steps: the verifier's tests in order.
        verified: ids of the nodes of the verification pass.
        reached: ids of the nodes that the verifier accepted.
        kept: of these, those whose tokens were committed.
        left_out: why the other nodes were not verified.
        first_path: the verifier tests no node off the first path that was drawn.
    """

    def __init__(
        self,
        steps: Sequence[VerificationStep],
        verified: Collection[int],
        reached: Collection[int],
        kept: Collection[int],
        left_out: LeftOut | None,
        first_path: bool,
    ):
        self._verified, self._reached, self._kept, self._left_out = set(verified), {0, *reached}, set(kept), left_out
        self._tested = {step.child_id: step for step in steps if step.kind == "test" and step.child_id is not None}
        self._chosen = {step.node_id: step for step in steps if step.kind == "choice"}
        matches = [step for step in steps if step.kind == "match" and step.child_id != step.rival_id]
        self._beaten = {step.rival_id if step.accepted else step.child_id for step in matches}
        # Bottom-up verifiers weigh paths; a test of theirs that passes settles the whole path.
        self._bottom_up = any(step.weight is not None for step in steps)
        self._settled = not first_path and any(step.accepted for step in self._tested.values())

    def of(self, node: int, parent: int, token: int) -> tuple[Verdict, Reason | None]:
        """Verdict and reason of one node."""
        if node == 0:
            return "root", "root"
        if node not in self._verified:
            return "not_verified", self._left_out
        test = self._tested.get(node)
        if node in self._reached:
            if node not in self._kept:
                return "not_reached", "text_ended"
            if test is not None and test.accepted:
                return "accepted", "favourite" if test.drawn is None else "test_passed"
            drawn = parent in self._chosen and self._chosen[parent].child_id == node
            return "accepted", "drawn" if drawn else "kept_below"
        if test is not None:
            return "rejected", "not_favourite" if test.drawn is None else "test_failed"
        if parent in self._reached and parent in self._chosen:
            if node in self._beaten:
                return "rejected", "match_lost"
            return "rejected", "first_path_only" if self._chosen[parent].token_id == token else "not_drawn"
        if self._bottom_up:
            return "not_reached", "path_settled" if self._settled else "first_path_only"
        if parent not in self._reached:
            return "not_reached", "ancestor_lost"
        return "not_reached", "match_lost" if node in self._beaten else "sibling_taken"
