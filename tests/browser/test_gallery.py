"""The gallery in a real browser without a network: every page draws, steps, and leads on."""

from pathlib import Path

import pytest

from pages.ui.gallery.__main__ import COMPARISON, INDEX, RACE, TOUR, write
from tests.browser.conftest import new_context

pytestmark = pytest.mark.slow

SCOPE = ".ds-root[data-drawn-scene]"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    write(folder)
    return folder


@pytest.fixture
def visit(browser, gallery):
    """Opens pages of the gallery; whatever a page complains of, or asks the network, fails the test."""
    context = new_context(browser, color_scheme="dark")
    context.set_offline(True)
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))

    def open_(name: str):
        page.goto((gallery / name).as_uri())
        return page

    yield open_
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    context.close()


def test_the_index_leads_to_every_page_and_each_of_them_back(visit, gallery):
    page = visit(INDEX)
    names = page.locator("main a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert {INDEX, *names} == {path.name for path in gallery.iterdir()}
    for name in names:
        page = visit(name)
        page.wait_for_selector(f"{SCOPE}, .race-root, .js-plotly-plot")
        page.click("body > nav a")
        assert page.url.endswith(INDEX)


def test_a_run_is_stepped_through_with_its_linked_views(visit):
    page = visit("home.html")
    scope = page.locator(SCOPE)
    before = scope.get_attribute("data-drawn-scene")
    scope.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("before => document.querySelector('.ds-root').dataset.drawnScene !== before", arg=before)
    page.locator(f"{SCOPE} .n").nth(1).click()
    assert page.locator(f"{SCOPE} .card").first.is_visible()
    page.keyboard.press("End")
    assert not page.locator("#note").inner_text()


def test_the_tour_goes_from_stop_to_stop(visit):
    page, stop = visit(TOUR.format(1)), 1
    while page.get_by_role("link", name="Next").count():
        page.get_by_role("link", name="Next").click()
        stop += 1
        assert page.url.endswith(TOUR.format(stop))
        page.wait_for_selector(SCOPE)
    assert stop > 5


def test_the_race_runs_to_its_result(visit):
    page = visit(RACE)
    page.locator(".race-root").focus()
    page.keyboard.press("End")
    page.locator(".lane.finished").first.wait_for()
    assert page.locator(".finish").bounding_box()["height"] > 0


def test_the_comparison_has_its_figures_and_its_table(visit):
    page = visit(COMPARISON)
    page.wait_for_selector(".js-plotly-plot .main-svg")
    assert page.locator(".js-plotly-plot").count() == 2
    assert page.locator(".ds-table thead th").count() > 3
