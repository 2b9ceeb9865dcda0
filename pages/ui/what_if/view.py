"""The view of What if: the history of branches, trees A and B side by side, the effect of the change."""

import html
from pathlib import Path

import streamlit as st

from decoding.trace.records import IterationTrace, node_paths
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import Run, keep_run
from pages.ui.common.worker import is_busy, start_job
from pages.ui.scope.component import lone_tree
from pages.ui.what_if.branches import MOST_HELD, SLOT, Branch, History, decode_again, memory_words, start_go_on
from pages.ui.what_if.change import draw_starters, starters
from viz.branches import diff
from viz.branches.graph import branch_graph
from viz.components import component_script, component_style
from viz.explain.iteration import why_final, why_verdict
from viz.scope.phases import FINAL_ID

# Streamlit only takes heights in pixels: history and trees fill the window within limits.
STYLE = Path(__file__).with_suffix(".css")


_component = st.components.v2.component(
    "draftscope_branches", js=component_script("branches/graph.js"), css=component_style("branches/graph.css")
)


GUIDE = """
<div class="fork-guide">
<div><b>1 Change</b><p>Choose an iteration with the arrows or by its dot. Then choose another method, setting, verifier,
temperature or seed; or click a node of tree A to remove it, accept it, reject it or add a child to it.</p></div>
<div><b>2 Fork</b><p>Where the stored logits of both models suffice, the branch is <i>replayed</i>: instantly, without
running a model or measuring a time. Otherwise it is <i>live</i>: the models run from that iteration.</p></div>
<div><b>3 Compare</b><p>A and B show the same iteration. Nodes that only one tree has are framed; figures and texts
below show the effect of the change. If the text no longer follows the target’s distribution, a note says so.</p></div>
</div>
"""


def draw_message(history: History) -> None:
    """The effect of the change: one sentence, any bias, the figures, both texts."""
    with st.container(key="what_if_message"):
        if history.b is None:
            st.html(GUIDE)
            return
        one, other = history.iteration(history.a), history.iteration(history.b)
        part = history.part_at()
        parts = [f'<div class="fork-summary" role="status">{html.escape(summary_words(history, part))}</div>']
        for side, branch in zip("AB", history.shown(), strict=True):
            if branch.bias:
                parts.append(f'<div class="fork-bias" role="note"><b>{side}:</b> {html.escape(branch.bias)}</div>')
        if one is not None and other is not None:
            stops = {token for branch in history.shown() for token in branch.run.trace.ending_ids}
            parts.append(diff.measures_html(diff.fork_measures(one, other, stops)))
        a, b = history.shown()
        texts = diff.continuations(a.run.trace, b.run.trace, part)
        parts.append(diff.continuation_html(texts))
        parts.append(f'<div class="fork-why">{html.escape(diff.parting_words(texts))}</div>')
        st.html("".join(parts))


def summary_words(history: History, part: int) -> str:
    """The effect of the change on this iteration, or that it comes later."""
    one, other = history.iteration(history.a), history.iteration(history.b)
    if history.index < part:
        return f"Iteration {history.index + 1} is the same in A and B: they diverge at iteration {part + 1}."
    if one is None or other is None:
        missing = "A" if one is None else "B"
        branch = history.shown()[missing == "B"]
        if branch.ended:
            last = len(branch.run.trace.iterations)
            return f"{missing} ended at iteration {last} and has no iteration {history.index + 1} to compare."
        return f"{missing} has not reached iteration {history.index + 1} yet: there is nothing to compare."
    if not one.nodes or not other.nodes:
        return "The trees of this iteration were not recorded: only the texts can be compared."
    words = diff.fork_summary(one, other)
    if not diff.same_prefix(*(branch.run.trace for branch in history.shown()), history.index):
        words += " A and B have different texts before this iteration, so their trees differ anyway."
    return words


TREE_HEIGHT, GRAPH_HEIGHT = 320, 560
ABOUT_MEMORY = (
    "The key/value (KV) cache stores what both models have computed for a branch's text. Beyond "
    f"{MOST_HELD} live branches, the least recently decoded release theirs: their trees, texts and times stay, but to "
    "continue, the models must read the text again. Replayed branches hold none."
)
EDIT_MARKS = {"force_in": "force in", "force_out": "force out", "accept": "force accept", "reject": "force reject"}


def draw_history(history: History) -> None:
    """The drawn history; a click shows a branch on a side, a click on a dot goes to its iteration."""

    def picked() -> None:
        state = st.session_state.get("what_if_graph")
        value = state.get("pick") if state is not None else None
        if value is not None:
            history.show(int(value["branch"]), value["side"], value["iteration"])

    with st.container(key="what_if_history"):
        st.markdown("**Branches** · one dot per iteration; dashed: replayed. A and B choose the two to compare.")
        lines = [branch.line() for branch in history.branches.values()]
        graph = branch_graph(lines, history.index, history.a, history.b)
        _component(key="what_if_graph", data=graph, height=GRAPH_HEIGHT, on_pick_change=picked)
        st.caption(memory_words(history), help=ABOUT_MEMORY)


def draw_sides(history: History) -> None:
    """Trees A and B at the same iteration; nodes that only one of them has are framed."""
    one, other = history.iteration(history.a), history.iteration(history.b)
    marks = diff.compare_trees(one, other).marks("A", "B") if one and other and one is not other else ({}, {})
    if history.interventions:  # pending changes must not be lost among the differences
        marks = {}, marks[1]
        ids = {path: node for node, path in enumerate(node_paths(one))} if one is not None else {}
        for edit in history.interventions:
            if edit.path in ids:
                marks[0][ids[edit.path]] = EDIT_MARKS[edit.kind]
            elif edit.path[:-1] in ids:
                marks[0][ids[edit.path[:-1]]] = "gets a child"
    with st.container(key="what_if_trees"):
        for place, side, iteration, framed in zip(st.columns(2, gap="small"), "AB", (one, other), marks, strict=True):
            with place:
                number = history.a if side == "A" else history.b
                draw_head(history, side, number)
                draw_tree(history, side, number, iteration, framed)


def draw_head(history: History, side: str, number: int | None) -> None:
    """The branch of this side, and its buttons."""
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
            help="Open this branch in Step through, with all its views",
        ):
            keep_run(branch.run, min(history.index, len(branch.run.trace.iterations) - 1))
            st.switch_page("pages/step_through.py", query_params={})
        if branch is not None and branch.fork is not None:
            st.button(
                ":material/delete:",
                key=f"what_if_delete_{low}",
                disabled=is_busy(SLOT),
                help="Delete this branch and the branches forked from it; you can undo this until the next fork",
                on_click=history.delete,
                args=(number,),
            )


def going_on_words(side: str, branch: Branch | None, iterations: int | None) -> str:
    """What a button that decodes a branch further does, or why it is disabled."""
    said = f"Decode {side} {'one iteration further' if iterations else 'to its end'}"
    if branch is None:
        return said
    if not branch.can_go_on:
        if branch.ended:
            return "This branch has ended."
        if branch.run.session is not None or (branch.fork is not None and branch.fork.origin.session is not None):
            return "The models of this branch are no longer in memory."
        return "It was forked from a recorded run, which has no models loaded."
    if branch.fork is not None and branch.fork.kind == "replayed":
        return f"{said}; it was replayed, so the models run its iteration {branch.at + 1} first"
    if branch.fork is not None and not branch.holds_caches:
        return f"{said}; its KV cache was released, so the models read its text again first"
    return said


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
    lone_tree(
        iteration,
        f"what_if_tree_{low}",
        TREE_HEIGHT,
        f"what_if:{owner.run.key}:{index}",
        title=f"Iteration {index + 1} of {'the run' if owner.fork is None else f'branch {owner.number}'}{ended}",
        selected=None if ended else history.nodes.get(side),
        marks=marks,
        on_select=lambda node: history.nodes.update({side: node}),
    )
    words, node = "Click a node to read why it was accepted or not.", None if ended else history.nodes.get(side)
    if node == FINAL_ID:
        words = f"Final token: {why_final(iteration)}"
    elif node is not None and 0 <= node < len(iteration.nodes):
        words = f"Node {node}: {why_verdict(iteration, node)}"
    words = html.escape(words)
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
            st.markdown("No branch can be added: this version does not know all settings of the run.")
            return
        if not can_be_forked(history.branches[0].run):
            st.markdown("A branch can appear here once this run has been decoded again.")
            return
        iteration, settings = history.iteration(history.a), history.base.run.trace.settings
        offered = [] if iteration is None else starters(iteration, settings)
        some = "Try one of these changes, or make your own above:" if offered else "Make a change above."
        st.markdown(f"The branch will appear here. {some}")
        draw_starters(history, offered)


def can_be_forked(run: Run) -> bool:
    """Whether a run has its models or stored logits, or its models can be loaded for it."""
    return run.source == "recorded" or run.has_models or run.has_logits


def draw_models_missing(history: History) -> None:
    """The limits of a run without models, and a button that decodes it again.

    A recorded run with logits is decoded again by whatever needs its models.
    """
    run, recorded = history.branches[0].run, history.branches[0].recorded
    if run.has_models or history.unknown or (recorded and run.has_logits):
        return
    with st.container(key="what_if_again_area", horizontal=True, vertical_alignment="center", gap="small"):
        words = (
            "This run was recorded without full logits and has no models loaded: it can be viewed but not forked. "
            "Decode it again, or start a run of your own in Step through."
        )
        if recorded:
            words = "This is a recorded run without full logits: to fork it, its models are loaded and decode it again."
        elif can_be_forked(run):
            words = (
                "This run has no models loaded: forks are replayed from its stored logits. Changes that need more "
                "logits require decoding the run again."
            )
        st.markdown(words, width="content")
        st.button(
            "Decode it again",
            key="what_if_again",
            type="secondary" if can_be_forked(run) else "primary",
            icon=":material/replay:",
            disabled=is_busy(SLOT),
            on_click=start_job,
            args=(SLOT, "Decoding this run again", lambda job: decode_again(run.trace, job)),
        )
