"""Where the nodes of a tree are drawn: depth as columns, rows packed, no edge crosses another; folding; the overview.

In the overview of a large tree every node is a bar, column = depth, height = path probability, inside its parent's bar.
What stays empty below a bar is the probability that the draft left to tokens it did not draft.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from decoding.trace.records import IterationTrace, NodeTrace
from viz.tokens import visible


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


DRAW_ALL = 300
DRAW_WHEN_FOLDED = 120


def fold_id(node_id: int) -> int:
    """Scene id of the fold that stands below a node."""
    return -10 - node_id


def fold_parent(scene_node_id: int) -> int | None:
    """Node below which a fold stands, None if the id is no fold's."""
    return -10 - scene_node_id if scene_node_id <= -10 else None


def drawn_nodes(iteration: IterationTrace, selected: int | None, unfolded: Collection[int]) -> set[int]:
    """Nodes drawn one by one: all of them, or the important ones and the likeliest, closed under parents."""
    nodes = iteration.nodes
    if len(nodes) - 1 <= DRAW_ALL:
        return set(range(len(nodes)))
    opened = set(unfolded)
    wanted = important_nodes(iteration, selected) | {node.node_id for node in nodes if node.parent_id in opened}
    likeliest = sorted(range(len(nodes)), key=lambda i: (-nodes[i].path_probability, i))
    wanted |= set(likeliest[:DRAW_WHEN_FOLDED])
    keep: set[int] = set()
    for node_id in wanted:
        while node_id >= 0 and node_id not in keep:
            keep.add(node_id)
            node_id = nodes[node_id].parent_id
    return keep


def important_nodes(iteration: IterationTrace, selected: int | None) -> set[int]:
    """The accepted path, its siblings, the verified and then the likeliest where they are many, and the selection."""
    nodes = iteration.nodes
    path = {0, *iteration.accepted}
    siblings = [node for node in nodes if node.parent_id in path]
    siblings.sort(key=lambda node: (node.flat_index is None, -node.path_probability))
    chosen = path | {node.node_id for node in siblings[:DRAW_ALL]}
    if selected is not None and 0 <= selected < len(nodes):
        chosen.add(selected)
    return chosen


def folded_nodes(nodes: tuple[NodeTrace, ...], keep: set[int]) -> dict[int, tuple[int, ...]]:
    """Hidden nodes by the nearest drawn ancestor."""
    owner = [0] * len(nodes)
    folds: dict[int, list[int]] = {}
    for node in nodes:
        if node.node_id in keep:
            owner[node.node_id] = node.node_id
            continue
        owner[node.node_id] = owner[node.parent_id]
        folds.setdefault(owner[node.node_id], []).append(node.node_id)
    return {parent: tuple(members) for parent, members in folds.items()}


TEXT_COLUMNS = 20
# One letter per state: "o" for the root, the others speak for themselves.
STATES = {"root": "o", "accepted": "a", "rejected": "r", "not_reached": "n", "not_verified": "v"}


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar per node, in the order of ids.

    Attributes:
        depths: column of each node. tops: upper edge, 0 to 1. heights: path probability.
    """

    depths: tuple[int, ...]
    tops: tuple[float, ...]
    heights: tuple[float, ...]


def bars(iteration: IterationTrace) -> Bars:
    """Bars of all nodes: siblings stand below each other in the order of ids, from their parent's upper edge on."""
    tops, heights = [], []
    used: list[float] = []
    for node in iteration.nodes:
        height = node.path_probability
        if node.parent_id < 0:
            top = 0.0
        else:
            top = tops[node.parent_id] + used[node.parent_id]
            used[node.parent_id] += height
        tops.append(top)
        heights.append(height)
        used.append(0.0)
    return Bars(tuple(node.depth for node in iteration.nodes), tuple(tops), tuple(heights))


def overview_data(iteration: IterationTrace) -> dict:
    """The bars as plain lists for the component, with state and visible text of each node."""
    made, gone = bars(iteration), iteration.forced_out
    return {
        "depths": list(made.depths),
        "tops": [round(top, 5) for top in made.tops],
        "heights": [round(height, 5) for height in made.heights],
        "parents": [node.parent_id for node in iteration.nodes],
        "states": "".join(_state(node, gone) for node in iteration.nodes),
        "tokens": [visible(node.text, TEXT_COLUMNS) for node in iteration.nodes],
        "count": max(len(iteration.nodes) - 1, 0),
    }


def _state(node: NodeTrace, forced_out: Collection[int]) -> str:
    """One letter for what became of a node."""
    if node.node_id in forced_out:
        return "f"
    return "p" if node.pruned else STATES[node.verdict]
