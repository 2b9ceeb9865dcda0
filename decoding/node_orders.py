"""Orders in which a tree's nodes stand in the rows of a verification pass; parents come before children in all of them.

The order changes nothing of what is decoded. It moves the allowed cells of the attention mask together or apart, which
a kernel that skips empty blocks takes less or more time for (DySpec, Appendix C).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from decoding.drafters.base import Draft

NodeOrder = Literal["breadth", "depth", "heavy"]
NODE_ORDERS: dict[NodeOrder, str] = {
    "breadth": "Breadth-first (BFS): all nodes of one depth, then the next depth.",
    "depth": "Depth-first (DFS): a branch to its end before its siblings.",
    "heavy": "Heavy path first: depth-first, at each node the child with the largest subtree first.",
}
ORDER_NAMES: dict[NodeOrder, str] = {order: meaning.partition(":")[0] for order, meaning in NODE_ORDERS.items()}


def in_order(draft: "Draft", order: NodeOrder) -> "Draft":
    """The draft with its verified nodes in another order; drafters give them breadth-first."""
    if order == "breadth" or len(draft.order) < 3:
        return draft
    parents = {int(node): int(draft.tree.parents[node]) for node in draft.order}
    return replace(draft, order=np.array(depth_first(parents, heavy=order == "heavy"), dtype=draft.order.dtype))


def breadth_first(parents: dict[int, int]) -> tuple[int, ...]:
    """Node ids by depth, then by id; `parents` maps every node to its parent, which has the smaller id."""
    depths: dict[int, int] = {}
    for node in sorted(parents):
        depths[node] = depths.get(parents[node], -1) + 1
    return tuple(sorted(parents, key=lambda node: (depths[node], node)))


def depth_first(parents: dict[int, int], heavy: bool = False) -> tuple[int, ...]:
    """Node ids branch by branch, children by id; with `heavy` the child with the largest subtree comes first."""
    sizes = dict.fromkeys(parents, 1)
    children: dict[int, list[int]] = {node: [] for node in parents}
    for node in sorted(parents, reverse=True):
        if parents[node] in sizes:
            sizes[parents[node]] += sizes[node]
            children[parents[node]].append(node)
    rows: list[int] = []
    waiting = [node for node in sorted(parents, reverse=True) if parents[node] not in parents]
    while waiting:
        node = waiting.pop()
        rows.append(node)
        below = children[node]
        # The stack gives back the last one first, so what comes first goes on it last.
        waiting += sorted(below, key=lambda child: (sizes[child], -child)) if heavy else below
    return tuple(rows)
