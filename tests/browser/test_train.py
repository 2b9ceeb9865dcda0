"""A training in a real browser: it moves by itself, another session sees the same, and it is stopped from there."""

import os
import signal
import time

import pytest
from playwright.sync_api import expect

from decoding.training.folder import MODULES, launch
from tests.browser.conftest import LIMIT_MS
from tests.helpers.process import ended

pytestmark = pytest.mark.slow

TREE = ".ds-root[data-drawn-scene]"


@pytest.fixture
def toy(monkeypatch):
    """A training that takes a minute, in a process of its own; gone afterwards."""
    monkeypatch.setitem(MODULES, "head", "tests.helpers.toy_training")
    folder = launch("head", ("--steps", "3000", "--pause", "0.02"), "toy")
    yield folder
    if folder.stand().running:
        os.kill(folder.launched().pid, signal.SIGKILL)
        ended(folder)
    folder.delete()


def step_of(page) -> int:
    """Steps done, as the progress bar tells."""
    words = page.locator("[data-testid=stProgress]").inner_text()
    return int(words.partition(" of ")[0].rpartition(" ")[2].replace(",", "")) if "step" in words else -1


def test_it_moves_by_itself_and_is_stopped_from_another_session(open_page, toy):
    page = open_page(f"/train?run={toy.path.name}")
    page.locator(TREE).nth(1).wait_for()
    before = step_of(page)
    other = open_page(f"/train?run={toy.path.name}")
    expect(other.locator(".st-key-train_title")).to_contain_text("running")
    deadline = time.monotonic() + LIMIT_MS / 1000
    while step_of(page) <= max(before, 0):
        assert time.monotonic() < deadline, "nobody touches the page, and it does not move"
        page.wait_for_timeout(100)
    assert "before training" in page.locator(TREE).first.inner_text()
    assert page.locator(".st-key-train_header").bounding_box()["height"] < 48, "everything in one line"

    other.locator(".st-key-train_stop button").first.click()
    for each in (other, page):
        expect(each.locator(".st-key-train_title")).to_contain_text("stopped")
        each.locator(".st-key-train_resume button").first.wait_for()
        assert each.locator("[data-testid=stException]").count() == 0


def test_a_view_that_was_stilled_sees_the_end(open_page, toy):
    page = open_page(f"/train?run={toy.path.name}")
    expect(page.locator(".st-key-train_title")).to_contain_text("running")
    page.locator(".st-key-train_live label").first.click()
    page.locator(".st-key-train_stop button").first.click()
    expect(page.locator(".st-key-train_title")).to_contain_text("stopped")
    page.locator(".st-key-train_resume button").first.wait_for()
    assert page.locator("[data-testid=stException]").count() == 0


def test_what_is_typed_into_the_form_stays_while_another_training_runs(open_page, toy):
    page = open_page("/train?run=new")
    page.locator(".st-key-train_head_corpus input").fill("/some/where")
    page.locator(".st-key-train_head_windows input").fill("77")
    entry = page.locator(f".st-key-train_entry_{toy.path.name}")
    expect(entry).to_contain_text("running")
    before = entry.inner_text()
    expect(entry).not_to_have_text(before)
    assert page.locator(".st-key-train_head_corpus input").input_value() == "/some/where"
    assert page.locator(".st-key-train_head_windows input").input_value() == "77"
