"""A run's method as an engine's configuration, from the bottom line of a run and of a comparison."""

import pytest
from playwright.sync_api import expect

from benchmarks.browser_app import SETTLED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "key"),
    [("step_through", "engine_of_run"), ("compare", "engine_of_best")],
)
def test_the_bottom_line_leads_to_what_an_engine_takes(open_page, page, key):
    page = open_page(f"/{page}")
    page.click(f".st-key-{key} button")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("code").first).to_contain_text("--speculative-config")
    dialog.get_by_role("radio", name="TensorRT-LLM").or_(dialog.get_by_text("TensorRT-LLM", exact=True)).first.click()
    expect(dialog.locator("code").first).to_contain_text("speculative_config:")
    expect(dialog.get_by_text("verifies chains only")).to_be_visible()
    page.wait_for_selector(SETTLED)
