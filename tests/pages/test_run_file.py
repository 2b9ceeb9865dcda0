"""The File menu: what it offers, what each export holds, how two runs compare; a bad file changes nothing."""

import io
import json

import pytest

from decoding.trace_file import save_run
from pages.ui import exports, film, run_file
from pages.ui.exports import EXPORTS
from pages.ui.state import Run
from tests.pages.apptest import open_page, sentences
from tests.traces import big, run_mixed, run_of, summary
from viz.scene import build_scene, fold_parent

PAGE = "pages/step_through.py"


@pytest.fixture
def page():
    """Step through with a run from a file."""
    at = open_page(PAGE)
    at.session_state["run"] = Run(run_mixed(), "opened")
    at.session_state["iteration"] = 2
    return at.run()


class Upload(io.BytesIO):
    name = "other <b>.dscope"


def uploaded(data: bytes, key: str, monkeypatch: pytest.MonkeyPatch) -> dict:
    """What choosing a file leaves in the session state."""
    from pages.ui import state

    session = {key: Upload(data)}
    monkeypatch.setattr(run_file.st, "session_state", session)
    monkeypatch.setattr(state.st, "session_state", session)
    {"open_run": run_file._open, "compare_run": run_file._compare}[key]()
    return session


def saved(run) -> bytes:
    file = io.BytesIO()
    save_run(run, file)
    return file.getvalue()


def test_the_menu_offers_every_export(page):
    assert sentences(page) == []
    offered = {button.proto.label for button in page.get("download_button")}
    assert {"Run, .dscope", *(export.label for export in EXPORTS)} <= offered


@pytest.mark.parametrize("trace", [run_mixed(), run_of([summary(0)])])
@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.key)
def test_every_export_is_made(export, trace, monkeypatch: pytest.MonkeyPatch):
    session = {"iteration": 0, "node": None}
    run = Run(trace, "opened")
    session["run"] = run
    monkeypatch.setattr(exports.st, "session_state", session)
    made = export.make(run)
    data = made if isinstance(made, bytes) else made.encode()
    assert len(data) > 100
    if export.suffix.endswith(".csv"):
        assert data.startswith(b"\xef\xbb\xbf")
    if export.suffix.endswith(".json"):
        assert json.loads(data)["traceEvents"]
    if export.suffix.endswith(".html"):
        assert data.startswith(b"<!doctype html>")


def test_a_comparison_stands_above_the_run(page, monkeypatch: pytest.MonkeyPatch):
    page.session_state[run_file.RIVAL] = ("other <b>.dscope", run_of(run_mixed().iterations[:3]))
    page.run()
    assert sentences(page) == []
    told = page.info[0].value.replace("\\", "")
    assert "B is other <b>.dscope" in told
    assert "same for 9 tokens" in told
    assert any("Totals" in block.value for block in page.code)
    page.button(key="file_comparison_close").click().run()
    assert page.session_state[run_file.RIVAL] is None
    assert len(page.info) == 0


def test_a_chosen_file_is_compared_not_opened(monkeypatch: pytest.MonkeyPatch):
    session = uploaded(saved(run_mixed()), "compare_run", monkeypatch)
    assert session[run_file.RIVAL][0] == "other <b>.dscope"
    assert session[run_file.ERROR] is None
    assert "run" not in session


@pytest.mark.parametrize("key", ["open_run", "compare_run"])
def test_a_damaged_file_is_one_sentence(key: str, page, monkeypatch: pytest.MonkeyPatch):
    session = uploaded(saved(run_mixed())[:-30], key, monkeypatch)
    monkeypatch.undo()
    assert session.get(run_file.RIVAL) is None
    assert "run" not in session
    before = page.session_state["run"]
    page.session_state[run_file.ERROR] = session[run_file.ERROR]
    assert len(sentences(page.run())) == 1
    assert page.session_state["run"] is before


def test_a_fold_that_was_opened_is_open_in_the_export(monkeypatch: pytest.MonkeyPatch):
    run = Run(run_of([big(400)]), "opened")
    session = {"iteration": 0, "node": None, "run": run}
    for module in (exports, film):
        monkeypatch.setattr(module.st, "session_state", session)
    closed = exports.scope_page(run)
    scene = build_scene(run.trace.iterations[0], scene_id="x")
    below = next(fold_parent(node.node_id) for node in scene.nodes if node.folded)
    film.unfold(film.film_state(exports.SCOPE_KEY, run), 0, below)
    assert len(exports.scope_page(run)) > len(closed)
