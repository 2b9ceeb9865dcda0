"""The subject of the explanations below the scope: a node, the final token, or a token without a node."""

from dataclasses import dataclass

import streamlit as st

from decoding.trace.records import IterationTrace
from pages.ui.common.state import Run, kept, selected_iteration, selected_node
from viz.scope.phases import FINAL_ID
from viz.scope.scene import build_scene
from viz.tokens import readable, token_text


@dataclass(frozen=True)
class Subject:
    """One token at one place of an iteration.

    Attributes:
        parent: the node before it, -1 for the root.
        node: its node, `FINAL_ID` for the final token, None for a token that has none.
    """

    index: int
    parent: int
    token_id: int
    text: str
    node: int | None

    @property
    def in_tree(self) -> bool:
        """Whether it was drafted."""
        return self.node is not None and self.node != FINAL_ID


def subject_of(run: Run) -> Subject | None:
    """The selection of the scope, or the token clicked there; None without a recorded tree."""
    index = selected_iteration()
    iteration = readable(run.trace.iterations[index])
    if not iteration.nodes:
        return None
    asked = st.session_state.get("absent")
    if asked is not None and asked[:2] == (run.key, index):
        return absent_subject(iteration, index, asked[2], asked[3])
    node = selected_node()
    if node is None or not (node == FINAL_ID or 0 <= node < len(iteration.nodes)):
        node = kept(("selected", run.key, index), lambda: build_scene(iteration, scene_id="").default_selected)
    if node == FINAL_ID:
        return final_subject(iteration, index)
    node_trace = iteration.nodes[node]
    return Subject(index, node_trace.parent_id, node_trace.token_id, node_trace.text, node)


def absent_subject(iteration: IterationTrace, index: int, parent: int, token: int) -> Subject:
    """A token of a distribution; if it was drafted there after all, its node."""
    node = next((n.node_id for n in iteration.nodes if n.parent_id == parent and n.token_id == token), None)
    return Subject(index, parent, token, token_text(iteration, token), node)


def final_subject(iteration: IterationTrace, index: int) -> Subject | None:
    """The final token of an iteration, None if it has none."""
    if iteration.final_kind == "none":
        return None
    place = iteration.accepted[-1] if iteration.accepted else 0
    return Subject(index, place, iteration.committed_ids[-1], iteration.final_text or "", FINAL_ID)
