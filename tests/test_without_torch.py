"""Without torch runs are opened, drawn, compared and exported; whatever computes something anew says what it needs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decoding.trace.records import SamplingTrace
from decoding.trace.run_file import save_run
from tests.helpers.traces import dynatree_recovered, pruned, run_mixed, run_of, sampled_recovered
from tests.helpers.without_torch import run_without_torch


@pytest.fixture
def without_torch(tmp_path: Path):
    """Runs Python code where torch cannot be imported; returns what it printed."""
    return lambda code, *arguments: run_without_torch(tmp_path, "-c", code, *arguments)


@pytest.fixture
def full_file(tmp_path: Path) -> Path:
    """A file with the raw logits of both models, so that nothing but torch is missing to verify or fork it."""
    made = []
    for iteration in (sampled_recovered(), dynatree_recovered(), pruned()):
        logits = np.random.default_rng(0).normal(size=(len(iteration.nodes), 4096)).astype(np.float32)
        made.append(replace(iteration, draft_logits=logits, target_logits=logits))
    save_run(replace(run_of(made), sampling=SamplingTrace(temperature=1.0)), tmp_path / "full.dscope")
    return tmp_path / "full.dscope"


PAGES = """
import sys
from pathlib import Path
from decoding.common.errors import NEEDS_TORCH
from decoding.trace.run_file import load_run
from pages.ui.common.state import Run
from tests.pages.apptest import open_page, sentences

SAYS = {f"pages/{name}.py" for name in (
    "compare", "papers", "race", "step_through", "sweep", "train", "tune_live", "verifiers", "what_if",
)}
opened, looked_at = load_run(sys.argv[1]), []
for page in [None, *sorted(map(str, Path("pages").glob("*.py")))]:
    at = open_page(page)
    assert sentences(at) == [], (page, sentences(at))
    reported = [each.value.replace("\\\\", "") for each in [*at.info, *at.caption]]
    assert any(NEEDS_TORCH in each for each in reported) == (page in SAYS), (page, reported)
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
assert "torch" not in sys.modules
assert len(looked_at) >= 6, looked_at
"""


@pytest.mark.slow
def test_every_page_draws_and_those_that_compute_say_what_they_need(without_torch, full_file: Path):
    without_torch(PAGES, str(full_file))


STEP_THROUGH = """
import sys
from decoding.common.errors import NEEDS_TORCH
from decoding.recorded import recorded_run
from decoding.trace.run_file import load_run
from pages.ui.common.state import Run
from tests.pages.apptest import open_page, sentences

at, reported = open_page("pages/step_through.py"), set()
for run in (load_run(sys.argv[1]), recorded_run("sampled")):
    at.session_state["run"], last = Run(run, "opened"), run.iterations[-1]
    shapes = [("Why", last, node.node_id) for node in last.nodes] + [("What was possible", last, 0)]
    for shown, iteration, node in [*shapes, *(("Lucky or not", each, 0) for each in run.iterations)]:
        at.session_state["iteration"], at.session_state["why_shown"] = iteration.index, shown
        at.session_state["node"] = node
        at.run()
        assert sentences(at) == [], (shown, iteration.index, node, sentences(at))
        reported |= {each.value.replace("\\\\", "") for each in at.caption}
for begins in ("Which setting would have included it?", "The verifier's draws over", "The best budget depends"):
    assert any(each.startswith(begins) and each.endswith(NEEDS_TORCH) for each in reported), (begins, reported)
for key in ("start", "one_more", "ten_more", "to_end", "what_if_from_here", "pair_open"):
    assert at.button(key=key).disabled, key
assert at.button(key="start").help == NEEDS_TORCH
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_stepping_through_a_run_says_what_re_rolls_changes_and_decoding_need(without_torch, full_file: Path):
    without_torch(STEP_THROUGH, str(full_file))


PUZZLE = """
import sys
from decoding.common.errors import NEEDS_TORCH
from tests.pages.apptest import open_page, sentences

at = open_page("pages/learn.py")
at.session_state["learn_view"], at.session_state["puzzle"] = "Puzzles", "Save the token"
at.run()
assert sentences(at) == []
assert NEEDS_TORCH in at.info[0].value.replace("\\\\", "")
"""


@pytest.mark.slow
def test_the_puzzle_that_drafts_again_says_what_it_needs(without_torch):
    without_torch(PUZZLE)


EXPORTS = """
import sys
from decoding.diff import compare_runs
from decoding.diff import diff_lines
from decoding.trace.exports import iterations_csv, nodes_csv, perfetto_json
from decoding.trace.run_file import load_run
from pages.ui.app.file_menu import run_figures
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


LIBRARY = """
import sys
from importlib import import_module
import decoding
from decoding.analysis.budgets import budgets
from decoding.analysis.luck import rerolled
from decoding.common.errors import NEEDS_TORCH, TorchMissingError

run = decoding.load_run(sys.argv[1])
assert run.sampling.temperature > 0
asked = {
    "another verifier": lambda: import_module("decoding.replay.replay").replay,
    "a re-roll": lambda: rerolled(run, 0),
    "a smaller budget": lambda: budgets(run, 0, None),
    "a fork": lambda: import_module("decoding.replay.forks").fork,
    "the smallest change": lambda: import_module("decoding.analysis.smallest_change").change_search,
    **{name: lambda name=name: getattr(decoding, name) for name in ("METHODS", "DecodeSession", "load_pair")},
}
for name, ask in asked.items():
    try:
        ask()
    except TorchMissingError as error:
        assert str(error) == NEEDS_TORCH, name
    else:
        raise AssertionError(f"{name} was computed without torch")
"""


def test_what_the_library_computes_anew_says_what_it_needs(without_torch, full_file: Path):
    without_torch(LIBRARY, str(full_file))


def test_the_commands_say_what_they_need(without_torch, tmp_path: Path):
    code = "import sys; from decoding.record import main; sys.exit(main(sys.argv[1:]) - 2)"
    without_torch(code, "--prompt", "Once", "--out", str(tmp_path / "run.dscope"))
    save_run(run_mixed(), tmp_path / "a.dscope")
    code = "import sys; from decoding.diff import main; sys.exit(main(sys.argv[1:]))"
    assert "Both runs wrote the same" in without_torch(code, *[str(tmp_path / "a.dscope")] * 2)
