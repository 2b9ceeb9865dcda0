"""Verifiers: every verifier on the same tree at once, and one node of it step by step."""

from importlib import import_module

import streamlit as st

from decoding.common.formats import plural
from decoding.recorded import telling_iteration
from pages.ui import ROOT
from pages.ui.app.setup import setup
from pages.ui.common.errors import escape_markdown, need_torch
from pages.ui.common.state import Run, current_run, keep_run, open_with_logits, selected_iteration
from pages.ui.common.worker import job_error, job_progress, take_result
from pages.ui.scope.component import lone_tree
from pages.ui.verify.draft import SLOT, decode_buttons, draft_popover
from pages.ui.verify.run import draw_run_theory
from pages.ui.verify.state import Looked, replay_all, replay_controls, rolled_tokens, tree_in_view
from pages.ui.verify.tree import (
    OWN,
    TREE_HEIGHT,
    chosen_row,
    draw_steps,
    draw_tree,
    most_words,
    node_in_view,
    own_words,
    verifier_table,
    walks,
)

NEVER_KEPT = "This run was recorded without the full logits of both models, which replaying a verifier needs."
DECODE = (
    "Decode its prompt again and store all logits; as before, it drafts the same trees. The new run is then also on "
    "Step through."
)
LET_GO = (
    "The full logits of this iteration were dropped to limit memory: choose a later iteration, or press Draft again "
    "for a tree on the same prefix."
)


def main() -> None:
    """Toolbar; table and tree; the selected node; the whole run."""
    setup("Verifiers")
    st.html(ROOT / "pages/ui/verify/page.css")
    if not need_torch():
        return
    with st.spinner("Getting ready, a few seconds"):  # torch; only the first page after the server starts waits for it
        import_module("decoding.replay.theory")
        from decoding.replay.replay import has_rows
    result = take_result(SLOT)  # a run decoded again, or a tree drafted on the prefix in view
    if isinstance(result, Run) and result.trace.iterations:
        # Decoded again as it was, it has the same trees: the iteration stays.
        same = result.trace.output_ids == current_run().trace.output_ids
        keep_run(result, selected_iteration() if same else telling_iteration(result.trace))
        st.session_state["verify_asked"] = None
    # A run whose tree was asked about stays, with or without logits.
    run = current_run()
    if run is None or run.key != st.session_state.get("verify_asked"):
        open_with_logits()
    looked = tree_in_view()
    if isinstance(result, Looked) and looked.key[:2] == result.key[:2]:
        st.session_state["verify_drafted"] = looked = result
    ready = bool(looked.iteration.nodes) and has_rows(looked.iteration)
    with st.container(key="toolbar", horizontal=True, gap="small"):
        sampling, rerolls = replay_controls(looked, ready)
        with st.container(key="status"):
            busy = job_progress(SLOT)
        if not busy:
            st.space("stretch")
            if looked.drafted_here:
                forget = {"on_click": st.session_state.pop, "args": ("verify_drafted",)}
                st.button("The run's tree", key="verify_back", icon=":material/undo:", **forget)
        draft_popover(looked)
    with st.container(key="verify_status"):
        st.caption(escape_markdown(status_words(looked, ready)))
    with st.container(key="messages"):  # always present, or what is below would remount
        job_error(SLOT)
    if not ready:
        draw_missing(looked)
        return
    draw_tree_and_table(looked, sampling, rerolls)
    draw_run_theory(looked, sampling)
    # Last, so that the rest is already on screen; then the page is drawn once more with the spread in the table.
    if rolled_tokens(looked, sampling, rerolls) is None:
        rolled_tokens(looked, sampling, rerolls, compute=True)
        st.rerun()


def draw_tree_and_table(looked: Looked, sampling, rerolls: int) -> None:
    """All verifiers on the tree, the tree under the chosen one, and its tests at the chosen node."""
    rows = walks(looked, replay_all(looked, sampling))
    name = chosen_row(looked, rows)
    own, chosen = name == OWN, rows[name]
    walker = own_words(looked) if own else f"seed {sampling.seed}"
    with st.container(key="verify_most"):
        if said := most_words(looked, rows):
            st.markdown(said)
    with st.container(key="verify_both"):
        left, right = st.columns([1.25, 1], gap="small")
        with left:
            verifier_table(looked, rows, rolled_tokens(looked, sampling, rerolls), name, rerolls)
        with right:
            draw_tree(looked, chosen, walker, recorded=own)
    with st.container(key="verify_steps"):
        draw_steps(looked, looked.sampling if own else sampling, chosen, node_in_view(looked), walker)


def draw_missing(looked: Looked) -> None:
    """Why there is nothing to verify and what to do about it, next to the tree as far as it is known."""
    let_go = looked.run.has_logits
    with st.container(key="verify_both"):
        left, right = st.columns([1.25, 1], gap="small")
        with left:
            st.info(LET_GO if let_go else f"{NEVER_KEPT} {DECODE}", icon=":material/info:")
            if not let_go:
                decode_buttons(looked.run)
        with right:
            title = f"{looked.label} · as it was verified in the run"
            lone_tree(looked.iteration, "verify_tree", TREE_HEIGHT, looked.scene, title=title)


def status_words(looked: Looked, ready: bool) -> str:
    """Which tree it is and how its tokens were chosen."""
    from decoding.verifiers.base import SAMPLING_TEXT

    iteration = looked.iteration
    where = "drafted on this page, on the same prefix" if looked.drafted_here else "of the run"
    nodes = plural(iteration.drafted, "node")
    if iteration.verified < iteration.drafted:
        nodes += f", {iteration.verified} verified"
    kind = SAMPLING_TEXT[iteration.draft_sampling].replace("trees", "a tree", 1).replace("chains", "a chain")
    said = f"{looked.label}, {where} · {nodes} · {kind}, at draft temperature {looked.sampling.draft_temperature:g}"
    if ready and iteration.draft_sampling == "deterministic":
        fit = "Greedy and NSS fit" if looked.sampling.greedy else "NSS fits"
        return f"{said} · only {fit} it: press Draft again for a sampled tree"
    replayed = "replayed from its stored logits without running a model; the first table row is as recorded"
    return f"{said} · {replayed}" if ready else said


main()
