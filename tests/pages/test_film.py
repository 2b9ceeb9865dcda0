"""The film of Step through: where the browser is sent, how often, and which frames are made again."""

import pytest

from pages.ui.common.state import ViewRequest
from tests.pages.apptest import open_page, sentences

PAGE = "pages/step_through.py"


@pytest.fixture
def page():
    """The page with the recorded run."""
    return open_page(PAGE)


def film(at):
    return at.session_state["scope_film"]


def test_the_browser_is_reported_where_to_start_and_then_left_alone(page):
    state = film(page)
    first = dict(state.ask)
    assert first["iteration"] == page.session_state["iteration"] and first["phase"] is None
    page.run()
    assert film(page).ask == first and sentences(page) == []


@pytest.mark.slow
def test_a_view_that_a_page_asks_for_is_reported_once(page):
    serial = film(page).serial
    page.session_state["asked_view"] = ViewRequest(1, 3, 2, "mask")
    page.session_state["iteration"] = 3
    page.session_state["node"] = 2
    page.run()
    reported = {"serial": serial + 1, "iteration": 3, "node": 2, "phase": "mask"}
    assert film(page).ask == reported
    page.run()
    assert film(page).ask == reported


def test_an_iteration_chosen_in_python_moves_the_browser_and_its_own_report_does_not(page):
    state = film(page)
    serial, state.known = state.serial, 5  # what the callback of a report does
    page.session_state["iteration"] = 5
    page.run()
    assert film(page).serial == serial
    page.session_state["iteration"] = 7
    page.run()
    assert film(page).serial == serial + 1 and film(page).ask["iteration"] == 7


@pytest.mark.slow
def test_frames_are_made_once(page):
    before = dict(film(page).frames)
    assert len(before) == len(page.session_state["run"].trace.iterations)
    page.session_state["iteration"] = 0
    page.run()
    assert all(film(page).frames[index] is frame for index, frame in before.items())
