"""The Verifiers journey in a real browser: open, compare, turn the temperature, look at a node, draft again."""

import re

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED

pytestmark = pytest.mark.slow

TREE = ".st-key-verify_tree .ds-root[data-drawn-scene]"


def settle(page) -> None:
    page.wait_for_timeout(250)
    page.wait_for_selector(SETTLED)


def rolled(page) -> None:
    """The spread stands in the table once the seeds are re-rolled."""
    settle(page)
    page.locator(".vt-row .column .bar").first.wait_for(state="attached")
    settle(page)


def expected(page) -> list[str]:
    return page.locator(".vt-row .expected b").all_inner_texts()


def row(page, name: str):
    return page.locator(f".vt-row[data-name={name}]")


def changed(page, read, before, what: str) -> None:
    """Wait until something reads differently."""
    for _ in range(200):
        if read() != before:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{what} did not change")


def opened(page) -> None:
    """The recorded run that the page opens with, a sampled one."""
    expect(row(page, "greedy")).to_contain_text("needs temperature 0")
    rolled(page)


def test_from_a_sampled_run_to_a_node_another_temperature_and_another_tree(open_page):
    page = open_page("/verifiers")
    opened(page)
    look_at_all_verifiers_and_one_node(page)
    turn_the_temperature(page)
    draft_another_tree(page)
    assert page.locator("[data-testid=stException]").count() == 0


def look_at_all_verifiers_and_one_node(page) -> None:
    assert page.locator(".vt-row").count() == 12
    assert "as in the run" in row(page, "own").inner_text()
    assert "needs temperature 0" in row(page, "greedy").inner_text()
    assert "selected" in row(page, "own").get_attribute("class")

    before = page.inner_text(".st-key-verify_steps")
    scene = page.locator(TREE).get_attribute("data-drawn-scene")
    row(page, "spectr").click()
    changed(page, lambda: page.inner_text(".st-key-verify_steps"), before, "the steps of the chosen verifier")
    settle(page)
    assert "SpecTr tests all entries" in page.inner_text(".st-key-verify_steps")
    assert "SpecTr" in page.locator(f"{TREE} .tree-title").inner_text()
    assert page.locator(TREE).get_attribute("data-drawn-scene") == scene, "the tree itself stays where it is"

    row(page, "spectr").focus()
    page.keyboard.press("ArrowDown")
    page.get_by_text(re.compile("SpecInfer tests the entries")).wait_for()

    before = page.inner_text(".st-key-verify_steps")
    inner = page.locator(f"{TREE} .n[data-node='1']")
    inner.click()
    changed(page, lambda: page.inner_text(".st-key-verify_steps"), before, "the node looked at")
    settle(page)


def turn_the_temperature(page) -> None:
    """The same tree is replayed, and nothing moves."""
    boxes = [page.locator(place).bounding_box() for place in (".vt-root", TREE)]
    slider = page.locator(".st-key-verify_temperature input[type=range]")
    slider.focus()
    before = expected(page)
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    changed(page, lambda: expected(page), before, "the expected tokens")
    rolled(page)
    assert [page.locator(place).bounding_box() for place in (".vt-root", TREE)] == boxes


def draft_another_tree(page) -> None:
    """On the same prefix, and back."""
    page.click(".st-key-verify_draft_open button")
    page.locator(".st-key-verify_method input").fill("DySpec greedy")
    page.get_by_role("option", name="DySpec greedy", exact=True).click()
    settle(page)
    page.click(".st-key-verify_draft button")
    page.get_by_text("DySpec greedy, drafted on this page, on the same prefix").wait_for()
    rolled(page)
    expect(page.locator("[data-testid=stPopoverBody]")).to_have_count(0)
    page.locator(".vt-fold").filter(has_text="would bias the output").click()
    row(page, "spectr").filter(has_text="would bias the output").wait_for()
    assert row(page, "spectr").get_attribute("aria-disabled") == "true"
    page.click(".st-key-verify_back button")
    page.get_by_text("of the run").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_but_the_whole_run_fits_on_one_screen(open_page, scheme):
    page = open_page("/verifiers", color_scheme=scheme)
    opened(page)
    for place in (".st-key-toolbar", ".vt-root", TREE, ".st-key-verify_steps"):
        box = page.locator(place).first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 1280, place
        assert box["y"] + box["height"] <= 812, place
    menu = page.locator(".st-key-menu").bounding_box()
    assert menu["height"] <= 44, "the menu is one line"
    page.click(".st-key-verify_run button")
    page.get_by_text("Expected tokens by verifier").wait_for()
    assert page.locator(".st-key-verify_run_head").count() == 1
    settle(page)
    assert page.locator("[data-testid=stException]").count() == 0
