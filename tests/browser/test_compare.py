"""The Compare journey in a real browser: plan, run, look at every view, change a setting, cancel, take files along."""

import csv
import re

import pytest

from benchmarks.browser_app import SETTLED, close_popover

pytestmark = pytest.mark.slow


def settle(page) -> None:
    page.wait_for_timeout(250)
    page.wait_for_selector(SETTLED)


def set_plan(page, **numbers: int) -> None:
    """Fill in the numbers of the plan's popover."""
    page.locator(".st-key-compare_plan_open button").first.click()
    for key, value in numbers.items():
        field = page.locator(f".st-key-{key} input")
        field.fill(str(value))
        field.press("Enter")
        settle(page)
    close_popover(page)


def view(page, name: str) -> None:
    page.locator(".st-key-compare_view").get_by_text(name, exact=True).click()
    settle(page)


def no_defect(page) -> None:
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.locator("[data-testid=stAlertContentError]").count() == 0


def test_compare_from_plan_to_files(open_page):
    from playwright.sync_api import expect

    page = open_page("/compare")
    assert page.locator(".ds-table thead th").count() == 6, "a recorded comparison"
    assert page.locator("[data-testid=stMain] button:disabled").count() == 0
    set_plan(page, max_new_tokens=20, compare_repeats=1, compare_warmup=0)

    # A setting is changed; the popover stays open meanwhile and its button says so afterwards.
    chip = page.locator(".st-key-contestant_4_open button").first
    before = chip.inner_text()
    chip.click()
    toggle = page.locator(".st-key-contestant_4_dynatree_history label").first
    toggle.click()
    settle(page)
    assert toggle.is_visible()
    close_popover(page)
    expect(chip).not_to_have_text(before)

    page.locator(".st-key-compare_start button").click()
    page.get_by_text("1 repeat ·").wait_for()
    settle(page)
    table = page.locator(".ds-table")
    assert table.get_by_text("✓ identical").count() == 4
    assert table.locator("thead th").count() == 6
    for row in ("Tokens/s", "Speed-up over autoregressive"):
        line = table.locator("tr").filter(has=page.get_by_text(row, exact=True))
        assert line.count() == 1 and line.locator("b").count() == 0, "one repeat has no winner"

    for name in ("Time", "Acceptance", "Outputs"):
        view(page, name)
        no_defect(page)

    view(page, "Trees")
    expect(page.locator("[data-drawn-scene]")).to_have_count(3)
    drawn = page.locator("[data-drawn-scene]").first
    assert ":0:0" in drawn.get_attribute("data-drawn-scene")
    page.locator(".st-key-compare_prefix").get_by_role("slider").press("ArrowRight")
    page.wait_for_selector("[data-drawn-scene$=':1:0']")

    # Another page and back: everything is still there.
    page.get_by_role("link", name="Home").click()
    settle(page)
    page.get_by_role("link", name="Compare").first.click()
    page.wait_for_selector("[data-drawn-scene$=':1:2']")
    no_defect(page)

    page.locator(".st-key-compare_files button").first.click()
    with page.expect_download() as download:
        page.locator(".st-key-compare_csv button").click()
    with open(download.value.path(), encoding="utf-8") as file:
        assert [row["method"] for row in csv.DictReader(file)][-1].endswith("history=false")
    assert "--max-new-tokens 20" in page.locator(".st-key-compare_files code, [data-testid=stCode]").first.inner_text()


def test_figures_come_in_by_repeat_and_lead_to_the_iteration_where_a_method_lost(open_page):
    from playwright.sync_api import expect

    page = open_page("/compare")
    set_plan(page, max_new_tokens=24, compare_repeats=4, compare_warmup=0)
    page.locator(".st-key-compare_start button").click()
    page.get_by_text(re.compile(r"[123] of 4 repeats in")).wait_for()
    page.locator(".ds-table").wait_for()
    expect(page.locator(".st-key-cancel_compare")).to_have_count(0)
    settle(page)
    assert page.locator(".st-key-compare_bottom_line").inner_text()

    view(page, "Trees")
    prefix = page.locator(".st-key-compare_prefix").get_by_role("slider")
    for _ in range(2):
        here = prefix.input_value()
        page.get_by_role("button", name="Next place where methods part").click()
        expect(prefix).not_to_have_value(here)
        settle(page)

    view(page, "Overview")
    parting = page.locator("[class*=st-key-parting_] button").first
    number = re.search(r"\d+", parting.inner_text()).group()
    parting.click()
    page.wait_for_url("**/step_through*")
    page.wait_for_url(f"**iteration={number}*")
    page.wait_for_selector("[data-drawn-scene]")
    no_defect(page)


def test_a_comparison_can_be_cancelled(open_page):
    page = open_page("/compare", color_scheme="dark")
    set_plan(page, max_new_tokens=48, compare_repeats=20, compare_warmup=0)
    page.locator(".st-key-compare_start button").click()
    cancel = page.locator(".st-key-cancel_compare button")
    cancel.wait_for()
    page.get_by_text(re.compile(r"call [1-9]\d of 100")).wait_for()
    cancel.click()
    page.get_by_text("cancelled early").wait_for()
    settle(page)
    assert page.locator(".st-key-compare_start button").is_enabled()
    assert page.locator(".ds-table").is_visible()
    no_defect(page)
