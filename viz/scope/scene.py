"""Layout of a tree: depth as columns, rows packed, no crossing edges; folding; the overview.

In the overview of a large tree every node is a bar, column = depth, height = path probability, inside its parent's bar.
The empty part of a bar is the draft's probability for tokens that were not drafted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from decoding.common.formats import number, plural
from decoding.trace.records import IterationTrace
from viz.explain.iteration import iteration_summary
from viz.explain.known import Known, target_of, target_shown
from viz.scope.phases import FINAL_ID, Phase, PhaseNode, appearances, phases_of
from viz.tokens import columns, visible


def tidy_rows(tree: nx.DiGraph, heights: Sequence[float] | None = None) -> list[float]:
    """Row of each node, so that nodes of one depth do not overlap and a parent is centred on its children.

    Args:
        tree: nodes 0 (the root) to n - 1 in this order, parents before children, edges from parent to child.
        heights: rows that each node needs; 1 by default.

    Subtrees are pushed together until they touch at some depth.
    """
    if not tree:
        return []
    heights = heights or [1.0] * len(tree)
    shift = [0.0] * len(tree)
    # Lowest and highest row at each depth of a subtree, its root first, as seen from that root.
    contours: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for node in nx.dfs_postorder_nodes(tree, 0):
        low, high = np.empty(0), np.empty(0)
        for child in tree[node]:
            lower, upper = contours.pop(child)
            shared = min(len(high), len(lower))
            shift[child] = float((high[:shared] - lower[:shared]).max()) if shared else 0.0
            low = np.concatenate([low, lower[len(low) :] + shift[child]])
            high = np.concatenate([upper + shift[child], high[len(upper) :]])
        middle = max((shift[child] for child in tree[node]), default=0.0) / 2
        for child in tree[node]:
            shift[child] -= middle
        half = [heights[node] / 2]
        contours[node] = np.concatenate([np.negative(half), low - middle]), np.concatenate([half, high - middle])
    rows = [0.0] * len(tree)
    for parent, child in nx.bfs_edges(tree, 0):
        rows[child] = rows[parent] + shift[child]
    lowest = min(row - height / 2 for row, height in zip(rows, heights, strict=True))
    return [row - lowest for row in rows]


FAINT = frozenset("·.,:;'`")
DRAW_ALL = 300
DRAW_WHEN_FOLDED = 120


def fold_id(node_id: int) -> int:
    """Scene id of the fold below a node."""
    return -10 - node_id


def fold_parent(scene_node_id: int) -> int | None:
    """Node above a fold, None if the id is not a fold's."""
    return -10 - scene_node_id if scene_node_id <= -10 else None


def drawn_nodes(iteration: IterationTrace, selected: int | None, unfolded: Collection[int]) -> set[int]:
    """Nodes drawn one by one: all, or the important and the likeliest ones with all their ancestors."""
    nodes = iteration.nodes
    if len(nodes) - 1 <= DRAW_ALL:
        return set(range(len(nodes)))
    opened = set(unfolded)
    wanted = important_nodes(iteration, selected) | {node.node_id for node in nodes if node.parent_id in opened}
    likeliest = sorted(range(len(nodes)), key=lambda i: (-nodes[i].path_probability, i))
    wanted |= set(likeliest[:DRAW_WHEN_FOLDED])
    return wanted.union(*(iteration.path(node_id) for node_id in wanted))


def important_nodes(iteration: IterationTrace, selected: int | None) -> set[int]:
    """The accepted path, its siblings (if many, verified and likeliest first), and the selection."""
    nodes = iteration.nodes
    path = {0, *iteration.accepted}
    siblings = [node for node in nodes if node.parent_id in path]
    siblings.sort(key=lambda node: (node.flat_index is None, -node.path_probability))
    chosen = path | {node.node_id for node in siblings[:DRAW_ALL]}
    if selected is not None and 0 <= selected < len(nodes):
        chosen.add(selected)
    return chosen


TEXT_COLUMNS = 20
# One letter per state: "o" for the root, initials for the others.
STATES = {"root": "o", "accepted": "a", "rejected": "r", "not_reached": "n", "not_verified": "v"}


def overview_data(iteration: IterationTrace) -> dict:
    """The bars as plain lists for the component, with state and visible text of each node.

    Siblings are stacked in the order of ids from their parent's upper edge; the whole is 0 to 1 high.
    """
    nodes, forced_out = iteration.nodes, iteration.forced_out
    tops: list[float] = []
    used = [0.0] * len(nodes)
    for node in nodes:
        tops.append(tops[node.parent_id] + used[node.parent_id] if tops else 0.0)
        if node.node_id:
            used[node.parent_id] += node.path_probability
    states = ["f" if n.node_id in forced_out else "p" if n.pruned else STATES[n.verdict] for n in nodes]
    return {
        "depths": [node.depth for node in nodes],
        "tops": [round(top, 5) for top in tops],
        "heights": [round(node.path_probability, 5) for node in nodes],
        "parents": [node.parent_id for node in nodes],
        "states": "".join(states),
        "tokens": [visible(node.text, TEXT_COLUMNS) for node in nodes],
        "count": max(len(nodes) - 1, 0),
    }


LABEL_COLUMNS = 14
LABEL_ALL = 64
QUIET_ROW = 0.5


@dataclass(frozen=True, slots=True)
class SceneNode:
    """One mark of the tree.

    Attributes:
        node_id, parent_id: ids in the scene, -1 as parent of the root.
        depth: column. row: vertical place in rows, 0 at the top edge.
        label: visible text, cut to `LABEL_COLUMNS`. title: all of it.
        labelled: whether the text is drawn when the node is not selected.
        state: final state; the phases have the states before it.
        draft, both, position: numbers next to the text: draft probability, draft -> target, row of the pass.
        width: line width of the edge to it, 0 to 1 (path probability).
        folded: number of nodes in this fold, 0 for a node.
        multiplicity: how often an i.i.d. drafter drew it.
    """

    node_id: int
    parent_id: int
    depth: int
    row: float
    label: str
    title: str
    labelled: bool
    state: str
    draft: str
    both: str
    position: str
    width: float
    folded: int
    multiplicity: int

    @property
    def chars(self) -> int:
        """Width of its text in characters; the small numbers below the label count four fifths."""
        return max(columns(self.label), -(-4 * max(columns(self.both), columns(self.position)) // 5))


@dataclass(frozen=True, slots=True)
class Scene:
    """One draft tree ready to be drawn.

    Attributes:
        scene_id: identifies run and iteration; drawing state (zoom, phase) is kept when it changes.
        rows: height of the layout in rows. column_chars: widest text per column, in characters.
        hidden: nodes of the trace that are folded away. note: says so.
        default_selected: the node worth looking at first.
        appears: step of the search with which each node appears, where drafting is stepped.
    """

    scene_id: str
    title: str
    summary: str
    nodes: tuple[SceneNode, ...]
    phases: tuple[Phase, ...]
    rows: float
    column_chars: tuple[int, ...]
    total: int
    hidden: int
    unlabelled: int
    note: str
    default_selected: int
    appears: tuple[int, ...]


def build_scene(
    iteration: IterationTrace,
    *,
    scene_id: str,
    title: str = "",
    selected: int | None = None,
    unfolded: Collection[int] = (),
    known: Known | None = None,
) -> Scene:
    """The scene of an iteration; the children of nodes in `unfolded` and the path to `selected` are never folded."""
    nodes = iteration.nodes
    keep = drawn_nodes(iteration, selected, unfolded)
    folds: dict[int, list[int]] = {}
    for hidden in sorted({node.node_id for node in nodes} - keep):
        owner = next(above for above in reversed(iteration.path(hidden)) if above in keep)
        folds.setdefault(owner, []).append(hidden)
    entries = _entries(iteration, keep, folds)
    important = important_nodes(iteration, selected)
    label_all = len(nodes) - 1 <= LABEL_ALL
    labelled = [label_all or role in ("final", "root") or node_id in important for node_id, _, role in entries]
    index_of = {node_id: place for place, (node_id, _, _) in enumerate(entries)}
    # The selection does not change heights: choosing a node must not move the others.
    settled = important_nodes(iteration, None)
    heights = [1.0 if label_all or role != "node" or node in settled else QUIET_ROW for node, _, role in entries]
    tree = nx.DiGraph()
    tree.add_nodes_from(range(len(entries)))
    tree.add_edges_from((index_of[parent], place) for place, (_, parent, _) in enumerate(entries) if place)
    rows, depths = tidy_rows(tree, heights), nx.shortest_path_length(tree, 0)
    parents = [fold_parent(i) for i, _, _ in entries]
    shown = [
        PhaseNode((i,) if parent is None else tuple(folds[parent]), role)
        for (i, _, role), parent in zip(entries, parents, strict=True)
    ]
    phases = phases_of(known or Known(iteration), shown)
    states = phases[-1].states
    made = tuple(
        _scene_node(iteration, entry, depths[i], rows[i], labelled[i], states[i], shown[i])
        for i, entry in enumerate(entries)
    )
    widths = [0] * (max(depths.values()) + 1)
    for node in made:
        if node.labelled or node.folded:
            widths[node.depth] = max(widths[node.depth], node.chars)
    hidden = sum(len(members) for members in folds.values())
    return Scene(
        scene_id=scene_id,
        title=title,
        summary=iteration_summary(iteration),
        nodes=made,
        phases=phases,
        rows=max((row + height / 2 for row, height in zip(rows, heights, strict=True)), default=1.0),
        column_chars=tuple(widths),
        total=max(len(nodes) - 1, 0),
        hidden=hidden,
        unlabelled=sum(role == "node" and not flag for (*_, role), flag in zip(entries, labelled, strict=True)),
        note=_note(iteration, hidden),
        # The final token says where and why the path ended.
        default_selected=FINAL_ID if iteration.final_kind != "none" else [0, *iteration.accepted][-1],
        appears=appearances(iteration, shown),
    )


def _entries(iteration: IterationTrace, keep: set[int], folds: dict) -> list[tuple[int, int, str]]:
    """(scene id, parent id, role) in an order where parents come first and a fold or final token is the last child."""
    entries = [(i, iteration.nodes[i].parent_id, "node" if i else "root") for i in sorted(keep)] or [(0, -1, "root")]
    entries += [(fold_id(parent), parent, "fold") for parent in sorted(folds)]
    if iteration.final_kind != "none":
        # Without a recorded tree the path is unknown, so the token is attached to the root.
        last = iteration.accepted[-1] if iteration.accepted and iteration.nodes else 0
        entries.append((FINAL_ID, last, "final"))
    return entries


def _label(text: str) -> str:
    """A token's label; one of faint marks alone, which are easily missed beside a node, is quoted."""
    label = visible(text, LABEL_COLUMNS)
    return f"‘{label}’" if label and set(label) <= FAINT else label


def _scene_node(iteration, entry, depth: int, row: float, labelled: bool, state: str, shown: PhaseNode) -> SceneNode:
    node_id, parent_id, role = entry
    label, title, draft, both, position = "last token", "last committed token", "", "", ""
    width, folded, multiplicity = 1.0, 0, 1
    if role == "fold":
        folded = len(shown.members)
        width = max(iteration.nodes[i].path_probability for i in shown.members)
        label, title = f"+{folded}", f"+{plural(folded, 'node')}, best path probability {number(width, 3)}"
    elif role == "final":
        text, both = iteration.final_text or "", iteration.final_kind
        _, value = target_of(iteration, parent_id, iteration.committed_ids[-1])
        label, title, width = _label(text), f"{visible(text)}: {both} token", value or 0.0
        both = both if value is None else f"{both} {number(value)}"
    elif iteration.nodes:
        node = iteration.nodes[node_id]
        draft = "" if node.draft_probability is None else number(node.draft_probability)
        both = draft if node.target_probability is None else f"{draft} → {number(target_shown(node))}"
        position = "" if node.flat_index is None else f"node {node_id}, row {node.flat_index}"
        width, multiplicity = node.path_probability, node.multiplicity
        label = _label(node.text)
        title = f"{visible(node.text)}: node {node_id}, path probability {number(width, 3)}"
    place, texts = (node_id, parent_id, depth, row), (draft, both, position)
    return SceneNode(*place, label, title, labelled, state, *texts, width, folded, multiplicity)


def _note(iteration: IterationTrace, hidden: int) -> str:
    """How many nodes there are and how many of them are not drawn one by one."""
    if not iteration.nodes:
        return f"{plural(iteration.drafted, 'node')} drafted, not recorded"
    nodes = plural(len(iteration.nodes) - 1, "node")
    return f"{nodes} · {hidden:,} hidden in folds" if hidden else nodes


def scene_to_json(scene: Scene) -> dict:
    """The scene as plain dicts and lists, ready for the component."""
    nodes = [plain(node) | {"chars": node.chars} for node in scene.nodes]
    for node in nodes:
        node["row"], node["width"] = round(node["row"], 3), round(node["width"], 4)
    return plain(scene) | {"nodes": nodes, "phases": [plain(phase) for phase in scene.phases]}


def plain(record) -> dict:
    """Attributes of a record, not copied: `asdict` walks every string of every phase."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
