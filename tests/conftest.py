"""What every test runs under: the repository root importable, no network, few threads."""

import atexit
import gc
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # `pytest` alone does not add the working directory, `python -m pytest` does
    sys.path.insert(0, str(ROOT))

from decoding.common import other_work  # noqa: E402

BROWSER = "tests/browser"
BROWSER_HALF = f"{BROWSER}/test_s"  # files before it take as long as those after it
# Files that take minutes, most of them late in the alphabet: the last one of a run would be waited for alone.
LONG = (
    "tests/session/test_edits.py", "tests/session/test_checkpoints.py", "tests/benchmarks/test_random_runs.py",
    "tests/trace/test_trace_fuzz.py", "tests/device/", "tests/analysis/test_doctor.py", "tests/training/",
    "tests/pages/",
)  # fmt: skip

# Before torch and transformers are imported anywhere: both read these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# The test models are tiny: processes beside each other take one thread each, whatever the first of them has set, and
# no thread waits by spinning on a core that another process needs.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", str(min(4, os.cpu_count() or 1)))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Trainings, experiments and calibrations of whoever runs the tests are none of theirs, nor does a machine that is busy
# with tests tell how fast it is; processes that tests start look in the same places.
for kind in ("TRAINING", "EXPERIMENTS", "RUNS"):
    os.environ.pop(f"DRAFTSCOPE_{kind}", None)
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="draftscope-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--order=reversed` or `--order=SEED`: no test may depend on what ran before it."""
    parser.addoption("--order", metavar="reversed|SEED", help="run files, and the tests of each, backwards or shuffled")


def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Files go to processes as with `--dist loadfile`, those that need a browser to two of them.

    They mostly wait, for an app and a Chromium that these processes alone then start.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class TwoBrowsers(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return f"{BROWSER} {file < BROWSER_HALF}" if file.startswith(f"{BROWSER}/") else file

    return TwoBrowsers(config, log)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no collection of garbage looks through it again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files, and the tests inside each, in the order asked for; every process of a run gets the same one.

    Without one, what takes one process longest begins first.
    """
    order = config.getoption("order")
    if order is None:
        items.sort(key=lambda item: (not item.nodeid.startswith(f"{BROWSER}/"), not item.nodeid.startswith(LONG)))
        return
    if order == "reversed":
        items.reverse()
        return
    try:
        shuffle = random.Random(int(order)).shuffle
    except ValueError:
        raise pytest.UsageError(f"--order={order}: give 'reversed' or a whole number as the seed.") from None
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    groups = list(files.values())
    shuffle(groups)
    for group in groups:
        shuffle(group)
    items[:] = [item for group in groups for item in group]


other_work.WAIT_S = 0.0  # tests beside each other would wait for one another in vain


@pytest.fixture(autouse=True)
def main_stays():
    """Streamlit leaves the page it ran as `__main__`, which a process that is spawned later would run once more."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session")
def embedded():
    """The pair that comes with the program, on the CPU: loaded once, so no test may release or change it."""
    from decoding.models.pair import embedded_pair

    return embedded_pair()


@pytest.fixture(scope="session")
def pair(embedded):
    """The same, where a file names no pair of its own."""
    return embedded


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A shell script in the place of the interpreter that jobs are started with; what it began is ended."""
    from tests.helpers.process import StandIn

    made = StandIn(monkeypatch, tmp_path)
    yield made
    made.end()
