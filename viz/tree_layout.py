"""Tidy left-to-right layout of a tree: depth as columns, rows packed, no edge crosses another."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _Contour:
    """Lowest and highest row at each depth of a subtree, deepest first, all shifted by `offset`."""

    low: list[float]
    high: list[float]
    offset: float


def tidy_rows(parents: Sequence[int], heights: Sequence[float] | None = None) -> list[float]:
    """Row of each node so that nodes of one depth keep apart and a parent stands amid its children. O(n).

    Args:
        parents: parent index of each node, -1 for the root at index 0; parents come before children.
        heights: rows that a node needs for itself; 1 each by default.

    Subtrees are pushed together until they touch at some depth; each push walks only the depths that both have,
    which makes the sum over all pushes linear.
    """
    count = len(parents)
    if not count:
        return []
    heights = heights or [1.0] * count
    children: list[list[int]] = [[] for _ in range(count)]
    for node in range(1, count):
        children[parents[node]].append(node)
    shift = [0.0] * count
    contours: list[_Contour | None] = [None] * count
    for node in range(count - 1, -1, -1):
        half = heights[node] / 2
        if not children[node]:
            contours[node] = _Contour([-half], [half], 0.0)
            continue
        forest = contours[children[node][0]]
        placed = [0.0]
        for child in children[node][1:]:
            forest, moved = _push(forest, contours[child])
            placed.append(moved)
        middle = (placed[0] + placed[-1]) / 2
        for child, row in zip(children[node], placed, strict=True):
            shift[child] = row - middle
            contours[child] = None
        forest.offset -= middle
        forest.low.append(-half - forest.offset)
        forest.high.append(half - forest.offset)
        contours[node] = forest
    rows = [0.0] * count
    for node in range(1, count):
        rows[node] = rows[parents[node]] + shift[node]
    lowest = min(row - height / 2 for row, height in zip(rows, heights, strict=True))
    return [row - lowest for row in rows]


def _push(forest: _Contour, subtree: _Contour) -> tuple[_Contour, float]:
    """Move a subtree below a forest until they touch; the joined contour and how far the subtree moved."""
    shared = min(len(forest.high), len(subtree.low))
    moved = max(
        forest.high[-level] + forest.offset - subtree.low[-level] - subtree.offset for level in range(1, shared + 1)
    )
    subtree.offset += moved
    if len(forest.high) >= len(subtree.high):
        for level in range(1, shared + 1):
            forest.high[-level] = subtree.high[-level] + subtree.offset - forest.offset
        return forest, moved
    for level in range(1, shared + 1):
        subtree.low[-level] = forest.low[-level] + forest.offset - subtree.offset
    return subtree, moved
