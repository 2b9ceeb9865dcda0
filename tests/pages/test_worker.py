"""Pages and their jobs: one ends while a script runs, one is waited for, one is found again after a reload."""

import threading
import time
from types import SimpleNamespace

from streamlit.delta_generator import DeltaGenerator
from streamlit.testing.v1 import AppTest

from pages.ui.common import worker
from pages.ui.common.scheduler import ModelTask


def page():
    import threading

    import streamlit as st

    from pages.ui.common.worker import job_in, job_progress, start_job, take_result

    if "end" not in st.session_state:
        end = st.session_state.end = threading.Event()
        start_job("slot", "work", lambda job: end.wait(20) and "finished", grace_s=0.0)
    result = take_result("slot")
    if result is not None:
        st.session_state.shown = result
    # The job ends after the page has looked for its result and before it draws the progress.
    st.session_state.end.set()
    job_in("slot").wait(20)
    if not job_progress("slot"):
        st.write(st.session_state.get("shown", "nothing"))
    st.session_state.runs = st.session_state.get("runs", 0) + 1


def test_a_result_that_came_too_late_for_a_script_is_shown_by_the_next_at_once():
    at = AppTest.from_function(page, default_timeout=30).run()
    assert [element.value for element in at.markdown] == ["finished"]
    assert at.session_state.runs == 1, "drawn to its end once, not over and over"


def waiting_page():
    import streamlit as st
    from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

    from pages.ui.common.worker import run_now

    requests, jobs = get_script_run_ctx().script_requests, st.session_state.setdefault("jobs", [])
    st.session_state.runs = st.session_state.get("runs", 0) + 1

    def load(job):
        jobs.append(job)
        requests.request_rerun(RerunData())  # as a click does, on Cancel of other work for one
        return job._cancel.wait(20)

    if st.session_state.runs == 1:
        run_now("Loading", load)
    st.write(f"drawn {st.session_state.runs} times")


def test_a_click_ends_what_a_page_waits_for():
    at = AppTest.from_function(waiting_page, default_timeout=30).run()
    assert [element.value for element in at.markdown] == ["drawn 2 times"]
    (job,) = at.session_state.jobs
    assert job.wait(20) and job.state == "cancelled"


def test_what_is_waited_for_shows_how_far_it_is(monkeypatch):
    shown, drawn = [], threading.Event()
    monkeypatch.setattr(DeltaGenerator, "progress", lambda _, share, text: (shown.append((share, text)), drawn.set()))

    def measure(job):
        job.report(1, 4, "passes over 2 sequences")
        return drawn.wait(20) and "measured"

    assert worker.run_now("Measuring batches", measure) == "measured"
    assert shown[0] == (0.25, "Measuring batches · passes over 2 sequences")


def busy_page():
    import threading

    import streamlit as st

    from decoding.common.errors import DraftscopeError
    from pages.ui.common.worker import run_now, start_job

    end = threading.Event()
    job = start_job("compare", "Comparing", lambda job: end.wait(20), grace_s=0.0)
    try:
        run_now("Loading", lambda job: None, alone=True)
    except DraftscopeError as error:
        st.write(str(error))
    end.set()
    job.wait(20)
    st.write(run_now("Loading", lambda job: "loaded", alone=True))


def test_a_page_waits_for_nothing_behind_its_own_work_which_could_not_be_cancelled_then():
    at = AppTest.from_function(busy_page, default_timeout=30).run()
    reported, loaded = (element.value for element in at.markdown)
    assert reported == "“Comparing” is still running for this page: cancel it, or wait until it ends."
    assert loaded == "loaded"


def reloaded_page():
    import streamlit as st

    from pages.ui.common.worker import come_back, found_again

    come_back()
    st.write(f"{st.session_state.get('run')} {found_again('step')} {found_again('step')}")


def reloaded(monkeypatch, results: list[list[ModelTask]], elsewhere: list[bool] | None = None) -> AppTest:
    """A page whose worker finds these jobs, one list whenever it is asked."""
    asked = SimpleNamespace(
        take_over=lambda *_: results.pop(0) if results else [],
        moved=lambda *_: None,
        shown_elsewhere=lambda *_: bool(elsewhere) and elsewhere.pop(0),
    )
    monkeypatch.setattr(worker, "worker", lambda: asked)
    return AppTest.from_function(reloaded_page, default_timeout=30).run()


def left(**more) -> ModelTask:
    return ModelTask("To the end", lambda job: None, slot="step", keeps={"run": "its run"}, found=True, **more)


def words(at: AppTest) -> str:
    return at.markdown[0].value


def test_what_was_found_again_is_obeyed_once(monkeypatch):
    assert words(reloaded(monkeypatch, [[left()]])) == "its run True False"


def test_what_ended_without_a_result_is_not_gone_on_with(monkeypatch):
    cancelled, ended, reported = left(), left(), left(result="figures")
    cancelled.cancel()
    for job in (ended, reported):
        job.end()
    for job in (cancelled, ended):
        assert words(reloaded(monkeypatch, [[job]])) == "its run False False"
    assert words(reloaded(monkeypatch, [[reported]])) == "its run True False"


def test_jobs_are_looked_for_again_until_the_page_before_is_known_to_be_gone(monkeypatch):
    at = reloaded(monkeypatch, [[], [left()], [left()]])
    assert words(at) == "None False False"
    assert words(at.run()) == "its run True False"
    assert words(at.run()) == "its run False False", "a session that has its job looks for no other"
    monkeypatch.setattr(worker, "ARRIVES_S", -1.0)
    assert words(reloaded(monkeypatch, [[left()]])) == "None False False", "what is long gone is not looked for"


def test_a_page_waits_for_the_one_before_to_leave(monkeypatch):
    monkeypatch.setattr(worker, "LEAVES_S", 60.0)
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None))
    elsewhere = [True, True, False, True]
    at = reloaded(monkeypatch, [[left()]], elsewhere)
    assert words(at) == "its run True False" and elsewhere == [True]
    at.run()
    assert elsewhere == [True], "only when it comes"


def addressed_page():
    import streamlit as st

    from pages.ui.common.worker import address_is, come_back, start_job

    come_back()
    job = start_job("step", "Decoding", lambda job: None)
    st.write(dict(job.place[1]))
    address_is({"iteration": ["7"]})


def test_work_is_found_under_the_address_that_the_browser_shows_and_the_server_may_not_know():
    at = AppTest.from_function(addressed_page, default_timeout=30)
    at.query_params["method"] = "linear"
    at.run()
    assert at.json[0].value == '{"method": "linear"}'
    assert at.run().json[0].value == '{"iteration": "7"}', "the page has changed it"
    at.query_params["method"] = "dynatree"
    assert at.run().json[0].value == '{"method": "dynatree"}', "a link was followed"


def test_memory_is_given_back_between_the_turns_of_jobs(monkeypatch):
    """An explicit collection in another thread may fall into a measurement, or into the capture of a graph."""
    done, seen = threading.Event(), []

    def free_memory():
        seen.append(threading.current_thread().name)
        done.set()

    monkeypatch.setattr(worker, "free_memory", free_memory)
    monkeypatch.setattr(worker, "forget", lambda session, afterwards: afterwards())
    made = worker.worker.__wrapped__()
    made._forget("a")
    assert done.wait(20) and seen == ["draftscope-worker"]
    assert not made._gone, "it belongs to no session that could come or go"


def test_memory_is_given_back_once_for_sessions_that_go_together(monkeypatch):
    ended, begin, freed = threading.Event(), threading.Event(), []
    monkeypatch.setattr(worker, "free_memory", lambda: freed.append(1))
    monkeypatch.setattr(worker, "forget", lambda session, afterwards: afterwards())
    made = worker.worker.__wrapped__()
    made.submit(ModelTask("Working", lambda job: begin.wait(20), owner="a"))
    for session in "bcd":
        made._forget(session)
    made.submit(ModelTask("After them", lambda job: ended.set(), owner="e"))
    begin.set()
    assert ended.wait(20) and freed == [1]
    made._forget("f")
    last = made.submit(ModelTask("After it", lambda job: None, owner="e"))
    assert last.wait(20) and freed == [1, 1]
