"""A machine without torch: the app opens a saved run, steps through it, and exports it to a page that works offline."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.browser_app import SETTLED, running_app
from decoding.trace.run_file import save_run
from tests.browser.conftest import new_context
from tests.helpers.traces import run_mixed
from tests.helpers.without_torch import environment_without_torch

pytestmark = pytest.mark.slow

ROOT_ELEMENT = ".ds-root"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An app that finds no torch."""
    with running_app(environment_without_torch(tmp_path_factory.mktemp("hidden"))) as url:
        yield url


@pytest.fixture
def page(browser, address: str) -> Iterator:
    """Step through, with its recorded run."""
    context = new_context(browser)
    page = context.new_page()
    page.goto(f"{address}/step_through")
    page.wait_for_selector(f"{ROOT_ELEMENT}[data-drawn-scene]")
    yield page
    context.close()


def test_a_saved_run_opens_is_compared_and_exported(browser, page, tmp_path: Path):
    page.locator(".st-key-pair_open").get_by_text("torch is not installed").first.wait_for()
    save_run(run_mixed(), tmp_path / "mixed.dscope")
    page.click(".st-key-file_open button")
    page.set_input_files(".st-key-compare_run input[type=file]", str(tmp_path / "mixed.dscope"))
    page.get_by_text("A is the run on screen, B is mixed.dscope").wait_for()
    page.set_input_files(".st-key-open_run input[type=file]", str(tmp_path / "mixed.dscope"))
    page.get_by_text("Opened from a file").wait_for()
    page.get_by_text("Both runs wrote the same 23 tokens").first.wait_for()
    with page.expect_download() as download:
        page.click(".st-key-export_scope button")
    download.value.save_as(tmp_path / "scope.html")
    page.keyboard.press("Escape")
    page.locator(ROOT_ELEMENT).focus()
    page.keyboard.press("ArrowDown")
    page.locator(ROOT_ELEMENT).get_by_text(re.compile("iteration 2 of 9 ")).wait_for()
    assert page.locator(".st-key-start button").first.is_disabled()
    assert page.locator("[data-testid=stException]").count() == 0
    opens_offline(browser, tmp_path / "scope.html")


def opens_offline(browser, file: Path) -> None:
    """The exported page draws, steps, and asks for nothing but itself."""
    context = new_context(browser, offline=True)
    page, asked, wrong = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector(f"{ROOT_ELEMENT}[data-drawn-scene='saved:0']")
    page.locator(ROOT_ELEMENT).focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(f"{ROOT_ELEMENT}[data-drawn-scene='saved:1']")
    assert page.evaluate("fetch('http://127.0.0.1:1/').then(() => 'sent', () => 'refused')") == "refused"
    assert asked == [file.as_uri()]
    assert [line for line in wrong if "127.0.0.1:1" not in line] == []
    context.close()


def test_a_page_that_decodes_says_what_it_needs(page, address: str):
    page.goto(f"{address}/compare")
    page.wait_for_selector(SETTLED)
    page.get_by_text("This computation needs torch, which is not installed: pip install").wait_for()
    assert page.locator("[data-testid=stException]").count() == 0
