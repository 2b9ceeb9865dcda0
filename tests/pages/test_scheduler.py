"""Turns of jobs on the models: fair, cancelled at once, left to a session that comes back."""

import inspect
import threading
from itertools import pairwise

import pytest
from streamlit.runtime.memory_session_storage import MemorySessionStorage

from decoding.common.interruption import CancelledError, check_wanted, in_one_piece, pause_point, turn
from pages.ui.common import scheduler
from pages.ui.common.errors import UNEXPECTED
from pages.ui.common.scheduler import ModelTask, Worker

WAIT_S = 20


class Paced:
    """A job of `count` pieces that notes each in `log`; it waits for `gate` before its first."""

    def __init__(self, name: str, log: list, count: int, gate: threading.Event | None = None):
        self.name, self.log, self.count, self.gate = name, log, count, gate
        self.begun = threading.Event()

    def __call__(self, job: ModelTask) -> int:
        self.begun.set()
        if self.gate is not None:
            assert self.gate.wait(WAIT_S)
        done = 0
        while done < self.count and job.go_on():
            self.log.append(self.name)
            done += 1
        return done


def submit(worker: Worker, work, owner: str, **more) -> ModelTask:
    return worker.submit(ModelTask(getattr(work, "name", "work"), work, owner, **more))


def forever(job: ModelTask) -> str:
    while job.go_on():
        threading.Event().wait(0.001)
    return "part"


@pytest.fixture
def absent() -> set[str]:
    """Sessions that have no browser."""
    return set()


@pytest.fixture
def worker(absent) -> Worker:
    return Worker(lambda session: session not in absent)


def test_sessions_have_an_iteration_each_in_turn(worker):
    log, gate = [], threading.Event()
    first = submit(worker, Paced("a", log, 6, gate), "a")
    others = [submit(worker, Paced(name, log, 6), name) for name in "bc"]
    gate.set()
    assert all(job.wait(WAIT_S) for job in (first, *others))
    assert [job.result for job in (first, *others)] == [6, 6, 6]
    assert sorted(log) == sorted("abc" * 6)
    assert all(before != after for before, after in pairwise(log[:-2])), f"nobody goes twice while others wait: {log}"


def test_jobs_of_one_session_run_one_after_the_other(worker):
    log, gate = [], threading.Event()
    jobs = [submit(worker, Paced(name, log, 4, gate), "same") for name in "ab"]
    gate.set()
    assert all(job.wait(WAIT_S) for job in jobs)
    assert "".join(log) == "aaaabbbb"


def test_only_one_thread_works_at_a_time(worker):
    inside, most = [], []

    def work(job):
        for _ in range(20):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.0005)
            inside.pop()
            job.go_on()

    jobs = [submit(worker, work, str(number)) for number in range(5)]
    assert all(job.wait(WAIT_S) for job in jobs)
    assert max(most) == 1


def test_a_queued_job_is_cancelled_at_once(worker):
    gate = threading.Event()
    first = submit(worker, Paced("a", [], 1, gate), "a")
    queued = submit(worker, Paced("b", [], 1), "b")
    queued.cancel()
    assert not queued.active and queued.state == "cancelled"
    assert first.active
    gate.set()
    assert first.wait(WAIT_S) and first.state == "done"


def test_a_job_is_cancelled_between_its_turns_and_keeps_its_part(worker):
    first, second = submit(worker, forever, "a"), submit(worker, forever, "b")
    second.cancel()
    assert second.wait(WAIT_S)
    assert first.active
    first.cancel()
    assert first.wait(WAIT_S) and (first.state, first.result) == ("cancelled", "part")


def test_measured_work_is_interrupted_seldom_and_reported_how_long(worker, monkeypatch):
    """A slice that has not passed is not interrupted; one that has gives way, and the wait is returned."""
    gate, waits, log = threading.Event(), [], []

    def measured(job):
        assert gate.wait(WAIT_S)
        waits.append(pause_point(timed=True))
        monkeypatch.setattr(scheduler, "SLICE_S", 0.0)
        waits.append(pause_point(timed=True))
        log.append("measured")

    monkeypatch.setattr(scheduler, "SLICE_S", 1000.0)
    job, other = submit(worker, measured, "a"), submit(worker, lambda job: log.append("other"), "b")
    gate.set()
    assert job.wait(WAIT_S) and other.wait(WAIT_S)
    assert log == ["other", "measured"]
    assert waits[0] == 0 and waits[1] > 0
    assert job.pauses == 1


def test_it_is_known_whether_others_had_the_models_meanwhile(worker):
    turns = []

    def work(job):
        turns.append(turn())

    for owner, slot in (("a", "step"), ("a", "step"), ("b", "step"), ("b", "compare"), ("a", "step")):
        assert submit(worker, work, owner, slot=slot).wait(WAIT_S)
    first, again, other, place, back = turns
    assert first == again and len({first, other, place, back}) == 4


def test_work_that_asks_deep_inside_is_cancelled_there(worker):
    begun = threading.Event()

    def measure(job):
        begun.set()
        with in_one_piece():
            while True:
                check_wanted()
                assert pause_point() == 0

    job, other = submit(worker, measure, "a"), submit(worker, lambda job: 1, "b")
    assert begun.wait(WAIT_S)
    assert other.state == "waiting", "what is in one piece gives no turn"
    job.cancel()
    assert job.wait(WAIT_S) and job.state == "cancelled" and job.error is None
    assert other.wait(WAIT_S)


def test_without_a_worker_nothing_is_asked():
    check_wanted()
    assert pause_point() == 0.0


def test_a_session_without_a_browser_gives_its_turns_to_others_and_goes_on_when_it_is_back(worker, absent):
    left, log = submit(worker, forever, "a", browser="chrome", place="Compare", slot="compare"), []
    absent.add("a")
    worker.look()
    other = submit(worker, Paced("b", log, 3), "b")
    assert other.wait(WAIT_S), "the worker is free at once"
    assert worker.busy() is None, "what waits for its browser keeps nobody"
    assert left.active
    assert worker.take_over("c", "chrome", "Race") == [], "another page"
    assert worker.take_over("c", "firefox", "Compare") == [], "another browser"
    assert worker.take_over("c", "chrome", "Compare") == [left]
    assert left.owner == "c" and left.found
    assert worker.busy().owner == "c"
    left.cancel()
    assert left.wait(WAIT_S) and left.result == "part"


def test_a_job_of_a_session_that_is_there_is_nobody_elses(worker):
    job = submit(worker, forever, "a", browser="chrome", place="Compare", slot="compare")
    assert worker.take_over("b", "chrome", "Compare") == []
    job.cancel()


def test_a_result_that_came_while_the_page_was_reloaded_is_found(worker, absent):
    job = submit(worker, lambda job: "figures", "a", browser="chrome", place="Compare", slot="compare")
    assert job.wait(WAIT_S)
    absent.add("a")
    (found,) = worker.take_over("b", "chrome", "Compare")
    assert found.result == "figures"


def test_what_had_ended_before_its_page_went_is_nobody_elses(worker, absent, monkeypatch):
    monkeypatch.setattr(scheduler, "LATE_S", 0.0)
    job = submit(worker, lambda job: "figures", "a", browser="chrome", place="Compare", slot="compare")
    assert job.wait(WAIT_S)
    absent.add("a")
    worker.look()
    assert worker.take_over("b", "chrome", "Compare") == []


def test_a_result_that_the_page_had_before_it_went_is_not_found_again(worker, absent):
    """With it would come the run that was on screen before it."""
    job = submit(worker, lambda job: "figures", "a", browser="chrome", place="Compare", slot="compare")
    assert job.wait(WAIT_S)
    job.result = None  # as a page takes it
    absent.add("a")
    worker.look()
    assert worker.take_over("b", "chrome", "Compare") == []


def test_work_that_ended_while_its_page_was_gone_is_found(worker, absent):
    job = submit(worker, forever, "a", browser="chrome", place="Compare", slot="compare")
    absent.add("a")
    worker.look()
    job.cancel()
    assert job.wait(WAIT_S)
    job.result = None
    assert worker.take_over("b", "chrome", "Compare") == [job]


def test_what_a_job_keeps_for_its_page_goes_once_nobody_can_come_back_for_it(worker, absent, monkeypatch):
    monkeypatch.setattr(scheduler, "LATE_S", 1000.0)
    job = submit(worker, lambda job: 1, "a", slot="step", keeps={"run": "another run"})
    assert job.wait(WAIT_S)
    worker.look()
    assert job.keeps, "its page may just be drawn anew"
    monkeypatch.setattr(scheduler, "LATE_S", -1.0)
    absent.add("a")
    worker.look()
    assert job.keeps, "its page may come back"
    absent.clear()
    worker.look()
    assert job.keeps == {}


def test_a_session_that_stays_away_is_forgotten(absent, monkeypatch):
    forgotten = []
    worker = Worker(lambda session: session not in absent, forgotten.append)
    monkeypatch.setattr(scheduler, "AWAY_ENDS_WORK_S", -1.0)
    job = submit(worker, forever, "a", browser="chrome", place="Compare", slot="compare")
    absent.add("a")
    worker.look()
    assert job.wait(WAIT_S) and job.state == "cancelled"
    worker.look()
    assert forgotten == [], "its work has ended, and the browser may still find its way back to what is on screen"
    monkeypatch.setattr(scheduler, "AWAY_CLOSES_SESSION_S", -1.0)
    for _ in range(3):
        worker.look()
    assert forgotten == ["a"]
    assert worker.take_over("b", "chrome", "Compare") == []


def test_a_session_that_cannot_be_ended_keeps_no_other(absent, monkeypatch, uncaught):
    forgotten = []

    def forget(session):
        forgotten.append(session)
        assert session != "a", "the server has lost it"

    worker = Worker(lambda session: session not in absent, forget)
    monkeypatch.setattr(scheduler, "AWAY_CLOSES_SESSION_S", -1.0)
    assert all(submit(worker, lambda job: 1, owner).wait(WAIT_S) for owner in "ab")
    absent.update("ab")
    for _ in range(3):
        worker.look()
    assert sorted(forgotten) == ["a", "b"]
    assert "the server has lost it" in uncaught.pop()


def test_sessions_are_looked_after_whatever_goes_wrong_once(monkeypatch, uncaught):
    monkeypatch.setattr(scheduler, "WATCH_S", 0.0)
    asked, again = [], threading.Event()

    def connected(session):
        asked.append(session)
        if len(asked) == 1:
            raise RuntimeError("the server is busy")
        again.set()
        return True

    worker = Worker(connected)
    worker.moved("a", "Compare")
    assert again.wait(WAIT_S), "the thread that looks after sessions has ended"
    assert "the server is busy" in uncaught.pop()


def test_what_cannot_wait_for_its_session_ends(worker, absent, monkeypatch):
    monkeypatch.setattr(scheduler, "AWAY_ENDS_URGENT_S", 0.0)
    begun = threading.Event()

    def load(job):
        begun.set()
        with in_one_piece():
            while True:
                check_wanted()

    job = submit(worker, load, "a")
    assert begun.wait(WAIT_S)
    absent.add("a")
    worker.look()
    assert job.wait(WAIT_S) and job.state == "cancelled"


def test_models_are_replaced_when_nobody_uses_them(worker):
    log, gate = [], threading.Event()
    first = submit(worker, Paced("a", log, 5, gate), "a")
    load = submit(worker, lambda job: log.append("load"), "b", alone=True)
    last = submit(worker, Paced("c", log, 2), "c")
    gate.set()
    assert all(job.wait(WAIT_S) for job in (first, load, last))
    assert log == [*"aaaaa", "load", "c", "c"]


def test_models_are_replaced_though_a_session_left_its_work(worker, absent, monkeypatch):
    monkeypatch.setattr(scheduler, "AWAY_ENDS_URGENT_S", 1000.0)
    left, load = submit(worker, forever, "a"), submit(worker, lambda job: 1, "b", alone=True)
    absent.add("a")
    worker.look()
    assert not left.cancelled and load.state == "waiting", "its page may only be reloaded"
    monkeypatch.setattr(scheduler, "AWAY_ENDS_URGENT_S", -1.0)
    worker.look()
    assert load.wait(WAIT_S) and left.wait(WAIT_S)
    assert left.state == "cancelled"


def test_a_job_that_breaks_off_hard_frees_the_models(worker, uncaught):
    """A panic in Rust is no `Exception`."""

    def panic(job):
        raise type("PanicException", (BaseException,), {})("no entry found for key")

    broken, after = submit(worker, panic, "a"), submit(worker, lambda job: "done", "b")
    assert broken.wait(WAIT_S) and broken.state == "failed"
    assert str(broken.error) == UNEXPECTED.format(kind="PanicException") and "no entry found for key" in uncaught.pop()
    assert after.wait(WAIT_S) and after.result == "done"


def test_a_thread_that_ends_frees_the_models(worker, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda reported: ended.set())
    monkeypatch.setattr(scheduler, "as_draftscope_error", lambda error: 1 / 0)
    broken, after = submit(worker, lambda job: 1 / 0, "a"), submit(worker, lambda job: "done", "b")
    assert broken.wait(WAIT_S) and broken.state == "failed"
    assert after.wait(WAIT_S) and after.result == "done"
    assert ended.wait(WAIT_S)


def test_what_is_under_way_is_reported(worker):
    assert worker.busy() is None
    gate = threading.Event()
    work = Paced("Comparing", [], 1, gate)
    first = submit(worker, work, "a")
    second = submit(worker, Paced("b", [], 1), "b")
    assert work.begun.wait(WAIT_S)
    busy = worker.busy()
    assert (busy.title, busy.owner, busy.others) == ("Comparing", "a", 1)
    assert busy.seconds >= 0
    gate.set()
    assert first.wait(WAIT_S) and second.wait(WAIT_S)


def test_a_cancelled_error_is_no_failure(worker):
    def stop(job):
        raise CancelledError

    job = submit(worker, stop, "a")
    assert job.wait(WAIT_S) and job.state == "cancelled" and job.error is None


def test_a_session_is_forgotten_while_the_server_can_still_close_it():
    kept_s = inspect.signature(MemorySessionStorage).parameters["ttl_seconds"].default
    assert scheduler.AWAY_ENDS_WORK_S < scheduler.AWAY_CLOSES_SESSION_S < kept_s - 5
