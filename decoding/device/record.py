"""What an iteration on the device leaves on the host: the same tree, draft and verification as the drafter's own."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from decoding.device.tree import ACCEPTED, COLUMNS, FLOATS, SIZE, VERIFIED
from decoding.drafters.base import Drafter
from decoding.sampling.sampling import TargetRows
from decoding.tree.draft import Draft, TokenTree
from decoding.verifiers.base import Verification, VerifiedTree, final_kind
from decoding.verifiers.greedy import GreedyVerifier


@dataclass
class DraftedRows:
    """What the draft was asked in an iteration; see `ModelSource`."""

    rows_before: int = 0
    forwards: int = 0
    row_nodes: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)

    def note_rows(self, tree: TokenTree, pending: int) -> None:
        """Say what each row belongs to: the pending tokens, the root last, and the nodes in the order of their ids."""
        self.row_nodes = [-1] * (pending - 1) + np.flatnonzero(tree.level >= 0).tolist()


class ReadTree(TokenTree):
    """A tree that has been read from the device; it does not grow."""

    def __init__(self, columns: dict[str, np.ndarray], size: int):
        self.size = size
        names = [name for name in self.COLUMNS if name != "multiplicity"]
        self._arrays = {name: columns[name][:size] for name in names} | {"multiplicity": np.ones(size, dtype=np.int64)}

    @property
    def ancestors(self) -> np.ndarray:
        """Bool `[size, size]`: row i marks the ancestors of node i and itself."""
        seen = np.eye(self.size, dtype=bool)
        for node in range(1, self.size):  # parents come before children
            seen[node] |= seen[self.parents[node]]
        return seen


class DeviceReport:
    """The arrays of a `DeviceTree` after its iteration, read in one transfer.

    Args:
        report: int64 `[len(COLUMNS), capacity]`.
    """

    def __init__(self, report: np.ndarray):
        arrays = zip(COLUMNS, report, strict=True)
        self._columns = {name: part.view(np.float64) if name in FLOATS else part for name, part in arrays}
        counters = self._columns["counters"]
        self.tree = ReadTree(self._columns, int(counters[SIZE]))
        self.order = self._columns["order"][: int(counters[VERIFIED])]
        self.preferred = self._columns["preferred"][: len(self.order)]
        self.accepted = tuple(self._columns["path"][: int(counters[ACCEPTED])].tolist())

    def draft(self, drafter: Drafter, state: Any, source: DraftedRows) -> Draft:
        """The draft; its laws level by level where they were asked for. Pruning is part of making the mask here."""
        levels = [np.flatnonzero(self.tree.level == forward) for forward in range(len(source.probs))]
        source.logits = [logits[: len(nodes)] for nodes, logits in zip(levels, source.logits, strict=True)]
        rows = tuple((nodes, probs[: len(nodes)]) for nodes, probs in zip(levels, source.probs, strict=True))
        return Draft(self.tree, self.order, drafter.law, state, rows, drafter.in_force(state))


def greedy_verification(draft: Draft, preferred: np.ndarray, accepted: tuple[int, ...], record: bool) -> Verification:
    """What greedy verification decided, given what the target prefers after each verified node.

    Args:
        preferred: `[num_verified + 1]`.
        accepted: ids of the accepted nodes from the root down.
        record: say how it was decided too: the tests one by one, and the decision for other draws.
    """
    decision = GreedyVerifier().decide(_ReadVerifiedTree(draft, _Preferred(preferred))) if record else None
    last = accepted[-1] if accepted else 0
    kind = final_kind(accepted, above_leaf=bool((draft.tree.parents[draft.order] == last).any()))
    final = int(preferred[draft.order == last][0])
    return Verification(accepted, final, kind, decision.walk(None).tests if decision else (), decision)


class _Preferred(TargetRows):
    """The target's most likely tokens alone, known on the host."""

    def __init__(self, tokens: np.ndarray):
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def argmax(self) -> np.ndarray:
        return self._tokens


class _ReadVerifiedTree(VerifiedTree):
    """A verified tree whose laws have been used on the device already."""

    def _check(self) -> None:
        """Nothing: order and parents were made by the device from one tree, and no law is read here."""
