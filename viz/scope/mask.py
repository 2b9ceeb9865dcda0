"""The tree attention mask of a verification pass: who sees whom, and the orders in which its rows can stand.

    for order in row_orders(iteration):
        order.name, order.rows, order.blocks.total     # "depth", node ids, non-empty blocks of 32 x 32

The text before the tree is one block. A block sparse attention kernel skips empty blocks, so an order that keeps a
branch's rows together costs less.
"""

import base64
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import plotly.graph_objects as go
from PIL import Image

from decoding.trace.node_orders import NODE_ORDERS, breadth_first, depth_first
from decoding.trace.records import IterationTrace
from viz.theme import MARKS, palette, style, with_alpha
from viz.tokens import for_plotly

MAX_POINTS = 20_000


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


def mask_png(allowed: np.ndarray, color: str = MARKS["accepted"].color, scale: int = 1) -> str:
    """A boolean array as the data URL of a 1-bit PNG: allowed cells in `color`, `scale` pixels wide, others clear."""
    if scale > 1:
        allowed = allowed.repeat(scale, axis=0).repeat(scale, axis=1)
    image = Image.fromarray(allowed.astype(np.uint8), mode="P")
    image.putpalette([0, 0, 0, *(int(color[i : i + 2], 16) for i in (1, 3, 5))])
    buffer = BytesIO()
    image.save(buffer, format="PNG", bits=1, transparency=0, optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def mask_figure(iteration: IterationTrace, dark: bool = False, selected: int | None = None) -> go.Figure:
    """Exportable figure of the mask; a clear scatter above the picture carries the hover text."""
    mask, colors = tree_mask(iteration), palette(dark)
    rows = len(mask.order)
    figure = go.Figure()
    # Plotly smooths small pictures, so each cell gets enough pixels of its own to keep its edges.
    figure.add_layout_image(
        source=mask_png(mask.allowed, scale=max(1, 900 // rows)),
        xref="x", yref="y", x=-0.5, y=-0.5, sizex=rows, sizey=rows, sizing="stretch",
        layer="below",
    )  # fmt: skip
    block = max(rows * 0.22, 1.2)
    figure.add_shape(
        type="rect", x0=-0.8 - block, x1=-0.8, y0=-0.5, y1=rows - 0.5, line_width=0,
        fillcolor=with_alpha(MARKS["accepted"].color, 0.35),
    )  # fmt: skip
    figure.add_annotation(
        x=-0.8 - block / 2, y=(rows - 1) / 2, text=f"prefix<br>{mask.prefix_columns:,}<br>columns", showarrow=False
    )
    names = [for_plotly(iteration.nodes[i].text) if iteration.nodes else "" for i in mask.order]
    # A point per allowed cell: of a mask with very many, only the diagonal can be pointed at.
    pointed = mask.allowed if mask.cells <= MAX_POINTS else np.eye(rows, dtype=bool)
    seen_rows, seen_columns = np.nonzero(pointed)
    figure.add_scatter(
        x=seen_columns, y=seen_rows, mode="markers", showlegend=False,
        marker={"size": max(4, min(14, 320 // rows)), "opacity": 0, "symbol": "square"},
        customdata=[mask.order[row] for row in seen_rows],
        text=[f"row {r} {names[r]} sees column {c} {names[c]}" for r, c in zip(seen_rows, seen_columns, strict=True)],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    if selected in mask.order:
        row = mask.order.index(selected)
        figure.add_shape(
            type="rect", x0=-0.5, x1=rows - 0.5, y0=row - 0.5, y1=row + 0.5,
            line={"color": colors.select, "width": 2},
        )  # fmt: skip
    step = max(1, rows // 16)
    ticks = {"tickvals": list(range(0, rows, step)), "ticktext": [str(i) for i in mask.order[::step]]}
    style(figure, dark)
    figure.update_xaxes(
        title_text="attended node (id)", range=[-1.2 - block, rows - 0.4], showgrid=False, side="bottom", **ticks
    )
    figure.update_yaxes(
        title_text="attending node (id)", range=[rows - 0.4, -0.6], showgrid=False, scaleanchor="x", **ticks
    )
    return figure


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
