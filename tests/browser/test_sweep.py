"""A sweep in a real browser: a click on its heat map, and one that is started, watched and opened in Step through."""

import shutil

import pytest
from playwright.sync_api import expect

from decoding.experiments.experiment import FOR_EVERYONE, SHIPPED, Experiment, ExperimentWatcher, experiments_home
from tests.browser.conftest import LIMIT_MS
from tests.helpers.experiments import made_experiment

pytestmark = pytest.mark.slow

DRAWN = ".ds-root[data-drawn-scene]"


@pytest.fixture
def made():
    """An experiment among the user's own; gone afterwards."""
    folder = made_experiment(experiments_home(), "made-for-a-browser-test")
    yield folder
    shutil.rmtree(folder)


def test_without_an_own_sweep_it_opens_on_a_shipped_one_and_draws_it(open_page):
    assert not list(experiments_home().glob("*/grid.json")), "this machine has sweeps of its own"
    page, shipped = open_page("/sweep"), ExperimentWatcher(Experiment(SHIPPED / FOR_EVERYONE))
    shipped.look()
    expect(page.locator(".st-key-sweep_title")).to_contain_text(shipped.name)
    expect(page.locator(".st-key-sweep_best_words")).to_contain_text("Bottom line")
    page.locator(
        ".st-key-sweep_chart_panel .heatmaplayer, .st-key-sweep_chart_panel .scatterlayer .point"
    ).first.wait_for(state="attached")
    assert page.locator(".st-key-sweep_start").count() == 0, "no form"


def test_a_click_on_a_cell_shows_its_runs(open_page, made):
    page = open_page(f"/sweep?experiment={made.name}")
    cell = page.locator(".st-key-sweep_chart_panel .scatterlayer .point").first
    cell.wait_for(state="attached")
    cell.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    box = cell.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    picked = page.locator(".st-key-sweep_part_picked")
    expect(picked).to_contain_text("4 runs · Maximum depth (D_max) 3, Children per node (B) 2")
    expect(picked.locator(".st-key-sweep_open button")).to_be_enabled()
    assert page.locator("[data-testid=stException]").count() == 0
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 0, "nothing sticks out to the side"


def test_one_is_started_watched_and_a_run_of_it_opened(open_page):
    page, name = open_page("/sweep?experiment=new"), "browser test of a sweep"
    folder = experiments_home() / name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    page.locator(".st-key-sweep_plan_name input").fill(name)
    page.locator(".st-key-sweep_plan_name input").press("Enter")
    page.locator(".st-key-sweep_plan_count input").fill("1")
    page.locator(".st-key-sweep_plan_count input").press("Enter")
    expect(page.locator(".st-key-sweep_go")).to_contain_text("7 runs")
    page.click(".st-key-sweep_start button")
    try:
        expect(page.locator(".st-key-sweep_title")).to_contain_text("finished", timeout=2 * LIMIT_MS)
        expect(page.locator(".st-key-sweep_best_words")).to_contain_text("1 prompt")
        page.locator(".st-key-sweep_chart_panel").get_by_text("Every run", exact=True).click()
        point = page.locator(".st-key-sweep_chart_panel .scatterlayer .point").first
        point.wait_for(state="attached")
        opens = page.locator(".st-key-sweep_open button")
        for _ in range(5):  # a chart that is still being drawn moves its points away from under the pointer
            page.wait_for_timeout(800)
            point.evaluate("drawn => drawn.scrollIntoView({block: 'center'})")
            if (box := point.bounding_box()) is None:
                continue
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.wait_for_timeout(1200)
            if opens.is_visible():
                break
        opens.click()
        page.locator(DRAWN).first.wait_for()
        expect(page.locator(".st-key-messages")).to_contain_text("the same 64 tokens as in the sweep")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
