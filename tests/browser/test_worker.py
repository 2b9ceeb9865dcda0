"""Several browsers at once: work is shared, a reloaded page finds its own again, a closed tab gives it up."""

import re

import pytest

from benchmarks.browser_app import SETTLED
from tests.browser.test_compare import set_plan

NOTE = ".st-key-worker_note"
CANCEL = ".st-key-cancel_compare button"


def starts_to_compare(page) -> None:
    page.locator(".st-key-compare_start button").click()
    page.get_by_text(re.compile(r"call \d+ of")).wait_for()


@pytest.mark.slow
def test_a_reload_finds_its_work_and_others_go_on_beside_it_until_it_is_cancelled_or_its_tab_closed(open_page):
    page = open_page("/compare")
    set_plan(page, max_new_tokens=400, compare_repeats=20, compare_warmup=0)
    starts_to_compare(page)
    other = open_page("/step_through?max_new_tokens=16", fresh=True)
    note = other.locator(NOTE).get_by_text("In use: Comparing")
    note.wait_for()
    other.locator(".st-key-start button").click()
    other.locator(".st-key-status").get_by_text(re.compile(r"\d of 16 tokens")).wait_for()
    assert page.locator(CANCEL).is_visible(), "the comparison goes on"

    page.reload()
    page.wait_for_selector(SETTLED)
    page.get_by_text(re.compile(r"call \d+ of")).wait_for()

    # A pair is not loaded while the page's own work goes on.
    page.locator(".st-key-pair_open button").first.click()
    page.locator(".st-key-pair_load button").first.click()
    page.get_by_text("“Comparing” is still running").wait_for()
    page.keyboard.press("Escape")
    page.locator(CANCEL).click()
    page.get_by_text(re.compile("cancelled early|Cancelled before anything")).first.wait_for()
    page.locator(CANCEL).wait_for(state="detached")
    note.wait_for(state="detached")

    starts_to_compare(page)
    note.wait_for()
    for each in (page, other):
        assert each.locator("[data-testid=stException]").count() == 0
    page.close()
    note.wait_for(state="detached")
