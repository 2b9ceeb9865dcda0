"""The wheel, installed where there is no checkout: it has all of the program, its command works and its app draws."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.browser_app import SETTLED, running_app
from decoding.trace.run_file import load_run
from tests.browser.conftest import new_context

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (".streamlit/", "benchmarks/", "decoding/", "pages/", "sample_prompts/", "viz/", "app.py", "draftscope.py")
OF_THE_REPOSITORY = {f"benchmarks/{name}.py" for name in ("house", "mutants", "readme_table")}
pytestmark = pytest.mark.slow


def run(*words: str | Path, folder: Path) -> str:
    """What a process prints that is started in a folder outside the repository and ends well."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, f"{answer.stdout[-3000:]}\n{answer.stderr[-3000:]}"
    return answer.stdout


@dataclass(frozen=True)
class Installed:
    """A wheel, the environment that it is installed in, and an empty folder to work in."""

    wheel: Path
    commands: Path
    folder: Path

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.commands / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this checkout in an environment that has what it needs from the one that runs the tests."""
    dist, home, folder = (tmp_path_factory.mktemp(name) for name in ("dist", "environment", "elsewhere"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", dist, ROOT, folder=folder)
    venv.create(home, with_pip=False)
    site = next(home.glob("lib/python*/site-packages"))
    needed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "needed.pth").write_text("\n".join(needed))
    (wheel,) = dist.iterdir()
    run(*pip, "--python", home, "install", "--no-deps", "--no-index", "--no-warn-script-location", wheel, folder=folder)
    return Installed(wheel, home / "bin", folder)


def test_it_has_every_tracked_file_of_the_program_and_no_other(installed):
    tracked = run("git", "ls-files", folder=ROOT).splitlines()
    wanted = {name for name in tracked if name.startswith(ROOMS)} - OF_THE_REPOSITORY
    names = {name for name in zipfile.ZipFile(installed.wheel).namelist() if ".dist-info/" not in name}
    assert names == wanted


def test_it_asks_for_the_pinned_packages(installed):
    with zipfile.ZipFile(installed.wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        said = archive.read(metadata).decode()
    pins = {
        extra: set(re.findall(r"^([a-z0-9-]+==[\d.]+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))
        for extra, file in (("", "requirements.txt"), ("; extra == 'dev'", "requirements-dev.txt"))
    }
    for extra, wanted in pins.items():
        assert set(re.findall(rf"^Requires-Dist: ([^;\n]+){extra}$", said, re.MULTILINE)) == wanted


def test_its_command_says_what_there_is(installed):
    said = run(installed.commands / "draftscope", "--help", folder=installed.folder)
    assert "open the app in a browser" in said
    assert "methods" in run(installed.commands / "draftscope", "bench", folder=installed.folder)


def test_it_decodes_with_the_embedded_pair(installed):
    code = """
import decoding
from decoding import METHODS, DecodeSession, PairSettings, load_pair
pair = load_pair(PairSettings())
session = DecodeSession(pair, METHODS["dynatree"], pair.vocabulary.encode("Once upon a time"))
for iteration in session:
    if session.new_tokens >= 8:
        break
print(decoding.__file__, session.new_tokens)
"""
    file, tokens = run(installed.python, "-c", code, folder=installed.folder).split()
    assert Path(file).is_relative_to(installed.commands.parent)
    assert int(tokens) >= 8


def test_its_command_records_a_run(installed):
    file = installed.folder / "run.dscope"
    asked = ("--prompt", "stories/shy_star", "--max-new-tokens", "8", "--out", file)
    run(installed.commands / "draftscope", "record", *asked, folder=installed.folder)
    assert load_run(file).totals.new_tokens == 8
    run(installed.commands / "draftscope", "diff", file, file, folder=installed.folder)


def test_its_app_draws_a_page(installed, browser):
    with running_app(command=[installed.commands / "draftscope", "run"], folder=installed.folder) as url:
        page = new_context(browser).new_page()
        page.goto(f"{url}/learn")
        page.wait_for_selector(SETTLED)
        page.get_by_role("button", name="Take the tour").wait_for()
        colour = page.get_by_test_id("stApp").evaluate("app => getComputedStyle(app).color")
        assert colour == "rgb(15, 21, 19)", "the text has not the colour of .streamlit/config.toml"
        page.close()
