"""The tree attention mask of a verification pass: who sees whom, and how many of its blocks are not empty.

The text before the tree is one block. A block sparse attention kernel skips empty blocks, so an order that keeps a
branch's rows together costs less.
"""

from dataclasses import dataclass

import numpy as np

from decoding.trace.records import IterationTrace

BLOCK = 32


@dataclass(frozen=True, slots=True, eq=False)
class TreeMask:
    """The mask among the rows of one verification pass.

    Attributes:
        allowed: `[rows, rows]`, True where the row's node may attend to the column's node (itself or an ancestor).
        order: node id of each row and column.
        prefix_columns: columns of the text before the root, which every row sees.
    """

    allowed: np.ndarray
    order: tuple[int, ...]
    prefix_columns: int

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
    return TreeMask(allowed, order, iteration.kv_target.rows_before)


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
