"""The draft tree as parallel arrays, and the draft of an iteration, which a drafter hands over.

Parents come before children; node 0 is the root, the last committed token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from decoding.trace.records import STOP_REASONS, DraftSampling, NodeTrace, Setting
from decoding.trace.tree_mask import NodeOrder, depth_first

STOP_REASON_CODE = {name: code for code, name in enumerate(STOP_REASONS)}
NOT_DRAFTED = STOP_REASON_CODE["not_drafted"]


class TreePaths:
    """The tokens from the root down to each node of a tree that grows; the root's path is empty."""

    def __init__(self):
        self._paths: list[tuple[int, ...]] = [()]

    def of(self, tree: "TokenTree", nodes: np.ndarray) -> list[tuple[int, ...]]:
        """The paths of some nodes."""
        for node in range(len(self._paths), tree.size):
            self._paths.append((*self._paths[tree.parents[node]], int(tree.tokens[node])))
        return [self._paths[node] for node in nodes.tolist()]


class _Column:
    """An array of a tree; `empty` stands in it until something is known, and gives it its type."""

    def __init__(self, empty: float):
        self.empty = empty

    def __set_name__(self, owner: "type[TokenTree]", name: str) -> None:
        self.name = name
        owner.COLUMNS[name] = self.empty

    def __get__(self, tree: "TokenTree", owner: type) -> np.ndarray:
        return tree._arrays[self.name][: tree.size]


class TokenTree:
    """A growing tree of drafted tokens.

    Attributes (views over the first `size` entries, all `[size]`):
        tokens, parents, depths: int; the root has parent -1 and depth 0.
        draft_probs: probability that the draft gave the token after its parent; 1 for the root.
        path_probs: product of `draft_probs` along the path.
        multiplicity: how often the node was drawn.
        confidence: largest draft probability after the node, nan until the draft has processed it.
        branching: children that were allowed, -1 if the node was not expanded.
        stop_reason: code into `trace.STOP_REASONS`, why it was or was not expanded.
        level: number of the draft forward that processed it, -1 if none did.
        ancestors: bool `[size, size]`, row i marks the nodes that node i sees: its ancestors and itself.
    """

    COLUMNS: ClassVar[dict[str, float]] = {}  # what stands in each column until it is known
    tokens, parents, depths = _Column(0), _Column(0), _Column(0)
    draft_probs, path_probs = _Column(0.0), _Column(0.0)
    multiplicity, branching, level = _Column(1), _Column(-1), _Column(-1)
    confidence, stop_reason = _Column(np.nan), _Column(NOT_DRAFTED)

    def __init__(self, root_token: int, capacity: int = 32):
        self.size = 1
        self._arrays = {name: array.copy() for name, array in _empty_columns(capacity).items()}
        self._ancestors = np.zeros((capacity, capacity), dtype=bool)
        self._arrays["tokens"][0] = root_token
        self._arrays["parents"][0] = -1
        self._arrays["draft_probs"][0] = self._arrays["path_probs"][0] = 1.0
        self._ancestors[0, 0] = True

    @classmethod
    def recorded(cls, nodes: Sequence[NodeTrace]) -> "TokenTree":
        """The draft tree of a record, with what its drafter noted of confidence and levels."""
        tree, rest = cls(nodes[0].token_id, len(nodes)), nodes[1:]
        tree.append(
            np.array([node.parent_id for node in rest], dtype=np.int64),
            np.array([node.token_id for node in rest], dtype=np.int64),
            np.array([node.draft_probability for node in rest], dtype=np.float64),
        )
        tree.confidence[:] = [np.nan if node.confidence is None else node.confidence for node in nodes]
        tree.level[:] = [-1 if node.draft_level is None else node.draft_level for node in nodes]
        return tree

    @property
    def ancestors(self) -> np.ndarray:
        """Bool `[size, size]`: row i marks the ancestors of node i and itself."""
        return self._ancestors[: self.size, : self.size]

    def append(self, parents: np.ndarray, tokens: np.ndarray, draft_probs: np.ndarray) -> np.ndarray:
        """Add nodes below existing ones; return their ids `[len(tokens)]`."""
        count = len(tokens)
        ids = np.arange(self.size, self.size + count)
        while self.size + count > len(self._arrays["tokens"]):
            self._grow()
        arrays, new = self._arrays, slice(self.size, self.size + count)
        arrays["tokens"][new] = tokens
        arrays["parents"][new] = parents
        arrays["depths"][new] = arrays["depths"][parents] + 1
        arrays["draft_probs"][new] = draft_probs
        arrays["path_probs"][new] = arrays["path_probs"][parents] * draft_probs
        self._ancestors[new] = self._ancestors[parents]
        self._ancestors[ids, ids] = True
        self.size += count
        return ids

    def set_stop_reason(self, nodes: np.ndarray, stop_reason: str) -> None:
        """Note why nodes were or were not expanded."""
        self._arrays["stop_reason"][nodes] = STOP_REASON_CODE[stop_reason]

    def breadth_first(self, keep: np.ndarray | None = None) -> np.ndarray:
        """Ids by depth, then by id; `keep` is a bool mask `[size]` closed under parents."""
        nodes = np.arange(self.size) if keep is None else np.flatnonzero(keep)
        return nodes[np.argsort(self.depths[nodes], kind="stable")]

    def _grow(self) -> None:
        old = len(self._arrays["tokens"])
        for name, array in self._arrays.items():
            self._arrays[name] = np.concatenate([array, np.full_like(array, self.COLUMNS[name])])
        ancestors = np.zeros((2 * old, 2 * old), dtype=bool)
        ancestors[:old, :old] = self._ancestors
        self._ancestors = ancestors


@lru_cache(maxsize=16)
def _empty_columns(capacity: int) -> dict[str, np.ndarray]:
    """To be copied, which takes a tenth of the time of filling."""
    return {name: np.full(capacity, empty) for name, empty in TokenTree.COLUMNS.items()}


@dataclass(frozen=True)
class Draft:
    """A drafted tree."""

    tree: TokenTree  # every node drafted, the pruned ones included
    # Ids of the nodes to verify in the order of the verification pass, root first, parents before children
    order: np.ndarray
    draft_sampling: DraftSampling  # how tokens were chosen; decides which verifiers are lossless
    state: Any  # the drafter's next state
    # The draft's probabilities level by level as `(node ids, [len(ids), vocab_size])`
    rows: tuple[tuple[np.ndarray, Tensor], ...]
    settings: dict[str, Setting]  # settings in force while this tree was drafted
    prune_s: float = 0.0  # seconds that pruning took
    # Ids of the nodes in the order in which they were drawn, one entry per draw, so that a node drawn twice stands
    # there twice; None where every node was drawn once, in the order of ids
    drawn: np.ndarray | None = None
    # What a selector chose the shape by, whose `trace()` is its record; None where none was asked
    choice: Any = None


def in_order(draft: Draft, order: NodeOrder) -> Draft:
    """The draft with its verified nodes in another order; drafters give them breadth-first."""
    if order == "breadth" or len(draft.order) < 3:
        return draft
    parents = {int(node): int(draft.tree.parents[node]) for node in draft.order}
    return replace(draft, order=np.array(depth_first(parents, heavy=order == "heavy"), dtype=draft.order.dtype))
