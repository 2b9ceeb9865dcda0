"""The What if journey in a real browser: fork, compare, force a node, go on, choose branches in the drawn history."""

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED

pytestmark = pytest.mark.slow

A = ".st-key-what_if_tree_a .ds-root[data-drawn-scene]"
B = ".st-key-what_if_tree_b .ds-root[data-drawn-scene]"
GRAPH = ".st-key-what_if_graph .bg-root"
TOLD = ".st-key-what_if_message"
FORKED = 15  # an iteration of the recorded run with branches on both sides of it


def settle(page) -> None:
    page.wait_for_timeout(150)
    page.wait_for_selector(SETTLED)


def wait_for_lanes(page, count: int) -> None:
    page.locator(f"{GRAPH}[data-lanes='{count}']").wait_for()
    settle(page)


def wait_for_iteration(page, number: int) -> None:
    """The browser draws a number input with its lowest value first."""
    expect(page.locator(".st-key-what_if_iteration input")).to_have_value(str(number))


def scene(page, side: str) -> str:
    return page.locator(side).get_attribute("data-drawn-scene")


@pytest.fixture
def forked(open_page):
    """The recorded run decoded again, and one branch of it."""
    page = open_page(f"/step_through?recorded=home&iteration={FORKED}")
    page.locator(".st-key-what_if_from_here button").first.click()
    page.locator(A).wait_for(state="attached")
    page.click(".st-key-what_if_again button")
    expect(page.locator(".st-key-what_if_again")).to_have_count(0)  # until then a fork runs models
    page.locator(".st-key-what_if_starter_0 button").wait_for()
    page.locator(".st-key-what_if_iteration input").fill(str(FORKED))
    page.keyboard.press("Enter")
    wait_for_iteration(page, FORKED)
    settle(page)
    page.click(".st-key-what_if_starter_0 button")
    page.locator(B).wait_for(state="attached")
    wait_for_lanes(page, 2)
    return page


def assert_one_screen(page) -> None:
    for key in ("toolbar", "what_if_history", "what_if_trees", "what_if_message"):
        box = page.locator(f".st-key-{key}").first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1280, key
        assert box["y"] + box["height"] <= 810, key


def test_fork_compare_force_and_go_on(forked):
    page = forked
    framed = page.locator(f"{A} .diff").count()
    assert framed > 0
    assert page.locator(f"{TOLD} td").first.is_visible()
    assert "no model ran" in page.inner_text(TOLD)
    assert_one_screen(page)
    first = scene(page, B)

    page.locator(f"{A} .n.s-rejected").first.click()
    page.locator(".st-key-what_if_accept button:enabled").first.click()
    page.locator(".st-key-what_if_pending").get_by_text("force accept of").wait_for()
    page.locator(".st-key-what_if_fork button:enabled").first.click()
    wait_for_lanes(page, 3)
    assert scene(page, B) != first
    assert "no longer follows" in page.inner_text(TOLD)
    assert "no longer follows" in page.locator(f"{GRAPH} .row.b").inner_text()

    page.locator(".st-key-what_if_step_b button:enabled").first.click()
    page.locator(f"{GRAPH} .row.b .kind.live").wait_for()
    settle(page)
    assert page.locator("[data-testid=stException]").count() == 0


def test_the_drawn_history_chooses_what_is_compared(forked):
    page = forked
    before = scene(page, B)
    chip = page.locator(f"{GRAPH} [data-branch='1'] .chip.a")
    chip.focus()
    page.keyboard.press("Enter")
    page.locator(f"{GRAPH} [data-branch='1'].row.a").wait_for()
    settle(page)
    assert scene(page, A) == before, "A and B have changed places"
    page.locator(f"{GRAPH} circle.dot[data-iteration='{FORKED - 2}']").first.click()
    page.get_by_text("is the same in A and B: they diverge at iteration").wait_for()
    wait_for_iteration(page, FORKED - 1)


def test_step_through_leads_to_the_iteration_looked_at(open_page):
    page = open_page(f"/step_through?recorded=home&iteration={FORKED}")
    page.locator(".st-key-what_if_from_here button").first.click()
    page.locator(A).wait_for(state="attached")
    assert page.url.split("?")[0].endswith("/what_if")
    wait_for_iteration(page, FORKED)


def test_the_page_opens_with_two_trees_and_a_change_to_fork(open_page):
    page = open_page("/what_if")
    for tree in (A, B):
        page.locator(tree).wait_for(state="attached")
    settle(page)
    unable = page.locator("[data-testid=stMain] button:disabled:not([data-testid=stNumberInputStepDown])")
    assert unable.count() == 0, unable.all_inner_texts()
    assert_one_screen(page)
    page.locator(".st-key-what_if_fork button").first.click()
    wait_for_lanes(page, 3)
    assert page.locator(f"{GRAPH} .kind.live").count() == 0, "no model ran"


def test_the_settings_stay_open_while_they_change_and_the_button_names_the_change_afterwards(open_page):
    page = open_page("/what_if")
    button = page.locator(".st-key-what_if_editor button").first
    button.click()
    panel = page.locator(".st-key-settings_panel").first
    temperature = panel.locator(".st-key-what_if_sampling_temperature input[type=range]")
    temperature.wait_for()
    settle(page)  # the browser may draw a slider before its value
    before = temperature.input_value()
    temperature.focus()
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert panel.is_visible() and temperature.input_value() != before
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")
    settle(page)
    button.get_by_text(f"temperature {before} →").wait_for()
