"""How far a job is, in words and as a bar, and the buttons that stop it and go on with it."""

import time
from collections.abc import Callable

import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.jobs.job import Followed, Stand
from pages.ui.common.errors import escape_markdown, on_page, show_error, torch_there, why_not
from viz.formats import about, byte_size, long_duration

STATE_ICONS = {
    "starting": ":material/hourglass_top:",
    "preparing": ":material/hourglass_top:",
    "running": ":material/play_circle:",
    "finished": ":material/check_circle:",
    "stopped": ":material/pause_circle:",
    "failed": ":material/error:",
    "kept": ":material/inventory_2:",
}
SILENT_S = 120.0  # longer without a word is worth a word
END_HELP = "Ends its process without waiting; what it has not written yet is lost."


def left_words(followed: Followed) -> str:
    """Time left in words, empty while unknown."""
    if followed.left_s is None:
        return ""
    return f"{about(followed.left_s)} left{' of this part' if followed.stand.state == 'preparing' else ''}"


def progress_words(followed: Followed) -> str:
    """How much is done, the time left, what it is at, and what that takes of the machine, in a line."""
    status, state = followed.stand.status, followed.stand.state
    if state == "starting":
        return "Starting its process: loading torch and the models takes a few seconds"
    unit = f" {followed.job.UNIT}" if state != "preparing" else ""
    parts = [f"{status.done:,} of {status.total:,}{unit}" if status.total else f"{status.done:,}{unit}"]
    if not (status.done or status.total):
        parts = []
    if status.failed:
        parts.append(f"{status.failed:,} could not be made")
    if status.planned_s:
        parts.append(f"{status.trained_s / 60:.1f} of {status.planned_s / 60:.3g} min")
    parts += [left_words(followed), status.phase, status.device]
    if status.memory_bytes:
        parts.append(f"{byte_size(status.memory_bytes)} of memory")
    silent_s = time.time() - status.written if status.written else 0.0
    if status.running and silent_s > SILENT_S:
        parts.append(f"no word for {long_duration(silent_s)}")
    return " · ".join(filter(None, parts)) or "Nothing has been done yet"


def draw_progress(followed: Followed, words: str = "") -> None:
    """A bar with words, by default those on its progress."""
    st.progress(followed.stand.status.share or 0.0, text=escape_markdown(words or progress_words(followed)))


def stop_buttons(name: str, followed: Followed, help_text: str) -> None:
    """What ends a job that is at work: it is asked first; then it can be ended at once.

    Args:
        name: of the page, in the keys of its widgets. help_text: what stopping it does.
    """
    job = followed.job
    if job.stop_asked:
        st.button(
            "End it now", key=f"{name}_end", icon=":material/power_settings_new:", on_click=attempt,
            args=(name, job.end), width="content", help=END_HELP,
        )  # fmt: skip
    st.button(
        "Stopping" if job.stop_asked else f"Stop {job.NOUN}", key=f"{name}_stop", disabled=job.stop_asked,
        icon=":material/stop_circle:", on_click=attempt, args=(name, job.ask_to_stop), width="content", help=help_text,
    )  # fmt: skip


def resume_button(name: str, followed: Followed, help_text: str, disabled: bool = False) -> None:
    """What goes on with a job that stopped or failed."""
    st.button(
        "Resume", key=f"{name}_resume", type="primary", disabled=disabled or not torch_there(), width="content",
        icon=":material/play_arrow:", on_click=attempt, args=(name, followed.job.resume), help=why_not(help_text),
    )  # fmt: skip


def attempt(name: str, act: Callable, *arguments) -> None:
    """Do what a button of a page asks; what stands against it is kept for `draw_end`."""
    try:
        act(*arguments)
    except DraftscopeError as error:
        st.session_state[f"{name}_error"] = error


def draw_end(name: str, stand: Stand) -> None:
    """What stood against a button of a page, and why a job failed or stopped."""
    if error := st.session_state.pop(f"{name}_error", None):
        show_error(error)
    message = escape_markdown(on_page(stand.message))
    if stand.state == "failed":
        st.error(message, icon=":material/error:")
    elif stand.state == "stopped" and message:
        st.info(message, icon=":material/pause_circle:")
