"""A page whose job ends while its script runs."""

from streamlit.testing.v1 import AppTest


def page():
    import threading

    import streamlit as st

    from pages.ui.worker import job_in, job_progress, start_job, take_result

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
