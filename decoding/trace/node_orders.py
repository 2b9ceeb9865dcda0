"""Orders in which a tree's nodes stand in the rows of a verification pass; parents come before children in all of them.

The order changes nothing of what is decoded. It moves the allowed cells of the attention mask together or apart, which
a kernel that skips empty blocks takes less or more time for (DySpec, Appendix C).
"""

from typing import Literal

NodeOrder = Literal["breadth", "depth", "heavy"]
NODE_ORDERS: dict[NodeOrder, str] = {
    "breadth": "Breadth-first (BFS): all nodes of one depth, then the next depth.",
    "depth": "Depth-first (DFS): a branch to its end before its siblings.",
    "heavy": "Heavy path first: depth-first, at each node the child with the largest subtree first.",
}
ORDER_NAMES: dict[NodeOrder, str] = {order: meaning.partition(":")[0] for order, meaning in NODE_ORDERS.items()}


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
