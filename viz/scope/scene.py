"""What to draw of one draft tree: positions, labels, states per phase and what is folded.

    scene = build_scene(iteration, scene_id="run-1:12", selected=None, unfolded=())
    data = scene_to_json(scene)          # the tree part of the component's data, plain dicts and lists
    figure = tree_figure(scene, "select", dark=False)       # the same scene as an exportable Plotly figure

The whole data of the component is made by `viz.scope.data`. Ids in a scene: trace nodes keep theirs, the final token is
`FINAL_ID` (-2), the fold below node n is `fold_id(n)` = -10 - n. The tree is laid out once: nothing moves.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from decoding.trace.records import IterationTrace
from viz.explain.iteration import iteration_summary
from viz.explain.tested_law import target_shown, target_top
from viz.formats import number, plural
from viz.scope.layout import drawn_nodes, fold_id, fold_parent, folded_nodes, important_nodes, tidy_rows
from viz.scope.phases import FINAL_ID, Phase, Shown, phases_of
from viz.tokens import columns, visible

LABEL_COLUMNS = 14
LABEL_ALL = 64
QUIET_ROW = 0.5


@dataclass(frozen=True, slots=True)
class SceneNode:
    """One mark of the tree.

    Attributes:
        node_id, parent_id: ids in the scene, -1 as parent of the root.
        depth: column. row: vertical place in rows, 0 at the top edge.
        label: visible text, cut to `LABEL_COLUMNS`; `title` says all of it.
        labelled: whether the text is drawn even when the node is not selected.
        state: final state; the phases have the states before it.
        draft, both, position: the numbers beside the text: draft probability, draft -> target, row of the pass.
        width: line width of the edge to it, 0 to 1 (path probability).
        folded: nodes that this mark stands for, 0 if it is a node itself.
        multiplicity: how often an i.i.d. drafter drew it. chars: width of its text in characters.
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
    chars: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """One draft tree ready to be drawn.

    Attributes:
        scene_id: identifies run and iteration; drawing state (zoom, phase) survives its change.
        rows: height of the layout in rows. column_chars: widest text per column, in characters.
        hidden: nodes of the trace that are folded away. note: says so.
        default_selected: the node worth looking at first.
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


def build_scene(
    iteration: IterationTrace,
    *,
    scene_id: str,
    title: str = "",
    selected: int | None = None,
    unfolded: Collection[int] = (),
) -> Scene:
    """The scene of an iteration; the children of nodes in `unfolded` and the way to `selected` are never folded."""
    nodes = iteration.nodes
    keep = drawn_nodes(iteration, selected, unfolded)
    folds = folded_nodes(nodes, keep)
    entries = _entries(iteration, keep, folds)
    important = important_nodes(iteration, selected)
    label_all = len(nodes) - 1 <= LABEL_ALL
    labelled = [label_all or role in ("final", "root") or node_id in important for node_id, _, role in entries]
    index_of = {node_id: place for place, (node_id, _, _) in enumerate(entries)}
    parents = [-1 if parent < 0 else index_of[parent] for _, parent, _ in entries]
    roles = [role for _, _, role in entries]
    heights = _heights(iteration, entries, label_all)
    rows = tidy_rows(parents, heights)
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    shown = [Shown(folds[fold_parent(i)] if role == "fold" else (i,), role) for i, _, role in entries]
    phases = phases_of(iteration, shown)
    states = phases[-1].states
    bare = [
        _scene_node(iteration, entry, depths[i], rows[i], labelled[i], states[i], shown[i])
        for i, entry in enumerate(entries)
    ]
    made = tuple(replace(node, chars=_chars(node)) for node in bare)
    hidden = sum(len(members) for members in folds.values())
    unlabelled = sum(role == "node" and not flag for role, flag in zip(roles, labelled, strict=True))
    return Scene(
        scene_id=scene_id,
        title=title,
        summary=iteration_summary(iteration),
        nodes=made,
        phases=phases,
        rows=max((row + height / 2 for row, height in zip(rows, heights, strict=True)), default=1.0),
        column_chars=_column_chars(made),
        total=max(len(nodes) - 1, 0),
        hidden=hidden,
        unlabelled=unlabelled,
        note=_note(iteration, hidden),
        default_selected=_default_selected(iteration, keep),
    )


def _heights(iteration: IterationTrace, entries: list[tuple[int, int, str]], label_all: bool) -> list[float]:
    """Rows that each entry takes. The selection has no say in them: choosing a node must not move the others."""
    settled = important_nodes(iteration, None)
    return [1.0 if label_all or role != "node" or node_id in settled else QUIET_ROW for node_id, _, role in entries]


def _entries(iteration: IterationTrace, keep: set[int], folds: dict) -> list[tuple[int, int, str]]:
    """(scene id, parent id, role) in an order where parents come first and a fold or final token is the last child."""
    entries = [(i, iteration.nodes[i].parent_id, "node" if i else "root") for i in sorted(keep)] or [(0, -1, "root")]
    entries += [(fold_id(parent), parent, "fold") for parent in sorted(folds)]
    if iteration.final_kind != "none":
        # Without a recorded tree the path is not known and the token hangs on the root.
        last = iteration.accepted[-1] if iteration.accepted and iteration.nodes else 0
        entries.append((FINAL_ID, last, "final"))
    return entries


def _scene_node(iteration, entry, depth: int, row: float, labelled: bool, state: str, shown: Shown) -> SceneNode:
    node_id, parent_id, role = entry
    if role == "fold":
        best = max(iteration.nodes[i].path_probability for i in shown.members)
        title = f"+{plural(len(shown.members), 'node')}, best path probability {number(best, 3)}"
        return SceneNode(
            node_id, parent_id, depth, row, f"+{len(shown.members)}", title, labelled, state, "", "", "", best,
            len(shown.members), 1,
        )  # fmt: skip
    if role == "final":
        text = iteration.final_text or ""
        value = next((p for i, _, p in target_top(iteration, parent_id) if i == iteration.committed_ids[-1]), None)
        both = f"{iteration.final_kind} {number(value)}" if value is not None else iteration.final_kind
        title = f"{visible(text)}: {iteration.final_kind} token"
        return SceneNode(
            node_id, parent_id, depth, row, visible(text, LABEL_COLUMNS), title, labelled, state, "", both, "",
            value or 0.0, 0, 1,
        )  # fmt: skip
    if not iteration.nodes:
        return SceneNode(0, -1, 0, row, "last token", "last committed token", True, "root", "", "", "", 1.0, 0, 1)
    node = iteration.nodes[node_id]
    draft = number(node.draft_probability) if node.draft_probability is not None else ""
    both = f"{draft} → {number(target_shown(node))}" if node.target_probability is not None else draft
    return SceneNode(
        node_id=node_id,
        parent_id=parent_id,
        depth=depth,
        row=row,
        label=visible(node.text, LABEL_COLUMNS),
        title=f"{visible(node.text)}: node {node_id}, path probability {number(node.path_probability, 3)}",
        labelled=labelled,
        state=state,
        draft=draft,
        both=both,
        position="" if node.flat_index is None else f"row {node.flat_index}",
        width=node.path_probability,
        folded=0,
        multiplicity=node.multiplicity,
    )


def _chars(node: SceneNode) -> int:
    """Width of a node's text; the small numbers below it count four fifths."""
    small = -(-4 * max(columns(node.both), columns(node.position)) // 5)
    return max(columns(node.label), small)


def _column_chars(nodes: tuple[SceneNode, ...]) -> tuple[int, ...]:
    """Widest text of each column."""
    widths = [0] * (max(node.depth for node in nodes) + 1)
    for node in nodes:
        if node.labelled or node.folded:
            widths[node.depth] = max(widths[node.depth], node.chars)
    return tuple(widths)


def _note(iteration: IterationTrace, hidden: int) -> str:
    """How many nodes there are and how many of them are not drawn one by one."""
    if not iteration.nodes:
        return f"{plural(iteration.drafted, 'node')} drafted, not recorded"
    nodes = plural(len(iteration.nodes) - 1, "node")
    return f"{nodes} · {hidden:,} hidden in folds" if hidden else nodes


def _default_selected(iteration: IterationTrace, keep: set[int]) -> int:
    """The likeliest rejected node where the path ended, else the final token, else the root."""
    last = iteration.accepted[-1] if iteration.accepted else 0
    rejected = [n for n in iteration.nodes if n.parent_id == last and n.verdict == "rejected" and n.node_id in keep]
    if rejected:
        return max(rejected, key=lambda node: (node.path_probability, -node.node_id)).node_id
    return FINAL_ID if iteration.final_kind != "none" else last


def scene_to_json(scene: Scene) -> dict:
    """The scene as plain dicts and lists, ready for the component."""
    nodes = [_plain(node) for node in scene.nodes]
    for node in nodes:
        node["row"], node["width"] = round(node["row"], 3), round(node["width"], 4)
    return _plain(scene) | {"nodes": nodes, "phases": [_plain(phase) for phase in scene.phases]}


def _plain(record) -> dict:
    """Attributes of a record, not copied: `asdict` walks every string of every phase."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
