"""What the File menu writes in a real browser: files are made in a thread that knows no session."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED, close_popover
from decoding.trace.run_file import load_run, save_run
from tests.helpers.traces import run_mixed

ROOT = ".ds-root"


def run_with_rows():
    """Nine iterations, all with raw logits."""
    run = run_mixed()
    rows = [np.zeros((len(each.nodes), 3000), np.float32) for each in run.iterations]
    pairs = zip(run.iterations, rows, strict=True)
    return replace(run, iterations=tuple(replace(each, draft_logits=r, target_logits=r) for each, r in pairs))


def downloaded(page, key: str, place: Path) -> Path:
    with page.expect_download() as download:
        page.click(f".st-key-{key} button")
    download.value.save_as(place)
    return place


@pytest.mark.slow
def test_files_hold_what_is_on_screen(open_page, tmp_path: Path):
    save_run(run_with_rows(), tmp_path / "rows.dscope")
    page = open_page("/step_through")
    page.click(".st-key-file_open button")
    page.set_input_files(".st-key-open_run input[type=file]", str(tmp_path / "rows.dscope"))
    page.get_by_text("Opened from a file").wait_for()
    page.wait_for_selector(SETTLED)  # what is drawn anew takes the focus away
    close_popover(page)
    page.locator(ROOT).focus()
    for iteration in (2, 3):
        page.keyboard.press("ArrowDown")
        page.locator(ROOT).get_by_text(re.compile(f"iteration {iteration} of 9 ")).wait_for()
    page.locator(f"{ROOT} .tree g.n[data-node='2'] .hit").click()
    expect(page.locator(ROOT)).to_have_attribute("data-selected", "2")
    page.get_by_text("Iteration 3. Why the node or token selected above").wait_for()

    page.click(".st-key-file_open button")
    asked = '"ask":{"serial":1,"iteration":2,"node":2,'
    for _ in range(20):  # the node that is selected is reported once it has rested
        scope = downloaded(page, "export_scope", tmp_path / "scope.html").read_text()
        if asked in scope:
            break
    assert asked in scope
    figures = downloaded(page, "export_figures", tmp_path / "figures.html").read_text()
    assert "Draft tree, iteration 3" in figures
    assert load_run(downloaded(page, "save_run", tmp_path / "plain.dscope")).iterations[0].target_logits is None
    page.get_by_text("With the full logits of 9 iterations").click()
    expect(page.get_by_role("switch", name="With the full logits").or_(
        page.get_by_role("checkbox", name="With the full logits")).first).to_be_checked()  # fmt: skip
    page.wait_for_timeout(200)  # the switch stands before the page begins to run
    page.wait_for_selector(SETTLED)
    saved = downloaded(page, "save_run", tmp_path / "with_rows.dscope")
    assert all(each.target_logits is not None for each in load_run(saved).iterations)
    page.wait_for_selector(SETTLED)
    page.set_input_files(".st-key-open_run input[type=file]", str(saved))
    page.get_by_text("iteration 1 of 9 ").wait_for()
    page.get_by_text("With the full logits of 9 iterations").wait_for()
    assert page.locator("[data-testid=stException]").count() == 0
