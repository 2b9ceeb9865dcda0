"""How What if looks: the branches, trees A and B side by side, what the change did."""

import html

import streamlit as st

from decoding.errors import NEEDS_TORCH
from decoding.trace import IterationTrace
from pages.ui.errors import escape_markdown
from pages.ui.scope import scope
from pages.ui.state import Run, keep_run
from pages.ui.torch_there import torch_there, why_not
from pages.ui.what_if import SLOT, History
from pages.ui.what_if_branch import Branch
from pages.ui.what_if_graph import branch_history
from pages.ui.what_if_memory import MOST_HELD, memory_words
from pages.ui.what_if_starters import draw_starters
from pages.ui.what_if_work import start_again, start_go_on
from pages.ui.worker import is_busy
from viz.branch_graph import branch_graph
from viz.explain import why_final, why_verdict
from viz.phases import FINAL_ID
from viz.scope_data import compact_data
from viz.tree_diff import compare_trees

TREE_HEIGHT, GRAPH_HEIGHT = 320, 560
ABOUT_MEMORY = (
    "The KV cache is what both models have computed for a branch's text. Of more than "
    f"{MOST_HELD} live branches those decoded longest ago let go of theirs: their trees, texts and times stay, and to "
    "go on the models read the text again first. Replayed branches keep none."
)
EDIT_MARKS = {"force_in": "to be put in", "force_out": "to be taken out", "accept": "to pass", "reject": "to fail"}


def draw_history(history: History) -> None:
    """The drawn history; a click puts a branch on a side, a click on a dot goes to its iteration."""
    with st.container(key="what_if_history"):
        st.markdown("**Branches** · a dot per iteration; dashed: replayed. A and B choose what stands beside.")
        lines = [branch.line() for branch in history.branches.values()]
        graph = branch_graph(lines, history.index, history.a, history.b)
        branch_history(graph, "what_if_graph", GRAPH_HEIGHT, history.show)
        st.caption(memory_words(history), help=ABOUT_MEMORY)


def draw_sides(history: History) -> None:
    """Trees A and B at the same iteration; nodes that only one of them has are framed."""
    one, other = history.iteration(history.a), history.iteration(history.b)
    marks = compare_trees(one, other).marks("A", "B") if one and other and one is not other else ({}, {})
    if history.edits:  # what is about to change must not drown among the differences
        marks = edit_marks(history, one), marks[1]
    with st.container(key="what_if_trees"):
        for place, side, iteration, framed in zip(st.columns(2, gap="small"), "AB", (one, other), marks, strict=True):
            with place:
                number = history.a if side == "A" else history.b
                draw_head(history, side, number)
                draw_tree(history, side, number, iteration, framed)


def draw_head(history: History, side: str, number: int | None) -> None:
    """Which branch stands here, and what can be done with it."""
    low, branch = side.lower(), None if number is None else history.branches[number]
    with st.container(key=f"what_if_head_{low}", horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.html(f'<span class="fork-name fork-{low}">{side}</span>', width="content")
        st.session_state[f"what_if_{low}"] = number
        st.selectbox(
            f"Branch {side}",
            list(history.branches),
            key=f"what_if_{low}",
            format_func=lambda choice: history.branches[choice].label,
            on_change=lambda: history.show(st.session_state[f"what_if_{low}"], side),
            placeholder="no branch yet",
            disabled=len(history.branches) == 1,
            label_visibility="collapsed",
        )
        ready = branch is not None and branch.can_go_on
        for count, label in ((1, "Step"), (None, "To the end")):
            st.button(
                label,
                key=f"what_if_{'step' if count else 'end'}_{low}",
                disabled=not ready or is_busy(SLOT),
                help=escape_markdown(going_on_words(side, branch, count)),
                on_click=start_go_on,
                args=(history, number, count),
            )
        if st.button(
            "Look into",
            key=f"what_if_look_{low}",
            disabled=branch is None,
            help="Look into this branch: it becomes the run on screen in Step through, with all its views",
        ):
            keep_run(branch.run, min(history.index, len(branch.run.trace.iterations) - 1))
            st.switch_page("pages/step_through.py", query_params={})
        st.button(
            ":material/delete:",
            key=f"what_if_delete_{low}",
            disabled=branch is None or branch.fork is None or is_busy(SLOT),
            help="Delete this branch and the branches made from it; until the next fork it can be undone",
            on_click=history.delete,
            args=(number,),
        )


def going_on_words(side: str, branch: Branch | None, iterations: int | None) -> str:
    """What a button that decodes a branch further will do, or why it cannot."""
    said = f"Decode {side} {'one iteration further' if iterations else 'to its end'}"
    if branch is None:
        return said
    if not branch.can_go_on:
        return why_not_on(branch)
    if branch.fork is not None and branch.fork.kind == "replayed":
        return f"{said}; it was replayed, so the models run its iteration {branch.at + 1} first"
    if branch.fork is not None and not branch.holds_caches:
        return f"{said}; its KV cache was let go, so the models read its text again first"
    return said


def why_not_on(branch: Branch) -> str:
    """Why a branch cannot be decoded further."""
    if branch.run.trace.totals.stopped != "unfinished":
        return "This branch has ended."
    if branch.run.session is not None or (branch.fork is not None and branch.fork.origin.session is not None):
        return "The models of this branch have left memory."
    return "It comes from a recorded run and has no models behind it."


def draw_tree(
    history: History, side: str, number: int | None, iteration: IterationTrace | None, marks: dict[int, str]
) -> None:
    """The tree of one side, and below it why the chosen node was accepted or not."""
    low, index, ended = side.lower(), history.index, ""
    if number is not None and iteration is None and history.branches[number].ended:
        iterations = history.branches[number].run.trace.iterations
        index, iteration, ended = len(iterations) - 1, iterations[-1], f", where {side} ended"
    if number is None or iteration is None:
        draw_empty(history, side, number)
        return
    owner = history.owner(number, index)
    scene_id = f"what_if:{owner.run.key}:{index}"
    opened = st.session_state.setdefault("what_if_unfolded", {})
    data = compact_data(
        iteration,
        scene_id=scene_id,
        title=f"Iteration {index + 1} of {'the run' if owner.fork is None else f'branch {owner.number}'}{ended}",
        selected=None if ended else history.nodes.get(side),
        marks=marks,
        unfolded=opened.get(scene_id, ()),
    )
    scope(
        data,
        f"what_if_tree_{low}",
        TREE_HEIGHT,
        on_unfold=lambda node: opened.update({scene_id: (*opened.get(scene_id, ()), node)}),
        on_select=lambda node: history.nodes.update({side: node}),
    )
    words = html.escape(why_words(iteration, None if ended else history.nodes.get(side)))
    st.html(f'<div class="fork-why" title="{words}">{words}</div>')


def draw_empty(history: History, side: str, number: int | None) -> None:
    """In place of a tree: what to do to see one."""
    with st.container(key="what_if_empty"):
        if number is not None:
            st.markdown(
                f"{side} has no iteration {history.index + 1} yet: **Step** decodes it, or go to an earlier one."
            )
            return
        if history.unknown:
            st.markdown("No other course can stand here: this version does not know all that the run was made with.")
            return
        if not can_be_forked(history.branches[0].run):
            way = "this run has been decoded again" if torch_there() else "a run saved with full rows is opened"
            st.markdown(f"The other course will stand here, once {way}.")
            return
        st.markdown("The other course will stand here. Try one of these, or make a change of your own above:")
        draw_starters(history)


def why_words(iteration: IterationTrace, node: int | None) -> str:
    """Why the chosen node was accepted or not."""
    if node == FINAL_ID:
        return f"Final token: {why_final(iteration)}"
    if node is not None and 0 <= node < len(iteration.nodes):
        return f"Node {node}: {why_verdict(iteration, node)}"
    return "Click a node to read why it was accepted or not."


def edit_marks(history: History, iteration: IterationTrace | None) -> dict[int, str]:
    """Words for the nodes of tree A that the next fork forces."""
    if iteration is None or not history.edits:
        return {}
    from decoding.trace import node_paths

    ids = {path: node for node, path in enumerate(node_paths(iteration))}
    marks = {}
    for edit in history.edits:
        if edit.path in ids:
            marks[ids[edit.path]] = EDIT_MARKS[edit.kind]
        elif edit.path[:-1] in ids:
            marks[ids[edit.path[:-1]]] = "gets a child"
    return marks


def can_be_forked(run: Run) -> bool:
    """Whether models or stored rows stand behind a run."""
    return has_models(run) or any(each.target_logits is not None for each in run.trace.iterations)


def has_models(run: Run) -> bool:
    """Whether the models that decoded a run are still in memory."""
    return run.session is not None and not run.released


def draw_models_missing(history: History) -> None:
    """What a run without models can and cannot do, and a button that decodes it again with them."""
    run = history.branches[0].run
    if has_models(run) or history.unknown:
        return
    with st.container(key="what_if_again_area", horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(models_missing_words(run), width="content")
        st.button(
            "Decode it again",
            key="what_if_again",
            type="secondary" if can_be_forked(run) else "primary",
            icon=":material/replay:",
            disabled=is_busy(SLOT) or not torch_there(),
            help=why_not() or None,
            on_click=start_again,
            args=(run.trace,),
        )


def models_missing_words(run: Run) -> str:
    """What a run without models can and cannot do, and what to do about it."""
    if can_be_forked(run):
        said = "No models stand behind this run: forks are replayed from its stored rows, and what those do not know "
        return f"{said}needs the run decoded again{'' if torch_there() else ', which takes torch'}."
    said = "This run was recorded without its full rows and has no models behind it: it can be looked at, not forked."
    way = "Decode it again here, or start a run of your own in Step through."
    return f"{said} {way if torch_there() else escape_markdown(NEEDS_TORCH)}"
