"""The app as a process of its own and a headless Chromium, for browser tests, load and the interaction benchmark.

The clock is the browser's: from an input event to the frame in which a scope shows the answer.
"""

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from decoding.common.errors import DraftscopeError

ROOT = Path(__file__).resolve().parents[1]
FROM_HERE = (sys.executable, "-m", "streamlit", "run", "app.py")
START_LIMIT_S = 120.0
# Before the first run of a page begins nothing runs either: its menu tells that there was one.
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]:has(.st-key-menu)"
POPOVER = "[data-testid=stPopoverBody]"
UNCAUGHT = re.compile(r"Uncaught app execution|^job .* failed$", re.MULTILINE)
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


def find_chromium() -> str | None:
    """Path of a Chromium on this machine, None without one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def launched_chromium() -> Iterator:
    """A headless Chromium driven by Playwright.

    Raises:
        DraftscopeError: there is none.
    """
    from playwright.sync_api import sync_playwright

    executable = find_chromium()
    if executable is None:
        raise DraftscopeError("No Chromium on this machine: run 'apt-get install -y chromium' and try again.")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def served(
    command: Sequence[str], log: IO[str], environment: Mapping[str, str] | None = None, folder: Path = ROOT
) -> Iterator[tuple[str, subprocess.Popen]]:
    """The app as a command starts it, on a free port of 127.0.0.1: its address, and its process, which is ended then.

    Args:
        command: in front of the server's options. log: takes what the process prints.
        environment: of the process, that of this one if none is given. folder: where the command is typed.

    Raises:
        RuntimeError: it did not come up; the log is in the message.
    """
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [*command, f"--server.port={port}", "--server.headless=true"]
    server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        if not comes_up(f"http://127.0.0.1:{port}", server):
            log.seek(0)
            raise RuntimeError(f"the app did not start:\n{log.read()[-3000:]}")
        yield f"http://127.0.0.1:{port}", server
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextmanager
def running_app(
    environment: Mapping[str, str] | None = None, command: Sequence[str] = FROM_HERE, folder: Path = ROOT
) -> Iterator[str]:
    """The address of the app while it is `served`.

    Raises:
        RuntimeError: it did not come up, or its log tells of what a page or a job did not catch; the log is in the
            message.
    """
    # Tracebacks of Rich are drawn in boxes, without the words of `UNCAUGHT`.
    command = [*command, "--logger.enableRich=false"]
    with tempfile.TemporaryFile("w+") as log:
        with served(command, log, environment, folder) as (url, _):
            yield url
        log.seek(0)
        said = log.read()
        if found := UNCAUGHT.search(said):
            raise RuntimeError(f"the app met what it did not catch:\n{said[found.start() :][:5000]}")


def close_popover(page, limit_s: float = 60.0) -> None:
    """Press Escape until no popover is open.

    Once may not be enough: whether a popover is open is part of the page's state, and a rerun that began before the key
    was pressed opens it once more.

    Raises:
        TimeoutError: one stays open.
    """
    deadline = time.monotonic() + limit_s
    while page.locator(POPOVER).count():
        if time.monotonic() > deadline:
            raise TimeoutError(f"A popover is still open {limit_s:g} s after Escape was pressed first.")
        page.keyboard.press("Escape")
        page.wait_for_timeout(500)
        page.wait_for_selector(SETTLED, timeout=limit_s * 1000)


def comes_up(url: str, server: subprocess.Popen) -> bool:
    """Whether the app of a process answers, at the latest after `START_LIMIT_S`."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return True
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(0.2)
    return False


# Components stand in shadow roots; the watcher looks into them in every frame until the condition holds, and walks
# through no drawing, which would take much of the frame that it times.
WATCHER = """
() => {
  const roots = () => [...document.querySelectorAll('*')].flatMap(host =>
    host.shadowRoot ? [...host.shadowRoot.querySelectorAll('.ds-root')] : []);
  window.scopeState = () => roots().map(r =>
    [location.pathname, r.dataset.drawnScene, r.dataset.phase, r.dataset.selected, r.dataset.hovered || ''].join(' '));
  window.arm = kinds => {
    const before = window.scopeState().join('|');
    window.timing = null;
    let started = null;
    const begin = event => { if (started === null) started = performance.now(); };
    for (const kind of kinds) window.addEventListener(kind, begin, {capture: true, once: true});
    const look = () => {
      const now = window.scopeState();
      if (started !== null && now.length && now.join('|') !== before && !now.join(' ').includes('undefined')) {
        requestAnimationFrame(() => { window.timing = performance.now() - started; });
      } else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  };
}
"""

# Centres of node marks inside the tree panel, far enough apart that a click cannot hit a neighbour.
NODE_PLACES = """
() => {
  const places = [];
  const walk = node => {
    for (const child of node.querySelectorAll('*')) {
      if (child.shadowRoot) walk(child.shadowRoot);
      const id = Number(child.dataset && child.dataset.node);
      const root = child.closest('.ds-root');
      // Neither folded nodes, which open instead, nor the final token, nor what is selected already.
      if (child.matches('.tree g.n[data-node]') && id >= 0 && String(id) !== root.dataset.selected) {
        const panel = child.closest('svg').getBoundingClientRect();
        const mark = (child.querySelector('circle, path, rect') || child).getBoundingClientRect();
        const [x, y] = [mark.x + mark.width / 2, mark.y + mark.height / 2];
        const inside = x > panel.left + 8 && x < panel.right - 8 && y > panel.top + 30 && y < panel.bottom - 40;
        if (inside && places.every(([a, b]) => Math.hypot(a - x, b - y) > 24)) places.push([x, y]);
      }
    }
  };
  walk(document);
  return places;
}
"""


def timed(page, act: Callable[[], None], kinds: tuple[str, ...] = ("keydown", "pointerdown")) -> float:
    """Milliseconds from the input of one of these kinds that `act` makes to the frame that shows its answer."""
    page.evaluate("kinds => window.arm(kinds)", list(kinds))
    act()
    page.wait_for_function("() => window.timing !== null", timeout=30_000)
    value = page.evaluate("() => window.timing")
    page.wait_for_selector(SETTLED)
    return value


def open_page(browser, url: str, path: str):
    """A fresh page of the app with the watcher in it."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(url + path)
    page.wait_for_selector(SETTLED, timeout=60_000)
    page.evaluate(WATCHER)
    return page
