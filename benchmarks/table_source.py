"""A draft and a target that are tables of probabilities: the tree logic runs on them as on models."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from decoding.tree.draft import TokenTree


class TableSource:
    """Probabilities by path: `table[(a, b)]` is the distribution after drafting tokens a, b; `()` is the distribution
    after the root.

    Paths that the table lacks get `default`. Counts its forwards and checks that parents come before children.
    """

    def __init__(
        self,
        table: dict[tuple[int, ...], list[float]],
        default: list[float],
        depth_limit: int = 100,
        prefix: Sequence[int] = (),
    ):
        self.depth_limit, self.prefix = depth_limit, prefix
        self.forwards = 0
        self._table, self._default = table, default
        self._asked: set[int] = set()

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        self.forwards += 1
        rows = []
        for node in nodes.tolist():
            assert node == 0 or int(tree.parents[node]) in self._asked, "asked for a node before its parent"
            self._asked.add(node)
            rows.append(self._table.get(path_tokens(tree, node), self._default))
        return torch.tensor(rows, dtype=torch.float64)


def path_tokens(tree: TokenTree, node: int) -> tuple[int, ...]:
    """Drafted tokens from below the root down to a node."""
    tokens = []
    while node > 0:
        tokens.append(int(tree.tokens[node]))
        node = int(tree.parents[node])
    return tuple(reversed(tokens))


def paths(tree: TokenTree, nodes) -> set[tuple[int, ...]]:
    """The token paths of some nodes."""
    return {path_tokens(tree, int(node)) for node in nodes}
