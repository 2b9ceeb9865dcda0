"""One worker thread does all work with the models, so that only one thing uses them at a time.

    job = start_job("step", "10 more iterations", lambda job: step_many(session, 10, job))
    job_bar("step")          # progress and cancel while it works, its error afterwards
    result = wait_for(job)   # or: wait under a spinner; raises the job's error

A job's function reports with `job.report(done, total, text)` and returns early when `job.cancelled`. Whatever must not
be lost goes into an object that the function fills (see `state.Run`): a page may be left while its job works.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from decoding.errors import DraftscopeError
from pages.ui.errors import UNEXPECTED, as_draftscope_error, escape_markdown, show_error

GRACE_S = 1.0
POLL_S = 0.25
logger = logging.getLogger("draftscope")


@dataclass(eq=False)
class Job:
    """A piece of work in the queue.

    Attributes:
        title: what it does, in words for the screen.
        done, total, note: progress; total 0 where it is not known.
        state: `waiting`, `working`, `done`, `cancelled` or `failed`.
        result: what its function returned. error: what went wrong, ready to be shown.
        missed: whether a script looked for the result too early, and has yet to be drawn anew.
    """

    title: str
    function: Callable[["Job"], Any]
    state: str = "waiting"
    done: int = 0
    total: int = 0
    note: str = ""
    result: Any = None
    error: DraftscopeError | None = None
    ended_s: float = 0.0
    missed: bool = False
    _cancel: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def active(self) -> bool:
        """True until it has ended, however it ended."""
        return not self._ended.is_set()

    @property
    def cancelled(self) -> bool:
        """True once someone has asked to cancel it; its function looks here between steps."""
        return self._cancel.is_set()

    def report(self, done: int, total: int, note: str = "") -> None:
        """Tell the screen how far the work is."""
        self.done, self.total, self.note = done, total, note

    def cancel(self) -> None:
        """Ask the function to return; work that has not begun never does."""
        self._cancel.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False if the time is up first."""
        return self._ended.wait(timeout)

    def run(self) -> None:
        """Do the work; called by the worker alone."""
        try:
            if not self.cancelled:
                self.state = "working"
                self.result = self.function(self)
            self.state = "cancelled" if self.cancelled else "done"
        except Exception as error:  # the edge of the thread: a defect must not end the worker
            self.state = "failed"
            self.error = as_draftscope_error(error)
            if self.error is None:
                logger.exception("job %r failed", self.title)
                self.error = DraftscopeError(UNEXPECTED.format(kind=type(error).__name__))
        finally:
            self.ended_s = time.monotonic()
            self._ended.set()


class Worker:
    """A queue of jobs and the daemon thread that does them one after the other."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Job] = queue.Queue()
        threading.Thread(target=self._loop, name="draftscope-worker", daemon=True).start()

    def submit(self, job: Job) -> Job:
        """Put a job at the end of the queue."""
        self._queue.put(job)
        return job

    def _loop(self) -> None:
        while True:
            self._queue.get().run()


@st.cache_resource(show_spinner=False)
def worker() -> Worker:
    """The worker of this server, shared by all browser sessions."""
    return Worker()


def start_job(slot: str, title: str, function: Callable[[Job], Any], grace_s: float = GRACE_S) -> Job:
    """Start work in a slot of this browser session, and wait `grace_s` for it: short work needs no progress bar.

    While a slot's job works, starting another in it cancels the first.
    """
    old = job_in(slot)
    if old is not None and old.active:
        old.cancel()
    job = worker().submit(Job(title, function))
    st.session_state[_slot_key(slot)] = job
    job.wait(grace_s)
    return job


def job_in(slot: str) -> Job | None:
    """The last job of a slot in this browser session."""
    return st.session_state.get(_slot_key(slot))


def take_result(slot: str) -> Any:
    """What the slot's job returned, once: later calls give None, as do jobs that work, failed or were never begun."""
    job = job_in(slot)
    if job is None:
        return None
    job.missed = job.active
    if job.missed:
        return None
    result, job.result = job.result, None
    return result


def is_busy(slot: str) -> bool:
    """Whether the slot's job still works; buttons that start another one are disabled meanwhile."""
    job = job_in(slot)
    return job is not None and job.active


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
        # It has ended since this script looked for its result: nothing watches it, so the page is drawn anew here.
        job.missed = False
        st.rerun()
    return False


def job_error(slot: str) -> None:
    """What the slot's last job ran into, if anything."""
    job = job_in(slot)
    if job is not None and job.error is not None:
        show_error(job.error)


@st.fragment(run_every=POLL_S)
def _watch(slot: str) -> None:
    """Drawn every quarter of a second while a job works; the page is drawn anew once it has ended."""
    job = job_in(slot)
    if job is None or not job.active:
        st.rerun(scope="app")
    bar, button = st.columns([3, 1], vertical_alignment="center")
    share = min(job.done / job.total, 1.0) if job.total else 0.0
    doing = "waiting for other work to end" if job.state == "waiting" else job.note
    label = f"{job.title} · {doing}" if doing else job.title
    bar.progress(share, text=escape_markdown(label))
    text = "Cancelling" if job.cancelled else "Cancel"
    button.button(text, key=f"cancel_{slot}", on_click=job.cancel, disabled=job.cancelled, width="stretch")


def wait_for(job: Job, text: str = "") -> Any:
    """Wait for a job under a spinner and return its result.

    Raises:
        DraftscopeError: what the job ran into.
    """
    if job.active:
        with st.spinner(escape_markdown(text or job.title), show_time=True):
            job.wait()
    if job.error is not None:
        raise job.error
    return job.result


def run_now(title: str, function: Callable[[Job], Any]) -> Any:
    """Do work in the worker and wait for it under a spinner; raises what it ran into as `DraftscopeError`."""
    job = worker().submit(Job(title, function))
    job.wait(0.15)  # without a flash of the spinner for short work
    return wait_for(job)


def _slot_key(slot: str) -> str:
    return f"job_{slot}"
