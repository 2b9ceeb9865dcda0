"""Without torch, recorded and opened runs can be looked at, compared and exported; what decodes says what it needs."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decoding.errors import NEEDS_TORCH
from decoding.trace_file import save_run
from tests.traces import dynatree_recovered, run_mixed, run_of, sampled_recovered
from tests.without_torch import environment_without_torch

ROOT = Path(__file__).resolve().parent.parent
LIVE_PAGES = ("compare", "race", "tune_live", "verifiers", "what_if")


@pytest.fixture
def without_torch(tmp_path: Path):
    """Runs Python code where torch cannot be imported; returns what it printed."""
    environment = environment_without_torch(tmp_path)

    def run(code: str, *arguments: str) -> str:
        command = [sys.executable, "-c", code, *arguments]
        answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert answer.returncode == 0, answer.stderr[-3000:]
        return answer.stdout

    return run


@pytest.fixture
def full_file(tmp_path: Path) -> Path:
    """A file with the raw logits of both models."""
    made = []
    for iteration in (sampled_recovered(), dynatree_recovered()):
        logits = np.random.default_rng(0).normal(size=(len(iteration.nodes), 4096)).astype(np.float32)
        made.append(replace(iteration, draft_logits=logits, target_logits=logits))
    save_run(run_of(made), tmp_path / "full.dscope")
    return tmp_path / "full.dscope"


PAGES = """
import sys
from pathlib import Path
from decoding.trace_file import load_run
from pages.ui.state import Run
from tests.pages.apptest import open_page, sentences

opened, looked_at = load_run(sys.argv[1]), []
for page in [None, *sorted(map(str, Path("pages").glob("*.py")))]:
    at = open_page(page)
    assert sentences(at) == [], (page, sentences(at))
    print(page, [each.value.replace("\\\\", "") for each in at.info])
    at.session_state["run"] = Run(opened, "opened")
    at.session_state["iteration"] = 1
    at.run()
    assert sentences(at) == [], (page, sentences(at))
    views = [group for group in at.button_group if group.key in ("why_shown", "learn_view")]
    for key, option in [(group.key, option) for group in views for option in group.options]:
        at.session_state[key] = option
        at.run()
        assert sentences(at) == [], (page, key, option, sentences(at))
        looked_at.append(option)
    if page == "pages/step_through.py":
        assert at.button(key="start").disabled
        assert at.button(key="pair_open").disabled
assert "torch" not in sys.modules
assert len(looked_at) >= 6, looked_at
"""


def test_every_page_draws_and_says_what_it_lacks(without_torch, full_file: Path):
    printed = without_torch(PAGES, str(full_file)).splitlines()
    told = {line.partition(" ")[0]: NEEDS_TORCH in line for line in printed}
    assert told["None"] is False
    assert told["pages/step_through.py"] is False
    for page in LIVE_PAGES:
        assert told[f"pages/{page}.py"], page


EXPORTS = """
import sys
from decoding.diff import compare_runs
from decoding.diff_words import diff_lines
from decoding.perfetto import perfetto_json
from decoding.run_tables import iterations_csv, nodes_csv
from decoding.trace_file import load_run
from pages.ui.exports import run_figures
from viz.standalone import figures_html, scope_html

run = load_run(sys.argv[1])
sizes = [len(make) for make in (scope_html(run, 0), nodes_csv(run), iterations_csv(run), perfetto_json([run]))]
pairs = zip(run_figures(run, 0, False), run_figures(run, 0, True))
sizes.append(len(figures_html([(name, light, dark) for (name, light), (_, dark) in pairs], "title")))
assert min(sizes) > 500, sizes
assert len(diff_lines(compare_runs(run, run))) > 10
assert "torch" not in sys.modules
"""


def test_every_export_and_the_comparison(without_torch, tmp_path: Path):
    save_run(run_mixed(), tmp_path / "mixed.dscope")
    without_torch(EXPORTS, str(tmp_path / "mixed.dscope"))


METHODS = """
import sys
from decoding.errors import NEEDS_TORCH, TorchMissingError
from decoding.methods import METHODS
from decoding.sampling import GeneratorDraws, Sampling
from pages.ui.errors import as_draftscope_error, sentence

for method in METHODS.values():
    method.with_settings(**method.settings()).check(Sampling())
try:
    GeneratorDraws(0)
except TorchMissingError as error:
    assert str(error) == NEEDS_TORCH
else:
    raise AssertionError("drew without torch")
try:
    import decoding.session
except ModuleNotFoundError as error:
    assert str(as_draftscope_error(error)) == NEEDS_TORCH
    assert "torch" in sentence(error)
"""


def test_methods_can_be_read_and_computing_says_what_it_needs(without_torch):
    without_torch(METHODS)


def test_the_commands_say_what_they_need(without_torch, tmp_path: Path):
    code = "import sys; from decoding.record import main; sys.exit(main(sys.argv[1:]) - 2)"
    without_torch(f"{code}", "--prompt", "Once", "--out", str(tmp_path / "run.dscope"))
    save_run(run_mixed(), tmp_path / "a.dscope")
    code = "import sys; from decoding.diff import main; sys.exit(main(sys.argv[1:]))"
    assert "Both runs wrote the same" in without_torch(code, *[str(tmp_path / "a.dscope")] * 2)
