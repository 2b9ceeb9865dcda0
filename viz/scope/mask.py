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

from decoding.trace.records import IterationTrace
from decoding.trace.tree_mask import (
    BLOCK,
    NODE_ORDERS,
    Blocks,
    TreeMask,
    breadth_first,
    count_blocks,
    depth_first,
    tree_mask,
)
from viz.theme import MARKS, palette, style, with_alpha
from viz.tokens import escaped, visible

MAX_POINTS = 20_000


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
    names = [escaped(visible(iteration.nodes[i].text)) if iteration.nodes else "" for i in mask.order]
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


ORDER_WORDS: dict[str, str] = {
    "run": "run",
    "breadth": "BFS",
    "depth": "DFS",
    "heavy": "heavy path",
}
ORDER_TOLD: dict[str, str] = {"run": "The order of the verification pass.", **NODE_ORDERS}


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
