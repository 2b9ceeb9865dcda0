"""Two draft trees on the same prefix: which nodes both have, and what the iterations did differently."""

from dataclasses import dataclass

from decoding.trace import IterationTrace, node_paths


@dataclass(frozen=True, slots=True)
class TreeDiff:
    """Nodes of two trees, matched by their path of tokens; the root is in neither list.

    Attributes:
        only_first, only_second: ids of nodes that the other tree lacks.
        both: pairs (id in the first, id in the second).
        same_text: both iterations commit the same tokens as far as the shorter one goes.
    """

    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    both: tuple[tuple[int, int], ...]
    same_text: bool

    def marks(self, first: str, second: str) -> tuple[dict[int, str], dict[int, str]]:
        """Words for the nodes that only one tree has, by id: for the first tree and for the second."""
        return dict.fromkeys(self.only_first, f"only in {first}"), dict.fromkeys(self.only_second, f"only in {second}")


@dataclass(frozen=True, slots=True)
class Change:
    """One measure of two iterations; `unit` is empty for counts, `s` for times, `1/s` for rates."""

    words: str
    first: float
    second: float
    unit: str = ""

    @property
    def difference(self) -> float:
        """How much more the second has."""
        return self.second - self.first


def compare_trees(first: IterationTrace, second: IterationTrace) -> TreeDiff:
    """Match the nodes of two recorded trees by their tokens from the root down; what was forced out is in neither."""
    mine, others = map(_by_path, (first, second))
    length = min(len(first.committed_ids), len(second.committed_ids))
    return TreeDiff(
        only_first=tuple(node for path, node in mine.items() if path not in others),
        only_second=tuple(node for path, node in others.items() if path not in mine),
        both=tuple((node, others[path]) for path, node in mine.items() if path in others),
        same_text=first.committed_ids[:length] == second.committed_ids[:length],
    )


def _by_path(iteration: IterationTrace) -> dict[tuple[int, ...], int]:
    gone = iteration.forced_out
    return {path: node for node, path in enumerate(node_paths(iteration)) if node and node not in gone}


def what_changed(
    first: IterationTrace, second: IterationTrace, first_s: float | None = None, second_s: float | None = None
) -> tuple[Change, ...]:
    """What both iterations did: nodes, depth, accepted tokens, draft forwards, target passes, time and speed.

    Args:
        first_s, second_s: measured seconds of the iterations; without both there are no entries for time and speed.
    """
    changes = [
        Change("nodes drafted", first.drafted, second.drafted),
        Change("nodes verified", first.verified, second.verified),
        Change("depth", first.tree_depth, second.tree_depth),
        Change("tokens accepted", len(first.accepted), len(second.accepted)),
        Change("draft forwards", first.draft_forwards, second.draft_forwards),
        Change("target passes", first.target_passes, second.target_passes),
    ]
    if first_s is not None and second_s is not None:
        changes.append(Change("time", first_s, second_s, "s"))
        rates = len(first.committed_ids) / first_s, len(second.committed_ids) / second_s
        changes.append(Change("tokens / s here", *rates, "1/s"))
    return tuple(changes)
