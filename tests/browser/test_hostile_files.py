"""What a file says stays text in a browser: no link to elsewhere, no box of Streamlit's with one."""

from dataclasses import replace
from pathlib import Path

import pytest

from decoding.trace.run_file import save_run
from tests.helpers.traces import run_mixed

SAID = "see https://other.example/x or www.other.example, me@other.example"


@pytest.mark.slow
def test_addresses_in_a_file_are_no_links(open_page, tmp_path: Path):
    run = run_mixed()
    save_run(replace(run, label=SAID, pair=replace(run.pair, name=SAID)), tmp_path / "run.dscope")
    page = open_page("/step_through")
    page.click(".st-key-file_open button")
    page.set_input_files(".st-key-open_run input[type=file]", str(tmp_path / "run.dscope"))
    page.get_by_text("Opened from a file").wait_for()
    assert "other.example/x" in page.locator(".st-key-status").inner_text()
    links = page.eval_on_selector_all("a", "each => each.map(link => link.outerHTML)")
    assert links and not [link for link in links if "other.example" in link]
