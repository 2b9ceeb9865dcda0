"""Save the run on screen to a file, open one, export its tree. A file that cannot be opened changes nothing."""

import io

import streamlit as st

from decoding.errors import TraceFileError
from decoding.trace_file import load_run, save_run
from pages.ui.errors import show_error
from pages.ui.run_view import is_dark
from pages.ui.state import Run, current_run, keep_run, selected_iteration
from viz.scene import build_scene
from viz.tokens import plural
from viz.tree_figure import tree_figure

SUFFIX = "dscope"
ERROR = "file_error"
WITH_ROWS = "save_with_rows"


def file_menu() -> None:
    """A popover with everything that has to do with files."""
    run = current_run()
    empty = run is None or not run.trace.iterations
    with st.popover("File", key="file_open", icon=":material/folder_open:"):
        st.download_button(
            "Save this run",
            lambda: run_bytes(run),
            file_name=f"{run.trace.method if run else 'run'}-{run.key if run else ''}.{SUFFIX}",
            mime="application/octet-stream",
            key="save_run",
            disabled=empty,
            on_click="ignore",
            icon=":material/download:",
            help="One file with every iteration; it opens without the models.",
        )
        rows = sum(each.target_logits is not None for each in run.trace.iterations) if run else 0
        if rows:
            st.toggle(
                f"With the full laws of {plural(rows, 'iteration')}",
                key=WITH_ROWS,
                help="Needed to look at other verifiers where the file is opened; makes it much larger.",
            )
        st.download_button(
            "Export this tree",
            lambda: tree_html(run),
            file_name="draft-tree.html",
            mime="text/html",
            key="export_tree",
            disabled=empty,
            on_click="ignore",
            icon=":material/ios_share:",
            help="A Plotly figure in one HTML file.",
        )
        st.file_uploader("Open a saved run", type=[SUFFIX], key="open_run", on_change=_open)


def file_error() -> None:
    """Why the last file could not be opened, if it could not."""
    error = st.session_state.get(ERROR)
    if error is not None:
        show_error(error)


def run_bytes(run: Run) -> bytes:
    """A run as the bytes of its file; the raw logits go in only where asked for."""
    buffer = io.BytesIO()
    save_run(run.trace if st.session_state.get(WITH_ROWS) else run.trace.without_rows(), buffer)
    return buffer.getvalue()


def tree_html(run: Run) -> str:
    """The tree on screen as a page of its own."""
    iteration = run.trace.iterations[selected_iteration()]
    scene = build_scene(iteration, scene_id="export", title=run.trace.label)
    return tree_figure(scene, dark=is_dark()).to_html(include_plotlyjs=True, full_html=True)


def _open() -> None:
    """Put an uploaded run on screen; the one there stays if the file is damaged or foreign."""
    upload = st.session_state["open_run"]
    st.session_state[ERROR] = None
    if upload is None:
        return
    try:
        keep_run(Run(load_run(upload), "opened"))
    except TraceFileError as error:
        st.session_state[ERROR] = error
