"""The guided tour in a real browser: each stop is where it says, and ending gives back what was on screen."""

import re

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED
from pages.ui import PAGES
from pages.ui.learn.tour import all_steps

pytestmark = pytest.mark.slow

STOPS = "[data-tour]"
ROOT_ELEMENT = ".ds-root"


def settled(page) -> None:
    page.wait_for_selector(SETTLED)


def at_stop(page, place: int, step) -> None:
    """Wait for a stop: its page, and where the scope stands."""
    expect(page.locator(STOPS)).to_have_attribute("data-tour", step.key)
    settled(page)
    expect(page.locator(STOPS)).to_contain_text(f"Step {place + 1} of ")
    assert page.url.split("?")[0].endswith(PAGES[step.page].removeprefix("pages/").removesuffix(".py"))
    assert page.locator("[data-testid=stException]").count() == 0
    if step.phase is None:
        return
    root = page.locator(ROOT_ELEMENT).first
    expect(root).to_have_attribute("data-phase", step.phase)
    expect(root).to_have_attribute("data-drawn-scene", re.compile(f":{step.iteration}$"))
    if step.node is not None:
        expect(root).to_have_attribute("data-selected", str(step.node))


def test_the_tour_by_clicking_next(open_page):
    steps = all_steps()
    page = open_page("/learn")
    page.click(".st-key-tour_start button")
    bar = None
    for place, step in enumerate(steps):
        at_stop(page, place, step)
        box = page.locator(".st-key-tour_bar").bounding_box()
        bar = bar or box
        assert box == bar, "the bar has moved"
        if step.page == "Step through":
            scope = page.locator(ROOT_ELEMENT).bounding_box()
            assert scope["y"] + scope["height"] <= 800, "the scope no longer fits on the screen"
        button = page.locator(".st-key-tour_next button")
        button.focus()
        page.keyboard.press("Enter")
    page.locator(".st-key-puzzle").wait_for()
    settled(page)
    assert page.locator(STOPS).count() == 0


def test_ending_brings_the_own_run_back(open_page):
    page = open_page("/step_through")
    page.click(".st-key-start button")
    page.get_by_text("iteration 1 of 1").wait_for()
    settled(page)
    page.get_by_role("link", name="Learn").click()
    page.click(".st-key-tour_start button")
    page.locator(f"{STOPS}[data-tour=draft]").wait_for()
    settled(page)
    page.click(".st-key-tour_end button")
    page.get_by_text("iteration 1 of 1").wait_for()
    settled(page)
    assert page.locator(".st-key-one_more button").first.is_enabled()
