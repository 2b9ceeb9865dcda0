"""What a first Start shows, and that the page names what is on screen: in a real browser."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED
from decoding.recorded import recorded_run
from viz.explain.iteration import history_changes
from viz.learn.tour import ADAPTING
from viz.tokens import PIECE

SCOPE = ".ds-root"


def drawn(page) -> None:
    page.wait_for_selector(f"{SCOPE}[data-drawn-scene]")
    page.wait_for_selector(SETTLED)


def test_the_first_start_is_a_tree_and_a_changed_choice_is_marked_until_it_is_run(open_page):
    page = open_page("/step_through", fresh=True)
    drawn(page)
    pending = page.locator(".st-key-status").get_by_text("Not run yet: settings. Press Start.")
    scope_at = page.locator(SCOPE).bounding_box()
    expect(pending).to_have_count(0)
    page.click(".st-key-start button")
    page.locator(SCOPE).get_by_text(re.compile("iteration 1 of 1 ")).wait_for(timeout=60_000)
    page.wait_for_selector(SETTLED)
    for state in ("accepted", "rejected"):
        assert page.locator(f"{SCOPE} .tree .s-{state}").count() > 0
    expect(page.locator(".st-key-method_open")).to_contain_text("first level may branch")
    page.click(".st-key-method_other button")
    expect(page.locator(".st-key-method_open")).not_to_contain_text("first level may branch")
    expect(pending).to_be_visible()
    assert page.locator(SCOPE).bounding_box() == scope_at, "nothing moves"
    expect(page.locator(f"{SCOPE} .strip")).to_contain_text("first level may branch")
    page.click(".st-key-start button")
    expect(pending).to_have_count(0)
    page.click(".st-key-method_other button")
    expect(page.locator(".st-key-method_open")).to_contain_text("first level may branch")


@pytest.mark.slow
def test_characters_of_another_script_are_whole(open_page):
    text = "سلام، 日本 🦊"
    page = open_page(f"/step_through?text={quote(text)}&max_new_tokens=4&iteration=1")
    page.locator(SCOPE).get_by_text(re.compile("iteration 1 of 1 ")).wait_for(timeout=60_000)
    shown = "".join(page.locator(f"{SCOPE} .t.p-prompt").all_inner_texts())
    assert shown.replace(PIECE, "").replace("·", " ").endswith(text)
    assert PIECE in shown


@pytest.mark.slow
def test_the_strip_marks_the_iterations_after_which_history_changed_settings(open_page):
    page = open_page(f"/step_through?recorded={ADAPTING}")
    drawn(page)
    changes = [history_changes(iteration.history) for iteration in recorded_run(ADAPTING).iterations]
    columns = page.locator(f"{SCOPE} .strip .column")
    assert [columns.nth(place).locator(".moved").count() > 0 for place in range(len(changes))] == list(
        map(bool, changes)
    )
    place = next(place for place, each in enumerate(changes) if each)
    assert changes[place] in columns.nth(place).get_attribute("title")
