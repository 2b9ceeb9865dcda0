"""Orders of a tree's rows in a verification pass, and how many blocks of the attention mask each leaves non-empty.

    for order in row_orders(iteration):
        order.name, order.rows, order.blocks.total     # "depth", node ids, non-empty blocks of 32 x 32

A block sparse attention kernel skips empty blocks, so an order that keeps a branch's rows together costs less.
"""

from dataclasses import dataclass

import numpy as np

from decoding.node_orders import NODE_ORDERS, breadth_first, depth_first
from decoding.trace import IterationTrace
from viz.mask_figure import TreeMask, tree_mask

BLOCK = 32

ORDER_WORDS: dict[str, str] = {
    "run": "run",
    "breadth": "BFS",
    "depth": "DFS",
    "heavy": "heavy path",
}
ORDER_TOLD: dict[str, str] = {"run": "The order of the verification pass.", **NODE_ORDERS}


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


@dataclass(frozen=True, slots=True)
class RowOrder:
    """One way to write the tree's nodes in rows: its name, the node ids, its blocks, and whether the run used it."""

    name: str
    rows: tuple[int, ...]
    blocks: Blocks
    used: bool

    def told(self, prefix: int) -> str:
        """What the order is, and what the number beside it counts."""
        used = " This is the order of the verification pass." if self.used and self.name != "run" else ""
        rows, blocks = len(self.rows), self.blocks
        return (
            f"{ORDER_TOLD[self.name]}{used} {blocks.total:,} of {blocks.possible:,} blocks of {BLOCK} x {BLOCK} cells "
            f"of the whole {rows:,} x {prefix + rows:,} mask have an allowed cell; {blocks.tree:,} of them hold the "
            "tree's own columns."
        )


def row_orders(iteration: IterationTrace, mask: TreeMask | None = None) -> tuple[RowOrder, ...]:
    """The order of the pass if it is none of the usual ones, then breadth-first, depth-first and heavy path."""
    mask = mask or tree_mask(iteration)
    parents = {node: iteration.nodes[node].parent_id for node in mask.order} if iteration.nodes else {0: -1}
    usual = {
        "breadth": breadth_first(parents),
        "depth": depth_first(parents),
        "heavy": depth_first(parents, heavy=True),
    }
    used = next((name for name, rows in usual.items() if rows == mask.order), "run")
    named = usual if used != "run" else {"run": mask.order} | usual
    cells = np.nonzero(mask.allowed)
    return tuple(RowOrder(name, rows, count_blocks(mask, rows, cells), name == used) for name, rows in named.items())


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
