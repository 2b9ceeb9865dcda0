"""Which nodes of a large tree are drawn one by one, and which are folded into one mark below the nearest drawn one."""

from collections.abc import Collection

from decoding.trace import IterationTrace, NodeTrace

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
