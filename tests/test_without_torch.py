"""Without torch runs are looked at, compared, exported, verified again and forked; what decodes says what it needs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decoding.common.errors import NEEDS_TORCH
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.archive import save_run
from tests.helpers.traces import dynatree_recovered, run_mixed, run_of, sampled_recovered
from tests.helpers.without_torch import run_without_torch

LIVE_PAGES = ("compare", "papers", "race", "sweep", "train", "tune_live")
ROWS_PAGES = ("verifiers", "what_if")


@pytest.fixture
def without_torch(tmp_path: Path):
    """Runs Python code where torch cannot be imported; returns what it printed."""
    return lambda code, *arguments: run_without_torch(tmp_path, "-c", code, *arguments)


@pytest.fixture
def full_file(tmp_path: Path) -> Path:
    """A file with the raw logits of both models."""
    made = []
    for iteration in (sampled_recovered(), dynatree_recovered()):
        logits = np.random.default_rng(0).normal(size=(len(iteration.nodes), 4096)).astype(np.float32)
        made.append(replace(iteration, draft_logits=logits, target_logits=logits))
    save_run(run_of(made), tmp_path / "full.dscope")
    return tmp_path / "full.dscope"


@pytest.fixture
def decoded_file(tmp_path: Path) -> Path:
    """A file with the rows of models that were run."""
    pair, sampling = embedded_pair(), Sampling(0.8, top_p=0.9, seed=5)
    method = METHODS["dyspec"].with_settings(node_budget=16)
    limits = Limits(16, rows="full", ignore_end_of_text=True)
    session = DecodeSession(
        pair, method, pair.vocabulary.encode("One day a little frog found a boat. He"), sampling, limits
    )
    list(session)
    save_run(session.trace(), tmp_path / "decoded.dscope")
    return tmp_path / "decoded.dscope"


PAGES = """
import sys
from pathlib import Path
from decoding.trace.archive import load_run
from pages.ui.common.state import Run
from tests.pages.apptest import open_page, sentences

opened, looked_at = load_run(sys.argv[1]), []
for page in [None, *sorted(map(str, Path("pages").glob("*.py")))]:
    at = open_page(page)
    assert sentences(at) == [], (page, sentences(at))
    print(page, [each.value.replace("\\\\", "") for each in [*at.info, *at.markdown]])
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
    for page in (*LIVE_PAGES, *ROWS_PAGES):  # the run that pages begin with has kept no rows
        assert told[f"pages/{page}.py"], page


ROWS = """
import sys
from decoding.common.errors import NEEDS_TORCH
from decoding.trace.archive import load_run
from pages.ui.common.state import Run
from pages.ui.what_if.branches import KEY
from tests.pages.apptest import finish, open_page, sentences

run = Run(load_run(sys.argv[1]), "opened")


def opened(page):
    at = open_page()
    at.session_state["run"], at.session_state["iteration"], at.session_state["node"] = run, 1, None
    at.switch_page(f"pages/{page}.py")
    at.run()
    assert sentences(at) == [] and not at.info, (page, sentences(at), at.info)
    return at


def pressed(at, key, slot):
    at.button(key=key).click().run()
    finish(at, slot)
    assert sentences(at) == [], (key, sentences(at))


at = opened("verifiers")
results = {key[0]: value for key, value in at.session_state["verify_results"].items()}
exact, rolled = results["exact"], results["rolled"]
assert len([each for each in exact if each.refusal is None]) >= 2
assert all(sum(counts.values()) == 1000 for counts in rolled.values())
assert not at.slider(key="verify_temperature").disabled
pressed(at, "verify_run", "verify_run")
assert at.session_state["verify_theory"][1].trees

at = opened("what_if")
assert at.button(key="what_if_again").disabled and at.toggle(key="what_if_live").disabled
pressed(at, "what_if_starter_0", "what_if")
assert [fork.fork.kind for fork in at.session_state[KEY].branches.values() if fork.fork] == ["replayed"]
assert at.button(key="what_if_step_b").disabled

at = opened("step_through")
at.session_state["why_shown"] = "Lucky or not"
at.run()
pressed(at, "why_reroll", "why_luck")
assert sum(at.session_state["why_results"][("rolled", run.key, 1)].values()) == 1000
assert "torch" not in sys.modules
"""


def test_rows_are_verified_again_forked_and_re_rolled(without_torch, decoded_file: Path):
    without_torch(ROWS, str(decoded_file))


EXPORTS = """
import sys
from decoding.diff import compare_runs
from decoding.diff import diff_lines
from decoding.trace.exports import iterations_csv, nodes_csv, perfetto_json
from decoding.trace.archive import load_run
from pages.ui.app.exports import run_figures
from viz.standalone.page import figures_html, scope_html

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


SETTINGS = """
import sys
from decoding.common.errors import NEEDS_TORCH, TorchMissingError
from decoding.methods.methods import METHODS
from decoding.common.optional_torch import torch
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling
from pages.ui.common.errors import as_draftscope_error, sentence

for method in METHODS.values():
    method.with_settings(**method.settings()).check(Sampling())
assert [GeneratorDraws(0).accept(0.5) for _ in range(3)]
try:
    torch.inference_mode()
except TorchMissingError as error:
    assert str(error) == NEEDS_TORCH
else:
    raise AssertionError("ran a model without torch")
try:
    import decoding.session.session
except ModuleNotFoundError as error:
    assert str(as_draftscope_error(error)) == NEEDS_TORCH
    assert "torch" in sentence(error)
"""


def test_methods_can_be_read_and_computing_says_what_it_needs(without_torch):
    without_torch(SETTINGS)


def test_the_commands_say_what_they_need(without_torch, tmp_path: Path):
    code = "import sys; from decoding.record import main; sys.exit(main(sys.argv[1:]) - 2)"
    without_torch(f"{code}", "--prompt", "Once", "--out", str(tmp_path / "run.dscope"))
    save_run(run_mixed(), tmp_path / "a.dscope")
    code = "import sys; from decoding.diff import main; sys.exit(main(sys.argv[1:]))"
    assert "Both runs wrote the same" in without_torch(code, *[str(tmp_path / "a.dscope")] * 2)
