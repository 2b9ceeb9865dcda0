"""Tables as HTML, in which everything but `Markup` is escaped; `tables.css` has what all of them look like.

html_table(("Method", Cell("Tokens/s", "number")), [("Linear", "61.0")], "compared", label="Speeds")
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, starmap
from pathlib import Path

STYLE = Path(__file__).with_suffix(".css")


class Markup(str):
    """HTML that is not escaped again."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its text, its class, what is said where it is pointed at, and how many columns it spans."""

    text: str
    kind: str = ""
    about: str = ""
    span: int = 1


def html_table(
    heads: Sequence[str | Cell],
    rows: Iterable[Sequence[str | Cell]],
    kind: str = "",
    caption: str = "",
    label: str = "",
    row_kinds: Sequence[str] = (),
) -> str:
    """A table with a head for each column, whose class its cells have too; the first cell of a row is the row's head.

    Args:
        kind: class of the table. row_kinds: class of each row.
        label: names, for screen readers, the box in which a wide table scrolls; without it there is no box.
    """
    shown = f"<caption>{_escaped(caption)}</caption>" if caption else ""
    if heads:
        shown += f"<thead><tr>{''.join(_written(head, 'th', 'col') for head in heads)}</tr></thead>"
    kinds = [head.kind if isinstance(head, Cell) else "" for head in heads] or repeat("")
    body = ""
    for row, row_kind in zip(rows, row_kinds or repeat(""), strict=False):
        tags = chain([("th", "row")], repeat(("td", "")))
        cells = (_written(cell, *tag, kind) for cell, tag, kind in zip(row, tags, kinds, strict=False))
        body += f"<tr{_attribute('class', row_kind)}>{''.join(cells)}</tr>"
    table = f'<table class="{f"ds-table {kind}".strip()}">{shown}<tbody>{body}</tbody></table>'
    named = f'tabindex="0" role="region" aria-label="{html.escape(label)}"'
    return f'<div class="ds-table-box" {named}>{table}</div>' if label else table


def _written(cell: str | Cell, tag: str, scope: str, kind: str = "") -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    span = str(cell.span) if cell.span > 1 else ""
    named = {"scope": scope, "class": cell.kind or kind, "title": cell.about, "colspan": span}
    return f"<{tag}{''.join(starmap(_attribute, named.items()))}>{_escaped(cell.text)}</{tag}>"


def _attribute(name: str, value: str) -> str:
    return f' {name}="{html.escape(value)}"' if value else ""


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(text)
