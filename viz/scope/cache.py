"""Key/value rows of one iteration: written by the passes, kept, moved, freed, and where they stand afterwards."""

from dataclasses import dataclass, replace

import plotly.graph_objects as go

from decoding.trace.records import IterationTrace, KVTrace
from viz.explain.truncation import is_cut
from viz.formats import plural
from viz.theme import GREY, MARKS, style, with_alpha
from viz.tokens import escaped, visible

MAX_CELLS = 80
COMMITTED = -1
REST_COLUMNS = 14


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of a cache: its number, its node (-1 for committed text), and where a kept row ends or came from."""

    row: int
    node_id: int
    kept: bool
    moved: bool


@dataclass(frozen=True, slots=True)
class CacheStrip:
    """What one iteration did to one cache, ready to be drawn.

    Attributes:
        model: `target` or `draft`. rows_before: rows that were there and stay untouched.
        written: rows written, in order. after: rows kept, at their new place.
        not_drawn: freed rows left out because there are too many. note: one sentence with the numbers.
        rest: tokens at the end of the text that have no row, and why; empty where all have one.
    """

    model: str
    rows_before: int
    written: tuple[Cell, ...]
    after: tuple[Cell, ...]
    not_drawn: int
    rebuilt: bool
    note: str
    rest: str = ""


def cache_strips(iteration: IterationTrace) -> tuple[CacheStrip, ...]:
    """Strips of the caches that the iteration had: the target's, and the draft's if there is a draft model."""
    caches = (("target", iteration.kv_target), ("draft", iteration.kv_draft))
    strips = [(cache_strip(model, kv), kv) for model, kv in caches if kv is not None]
    return tuple(replace(strip, rest=_rest(iteration, kv)) for strip, kv in strips)


def _rest(iteration: IterationTrace, kv: KVTrace) -> str:
    """The end of the text that the cache does not hold: the token chosen last, and leaves that the draft never read."""
    missing = iteration.prefix_length + len(iteration.committed_ids) - kv.rows_before - len(kv.kept_from)
    if missing <= 0 or not iteration.committed_texts:
        return ""
    texts = " ".join(visible(text, REST_COLUMNS) for text in iteration.committed_texts[-missing:])
    if missing > len(iteration.committed_texts):
        texts = f"{missing - len(iteration.committed_texts)} earlier and {texts}"
    return f"no row for {texts}: the text ends" if is_cut(iteration) else f"next time: {texts}"


def cache_strip(model: str, kv: KVTrace) -> CacheStrip:
    """One cache's strip; beyond `MAX_CELLS` the freed rows at the end are counted instead of drawn."""
    goes_to = {row: kv.rows_before + place for place, row in enumerate(kv.kept_from)}
    written = []
    for place, node_id in enumerate(kv.row_nodes):
        row = kv.rows_before + place
        written.append(Cell(row, node_id, row in goes_to, goes_to.get(row, row) != row and not kv.rebuilt))
    after = tuple(
        Cell(kv.rows_before + place, _node_at(kv, row), True, row != kv.rows_before + place and not kv.rebuilt)
        for place, row in enumerate(kv.kept_from)
    )
    not_drawn = 0
    if len(written) > MAX_CELLS:
        shown = [cell for cell in written if cell.kept]
        freed = [cell for cell in written if not cell.kept]
        room = max(MAX_CELLS - len(shown), 0)
        not_drawn = len(freed) - len(freed[:room])
        written = sorted([*shown, *freed[:room]], key=lambda cell: cell.row)
    return CacheStrip(model, kv.rows_before, tuple(written), after, not_drawn, kv.rebuilt, _note(kv, after))


def _node_at(kv: KVTrace, row: int) -> int:
    place = row - kv.rows_before
    return kv.row_nodes[place] if 0 <= place < len(kv.row_nodes) else COMMITTED


def _note(kv: KVTrace, after: tuple[Cell, ...]) -> str:
    moved = sum(cell.moved for cell in after)
    how = "recomputed by a second pass" if kv.rebuilt else f"{moved} moved" if moved else "none moved"
    if not kv.rows_written:
        return "no new rows"
    return f"{len(after)} of {plural(kv.rows_written, 'new row')} kept ({how}), {kv.rows_freed:,} freed"


def cache_figure(iteration: IterationTrace, dark: bool = False) -> go.Figure:
    """Exportable figure: one line of squares per cache before and after, kept rows filled, freed rows hollow."""
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
                figure.add_scatter(
                    x=[cell.row for cell in chosen],
                    y=[name] * len(chosen),
                    mode="markers+text" if len(cells) <= 40 else "markers",
                    text=["c" if cell.node_id < 0 else str(cell.node_id) for cell in chosen],
                    textfont={"size": 10},
                    customdata=[cell.node_id for cell in chosen],
                    hovertext=[_hover(iteration, cell) for cell in chosen],
                    hovertemplate="%{hovertext}<extra></extra>",
                    marker={
                        "symbol": "square" if kept else "square-open",
                        "size": 20 if len(cells) <= 40 else 8,
                        "color": with_alpha(color, 0.45) if kept else color,
                        "line": {"color": color, "width": 1},
                    },
                    name="kept" if kept else "freed",
                    legendgroup=str(kept),
                    showlegend=name.endswith("written") and name.startswith("target"),
                )
    figure.update_layout(height=130 + 44 * len(labels))
    style(figure, dark)
    figure.update_xaxes(title_text="row of the cache (position in the text)", showgrid=False, tickformat="d")
    figure.update_yaxes(autorange="reversed", showgrid=False, categoryorder="array", categoryarray=labels)
    return figure


def _hover(iteration: IterationTrace, cell: Cell) -> str:
    where = f"row {cell.row}"
    if cell.node_id < 0:
        return f"{where}: committed text that was still missing"
    text = escaped(visible(iteration.nodes[cell.node_id].text)) if iteration.nodes else ""
    return f"{where}: node {cell.node_id} {text}{', moved' if cell.moved else ''}"
