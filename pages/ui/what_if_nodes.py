"""Nodes that the next fork forces: out of the tree, into it, to pass or to fail."""

import streamlit as st

from decoding.trace import IterationTrace, NodeTrace
from pages.ui.errors import escape_markdown
from pages.ui.what_if import History
from pages.ui.what_if_branch import Edit, Force
from viz.tokens import number, visible

CHILD = "what_if_child_open"
MOST_CHILDREN = 24


def node_buttons(history: History) -> None:
    """Force the node that is selected in tree A."""
    iteration, node = history.iteration(history.a), chosen_node(history)
    removed = node is not None and node.flat_index is None
    st.markdown(escape_markdown(_node_words(iteration, node)), width="content")
    sentence = "Click a node in tree A first." if node is None else ""
    kinds: list[tuple[Force, str, str]] = [
        ("accept", "Force accept", "As if the target gave this token, and each before it, probability 1."),
        ("reject", "Force reject", "As if the target gave this token probability 0 here."),
    ]
    if removed:
        kinds.insert(0, ("force_in", "Force in", "Verify this node although it was pruned."))
    else:
        kinds.insert(0, ("force_out", "Force out", "Take this node and all below it out of the tree."))
    for kind, label, words in kinds:
        on = node is not None and any(
            e.kind == kind and e.path == path_of(iteration, node.node_id) for e in history.edits
        )
        st.button(
            label,
            key=f"what_if_{'out' if kind.startswith('force') else kind}",
            type="primary" if on else "secondary",
            disabled=node is None or node.node_id == 0 or (removed and kind != "force_in"),
            help=sentence or words,
            on_click=toggle,
            args=(history, kind),
        )
    child_menu(history, iteration, node)


def child_menu(history: History, iteration: IterationTrace | None, node: NodeTrace | None) -> None:
    """Add a token below the selected node: one of those that draft or target find likeliest there."""
    box = st.popover(
        "Add a child",
        key=CHILD,
        disabled=node is None,
        on_change="rerun",
        help="Click a node in tree A first." if node is None else "Force a token into the tree below this node",
    )
    if not box.open or node is None:
        return
    tokens = child_tokens(iteration, node.node_id)
    with box, st.container(width=380):
        if not tokens:
            st.caption("Neither model's law after this node was recorded: choose a node that was verified.")
            return
        st.caption("Likeliest tokens here that are not in the tree, with their probability for draft and target:")
        chosen = st.selectbox(
            "Token",
            list(tokens),
            key=f"what_if_child_{history.a}_{history.index}_{node.node_id}",
            format_func=lambda token: _token_words(*tokens[token]),
            label_visibility="collapsed",
        )

        def add() -> None:
            edit = Edit("force_in", (*path_of(iteration, node.node_id), chosen), tokens[chosen][0])
            history.edits = (*(e for e in history.edits if e != edit), edit)
            st.session_state[CHILD] = False

        st.button("Add it", key="what_if_child_add", type="primary", on_click=add)


def child_tokens(iteration: IterationTrace, node: int) -> dict[int, tuple[str, float | None, float | None]]:
    """Text, draft and target probability by token id, likeliest first; children of the node are left out."""
    there = {iteration.nodes[child].token_id for child in iteration.children(node)}
    found: dict[int, list] = {}
    for place, top in ((1, iteration.draft_top(node)), (2, iteration.target_top(node))):
        for token, text, chance in top:
            if token not in there:
                found.setdefault(token, [text, None, None])[place] = chance
    ordered = sorted(found.items(), key=lambda item: -max(item[1][1] or 0.0, item[1][2] or 0.0))
    return {token: tuple(values) for token, values in ordered[:MOST_CHILDREN]}


def toggle(history: History, kind: Force) -> None:
    """Force the selected node, or take that back; another force on the same node gives way."""
    iteration, node = history.iteration(history.a), chosen_node(history)
    if node is None or iteration is None:
        return
    edit = Edit(kind, path_of(iteration, node.node_id), node.text)
    kept = tuple(e for e in history.edits if e.path != edit.path)
    history.edits = kept if edit in history.edits else (*kept, edit)


def path_of(iteration: IterationTrace, node: int) -> tuple[int, ...]:
    """Token ids from the root down to a node, the root left out: how edits name it."""
    return tuple(iteration.nodes[step].token_id for step in iteration.path(node)[1:])


def chosen_node(history: History) -> NodeTrace | None:
    """The node selected in tree A; the final token is none."""
    iteration, node = history.iteration(history.a), history.nodes.get("A")
    there = iteration is not None and node is not None and 0 <= node < len(iteration.nodes)
    return iteration.nodes[node] if there else None


def _node_words(iteration: IterationTrace | None, node: NodeTrace | None) -> str:
    if node is None or iteration is None:
        return "Node"
    return f"‘{visible(node.text, 10)}’"


def _token_words(text: str, draft: float | None, target: float | None) -> str:
    return f"‘{visible(text, 20)}’  draft {number(draft)} · target {number(target)}"
