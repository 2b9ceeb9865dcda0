"""A run that made room for another one: kept until the user puts it back on screen or another takes its place."""

import streamlit as st

from pages.ui.errors import escape_markdown
from pages.ui.state import Run, ask_view, current_run, keep_run
from viz.tokens import plural

ASIDE = "run_set_aside"


def set_aside(run: Run | None, iteration: int) -> None:
    """Keep a run of the user's own; recorded ones can be opened again at any time."""
    if run is not None and run.source != "recorded":
        st.session_state[ASIDE] = (run, iteration)


def draw_set_aside() -> None:
    """Which run was set aside, and a button that puts it back; nothing where none was."""
    aside = st.session_state.get(ASIDE)
    if aside is None or aside[0] is current_run():
        return
    run, iteration = aside
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        tokens = plural(run.trace.totals.new_tokens, "token")
        st.markdown(escape_markdown(f"Your run was set aside: {run.trace.label}, {tokens}."), width="content")
        st.button(
            "Put it back on screen", key="put_back", on_click=_put_back, args=(run, iteration), icon=":material/undo:"
        )


def _put_back(run: Run, iteration: int) -> None:
    keep_run(run, iteration)
    ask_view(iteration)
    st.session_state[ASIDE] = None
