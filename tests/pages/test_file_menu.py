"""The File menu: what it offers, what each export holds, how two runs compare; a bad file changes nothing."""

import io
import json
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from decoding.recorded import logits_run
from decoding.trace.run_file import MAX_BYTES, MAX_JSON_BYTES, MAX_ROW_BYTES, load_run, save_run
from pages.ui.app import file_menu
from pages.ui.app.file_menu import EXPORTS, ExportContext
from pages.ui.common.state import ROW_BYTES, Run
from pages.ui.scope import run as scope_film
from tests.helpers.families import family
from tests.helpers.traces import big, bonus, run_mixed, run_of, summary
from tests.pages.apptest import ROOT, open_page, sentences
from viz.scope.scene import build_scene, fold_parent

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
    from pages.ui.common import state

    session = {key: Upload(data)}
    monkeypatch.setattr(file_menu.st, "session_state", session)
    monkeypatch.setattr(state.st, "session_state", session)
    {"open_run": file_menu._open, "compare_run": file_menu._compare}[key]()
    return session


def saved(run) -> bytes:
    file = io.BytesIO()
    save_run(run, file)
    return file.getvalue()


def test_an_opened_run_brings_its_choices_with_it(monkeypatch: pytest.MonkeyPatch):
    run = logits_run()
    session = uploaded(saved(run), "open_run", monkeypatch)
    assert session["run"].trace.method == run.method == session["method"]
    assert session["sampling_temperature"] == run.sampling.temperature and session["sampling_seed"] == run.sampling.seed
    assert session["prompt_text"] == "".join(run.prompt_texts) and session["max_new_tokens"] == run.max_new_tokens
    unknown = uploaded(saved(replace(run, method="not_ours")), "open_run", monkeypatch)
    assert unknown["run"].trace.method == "not_ours" and "sampling_seed" not in unknown


def test_the_menu_offers_every_export(page):
    assert sentences(page) == []
    offered = {button.proto.label for button in page.get("download_button")}
    assert {"Run, .dscope", *(export.label for export in EXPORTS)} <= offered


@pytest.mark.parametrize("trace", [run_mixed(), run_of([summary(0)])])
@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.key)
def test_every_export_is_made(export, trace):
    made = export.make(ExportContext(Run(trace, "opened")))
    data = made if isinstance(made, bytes) else made.encode()
    assert len(data) > 100
    if export.suffix.endswith(".csv"):
        assert data.startswith(b"\xef\xbb\xbf")
    if export.suffix.endswith(".json"):
        assert json.loads(data).keys() & {"traceEvents", "nodes"}
    if export.suffix.endswith(".html"):
        assert data.startswith(b"<!doctype html>")


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> dict:
    """What makes the file of each download button that is drawn, by its key."""
    made = {}

    def noting(draw):
        def noted(*args, **kwargs):
            made[kwargs["key"]] = args[-1]
            return draw(*args, **kwargs)

        return noted

    for place in (st, DeltaGenerator):
        monkeypatch.setattr(place, "download_button", noting(place.download_button))
    return made


def elsewhere(make) -> str | bytes:
    """What Streamlit does when a file is asked for: a thread that belongs to no session."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(make).result()


@pytest.mark.slow
def test_exports_show_what_is_on_screen(offered: dict, page):
    page.session_state["node"] = 2
    page.run()
    assert '"ask":{"serial":1,"iteration":2,"node":2,' in elsewhere(offered["export_scope"])
    assert "Draft tree, iteration 3" in elsewhere(offered["export_figures"])


@pytest.mark.slow
def test_a_fold_that_was_opened_is_open_in_the_export(offered: dict):
    run = Run(run_of([big(400)]), "opened")
    at = open_page(PAGE)
    at.session_state["run"], at.session_state["iteration"] = run, 0
    at.run()
    closed = elsewhere(offered["export_scope"])
    scene = build_scene(run.trace.iterations[0], scene_id="x")
    below = next(fold_parent(node.node_id) for node in scene.nodes if node.folded)
    scope_film.unfold(at.session_state["scope_film"], 0, below)
    at.run()
    assert len(elsewhere(offered["export_scope"])) > len(closed)


def with_rows(rows: int = 2000):
    """A run whose first iteration has kept its raw logits."""
    first = bonus()
    logits = np.zeros((len(first.nodes), rows), np.float32)
    return run_of([replace(first, draft_logits=logits, target_logits=logits), bonus()])


def test_rows_are_saved_only_where_asked_for(offered: dict):
    at = open_page(PAGE)
    at.session_state["run"] = Run(with_rows(), "opened")
    at.run()
    assert load_run(io.BytesIO(elsewhere(offered["save_run"]))).iterations[0].target_logits is None
    at.toggle(key=file_menu.WITH_ROWS).set_value(True).run()
    assert load_run(io.BytesIO(elsewhere(offered["save_run"]))).iterations[0].target_logits.shape == (4, 2000)


@pytest.mark.slow
def test_rows_that_no_file_can_hold_are_reported_before_saving(offered: dict, monkeypatch: pytest.MonkeyPatch):
    at = open_page(PAGE)
    at.session_state["run"] = Run(with_rows(), "opened")
    at.run()
    at.toggle(key=file_menu.WITH_ROWS).set_value(True).run()
    monkeypatch.setattr(file_menu, "MAX_ROW_BYTES", 1000)
    at.run()
    assert at.toggle(key=file_menu.WITH_ROWS).disabled
    assert any("decode fewer tokens to save them" in caption.value for caption in at.caption)
    assert load_run(io.BytesIO(elsewhere(offered["save_run"]))).iterations[0].target_logits is None


def test_what_is_kept_can_be_saved_and_what_is_saved_can_be_opened():
    assert ROW_BYTES == MAX_ROW_BYTES <= MAX_BYTES - MAX_JSON_BYTES
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert config["server"]["maxUploadSize"] * 2**20 == MAX_BYTES


@pytest.mark.slow
def test_a_comparison_stands_above_the_run(page, monkeypatch: pytest.MonkeyPatch):
    page.session_state[file_menu.RIVAL] = ("other <b>.dscope", run_of(run_mixed().iterations[:3]))
    page.run()
    assert sentences(page) == []
    reported = page.info[0].value.replace("\\", "")
    assert "B is other <b>.dscope" in reported
    assert "The outputs agree for 9 tokens" in reported
    assert any("Totals" in block.value for block in page.code)
    page.button(key="file_comparison_close").click().run()
    assert page.session_state[file_menu.RIVAL] is None
    assert len(page.info) == 0


@pytest.mark.slow
def test_another_rival_is_compared_anew(page):
    page.session_state[file_menu.RIVAL] = ("other", run_of(run_mixed().iterations[:3]))
    page.run()
    assert "The outputs agree for 9 tokens" in page.info[0].value
    page.session_state[file_menu.RIVAL] = ("other", run_mixed())
    page.run()
    assert "Both runs wrote the same 23 tokens" in page.info[0].value


@pytest.mark.slow
def test_a_comparison_that_is_closed_leaves_nothing_behind(page):
    rival = run_of(run_mixed().iterations[:3])
    page.session_state[file_menu.RIVAL] = ("other", rival)
    page.run()
    page.button(key="file_comparison_close").click().run()
    assert file_menu.DIFF not in page.session_state and file_menu.DIFF_OF not in page.session_state


def test_a_chosen_file_is_compared_not_opened(monkeypatch: pytest.MonkeyPatch):
    session = uploaded(saved(run_mixed()), "compare_run", monkeypatch)
    assert session[file_menu.RIVAL][0] == "other <b>.dscope"
    assert session[file_menu.ERROR] is None
    assert "run" not in session


@pytest.mark.parametrize("key", family(("open_run", "compare_run"), "open_run"))
def test_a_damaged_file_is_one_sentence(key: str, page, monkeypatch: pytest.MonkeyPatch):
    session = uploaded(saved(run_mixed())[:-30], key, monkeypatch)
    monkeypatch.undo()
    assert session.get(file_menu.RIVAL) is None
    assert "run" not in session
    before = page.session_state["run"]
    page.session_state[file_menu.ERROR] = session[file_menu.ERROR]
    assert len(sentences(page.run())) == 1
    assert page.session_state["run"] is before
