"""Model work of pages: started in a slot of the session, shown, cancelled, found again after a reload.

    job = start_job("step", "10 more iterations", lambda job: step_many(session, 10, job))
    job_bar("step")          # progress and cancel while it works, its error afterwards
    result = wait_for(job)   # or: wait with its progress in place of the page; raises the job's error

A job's function reports with `job.report(done, total, text)` and asks `job.go_on()` before each of its pieces
(see `scheduler.py`). Whatever must not be lost goes into an object that the function fills (see `state.Run`): the user
may leave a page while its job works, and a reloaded page finds the job and the entries of the session's state that it
`keeps`. Sessions are those of Streamlit's server.
"""

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime import Runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.web.server.starlette.starlette_app_utils import decode_xsrf_token_string
from streamlit.web.server.starlette.starlette_server_config import XSRF_COOKIE_NAME

from decoding.common.errors import DraftscopeError
from decoding.common.formats import elapsed
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.models import manager
from pages.ui.common.scheduler import ModelTask, Worker


def this_session() -> str:
    """Id of the session whose script is running, empty if none is."""
    context = get_script_run_ctx()
    return "" if context is None else context.session_id


def entered_by_history() -> bool:
    """Whether the browser's Back or Forward brought the address under which the page is drawn."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def is_connected(session_id: str) -> bool:
    """Whether a browser shows the session; a tab that is closed or reloaded leaves its session without one."""
    return not session_id or not Runtime.exists() or Runtime.instance().is_active_session(session_id)


def this_browser() -> str:
    """A value that all sessions of this browser share, empty where it is unknown.

    It is the token that the server gives the browser against forged requests; each cookie masks it differently.
    """
    token, _ = decode_xsrf_token_string(st.context.cookies.get(XSRF_COOKIE_NAME, ""))
    return "" if token is None else token.hex()


def holder(session_id: str) -> str:
    """The name under which the files of a session's download buttons are held."""
    return f"{session_id} downloads"


def forget(session_id: str, afterwards: Callable[[], None]) -> None:
    """End a session that will not come back and free its memory; the server would do so when others connect.

    Once nothing holds it, `afterwards` is called in its own thread.
    """
    runtime = Runtime.instance()
    runtime.media_file_mgr.clear_session_refs(holder(session_id))

    def close() -> None:
        if not runtime.is_active_session(session_id):
            runtime.close_session(session_id)
            threading.Timer(1.0, afterwards).start()

    runtime._get_async_objs().eventloop.call_soon_threadsafe(close)


def free_memory() -> None:
    """Return unused memory to the system: the C library keeps what was freed in small pieces."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


GRACE_S = 1.0
POLL_S = 0.25
NOTE_S = 2.0
ARRIVES_S = 60.0
ARRIVED, ADDRESS = "worker_arrived", "worker_address"
LEAVES_S = 1.0
DIALOG = "dialog_open"  # whether the last run of the page has opened a dialog
ON_SCREEN = ("run", "iteration", "node")


@st.cache_resource(show_spinner=False)
def worker() -> Worker:
    """The worker of this server, shared by all browser sessions."""

    last: ModelTask | None = None

    def give_memory_back() -> None:
        # A job, so that it runs between the turns of others: none is measured, or captured in a graph, meanwhile.
        nonlocal last
        if last is None or last.state != "waiting":  # one that has not begun serves several sessions
            last = made.submit(ModelTask("Freeing memory", lambda job: free_memory()))

    made = Worker(is_connected, lambda session: forget(session, give_memory_back))
    return made


def start_job(
    slot: str, title: str, function: Callable[[ModelTask], Any], grace_s: float = GRACE_S, keeps: tuple[str, ...] = ()
) -> ModelTask:
    """Start work in a slot of this browser session and wait `grace_s` for it: short work needs no progress bar.

    Starting another job in a busy slot cancels the first.

    Args:
        keeps: names of further entries of the session's state that the work uses, besides the run on screen; a
            reloaded page gets them back.
    """
    old = job_in(slot)
    if old is not None and old.active:
        old.cancel()
    kept = {name: st.session_state[name] for name in (*ON_SCREEN, *keeps) if name in st.session_state}
    task = ModelTask(title, _mending(function), this_session(), this_browser(), _place(), slot, kept)
    job = worker().submit(task)
    st.session_state[_slot_key(slot)] = job
    job.wait(grace_s)
    return job


def _mending(function: Callable[[ModelTask], Any]) -> Callable[[ModelTask], Any]:
    """The work, and after it the check of the costs of passes that its runs gave cause to doubt."""

    def work(job: ModelTask) -> Any:
        result = function(job)
        manager().mend_costs()
        return result

    return work


def come_back() -> None:
    """Find the jobs that this page had before it was reloaded; call it before the page uses them."""
    me, arrives = this_session(), ARRIVED not in st.session_state
    since, place = st.session_state.setdefault(ARRIVED, (time.monotonic(), _place()))
    # A reloaded page may arrive before the server knows that the old one is gone.
    while arrives and worker().shown_elsewhere(me, this_browser(), place) and time.monotonic() - since < LEAVES_S:
        time.sleep(LEAVES_S / 20)
    # More than once: the server may learn later that the previous page is gone.
    if time.monotonic() - since < ARRIVES_S and not any(
        isinstance(st.session_state.get(key), ModelTask) for key in st.session_state
    ):
        for job in worker().take_over(me, this_browser(), place):
            st.session_state[_slot_key(job.slot)] = job
            for name, value in job.keeps.items():
                st.session_state[name] = value
    worker().moved(me, _place())


def address_parameters() -> dict[str, list[str]]:
    """The parameters of the page's address as the server knows them."""
    return {name: st.query_params.get_all(name) for name in st.query_params}


def address_is(parameters: Mapping[str, list[str]]) -> None:
    """The browser changed the address of this page: a reload will request it with these parameters."""
    st.session_state[ADDRESS] = (*_known_address(), parameters)
    worker().moved(this_session(), _place())


def _place() -> tuple:
    """The page and the parameters of its address as the browser knows them."""
    page, known = _known_address()
    *before, changed = st.session_state.get(ADDRESS, (None, None))
    parameters = changed if before == [page, known] else known
    return page, tuple(sorted((name, *values) for name, values in parameters.items()))


def _known_address() -> tuple[str, dict[str, list[str]]]:
    """The page and the parameters of its address as the server knows them, without the page's own changes."""
    return st.session_state.get("page", ""), address_parameters()


def found_again(slot: str) -> bool:
    """Whether the slot's job began before a reload and still runs or has a result; True only once."""
    job = job_in(slot)
    if job is None or not job.found:
        return False
    job.found = False
    return (job.active and not job.cancelled) or job.result is not None


def job_in(slot: str) -> ModelTask | None:
    """The last job of a slot in this browser session."""
    return st.session_state.get(_slot_key(slot))


def take_result(slot: str) -> Any:
    """The result of the slot's job, once: None afterwards, and for jobs that are running, failed or never began."""
    job = job_in(slot)
    if job is None:
        return None
    job.missed = job.active
    if job.missed:
        return None
    result, job.result = job.result, None
    return result


def so_far(slot: str) -> Any:
    """What the slot's job has so far, None if nothing; once the page is drawn, its script calls `drawn` of the job."""
    job = job_in(slot)
    if job is None or not job.active:
        return None
    job.seen = job.partial
    return job.seen


def is_busy(slot: str) -> bool:
    """Whether the slot's job still works; buttons that start another one are disabled meanwhile."""
    job = job_in(slot)
    return job is not None and job.active


def job_button(slot: str, label: str, title: str, function: Callable[[ModelTask], Any], **looks) -> None:
    """A button that starts work in a slot of this browser session, disabled while it works.

    Args:
        looks: as for `st.button`.
    """
    if st.button(label, disabled=is_busy(slot), **looks):
        start_job(slot, title, function)
        st.rerun(scope="app")


def job_bar(slot: str) -> None:
    """Progress and a cancel button while the slot's job works; its error afterwards; else nothing."""
    job_progress(slot)
    job_error(slot)


def job_progress(slot: str) -> bool:
    """Progress and a cancel button, only while the slot's job works; returns whether it does."""
    job = job_in(slot)
    if job is None:
        return False
    if job.active:
        _watch(slot)
        return True
    if job.missed:
        # It ended after this script looked for its result and nothing watches it, so redraw the page.
        job.missed = False
        st.rerun()
    return False


def job_error(slot: str) -> None:
    """Show the error of the slot's last job, if any, and what it did unasked."""
    job = job_in(slot)
    if job is not None and job.error is not None:
        show_error(job.error)
    for words in [] if job is None or job.active else job.notices:
        st.caption(f":material/timer: {escape_markdown(words)}")


def worker_note(page_has_clock: bool) -> None:
    """Shows what the worker does for other browser sessions, and for how long; nothing while this one has work.

    On a page with a timer that may rerun the whole page it is drawn only once.
    """
    busy = worker().busy()
    if busy is None or busy.owner in ("", this_session()) or _own_jobs():
        return
    st.fragment(_draw_note, run_every=None if page_has_clock else NOTE_S)()


def _draw_note() -> None:
    busy = worker().busy()
    if busy is not None and busy.owner not in ("", this_session()):
        others = f", {busy.others} more" if busy.others else ""
        words = escape_markdown(f"In use: {busy.title}, {elapsed(busy.seconds)}{others}")
        st.caption(
            f":material/hourglass_top: {words}",
            help="Another browser session is using the models. Your work takes turns with it, one iteration each; "
            "measurements pause every half second, and the pauses are not counted.",
        )


def _own_jobs() -> list[ModelTask]:
    """The running and waiting jobs of this browser session."""
    return [value for value in st.session_state.values() if isinstance(value, ModelTask) and value.active]


def _doing(job: ModelTask) -> str:
    """What a job is doing, or what it is waiting for."""
    busy = worker().busy()
    if job.state == "working":
        others = 0 if busy is None else busy.others
        turns = f"taking turns with {others} other{'s' if others > 1 else ''}" if others else ""
        return " · ".join(filter(None, (job.title, turns, job.note)))
    if busy is None:
        return f"{job.title} · waiting"
    whose = "your own" if busy.owner == job.owner else "another session’s"
    return f"{job.title} · waiting for {whose} “{busy.title}”, {elapsed(busy.seconds)} so far"


def _draw_bar(place: DeltaGenerator, job: ModelTask) -> None:
    """How far a job is and what it is doing; an empty bar where it does not say how far."""
    share = min(job.done / job.total, 1.0) if job.total else 0.0
    place.progress(share, text=escape_markdown(_doing(job)))


@st.fragment(run_every=POLL_S)
def _watch(slot: str) -> None:
    """Redrawn every quarter of a second while a job works; the page is redrawn once it has ended."""
    job = job_in(slot)
    news = job is not None and job.partial is not job.seen and not st.session_state.get(DIALOG)  # a redraw closes it
    if job is None or not job.active or news:
        st.rerun(scope="app")
    bar, button = st.columns([3, 1], vertical_alignment="center")
    _draw_bar(bar, job)
    text = "Cancelling" if job.cancelled else "Cancel"
    button.button(text, key=f"cancel_{slot}", on_click=job.cancel, disabled=job.cancelled, width="stretch")


def wait_for(job: ModelTask) -> Any:
    """Wait for a job, shown with what it reports, and return its result; a cancelled job ends the script.

    Raises:
        DraftscopeError: what the job ran into.
    """
    if job.active:
        bar = st.empty()
        with st.spinner(escape_markdown(job.title), show_time=True):
            while not job.wait(POLL_S):
                if job.total or _doing(job) != job.title:
                    _draw_bar(bar, job)
                # Reading the session's state lets Streamlit end the script when its page is redrawn.
                st.session_state.get(ARRIVED)
        bar.empty()
    for words in job.notices:  # the script that waited is often run again at once
        st.toast(escape_markdown(words), icon=":material/timer:", duration="long")
    if job.error is not None:
        raise job.error
    if job.state == "cancelled":
        st.stop()
    return job.result


def run_now(title: str, function: Callable[[ModelTask], Any], alone: bool = False) -> Any:
    """Do work in the worker and wait for it under a spinner; raises what it ran into as `DraftscopeError`.

    It begins only if this browser session has no other work running: that could not be cancelled meanwhile, as a
    click in a fragment does not end a waiting script. It is cancelled if the script ends first: a click elsewhere on
    the page, Streamlit's Stop, a closed tab.

    Args:
        alone: it replaces the models, so it begins only when no other session is using them.
    """
    own = next((job for job in _own_jobs() if not job.cancelled), None)
    if own is not None:
        raise DraftscopeError(f"“{own.title}” is still running for this page: cancel it, or wait until it ends.")
    job = worker().submit(ModelTask(title, function, this_session(), alone=alone))
    try:
        job.wait(0.15)  # no flash of the spinner for short work
        return wait_for(job)
    finally:
        if job.active:
            job.cancel()


def _slot_key(slot: str) -> str:
    return f"job_{slot}"
