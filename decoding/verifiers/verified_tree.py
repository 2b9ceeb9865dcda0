"""What a verifier sees: the verified part of a draft tree, and both laws after each of its nodes."""

from functools import cached_property

from torch import Tensor

from decoding.sampling.sampling import TargetRows, check_laws, checked_law, exact_dtype
from decoding.tree.draft import Draft


class VerifiedTree:
    """A draft without what was pruned, its children in draw order, its laws in the widest float of the device.

    Attributes:
        order: ids of the verified nodes in the order of the verification pass, root first.
        tokens, parents: token and parent of every drafted node by id.
        entries: children of each verified node in draw order; one drawn twice stands there twice.

    Raises:
        ValueError: rows that are no laws, or a parent behind its child; the message names the argument.
    """

    def __init__(self, draft: Draft, target: TargetRows):
        self.order = [int(node) for node in draft.order]
        self.tokens: list[int] = draft.tree.tokens.tolist()
        self.parents: list[int] = draft.tree.parents.tolist()
        self.row_of = {node: row for row, node in enumerate(self.order)}
        self._draft, self._target = draft, target
        self._target_laws: dict[int, Tensor] = {}
        self._draft_laws: dict[int, Tensor] = {}
        self._check()
        self.entries: dict[int, list[int]] = {node: [] for node in self.order}
        drawn = range(1, draft.tree.size) if draft.drawn is None else draft.drawn.tolist()
        for node in drawn:
            if node in self.row_of:
                self.entries[self.parents[node]].append(node)

    def target_law(self, node: int) -> Tensor:
        """The target's law after a node, temperature and top-p applied, `[vocab_size]`."""
        if node not in self._target_laws:
            self._target_laws[node] = self._target.law(self.row_of[node])
        return self._target_laws[node]

    def draft_law(self, node: int) -> Tensor:
        """The law that the children of a node were drawn from, `[vocab_size]`."""
        if node not in self._draft_laws:
            level, row = self._draft_rows[node]
            probs = self._draft.rows[level][1][row]
            self._draft_laws[node] = checked_law(probs.to(exact_dtype(probs.device)), f"draft_probs of node {node}")
        return self._draft_laws[node]

    def path(self, node: int) -> tuple[int, ...]:
        """Ids from below the root down to a node."""
        ids: list[int] = []
        while node > 0:
            ids.append(node)
            node = self.parents[node]
        return tuple(reversed(ids))

    @cached_property
    def preferred(self) -> list[int]:
        """The target's most likely token after each verified node, in the order of the verification pass."""
        return self._target.argmax.tolist()

    @cached_property
    def _draft_rows(self) -> dict[int, tuple[int, int]]:
        """Where the draft's law after each node stands: level and row; they are checked when first asked for."""
        for level, (_, probs) in enumerate(self._draft.rows):
            check_laws(probs, f"draft_probs of level {level}")
        levels = enumerate(self._draft.rows)
        return {int(node): (level, row) for level, (nodes, _) in levels for row, node in enumerate(nodes)}

    def _check(self) -> None:
        if not self.order or self.order[0] != 0 or len(self.row_of) != len(self.order):
            raise ValueError("draft.order must begin with the root and name each verified node once.")
        for row, node in enumerate(self.order[1:], start=1):
            if not 0 <= self.row_of.get(self.parents[node], row) < row:
                raise ValueError(f"draft.order must name the parent of node {node} before it.")
        if len(self._target) != len(self.order):
            raise ValueError(f"target has {len(self._target)} rows for {len(self.order)} verified nodes.")
        self._target.check()
