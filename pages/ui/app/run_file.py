"""Save the run on screen, take it along in other forms, open one, compare with one. A bad file changes nothing."""

import io
from functools import partial

import streamlit as st

from decoding.common.errors import TraceFileError
from decoding.diff import RunDiff, compare_runs, diff_lines, parting_words
from decoding.trace.archive import MAX_ROW_BYTES, load_run, save_run
from decoding.trace.records import RunTrace
from pages.ui.app.address import link_box
from pages.ui.app.exports import export_buttons
from pages.ui.app.links import Link
from pages.ui.common.downloads import download_button
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.state import Run, current_run, keep_run
from viz.formats import byte_size, plural

SUFFIX = "dscope"
ERROR = "file_error"
RIVAL, DIFF, DIFF_OF = "file_rival", "file_diff", "file_diff_of"
WITH_ROWS = "save_with_rows"


def file_menu(link: Link) -> None:
    """A popover with everything by which a run leaves or enters the program; `link` is the one to what is shown."""
    run = current_run()
    with st.popover("File", key="file_open", icon=":material/folder_open:"), st.container(width=760):
        out, into = st.columns(2, gap="medium")
        with out:
            st.markdown("**Save this run**")
            _save_button(run)
            st.markdown("**Export**")
            if run is not None:
                export_buttons(run)
        with into:
            st.markdown("**Open**")
            st.file_uploader(
                "Open a saved run", type=[SUFFIX], key="open_run", on_change=_open,
                help="It takes the place of the run on screen and needs no models.",
            )  # fmt: skip
            st.markdown("**Compare**")
            st.file_uploader(
                "Compare with another saved run", type=[SUFFIX], key="compare_run", on_change=_compare,
                help="Says where the two part: output, settings, trees, totals. The run on screen stays.",
            )  # fmt: skip
        link_box(link)


def file_messages() -> None:
    """Why the last file could not be opened, if it could not, and how the run compares with the one chosen for that."""
    error = st.session_state.get(ERROR)
    if error is not None:
        show_error(error)
    if st.session_state.get(RIVAL) is not None and current_run() is not None:
        _draw_comparison(current_run())


def run_bytes(run: Run, with_rows: bool) -> bytes:
    """A run as the bytes of its file, with or without the raw logits; called in a thread without a session."""
    buffer = io.BytesIO()
    save_run(run.trace if with_rows else run.trace.without_rows(), buffer)
    return buffer.getvalue()


def _save_button(run: Run | None) -> None:
    with_rows = run is not None and _rows_toggle(run)
    download_button(
        "Run, .dscope",
        partial(run_bytes, run, with_rows),
        f"{run.trace.method if run else 'run'}-{run.key if run else ''}.{SUFFIX}",
        "application/octet-stream",
        "save_run",
        disabled=run is None or not run.trace.iterations,
        help="One file with every iteration; it opens without the models.",
        width="stretch",
    )


def _rows_toggle(run: Run) -> bool:
    """Whether the raw logits go into the file; nothing to choose where none were kept or no file can hold them."""
    held = [each.logits_bytes for each in run.trace.iterations if each.target_logits is not None]
    if not held:
        return False
    fits = sum(held) <= MAX_ROW_BYTES
    chosen = st.toggle(
        f"With the full laws of {plural(len(held), 'iteration')}",
        key=WITH_ROWS,
        disabled=not fits,
        help="Needed to look at other verifiers where the file is opened; makes it much larger.",
    )
    if not fits:
        sizes = f"take {byte_size(sum(held))}, and a file holds {byte_size(MAX_ROW_BYTES)} of them"
        st.caption(f"The full laws {sizes}: decode fewer tokens to save them.")
    return fits and chosen


def _draw_comparison(run: Run) -> None:
    """Where the run on screen and the chosen one part, in a sentence; the rest behind it."""
    name, rival = st.session_state[RIVAL]
    shown = (run.key, len(run.trace.iterations), rival)
    if st.session_state.get(DIFF_OF) != shown:
        st.session_state[DIFF_OF], st.session_state[DIFF] = shown, compare_runs(run.trace, rival)
    diff: RunDiff = st.session_state[DIFF]
    with st.container(key="file_comparison", horizontal=True, vertical_alignment="center", gap="small"):
        words = escape_markdown(f"A is the run on screen, B is {name}. {parting_words(diff)}")
        st.info(words, icon=":material/difference:", width="stretch")
        with st.popover("Differences", key="file_comparison_open"), st.container(width=820):
            st.code("\n".join(diff_lines(diff, "the run on screen", name)), language=None, height=460, wrap_lines=True)
        st.button("Close", key="file_comparison_close", on_click=_forget_rival, icon=":material/close:")


def _forget_rival() -> None:
    _keep_rival(None)


def _keep_rival(rival: tuple[str, RunTrace] | None) -> None:
    """Compare with this run from then on; what is kept of the one before goes, it may hold many rows."""
    st.session_state[RIVAL] = rival
    for kept in (DIFF_OF, DIFF):
        st.session_state.pop(kept, None)


def _open() -> None:
    """Put an uploaded run on screen; the one there stays if the file is damaged or foreign."""
    trace = _uploaded("open_run")
    if trace is not None:
        keep_run(Run(trace, "opened"))


def _compare() -> None:
    """Keep an uploaded run beside the one on screen; taking the file away ends the comparison."""
    trace = _uploaded("compare_run")
    _keep_rival(None if trace is None else (st.session_state["compare_run"].name, trace))


def _uploaded(key: str) -> RunTrace | None:
    """The run in an uploaded file; why there is none is kept for `file_messages`."""
    upload = st.session_state[key]
    st.session_state[ERROR] = None
    try:
        return None if upload is None else load_run(upload)
    except TraceFileError as error:
        st.session_state[ERROR] = error
        return None
