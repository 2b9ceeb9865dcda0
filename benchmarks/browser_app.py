"""The app as a process of its own and a headless Chromium, for browser tests and the interaction benchmark."""

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START_LIMIT_S = 60.0
# Before the first run of a page begins nothing runs either: its menu tells that there was one.
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]:has(.st-key-menu)"
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
def launched_chromium(executable: str) -> Iterator:
    """A headless Chromium driven by Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def running_app(environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The app on a free port of 127.0.0.1; yields its address, ends it afterwards.

    Args:
        environment: of the process, that of this one if none is given.

    Raises:
        RuntimeError: it did not come up, or its log tells of what a page or a job did not catch; the log is in the
            message.
    """
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", "--server.headless=true"]
    command += ["--logger.enableRich=false"]  # whose tracebacks are drawn in boxes, without the words of `UNCAUGHT`
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            if not _comes_up(f"http://127.0.0.1:{port}", server):
                log.seek(0)
                raise RuntimeError(f"the app did not start:\n{log.read()[-3000:]}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        log.seek(0)
        said = log.read()
        if found := UNCAUGHT.search(said):
            raise RuntimeError(f"the app met what it did not catch:\n{said[found.start() :][:5000]}")


def _comes_up(url: str, server: subprocess.Popen) -> bool:
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
