"""A real Chromium and a running app for the tests in this folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.browser_app import SETTLED, find_chromium, launched_chromium, running_app

LIMIT_MS = 180_000  # on a build machine other tests keep every core busy


def new_context(browser, **settings):
    """A browser of its own, its window 1280x800 unless another is asked for, that waits as long as things may take."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **settings})
    context.set_default_timeout(LIMIT_MS)
    return context


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, so that `-m "not browser"` leaves it out."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """One headless Chromium for all browser tests; skipped without one, or failed where browser tests are required."""
    executable = find_chromium()
    if executable is None:
        missing = "no Chromium on this machine: run 'apt-get install -y chromium' for the browser tests"
        if os.environ.get("DRAFTSCOPE_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import expect

    expect.set_options(timeout=LIMIT_MS)
    with launched_chromium() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def app_server() -> Iterator[str]:
    """The app on a free port of 127.0.0.1; yields its address."""
    with running_app() as url:
        yield url


@pytest.fixture(scope="session")
def visited(browser) -> Iterator[dict[str, dict]]:
    """A browser per colour scheme that has the app's scripts in its cache, as one has after the first visit.

    Pages that stay from test to test have browsers of their own: without its cookies a page can upload nothing.
    """
    contexts = {"page": {}, "kept": {}}
    yield contexts
    for each in contexts.values():
        for context in each.values():
            context.close()


@contextmanager
def opening(browser, app_server: str, visited: dict) -> Iterator[Callable]:
    """What opens pages of the app, e.g. `open_("/step_through")`, and waits until the script of each has run.

    A page is a session of its own; with `fresh` it is opened by a browser that has never been here.
    """
    opened = []

    def open_(path: str = "/", *, color_scheme: str = "light", fresh: bool = False):
        context = None if fresh else visited.get(color_scheme)
        if context is None:
            context = new_context(browser, color_scheme=color_scheme)
        page = context.new_page()
        opened.append(context if fresh else page)
        if not fresh:
            visited[color_scheme] = context
        page.goto(app_server + path)
        page.wait_for_selector(SETTLED)
        return page

    yield open_
    for each in opened:
        each.close()
    for context in visited.values():
        context.clear_cookies()  # the next test is another browser: it finds no work that this one has left behind


@pytest.fixture
def open_page(browser, app_server: str, visited: dict) -> Iterator[Callable]:
    """Opens pages that are closed after the test."""
    with opening(browser, app_server, visited["page"]) as open_:
        yield open_


@pytest.fixture(scope="module")
def open_kept(browser, app_server: str, visited: dict) -> Iterator[Callable]:
    """Opens pages that stay until the tests of a file have ended: whoever keeps one makes it as new for each test."""
    with opening(browser, app_server, visited["kept"]) as open_:
        yield open_
