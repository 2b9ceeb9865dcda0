"""A real Chromium and a running app for the tests in this folder."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 60.0
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
# `--no-sandbox`: build machines run as root. The rest keeps Chromium off the network.
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, so that `-m "not browser"` leaves it out."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def _chromium() -> str:
    """Path of Chromium; without one the tests are skipped, or fail where browser tests are required."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found:
        return found
    missing = "no Chromium on this machine: run 'apt-get install -y chromium' for the browser tests"
    if os.environ.get("DRAFTSCOPE_REQUIRE_BROWSER") == "1":
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """One headless Chromium for all browser tests."""
    executable = _chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _wait_until_healthy(url: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(0.2)
    pytest.fail(f"the app did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="session")
def app_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app on a free port of 127.0.0.1; yields its address."""
    port, log = _free_port(), tmp_path_factory.mktemp("server") / "log.txt"
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", "--server.headless=true"]
    with log.open("w") as output:
        server = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_until_healthy(f"http://127.0.0.1:{port}", server, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@pytest.fixture
def open_page(browser, app_server: str) -> Iterator[Callable]:
    """Open a page of the app, e.g. `open_page("/step_through")`, and wait until its script has run."""
    contexts = []

    def open_(path: str = "/", *, color_scheme: str = "light", timeout_s: float = 60.0):
        context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=color_scheme)
        contexts.append(context)
        page = context.new_page()
        page.goto(app_server + path)
        page.wait_for_selector(SETTLED, timeout=timeout_s * 1000)
        return page

    yield open_
    for context in contexts:
        context.close()
