"""Markdown that benchmarks write into the docs: a table, and a page with a part of it written anew."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from decoding.common.files import write_whole


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> str:
    """A Markdown table; columns after the first `left` stand at the right."""
    aligned = ["---" if left is None or place < left else "---:" for place in range(len(heads))]
    cells = [heads, aligned, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def between(page: str, begin: str, end: str, written: str) -> str:
    """A page with something new between two of its lines.

    Raises:
        ValueError: they are not there once each, in order.
    """
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs the lines {begin!r} and {end!r}, once each and in this order")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{written}\n\n{end}{rest.partition(end)[2]}"


def write_page(page: Path, text: str) -> None:
    """Write a page, so that it is there whole or as it was before; `DiskError` where the disk refuses."""
    write_whole(page, text.encode(), "make it writable")
