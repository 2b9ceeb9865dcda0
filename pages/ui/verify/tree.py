"""The tree under the chosen verifier, and which of its nodes is looked at."""

from typing import TYPE_CHECKING

import streamlit as st

from pages.ui.scope.component import scope
from pages.ui.verify.state import Looked, text_reader
from viz.formats import plural
from viz.scope.data import compact_data
from viz.scope.phases import FINAL_ID
from viz.tokens import visible
from viz.verify.tree import kept_tree_data

if TYPE_CHECKING:
    from decoding.replay.replay import Replayed

TREE_HEIGHT = 330


def draw_tree(looked: Looked, replayed: "Replayed", walker: str, recorded: bool = False) -> None:
    """The tree with every node's exact probability; a click chooses the node whose tests are shown.

    Args:
        walker: whose draws they are. recorded: the walk is that of the record.
    """
    from decoding.replay.replay import replayed_iteration

    iteration = looked.iteration if recorded else replayed_iteration(looked.iteration, replayed, text_reader(looked))
    opened = st.session_state.setdefault("verify_unfolded", {}).get(looked.key, ())
    final = visible(iteration.final_text or "", 14)
    said = f"{walker}: {plural(len(iteration.accepted), 'node')} accepted"
    said += f", then {final} ({iteration.final_kind})" if final else ""
    data = kept_tree_data(
        iteration,
        scene_id="verify:" + ":".join(map(str, looked.key)),
        title=f"{replayed.verifier.label} · {said}",
        walker="the recorded walk" if recorded else walker,
        selected=node_in_view(looked),
        unfolded=opened,
    )

    def unfold(node: int) -> None:
        st.session_state["verify_unfolded"][looked.key] = (*opened, node)

    scope(data, key="verify_tree", height=TREE_HEIGHT, on_unfold=unfold, on_select=lambda node: choose(looked, node))


def draw_bare_tree(looked: Looked) -> None:
    """The tree as the run left it, where no probability can be computed."""
    iteration, key = looked.iteration, ":".join(map(str, looked.key))
    data = compact_data(iteration, scene_id=f"verify:{key}", title=f"{looked.label} · as it was verified in the run")
    scope(data, key="verify_tree", height=TREE_HEIGHT)


def choose(looked: Looked, node: int) -> None:
    """Look at a node; a leaf is tested at its parent, so that is where its tests are shown."""
    st.session_state["verify_node"] = looked.key, 0 if node == FINAL_ID else node


def node_in_view(looked: Looked) -> int:
    """The node chosen last in this tree, at first the root, or where a trunk ends the node with the most entries."""
    key, node = st.session_state.get("verify_node", (None, 0))
    if key == looked.key:
        return node
    nodes = looked.iteration.nodes
    drawn = looked.iteration.drawn or range(1, len(nodes))
    parents = [nodes[child].parent_id for child in drawn if nodes[child].flat_index is not None]
    return 0 if parents.count(0) > 1 else max(sorted(set(parents)), key=parents.count, default=0)


def tested_at(looked: Looked, node: int) -> int:
    """The node itself if it has verified children, else its parent, where it is tested."""
    nodes = looked.iteration.nodes
    has_children = any(other.parent_id == node and other.flat_index is not None for other in nodes)
    return node if has_children else max(nodes[node].parent_id, 0)
