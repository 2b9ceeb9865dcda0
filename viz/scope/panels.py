"""The linked panels of an iteration: the text with the provenance of each token, the KV slots, the attention mask."""

import base64
import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from PIL import Image, ImageColor

from decoding.common.formats import plural
from decoding.trace.records import IterationTrace, KVTrace, RunTrace
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
from viz.explain.known import is_cut
from viz.theme import GREY, MARKS, style, with_alpha
from viz.tokens import escaped, read_along, visible

PROVENANCE_WORDS = {
    "prompt": "prompt",
    "drafted": "drafted and accepted",
    "bonus": "bonus",
    "recovered": "recovered",
    "fallback": "fallback",
}
PROVENANCE_MARK = {"drafted": "accepted", "bonus": "bonus", "recovered": "recovered", "fallback": "fallback"}
_BONUS_LINE = "color-mix(in srgb, {} 72%, currentColor)"  # the blue alone is too pale on white
_DASHES = {"drafted": "solid", "bonus": "double", "recovered": "dotted", "fallback": "dashed"}


@dataclass(frozen=True, slots=True)
class Span:
    """One token of the text.

    Attributes:
        text: as the model wrote it; `shown`: with whitespace visible.
        provenance: `prompt`, `drafted`, `bonus`, `recovered` or `fallback`.
        iteration: the iteration that committed it, None in the prompt.
        node_id: its node, only in the current iteration; the final token is -2.
        current: committed by the current iteration.
    """

    text: str
    shown: str
    provenance: str
    iteration: int | None
    node_id: int | None
    current: bool


def text_spans(run: RunTrace, current: int) -> tuple[Span, ...]:
    """Spans of prompt and output."""
    prompt = [Span(text, text, "prompt", None, None, False) for text in run.prompt_texts]
    spans = (*prompt, *(span for each in run.iterations for span in iteration_spans(each, each.index == current)))
    shown = read_along([span.text for span in spans])
    return tuple(replace(span, shown=visible(text)) for span, text in zip(spans, shown, strict=True))


def iteration_spans(iteration: IterationTrace, current: bool = False) -> list[Span]:
    """Spans of the tokens that one iteration committed."""
    spans, texts = [], iteration.committed_texts
    for place, (text, shown) in enumerate(zip(texts, read_along(texts), strict=True)):
        drafted = place < len(iteration.accepted)
        node = (iteration.accepted[place] if drafted else -2) if current else None
        provenance = "drafted" if drafted else iteration.final_kind
        spans.append(Span(text, visible(shown), provenance, iteration.index, node, current))
    return spans


def underline(provenance: str, width_px: float = 2) -> str:
    """CSS for the underline of an output token: colour and dash of its provenance."""
    color, dash = MARKS[PROVENANCE_MARK[provenance]].color, _DASHES[provenance]
    width_px += 2 if dash == "double" else 0  # two lines and what is between them
    color = _BONUS_LINE.format(color) if provenance == "bonus" else color
    return f"border-bottom:{width_px:g}px {dash} {color}"


def tokens_html(spans: Sequence[Span]) -> str:
    """Tokens within a line as escaped HTML, each underlined by its provenance."""
    pieces = []
    for span in spans:
        line = underline(span.provenance, 2.5) if span.provenance in PROVENANCE_MARK else "border-bottom:2.5px solid"
        title = html.escape(PROVENANCE_WORDS.get(span.provenance, "cut by the end of the text"), quote=True)
        pieces.append(f'<b style="{line}" title="{title}">{html.escape(span.shown)}</b>')
    return "&#8203;".join(pieces)


def text_html(spans: Sequence[Span], mark: str = "font-weight:700") -> str:
    """The spans as escaped HTML: colour and line style under each token say where it came from.

    `mark`: CSS of the current ones.
    """
    pieces = []
    for span in spans:
        rule = f"{underline(span.provenance)};" if span.provenance in PROVENANCE_MARK else "opacity:.65;"
        weight = f"{mark};" if span.current else ""
        where = "" if span.iteration is None else f", iteration {span.iteration + 1}"
        title = html.escape(PROVENANCE_WORDS[span.provenance] + where, quote=True)
        # A line break in the text is shown as an escape and also breaks the line.
        breaks = "<br>" if span.text.endswith("\n") else ""
        pieces.append(f'<span style="{rule}{weight}" title="{title}">{html.escape(span.shown)}</span>{breaks}')
    body = "<wbr>".join(pieces)
    return f'<div style="font-family:monospace;line-height:1.9;overflow-wrap:anywhere">{body}</div>'


def provenance_counts(spans: Sequence[Span]) -> dict[str, int]:
    """Number of output tokens by provenance."""
    counts = Counter(span.provenance for span in spans)
    return {provenance: counts[provenance] for provenance in PROVENANCE_MARK}


MAX_CELLS = 80
COMMITTED = -1
REST_COLUMNS = 14
MOST_MOVES = 6


class KVSlot(NamedTuple):
    """One KV slot: its number, its node (-1 for committed text), whether it is kept and whether it moved."""

    row: int
    node_id: int
    kept: bool
    moved: bool


@dataclass(frozen=True, slots=True)
class CacheStrip:
    """What one iteration did to one cache, ready to be drawn.

    Attributes:
        model: `target` or `draft`. slots_before: slots from earlier, untouched.
        written: slots written, in order. after: slots kept, at their new position.
        not_drawn: freed slots left out because there are too many. note: one sentence with the numbers.
        rest: tokens at the end of the text without a slot, and why; empty where all have one.
    """

    model: str
    slots_before: int
    written: tuple[KVSlot, ...]
    after: tuple[KVSlot, ...]
    not_drawn: int
    rebuilt: bool
    note: str
    rest: str


def cache_strips(iteration: IterationTrace) -> tuple[CacheStrip, ...]:
    """Strips of the iteration's caches: the target's, and the draft's if there is a draft model."""
    caches = (("target", iteration.kv_target), ("draft", iteration.kv_draft))
    return tuple(_cache_strip(iteration, model, kv) for model, kv in caches if kv is not None)


def _rest(iteration: IterationTrace, kv: KVTrace) -> str:
    """Tokens at the end of the text without a slot: the last chosen one, and leaves the draft never read."""
    missing = iteration.prefix_length + len(iteration.committed_ids) - kv.slots_before - len(kv.moved_from)
    if missing <= 0 or not iteration.committed_texts:
        return ""
    texts = " ".join(visible(text, REST_COLUMNS) for text in iteration.committed_texts[-missing:])
    if missing > len(iteration.committed_texts):
        texts = f"{missing - len(iteration.committed_texts)} earlier and {texts}"
    return f"no slot for {texts}: the text ends" if is_cut(iteration) else f"no slot: {texts}"


def _moved_words(goes_to: dict[int, int], nodes: dict[int, int]) -> str:
    """Which kept slots moved where; of one or two also whose they are, of a long list only the first and the last."""
    moved = [(row, place) for row, place in goes_to.items() if row != place]
    if len(moved) <= 2:
        whose = ("text" if nodes.get(row, -1) < 0 else f"node {nodes[row]}" for row, _ in moved)
        named = (f"slot {row} → {place}, {node}" for (row, place), node in zip(moved, whose, strict=True))
        return "; ".join(named) or "none moved"
    shown = [f"{row} → {place}" for row, place in moved]
    if len(shown) > MOST_MOVES:
        return f"{len(shown)} moved: {shown[0]} … {shown[-1]}"
    return f"slots {', '.join(shown)}"


def _cache_strip(iteration: IterationTrace, model: str, kv: KVTrace) -> CacheStrip:
    """One cache's strip; beyond `MAX_CELLS` the last freed slots are counted, not drawn."""
    goes_to = {row: place for place, row in enumerate(kv.moved_from, start=kv.slots_before)}
    written = [
        KVSlot(row, node_id, row in goes_to, goes_to.get(row, row) != row and not kv.rebuilt)
        for row, node_id in enumerate(kv.slot_nodes, start=kv.slots_before)
    ]
    nodes = {cell.row: cell.node_id for cell in written}
    after = tuple(
        KVSlot(place, nodes.get(row, COMMITTED), True, row != place and not kv.rebuilt)
        for row, place in goes_to.items()
    )
    freed = [cell for cell in written if not cell.kept]
    room = freed[: max(MAX_CELLS - len(written) + len(freed), 0)]
    drawn = tuple(cell for cell in written if cell.kept or cell in room)
    note = "no new slots"
    if kv.slots_written:
        how = "recomputed by a second pass" if kv.rebuilt else _moved_words(goes_to, nodes)
        note = f"{len(after)} of {plural(kv.slots_written, 'new slot')} kept ({how}), {kv.slots_freed:,} freed"
    not_drawn = len(written) - len(drawn)
    return CacheStrip(model, kv.slots_before, drawn, after, not_drawn, kv.rebuilt, note, _rest(iteration, kv))


def cache_figure(iteration: IterationTrace, dark: bool = False) -> go.Figure:
    """Exportable figure: one line of squares per cache before and after, kept slots filled, freed ones hollow."""
    figure, labels = go.Figure(), []
    for strip in cache_strips(iteration):
        after_name = "rebuilt" if strip.rebuilt else "after"
        for name, cells in ((f"{strip.model}, written", strip.written), (f"{strip.model}, {after_name}", strip.after)):
            labels.append(name)
            for kept in (True, False):
                chosen = [cell for cell in cells if cell.kept is kept]
                if not chosen:
                    continue
                color = MARKS["accepted"].color if kept else GREY
                few, fill = len(cells) <= 40, with_alpha(color, 0.45) if kept else color
                symbol = {"symbol": "square" if kept else "square-open", "size": 20 if few else 8}
                figure.add_scatter(
                    x=[cell.row for cell in chosen],
                    y=[name] * len(chosen),
                    mode="markers+text" if few else "markers",
                    text=["c" if cell.node_id < 0 else str(cell.node_id) for cell in chosen],
                    textfont={"size": 10},
                    customdata=[cell.node_id for cell in chosen],
                    hovertext=[_hover(iteration, cell) for cell in chosen],
                    hovertemplate="%{hovertext}<extra></extra>",
                    marker=symbol | {"color": fill, "line": {"color": color, "width": 1}},
                    name="kept" if kept else "freed",
                    legendgroup=str(kept),
                    showlegend=name == "target, written",
                )
    style(figure, dark, height=130 + 44 * len(labels))
    figure.update_xaxes(title_text="KV slot (position in the text)", showgrid=False, tickformat="d")
    return figure.update_yaxes(autorange="reversed", showgrid=False, categoryorder="array", categoryarray=labels)


def _hover(iteration: IterationTrace, cell: KVSlot) -> str:
    where = f"slot {cell.row}"
    if cell.node_id < 0:
        return f"{where}: committed text not read before"
    text = escaped(visible(iteration.nodes[cell.node_id].text)) if iteration.nodes else ""
    return f"{where}: node {cell.node_id} {text}{', moved' if cell.moved else ''}"


MAX_POINTS = 20_000


def mask_png(allowed: np.ndarray, scale: int) -> str:
    """A boolean array as the data URL of a 1-bit PNG: allowed cells in colour, `scale` pixels wide, others clear."""
    image = Image.fromarray(allowed.repeat(scale, axis=0).repeat(scale, axis=1).astype(np.uint8), mode="P")
    image.putpalette([0, 0, 0, *ImageColor.getrgb(MARKS["accepted"].color)])
    buffer = BytesIO()
    image.save(buffer, format="PNG", bits=1, transparency=0, optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def mask_figure(iteration: IterationTrace, dark: bool = False) -> go.Figure:
    """Exportable figure of the mask; a clear scatter above the picture carries the hover text."""
    mask = tree_mask(iteration)
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
    # A point per allowed cell; in a very large mask only the diagonal has points.
    pointed = mask.allowed if mask.cells <= MAX_POINTS else np.eye(rows, dtype=bool)
    seen_rows, seen_columns = np.nonzero(pointed)
    figure.add_scatter(
        x=seen_columns, y=seen_rows, mode="markers", showlegend=False,
        marker={"size": max(4, min(14, 320 // rows)), "opacity": 0, "symbol": "square"},
        customdata=[mask.order[row] for row in seen_rows],
        text=[f"row {r} {names[r]} attends to {c} {names[c]}" for r, c in zip(seen_rows, seen_columns, strict=True)],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    step = max(1, rows // 16)
    ticks = {"tickvals": list(range(0, rows, step)), "ticktext": [str(i) for i in mask.order[::step]]}
    style(figure, dark)
    figure.update_xaxes(
        title_text="attended node (id)", range=[-1.2 - block, rows - 0.4], showgrid=False, side="bottom", **ticks
    )
    return figure.update_yaxes(
        title_text="attending node (id)", range=[rows - 0.4, -0.6], showgrid=False, scaleanchor="x", **ticks
    )


ORDER_WORDS: dict[str, str] = {"run": "run", "breadth": "BFS", "depth": "DFS", "heavy": "heavy path"}
ORDER_TOLD: dict[str, str] = {"run": "The order of the verification pass."} | {**NODE_ORDERS}


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of the tree's nodes in the mask: name, node ids, blocks, and whether the run used it."""

    name: str
    rows: tuple[int, ...]
    blocks: Blocks
    used: bool

    def caption(self, prefix: int) -> str:
        """What the order is, and what the number next to it counts."""
        used = " This is the order of the verification pass." if self.used and self.name != "run" else ""
        rows, blocks = len(self.rows), self.blocks
        return (
            f"{ORDER_TOLD[self.name]}{used} {blocks.total:,} of {blocks.possible:,} blocks of {BLOCK} × {BLOCK} cells "
            f"of the whole {rows:,} × {prefix + rows:,} mask have an allowed cell; {blocks.tree:,} of them cover the "
            "tree's own columns."
        )


def row_orders(iteration: IterationTrace, mask: TreeMask | None = None) -> tuple[RowOrder, ...]:
    """The order of the pass if it is not one of the usual ones, then breadth-first, depth-first and heavy path."""
    mask = mask or tree_mask(iteration)
    parents = {node: iteration.nodes[node].parent_id for node in mask.order} if iteration.nodes else {0: -1}
    depth, heavy = (depth_first(parents, heavy=heavy) for heavy in (False, True))
    usual = {"breadth": breadth_first(parents), "depth": depth, "heavy": heavy}
    used = next((name for name, rows in usual.items() if rows == mask.order), "run")
    named = usual if used != "run" else {"run": mask.order} | usual
    cells = np.nonzero(mask.allowed)
    return tuple(RowOrder(name, rows, count_blocks(mask, rows, cells), name == used) for name, rows in named.items())
