"""Scheduling of the models: jobs of all browser sessions take turns, so only one thread uses them at a time.

A job's function calls `job.go_on()` between its iterations: jobs of other sessions run one iteration each first. Work
that measures time calls it less often and excludes the pauses (`decoding.common.interruption`). Jobs of one session run
one after the other. A job whose session has lost its browser gets no turn; it waits a while for it to come back.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from decoding.common.errors import DraftscopeError
from decoding.common.interruption import CancelledError, interruptible, others_begin
from decoding.common.notices import heard_by
from pages.ui.common.errors import UNEXPECTED, as_draftscope_error

DRAWS_S = 2.0  # what a page may take to draw a part of a result before the work goes on
SLICE_S = 0.5  # measured work goes on for so long before others have a turn
WATCH_S = 0.25
LATE_S = 1.0  # a result that came so shortly before its page went may not have been seen
# A session whose browser is gone may come back: a reload, a laptop that wakes up. After this long its work ends where
# it measures time or where another session's load of a pair waits for it,
AWAY_ENDS_URGENT_S = 10.0
AWAY_ENDS_WORK_S = 30.0  # after this long all its other work,
# and after this long the session is closed. Streamlit keeps a disconnected session for two minutes (the time to live of
# its `MemorySessionStorage`) and then drops it without closing it, so what it held would never be freed.
AWAY_CLOSES_SESSION_S = 110.0
logger = logging.getLogger("draftscope")


@dataclass(eq=False)
class ModelTask:
    """A piece of work for the models.

    Attributes:
        title: what it does, for the screen.
        owner: id of the browser session that started it. browser, place: used by a reloaded page to find it.
        slot: its place in that session. keeps: entries of the session's state that it uses, moved along with it.
        alone: it may begin only when no other job is running, as it replaces the models.
        done, total, note: progress; total 0 if unknown.
        state: `waiting`, `working` (also between its turns), `done`, `cancelled` or `failed`.
        result: returned by its function. error: what went wrong, ready to be shown.
        since_s: when it began, on the monotonic clock; before that, when it was submitted.
        asked_s, ended_s: when it was cancelled, and when it ended, on the same clock.
        pauses: how often measured work paused for the turns of others.
        notices: sentences about what was done unasked, such as costs that were measured again.
        found: a page that was reloaded has found it again.
        missed: whether a script looked for the result too early and still has to be rerun.
        partial: what it has so far, and `seen`: that which a page has taken.
    """

    title: str
    function: Callable[["ModelTask"], Any]
    owner: str = ""
    browser: str = ""
    place: Hashable = ""
    slot: str = ""
    keeps: dict[str, Any] = field(default_factory=dict)
    alone: bool = False
    state: str = "waiting"
    done: int = 0
    total: int = 0
    note: str = ""
    result: Any = None
    error: DraftscopeError | None = None
    since_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0
    asked_s: float | None = None
    gone_s: float | None = None
    pauses: int = 0
    notices: list[str] = field(default_factory=list)
    found: bool = False
    missed: bool = False
    partial: Any = None
    seen: Any = None
    worker: "Worker | None" = None
    _cancel: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _drawn: threading.Event = field(default_factory=threading.Event)

    @property
    def active(self) -> bool:
        """True until it has ended, in whatever state."""
        return not self._ended.is_set()

    @property
    def cancelled(self) -> bool:
        """True once its cancellation was requested."""
        return self._cancel.is_set()

    def report(self, done: int, total: int, note: str = "") -> None:
        """Report progress to the screen."""
        self.done, self.total, self.note = done, total, note

    def show(self, partial: Any) -> None:
        """Give the page what there is so far, and wait until it has drawn it: that would disturb what is measured."""
        self._drawn.clear()
        self.partial = partial
        self._drawn.wait(DRAWS_S)

    def drawn(self) -> None:
        """The page has drawn what it has taken."""
        if self.seen is self.partial:
            self._drawn.set()

    def unseen(self, gone_s: float) -> bool:
        """Whether it ended after its page was gone, or so shortly before that nobody took the result."""
        kept = self.result is not None or self.error is not None
        return self.ended_s > gone_s or (kept and self.ended_s > gone_s - LATE_S)

    def go_on(self) -> bool:
        """Call between two pieces of work: lets others have their turn, then returns whether to continue."""
        if self.worker is not None:
            self.worker.give_way(self)
        return not self.cancelled

    def proceed(self, words: str) -> Callable[[int, int], bool]:
        """What a long computation calls between its pieces: reports `words.format(done, total)`, then is `go_on`."""

        def after(done: int, total: int) -> bool:
            self.report(done, total, words.format(done, total))
            return self.go_on()

        return after

    def cancel(self) -> None:
        """Cancel it: at once if it has not begun, else when its function next calls `go_on`."""
        self.asked_s = self.asked_s or time.monotonic()
        self._cancel.set()
        if self.worker is not None:
            self.worker.cancelled(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False if the time is up first."""
        return self._ended.wait(timeout)

    def run(self) -> None:
        """Do the work; called by the worker alone."""
        try:
            with interruptible(self._ask), heard_by(self.notices.append, self._doing):
                self.result = self.function(self)
            self.state = "cancelled" if self.cancelled else "done"
        except CancelledError:
            self.state = "cancelled"
        except BaseException as error:  # top of the thread: no defect may end the worker, nor a panic in Rust
            self.state = "failed"
            self.error = as_draftscope_error(error)
            if self.error is None:
                logger.exception("job %r failed", self.title)
                self.error = DraftscopeError(UNEXPECTED.format(kind=type(error).__name__))

    def end(self) -> None:
        """Release the work and everyone waiting for it."""
        self.ended_s = time.monotonic()
        late = "" if self.asked_s is None else f", {self.ended_s - self.asked_s:.2f} s after it was asked to"
        logger.info("job %r ended: %s after %.2f s%s", self.title, self.state, self.ended_s - self.since_s, late)
        self.function = lambda job: None  # it may hold a run, or the caches of one
        self.partial = self.seen = None
        self._ended.set()

    def _doing(self, words: str) -> None:
        self.note = words

    def _ask(self, may_wait: bool, timed: bool) -> float:
        waited_s = self.worker.give_way(self, timed) if may_wait else 0.0
        gone = self.gone_s is not None and time.monotonic() - self.gone_s > AWAY_ENDS_URGENT_S
        if self.cancelled or gone:
            raise CancelledError
        return waited_s


@dataclass(frozen=True)
class Busy:
    """The job that has its turn or will have it next, for how long, and how many others wait."""

    title: str
    seconds: float
    others: int
    owner: str


class Worker:
    """Jobs that take turns.

    Args:
        connected: whether the browser session of an id is connected.
        forget: called with the id of a session that has been without a browser for so long that it will not come back.
    """

    def __init__(
        self,
        connected: Callable[[str], bool] = lambda session: True,
        forget: Callable[[str], None] = lambda session: None,
    ) -> None:
        self._connected, self._forget = connected, forget
        self._gone: dict[str, float | None] = {}  # when each session lost its browser
        self._changed = threading.Condition()
        self._jobs: list[ModelTask] = []  # not ended, in the order of their turns
        self._slots: dict[tuple[str, str], ModelTask] = {}  # the last job of each session and slot, ended or not
        self._current: ModelTask | None = None
        self._turn_s = 0.0
        self._last: tuple[str, str] | None = None  # owner and slot of the last turn: one slot, one piece of work
        self._idle: list[queue.SimpleQueue[ModelTask]] = []
        threading.Thread(target=self._watch, name="draftscope-watch", daemon=True).start()

    def submit(self, job: ModelTask) -> ModelTask:
        """Add a job to the end of the queue."""
        with self._changed:
            job.worker, job.since_s = self, time.monotonic()
            if job.owner:
                self._gone.setdefault(job.owner, None)
            self._jobs.append(job)
            if job.slot:
                self._slots[job.owner, job.slot] = job
            self._hand_on()
            self._changed.notify_all()
        return job

    def give_way(self, job: ModelTask, timed: bool = False) -> float:
        """Let others have a turn; returns the seconds they took."""
        with self._changed:
            if self._current is not job or job.cancelled:
                return 0.0
            if timed and time.monotonic() - self._turn_s < SLICE_S:
                return 0.0
            self._jobs.remove(job)
            self._jobs.append(job)
            self._current, started = None, time.monotonic()
            self._hand_on()
            if self._current is job:
                return 0.0
            job.pauses += timed
            self._changed.wait_for(lambda: self._current is job)
            return time.monotonic() - started

    def cancelled(self, job: ModelTask) -> None:
        """A job was cancelled: one that has not begun ends at once, others get the next turn."""
        with self._changed:
            if job in self._jobs and job.state == "waiting":
                self._jobs.remove(job)
                job.state = "cancelled"
                job.end()
            self._hand_on()

    def busy(self) -> Busy | None:
        """The work in progress, None if there is none."""
        with self._changed:
            begun = [job for job in self._jobs if job.state == "working" and job.gone_s is None]
            job = self._current or (begun[0] if begun else None)
            if job is None:
                return None
            others = sum(other is not job and other.gone_s is None for other in self._jobs)
            return Busy(job.title, time.monotonic() - job.since_s, others, job.owner)

    def take_over(self, owner: str, browser: str, place: Hashable) -> list[ModelTask]:
        """The jobs that a page had when it was reloaded, handed to the session that the same browser opened there.

        Jobs that had ended before are left alone: that tab may have been closed and this be another one.
        """
        with self._changed:
            left = [job for job in self._slots.values() if (job.browser, job.place) == (browser, place)]
            left = [job for job in left if job.owner != owner and not self._connected(job.owner)]
            left = [job for job in left if job.active or job.unseen(job.gone_s or time.monotonic())]
            if not browser or not left:
                return []
            last = max(left, key=lambda job: job.gone_s or time.monotonic()).owner
            self._gone.setdefault(owner, None)
            found = [job for job in left if job.owner == last]
            for job in found:
                del self._slots[last, job.slot]
                self._slots[owner, job.slot] = job
                job.owner, job.gone_s, job.found = owner, None, True
            self._hand_on()
            return found

    def shown_elsewhere(self, owner: str, browser: str, place: Hashable) -> bool:
        """Whether another session of the same browser is connected with work under the same address."""
        with self._changed:
            same = [job for job in self._slots.values() if job.active and (job.browser, job.place) == (browser, place)]
            return bool(browser) and any(job.owner != owner and self._connected(job.owner) for job in same)

    def moved(self, owner: str, place: Hashable) -> None:
        """A session is connected and shows a page, under an address."""
        with self._changed:
            self._gone.setdefault(owner, None)
            self._changed.notify_all()
            for (whose, _), job in self._slots.items():
                if whose == owner:
                    job.place = place

    def look(self) -> None:
        """Find sessions without a browser: let others have their turns, end their jobs, and forget them in time."""
        now = time.monotonic()
        with self._changed:
            for session, since in list(self._gone.items()):
                self._gone[session] = None if self._connected(session) else since or now
            away = {session: now - since for session, since in self._gone.items() if since is not None}
            replacing = any(job.alone and job.owner not in away for job in self._jobs)
            for job in {*self._jobs, *self._slots.values()}:
                job.gone_s, away_s = self._gone.get(job.owner), away.get(job.owner, 0.0)
                in_the_way = replacing and job.state == "working" and away_s > AWAY_ENDS_URGENT_S
                if job.active and (in_the_way or away_s > AWAY_ENDS_WORK_S):
                    job.cancel()
                if not job.active and job.owner not in away and now - job.ended_s > 2 * LATE_S:
                    job.keeps = {}  # nobody will come back for it, and it may hold another run
            for session, away_s in away.items():
                if away_s > AWAY_CLOSES_SESSION_S and not any(job.owner == session for job in self._jobs):
                    del self._gone[session]
                    self._slots = {place: job for place, job in self._slots.items() if place[0] != session}
                    try:
                        self._forget(session)
                    except Exception:  # one session that cannot be ended must not block the others
                        logger.exception("session %s could not be ended", session)
            self._hand_on()

    def _hand_on(self) -> None:
        """Give the models to the next job, if they are free and a job may run."""
        job = None if self._current is not None else self._next()
        if job is None:
            return
        if (work := (job.owner, job.slot)) != self._last:
            self._last = work
            others_begin()
        self._current, self._turn_s = job, time.monotonic()
        if job.state == "working":
            self._changed.notify_all()
            return
        job.state, job.since_s = "working", self._turn_s
        # Reuse the thread that became idle last: each keeps its own threads for parallel loops.
        if not self._idle:
            self._idle.append(queue.SimpleQueue())
            threading.Thread(target=self._work, args=(self._idle[-1],), name="draftscope-worker", daemon=True).start()
        self._idle.pop().put(job)

    def _next(self) -> ModelTask | None:
        begun = [job for job in self._jobs if job.state == "working"]
        replacing = False
        for job in sorted(self._jobs, key=lambda job: not job.cancelled):  # a cancelled job only has to end
            if job.gone_s is not None and not job.cancelled:
                continue
            if job.state == "working":
                return job
            if replacing or any(other.owner == job.owner for other in begun) or (job.alone and begun):
                replacing |= job.alone
                continue
            return job
        return None

    def _work(self, inbox: queue.SimpleQueue) -> None:
        while True:
            job, broken = inbox.get(), True
            try:
                job.run()
                broken = False
            finally:  # whatever the outcome, the models are free for the next job
                with self._changed:
                    self._jobs.remove(job)
                    self._current = None
                    spare = broken or bool(self._idle)
                    if not spare:
                        self._idle.append(inbox)
                    self._hand_on()
                    job.end()
            del job  # else the thread would hold the job and its result until the next one
            if spare:
                return

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._gone)
            time.sleep(WATCH_S)
            try:
                self.look()
            except Exception:  # top of the thread: if it ended, no lost session would ever be noticed
                logger.exception("looking after sessions failed")
