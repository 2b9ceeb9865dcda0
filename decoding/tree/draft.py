"""The draft of an iteration: the tree that a drafter hands over, and the order in which its nodes are verified."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from decoding.common.optional_torch import Tensor
from decoding.trace.records import Setting, TreeLaw
from decoding.trace.tree_mask import NodeOrder, depth_first
from decoding.tree.token_tree import TokenTree


@dataclass(frozen=True)
class Draft:
    """A drafted tree.

    Attributes:
        tree: every node drafted, the pruned ones included.
        order: ids of the nodes to verify in the order of the verification pass, root first, parents before children.
        law: how tokens were chosen; decides which verifiers are lossless.
        state: the drafter's next state.
        rows: the draft's probabilities level by level as `(node ids, [len(ids), vocab_size])`.
        settings: settings in force while this tree was drafted.
        prune_s: seconds that pruning took.
        drawn: ids of the nodes in the order in which they were drawn, one entry per draw, so that a node drawn twice
            stands there twice; None where every node was drawn once, in the order of ids.
    """

    tree: TokenTree
    order: np.ndarray
    law: TreeLaw
    state: Any
    rows: tuple[tuple[np.ndarray, Tensor], ...]
    settings: dict[str, Setting]
    prune_s: float = 0.0
    drawn: np.ndarray | None = None


def in_order(draft: Draft, order: NodeOrder) -> Draft:
    """The draft with its verified nodes in another order; drafters give them breadth-first."""
    if order == "breadth" or len(draft.order) < 3:
        return draft
    parents = {int(node): int(draft.tree.parents[node]) for node in draft.order}
    return replace(draft, order=np.array(depth_first(parents, heavy=order == "heavy"), dtype=draft.order.dtype))
