"""The tree attention mask of a verification pass: who sees whom, in which order, and how many blocks are not empty.

Parents come before children in all orders. The order changes nothing of what is decoded: it moves the allowed cells of
the mask together or apart, which a kernel that skips empty blocks takes less or more time for (DySpec, Appendix C). The
text before the tree is one block.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from decoding.trace.records import IterationTrace

BLOCK = 32


@dataclass(frozen=True, slots=True, eq=False)
class TreeMask:
    """The mask among the rows of one verification pass."""

    # `[rows, rows]`, True where the row's node may attend to the column's node (itself or an ancestor)
    allowed: np.ndarray
    order: tuple[int, ...]  # node id of each row and column
    prefix_columns: int  # columns of the text before the root, which every row sees

    @property
    def cells(self) -> int:
        """Allowed cells among the tree's rows."""
        return int(self.allowed.sum())

    def stats(self) -> str:
        """One line with the numbers of this mask."""
        rows = len(self.order)
        return (
            f"{rows} x {self.prefix_columns + rows:,}: {self.prefix_columns:,} prefix columns folded, "
            f"{self.cells} of {rows * rows:,} tree cells allowed"
        )


def tree_mask(iteration: IterationTrace) -> TreeMask:
    """Mask of the verification pass from parents and flatten order: row sees itself and its ancestors."""
    order = iteration.flatten_order or (0,)
    row_of = {node_id: row for row, node_id in enumerate(order)}
    allowed = np.eye(len(order), dtype=bool)
    if iteration.nodes:
        # Parents come before children in ids though not always in rows, so ids set the order of inheritance.
        for node_id in sorted(order):
            parent = iteration.nodes[node_id].parent_id
            if parent in row_of:
                allowed[row_of[node_id]] |= allowed[row_of[parent]]
    return TreeMask(allowed, order, iteration.prefix_length - 1)  # the first pass may have read some of it itself


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of `BLOCK` x `BLOCK` cells of the mask `[rows, prefix + rows]` in which some cell is allowed.

    Attributes:
        total: non-empty blocks of the whole mask. possible: all of its blocks.
        tree: non-empty blocks among those that hold at least one column of the tree.
    """

    total: int
    possible: int
    tree: int


def count_blocks(mask: TreeMask, rows: tuple[int, ...], cells: tuple | None = None, block: int = BLOCK) -> Blocks:
    """Non-empty blocks of the mask `[rows, prefix + rows]` when its tree rows and columns stand in this order.

    `cells` are the rows and columns of the allowed cells of `mask`, where they are known already.
    """
    place_of = {node: place for place, node in enumerate(rows)}
    places = np.array([place_of[node] for node in mask.order])
    seeing, seen = np.nonzero(mask.allowed) if cells is None else cells
    count, prefix = len(rows), mask.prefix_columns
    row_blocks, column_blocks = -(-count // block), -(-(prefix + count) // block)
    with_prefix = -(-prefix // block)
    allowed = np.zeros((row_blocks, column_blocks), dtype=bool)
    allowed[:, :with_prefix] = True
    allowed[places[seeing] // block, (prefix + places[seen]) // block] = True
    return Blocks(int(allowed.sum()), allowed.size, int(allowed[:, prefix // block :].sum()))


NodeOrder = Literal["breadth", "depth", "heavy"]
NODE_ORDERS: dict[NodeOrder, str] = {
    "breadth": "Breadth-first (BFS): all nodes of one depth, then the next depth.",
    "depth": "Depth-first (DFS): each branch to its end before its siblings.",
    "heavy": "Heavy path first: depth-first, at each node the child with the largest subtree first.",
}
ORDER_NAMES: dict[NodeOrder, str] = {order: meaning.partition(":")[0] for order, meaning in NODE_ORDERS.items()}


def breadth_first(parents: dict[int, int]) -> tuple[int, ...]:
    """Node ids by depth, then by id; `parents` maps every node to its parent, which has the smaller id."""
    depths: dict[int, int] = {}
    for node in sorted(parents):
        depths[node] = depths.get(parents[node], -1) + 1
    return tuple(sorted(parents, key=lambda node: (depths[node], node)))


def depth_first(parents: dict[int, int], heavy: bool = False) -> tuple[int, ...]:
    """Node ids branch by branch, children by id; with `heavy` the child with the largest subtree comes first."""
    sizes = dict.fromkeys(parents, 1)
    children: dict[int, list[int]] = {node: [] for node in parents}
    for node in sorted(parents, reverse=True):
        if parents[node] in sizes:
            sizes[parents[node]] += sizes[node]
            children[parents[node]].append(node)
    rows: list[int] = []
    waiting = [node for node in sorted(parents, reverse=True) if parents[node] not in parents]
    while waiting:
        node = waiting.pop()
        rows.append(node)
        below = children[node]
        # The stack gives back the last one first, so what comes first goes on it last.
        waiting += sorted(below, key=lambda child: (sizes[child], -child)) if heavy else below
    return tuple(rows)
