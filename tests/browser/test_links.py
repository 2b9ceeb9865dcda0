"""The address bar of Step through in a real browser: it follows the view, and a fresh browser gets the view back."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED

pytestmark = pytest.mark.slow

ROOT = ".ds-root"


def query(page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def holds(page, **values: str) -> None:
    """Wait until the address bar holds these values."""
    for name, value in values.items():
        expect(page).to_have_url(re.compile(rf"[?&]{name}={re.escape(value)}(&|$)"))


def shows(page, iteration: int, node: int | None = None) -> None:
    page.locator(ROOT).get_by_text(re.compile(rf"iteration {iteration} of ")).wait_for()
    if node is not None:
        expect(page.locator(ROOT)).to_have_attribute("data-selected", str(node))


def test_a_link_restores_the_view_in_a_fresh_browser(open_page):
    page = open_page("/step_through?method=Linear+chain&length=4&max_new_tokens=40&text=Once+upon+a+time")
    page.click(".st-key-start button")
    shows(page, 1)
    page.click(".st-key-ten_more button")
    holds(page, iteration="11")
    page.locator(ROOT).focus()
    page.keyboard.press("ArrowUp")
    shows(page, 10)
    page.locator(f"{ROOT} .tree g.n[data-node='2'] .hit").click()
    holds(page, iteration="10", node="2", length="4", text="Once\\+upon\\+a\\+time".replace("\\", ""))
    length = page.evaluate("history.length")
    page.click(".st-key-file_open button")
    link = page.locator(".st-key-file_open, [data-testid=stPopoverBody]").locator("code").first.inner_text()
    assert link == page.url
    tokens = page.locator(f"{ROOT} .card").inner_text()

    fresh = open_page("/step_through?" + urlsplit(link).query, fresh=True)
    shows(fresh, 10, 2)
    assert fresh.locator(f"{ROOT} .card").inner_text() == tokens
    holds(fresh, iteration="10", node="2")
    assert page.evaluate("history.length") == length, "stepping must not fill the browser's history"

    # Away and back: the address is obeyed again only where it says something else, and the run is still there.
    fresh.get_by_role("link", name="Compare").first.click()
    expect(fresh).to_have_url(re.compile("/compare"))
    fresh.wait_for_selector(SETTLED)
    assert "method" not in query(fresh)
    fresh.get_by_role("link", name="Step through").first.click()
    shows(fresh, 10)


def test_markup_in_a_link_stays_text(open_page):
    page = open_page(
        "/step_through?prompt=%3Cimg+src%3Dx+onerror%3D%22document.title%3D1%22%3E&iteration=NaN"
        "&%3Cscript%3Edocument.title%3D2%3C%2Fscript%3E=1&method=%5Bx%5D(javascript%3Aalert(1))&node=1&node=2"
    )
    page.get_by_text("Some of the link was ignored").wait_for()
    page.wait_for_selector(f"{ROOT}[data-drawn-scene]")
    assert page.title() == "Step through · Draftscope"
    assert page.locator("[data-testid=stAlert] img, [data-testid=stAlert] a, [data-testid=stAlert] script").count() == 0
    assert page.locator("[data-testid=stException]").count() == 0
    holds(page, recorded="home")
