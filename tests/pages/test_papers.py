"""The page Papers: the paper's numbers alone at first, ours beside them once there are rows, and runs begun."""

import time

import pytest

from decoding.experiments import launch as launching
from decoding.experiments.experiment import Experiment, Status
from decoding.experiments.launch import last_words, launch, seconds_per_token
from decoding.experiments.rows import SCHEMA, RowStore
from tests.experiments.test_papers import rows
from tests.pages.apptest import open_page, sentences

PAGE = "pages/papers.py"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """No experiments but those of the test."""
    monkeypatch.setenv("DRAFTSCOPE_EXPERIMENTS", str(tmp_path))
    monkeypatch.setattr("decoding.experiments.homes.SHIPPED", tmp_path / "none")
    return tmp_path


def keep_rows(home, **more):
    frame = rows(**more).astype(object)
    RowStore(home / "dynatree_main").append(frame.where(frame.notna(), None)[SCHEMA.names].to_dict("records"))


def html_of(at) -> str:
    return " ".join(each.body for each in at.get("html"))


def test_without_rows_it_shows_the_paper_and_offers_to_run():
    at = open_page(PAGE)
    assert not sentences(at) and "219.5" in html_of(at) and "not run" in html_of(at)
    assert at.button(key="papers_run").label == "Run it here"
    assert any("90 runs; how long they take is known once some have run" in each.value for each in at.caption)
    at.button(key="papers_see_salf/table-4").click().run()
    assert at.query_params["exhibit"] == "salf/table-4" and "Threshold 0.5" in html_of(at)


def test_with_rows_ours_stand_beside_theirs(home):
    keep_rows(home)
    at = open_page(PAGE)
    said = html_of(at)
    assert "1.80 (1.80 to 1.80)" in said and "✓ holds" in said and "✗ does not hold" in said
    assert "commits no more tokens per pass" in said and any(
        "Embedded pair on a test" in each.value for each in at.caption
    )
    assert at.button(key="papers_run").label == "Run again what is missing"
    assert any("at what a token has cost here so far" in each.value for each in at.caption)
    RowStore(home / "dynatree_main").append([{"key": "z", "settings": "{}", "experiment": "another"}])
    at.run()
    assert not sentences(at)


def test_a_damaged_file_of_rows_is_one_sentence(home):
    keep_rows(home)
    next((home / "dynatree_main" / "rows").iterdir()).write_bytes(b"no rows")
    at = open_page(PAGE)
    assert any("is damaged" in each for each in sentences(at)) and "219.5" in html_of(at)


def test_the_button_begins_the_grid_and_its_progress_is_shown(home, monkeypatch):
    begun = []
    monkeypatch.setattr("pages.ui.papers_view.launch", begun.append)
    at = open_page(PAGE)
    at.button(key="papers_run").click().run()
    assert begun == ["dynatree_main"] and not sentences(at)
    experiment = Experiment(home / "dynatree_main")
    experiment.folder.mkdir(exist_ok=True)
    experiment.write_status(Status("running", 30, 90, now="DynaTree: stories/frog", left_s=200.0))
    at.run()
    assert not [each for each in at.button if each.key == "papers_run"]
    at.button(key="papers_stop").click().run()
    assert experiment.asked_to_stop()
    experiment.write_status(Status("failed", 30, 90, message="The disk is full."))
    at.run()
    assert sentences(at) == ["The disk is full."]


def test_a_process_of_its_own_is_started(home, monkeypatch):
    folder = launch("fixed_tree_sweep", "--dry-run")
    deadline = time.monotonic() + 60
    while "prompts" not in last_words(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert folder == home / "fixed_tree_sweep" and last_words(folder).startswith("fixed trees: 91 ways x 5 lengths")
    monkeypatch.setattr(launching.sys, "executable", str(home / "nothing"))
    with pytest.raises(launching.ExperimentError, match="No process could be started"):
        launch("dyspec")
    assert last_words(home) == ""


def test_what_a_token_costs():
    frame = rows({"linear": 50.0}, prompts=2)
    frame["wall_s"] = 2.0
    assert seconds_per_token(frame) == pytest.approx(0.02) and seconds_per_token(frame[:0]) is None
