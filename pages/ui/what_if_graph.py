"""The history of branches on screen: a drawing with a button per branch; a click on a dot goes to its iteration."""

from collections.abc import Callable

import streamlit as st

from viz.branch_graph import BranchGraph, graph_data
from viz.component_files import component_script, component_style

_component = st.components.v2.component(
    "draftscope_branches", js=component_script("branches/graph.js"), css=component_style("branches/graph.css")
)


def branch_history(graph: BranchGraph, key: str, height: int, on_pick: Callable[[int, str, int | None], None]) -> None:
    """Draw a history; `on_pick` gets the branch, the side it shall stand on, and an iteration or None."""

    def picked() -> None:
        state = st.session_state.get(key)
        value = state.get("pick") if state is not None else None
        if value is not None:
            on_pick(int(value["branch"]), value["side"], value["iteration"])

    _component(key=key, data=graph_data(graph), height=height, on_pick_change=picked)
