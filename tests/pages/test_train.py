"""The page Train: what it says of trainings in every state, what its buttons do, a real one started from its form."""

import importlib
import json
import os
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
from streamlit.testing.v1 import AppTest

from decoding.heads.store import SHIPPED, all_heads, equal_time, same_windows
from decoding.jobs.job import LAUNCH, STATUS, Job, Launch, Status
from decoding.models.presets import PairSettings
from decoding.trace.run_file import save_run
from decoding.training.command import FIELDS, VERIFIERS
from decoding.training.folder import EXAMPLE, MODULES, TrainingWatcher, trainings
from decoding.verifiers import VERIFIERS as ALL_VERIFIERS
from pages.ui.jobs import progress_words
from pages.ui.train.form import arguments_of, estimate_words, title_of
from pages.ui.train.view import common_places
from pages.ui.widgets.controls import setting_key
from tests.helpers.traces import bonus, fallback, run_of
from tests.helpers.trainings import NAME, PHASE, made_training
from tests.pages.apptest import ROOT, open_page, sentences
from viz.tokens import visible

PAGE = "pages/train.py"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    return tmp_path


def at_work(**changes) -> Status:
    status = Status("running", "training the head", 50, 200, 0, 25.0, left_s=75.0, device="cpu", memory_bytes=2**30)
    return replace(status, **changes)


def words(at: AppTest) -> str:
    shown = [*at.markdown, *at.caption, *at.info, *at.warning, *at.error, *at.success]
    texts = [element.value for element in shown] + [bar.proto.text for bar in at.get("progress")]
    return " ".join(texts).replace("\\", "")


def labels(at: AppTest) -> list[str]:
    return [button.label.replace("\\", "") for button in at.button]


def test_without_trainings_it_says_what_to_do():
    at = open_page(PAGE)
    assert sentences(at) == []
    assert "Nothing has been trained on this machine yet" in words(at)
    assert at.button(key="train_start").disabled is False


def test_a_finished_training_with_its_gain_stands_beside_the_form(home: Path):
    at = open_page(PAGE)
    by_steps, by_time = (each.value for each in at.dataframe)
    shipped = {card.label: card for card in all_heads() if card.shipped}
    timed, same = equal_time(shipped["TALF head"].pair["target"]), same_windows(shipped.values())
    for table in (by_steps, by_time):
        assert list(table["Head"]) == ["TALF head", "EAGLE head", "HASS head"]
        for _, row in table.iterrows():
            card = shipped[row["Head"]]
            figures = card.figures if table is by_steps else timed["heads"][card.loss]
            assert row["Tokens per pass"] == f"{figures['held_out_tokens_per_pass']:.2f}"
            assert row["Depth 3"] == f"{figures['held_out_overlap_3']:.0%}"
            assert row["Training"].startswith(f"{figures['steps']:.0f} steps, ")
    for _, row in by_steps.iterrows():
        each = same["heads"][shipped[row["Head"]].name]
        assert row["At 16 nodes, T = 1"] == f"{each['tokens']:.3f} ± {each['error']:.3f}"
        gained = f"{each['gained']:+.3f} ± {each['gained_error']:.3f}" if row["Head"] != "EAGLE head" else ""
        assert row["Minus EAGLE head"] == gained
    own = timed["heads"]["talf"]
    assert by_time["At 16 nodes, T = 1"][0].endswith(f"± {own['held_out_tokens_at_16_nodes_error']:.3f}")
    assert "Minus EAGLE head" not in by_time, "they were not measured on the same windows"
    assert f"equal times, {timed['minutes']:g} minutes each" in words(at)
    assert f"over the same {same['heads']['talf']['windows']:.0f} windows" in words(at)
    gained, before = by_steps["Depth 3"][:2]
    assert f"a chance of {gained}; with the EAGLE head it is {before}" in words(at)
    assert open_examples(at) == [True, True]
    made_training(home, "one", Status("finished"))
    at = open_page(PAGE)
    at.button(key="train_new").click().run()
    assert open_examples(at) == [False, False]


def open_examples(at: AppTest) -> list[bool]:
    """Whether the training tree and the finished training stand open above and below the form."""
    names = ("What a head is trained on", "A finished training")
    return [each.proto.expanded for name in names for each in at.expander if each.label.startswith(name)]


def test_before_any_training_its_tree_mask_and_chain_are_drawn_for_heads_alone(home: Path):
    at = open_page(PAGE)
    (figure,) = (json.loads(each.proto.spec) for each in at.get("plotly_chart"))
    points = {trace["name"]: trace for trace in figure["data"] if trace.get("name")}
    shipped = json.loads((SHIPPED / EXAMPLE).read_text())
    assert points["HASS: the text itself"]["text"] == [f" {visible(text)}" for text in shipped["chain"]]
    assert len(points["TALF: the target's own tree"]["text"]) == sum(map(len, shipped["tree"]))
    assert "sees ancestors" in points
    at.button_group(key="train_kind").set_value("selector").run()
    assert not at.get("plotly_chart") and not open_examples(at)


@pytest.mark.parametrize("kind", list(FIELDS))
def test_every_setting_says_what_it_means_and_why_it_is_empty_or_grey(kind: str):
    at = open_page(PAGE)
    at.button_group(key="train_kind").set_value(kind).run()
    said, more = [each.value.replace("\\", "") for each in at.caption], [each for each in FIELDS[kind] if each.more]
    assert all(field.meaning in said for field in FIELDS[kind] if not field.more)
    empty = [field for field in more if field.default in (None, "")]
    assert all(field.placeholder and any(f"Empty: {field.placeholder}." in each for each in said) for field in empty)
    lowest = [field for field in more if field.step and field.default == field.low]
    assert sum("is the lowest possible." in each for each in said) == len(lowest) > 0
    assert not any(each.disabled for each in [*at.text_input, *at.number_input, *at.selectbox, *at.button])


def test_a_training_at_work_is_watched(home: Path):
    made_training(home, "one", at_work())
    at = open_page(PAGE)
    assert sentences(at) == []
    reported = words(at)
    assert "50 of 200 steps · about 1 min left · training the head · cpu · 1.0 GiB of memory" in reported
    assert NAME in reported and "running 25% · about 1 min left ·" in reported and "2.00 tokens per pass" in reported
    assert {"Stop training", "New training"} <= set(labels(at)) and "Delete" not in labels(at)
    assert len(at.get("plotly_chart")) == 5
    assert at.slider(key="train_moment_one").value == 2


def test_stopping_is_asked_for_once_and_can_be_forced(home: Path):
    folder = made_training(home, "one", at_work())
    at = open_page(PAGE)
    at.button(key="train_stop").click().run()
    assert folder.asked_to_stop() and sentences(at) == []
    assert at.button(key="train_stop").disabled and "End it now" in labels(at)


def test_the_slider_shows_another_moment_and_follows_where_it_is_left_at_the_end(home: Path):
    folder = made_training(home, "one", at_work())
    at = open_page(PAGE)
    at.slider(key="train_moment_one").set_value(1).run()
    place = {"phase": "training the head", "step": 60, "trained_s": 30.0, "written": 1e9}
    save_run(run_of([bonus(), bonus()]), folder.path / "trees" / "60.dscope")
    folder.append({**place, "tree": "60.dscope", "tokens_per_pass": 3.0})
    at.run()
    assert at.slider(key="train_moment_one").value == 1
    at.slider(key="train_moment_one").set_value(3).run()
    save_run(run_of([bonus(), bonus()]), folder.path / "trees" / "80.dscope")
    folder.append({**place, "tree": "80.dscope", "tokens_per_pass": 3.0})
    at.run()
    assert at.slider(key="train_moment_one").value == 4


def test_trees_stand_at_the_same_place_of_the_same_text():
    first, same = run_of([fallback(), bonus(), fallback()]), run_of([fallback(), bonus(), bonus()])
    assert common_places(first, same) == [(0, 0), (1, 1), (2, 2)]
    other = run_of([bonus(), fallback()])
    assert common_places(first, other) == [(0, 0)], "from another text on there is nothing to compare"


def test_the_place_where_the_draft_has_learnt_most_is_shown_first(home: Path):
    folder = made_training(home, "one", Status("stopped"))
    place = {"phase": PHASE, "step": 60, "trained_s": 30.0, "written": 1e9}
    save_run(run_of([fallback(), bonus()]), folder.path / "trees" / "60.dscope")
    save_run(run_of([fallback(), fallback()]), folder.path / "trees" / "0.dscope")
    folder.append({**place, "tree": "60.dscope", "tokens_per_pass": 2.0})
    at = open_page(PAGE)
    assert at.slider(key="train_place_one").value == 1
    assert "3 drafted, 2 accepted at this place" in words(at) and "3 drafted, 0 accepted at this place" in words(at)


def test_phases_have_charts_of_their_own(home: Path):
    folder = made_training(home, "one", at_work(phase="cooling"))
    folder.append({"phase": "cooling", "step": 1, "trained_s": 0.5, "written": 1e9, "loss": 2.0})
    at = open_page(PAGE)
    assert at.button_group(key="train_phase_one").value == "cooling" and len(at.get("plotly_chart")) == 1
    at.button_group(key="train_phase_one").set_value("training the head").run()
    assert len(at.get("plotly_chart")) == 5 and sentences(at) == []


def test_a_failed_one_says_why_in_one_sentence_and_is_resumed(home: Path, monkeypatch):
    made_training(
        home, "one", Status("failed", message="The disk is full: free some space and resume; nothing is lost.")
    )
    at = open_page(PAGE)
    assert sentences(at) == ["The disk is full: free some space and resume; nothing is lost."]
    resumed = []
    monkeypatch.setattr(Job, "start", lambda job, command, *_: resumed.append(command))
    at.button(key="train_resume").click().run()
    assert resumed == [("-m", "tests.helpers.toy_training", "--steps", "3", "--out", str(home / "one"), "--resume")]


def test_deleting_takes_two_clicks(home: Path):
    folder = made_training(home, "one", Status("stopped"))
    at = open_page(PAGE)
    at.button(key="train_delete").click().run()
    assert folder.path.exists()
    at.button(key="train_keep").click().run()
    assert folder.path.exists() and "Delete for good" not in labels(at)
    at.button(key="train_delete").click().run()
    at.button(key="train_delete_sure").click().run()
    assert not folder.path.exists() and sentences(at) == []
    assert "Nothing has been trained" in words(at)


def test_damaged_files_are_reported_and_the_list_goes_on(home: Path):
    made_training(home, "one", Status("stopped"))
    damaged = made_training(home, "two", Status("finished"))
    (damaged.path / STATUS).write_text("{")
    (damaged.path / "trees" / "40.dscope").write_text("no run")
    at = open_page(PAGE)
    at.button(key="train_see_two").click().run()
    assert any("cannot be read" in sentence for sentence in sentences(at))
    assert any("not a Draftscope run" in sentence for sentence in sentences(at))
    at.button(key="train_see_one").click().run()
    assert sentences(at) == []


def test_markup_in_names_stays_text(home: Path):
    folder = made_training(home, "one", Status("stopped", message="<b>x</b> :red[y] $z$"))
    settings = replace(folder.settings(), name="**a** <script> [l](http://x)")
    (folder.path / "settings.json").write_text(json.dumps(asdict(settings)))
    at = open_page(PAGE)
    assert "\\*\\*a\\*\\* \\<script\\>" in " ".join(element.value for element in at.markdown)
    assert "\\[y\\]" in at.info[0].value


def test_a_finished_head_goes_to_compare(home: Path):
    folder = made_training(home, "one", Status("finished", "training the head", 60, 60))
    at = open_page(PAGE)
    assert "Use in Compare" not in labels(at), "there is no result to use"
    (folder.path / "head").mkdir()
    at.run()
    assert "draft_head=one" in words(at)
    at.button(key="train_use").click().run()
    slots = at.session_state["compare_slots"]
    assert [at.session_state[key] for key in slots] == ["autoregressive", "eagle2", "eagle2"]
    assert at.session_state[setting_key(slots[2], "eagle2", "draft_head")] == "one"
    assert not at.session_state[setting_key(slots[1], "eagle2", "draft_head")]


def test_a_finished_selector_goes_to_compare_with_its_verifier(home: Path):
    folder = made_training(home, "one", Status("finished", "training the selector", 60, 60), kind="selector")
    settings = replace(folder.settings(), settings={"verifier": "spectr"})
    (folder.path / "settings.json").write_text(json.dumps(asdict(settings)))
    (folder.path / "selector").mkdir()
    at = open_page(PAGE)
    at.button(key="train_use").click().run()
    slots = at.session_state["compare_slots"]
    verifiers = [at.session_state[setting_key(key, "delayed", "verifier")] for key in slots[1:]]
    assert verifiers == ["spectr", "spectr"] and at.session_state["sampling_temperature"] == 1.0
    assert at.session_state[setting_key(slots[2], "delayed", "selector")] == "one"


def test_silence_is_reported(home: Path, monkeypatch):
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: 0.0)  # however young the machine is
    folder = made_training(home, "one")
    status = at_work(pid=os.getpid(), written=time.time() - 600)
    (folder.path / STATUS).write_text(json.dumps(asdict(status)))
    assert "no progress reported for 10 min" in words(open_page(PAGE))


def test_the_address_names_the_training(home: Path):
    made_training(home, "one", Status("stopped"))
    made_training(home, "two", Status("stopped", message="This is the second."))
    for name in ("one", "two"):
        at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        at.query_params["run"] = name
        at.switch_page(PAGE).run()
        assert ("This is the second." in words(at)) is (name == "two")
        assert at.query_params["run"] in (name, [name])


def test_other_trainings_at_work_are_reported_before_another_starts(home: Path):
    made_training(home, "one", at_work())
    at = open_page(PAGE)
    at.button(key="train_new").click().run()
    assert f"1 training running on this machine ({NAME})" in words(at)
    assert at.button(key="train_start").disabled is False, "the person decides"


@pytest.mark.slow
def test_a_training_is_started_from_the_form_and_stopped(home: Path, monkeypatch):
    monkeypatch.setitem(MODULES, "head", "tests.helpers.toy_training")
    at = open_page(PAGE)
    at.selectbox(key="train_head_loss").select("hass").run()
    at.button_group(key="train_unit_head").set_value("Steps").run()
    at.number_input(key="train_head_length_Steps").set_value(100_000).run()
    at.button(key="train_start").click().run()
    (folder,) = trainings()
    assert folder.launched().command[2:6] == ("--loss", "hass", "--steps", "100000")
    # A process that is quick says what it is at before the page is drawn.
    assert sentences(at) == [] and any(said in words(at) for said in ("Starting its process", "loading torch"))
    until = time.monotonic() + 60
    try:
        while time.monotonic() < until and not folder.stand().status.done:
            time.sleep(0.1)
        at.run()
        assert "steps · training the toy" in words(at) or "left · training the toy" in words(at)
        at.button(key="train_stop").click().run()
        while time.monotonic() < until and folder.stand().running:
            time.sleep(0.1)
        at.run()
        assert folder.stand().state == "stopped" and {"Resume", "Delete"} <= set(labels(at))
    finally:
        if folder.stand().running:
            os.kill(folder.launched().pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["embedded", "head"])
def test_a_folder_that_is_not_there_is_reported_before_anything_starts(kind: str, home: Path):
    at = open_page(PAGE)
    at.button_group(key="train_kind").set_value(kind).run()
    at.text_input(key=f"train_{kind}_corpus").set_value("/no/such/place").run()
    at.button(key="train_start").click().run()
    assert sentences(at) == ["There is no folder /no/such/place: enter a folder of .txt or .txt.gz files."]
    at.text_input(key=f"train_{kind}_corpus").set_value("").run()
    if kind == "embedded":
        at.button(key="train_start").click().run()
        assert sentences(at) == ["Enter a folder of .txt or .txt.gz files to train on."]
    assert not list(home.iterdir())


@pytest.mark.parametrize("kind", list(FIELDS))
def test_the_command_takes_what_the_form_asks_for(kind: str):
    parser = importlib.import_module(MODULES[kind]).parser()
    values = {field.flag: field.default for field in FIELDS[kind]} | {"--steps": 7, "corpus": "/tmp", "--seed": 5}
    settings = PairSettings("big", "small", dtype="bfloat16", split=True)
    args = parser.parse_args(arguments_of(kind, values, None if kind == "embedded" else settings))
    assert (args.steps, args.seed, args.minutes) == (7, 5, None)
    assert kind == "embedded" or (args.target, args.dtype, args.split) == ("big", "bfloat16", True)
    assert title_of(kind, values) and all(field.meaning.endswith(".") for field in FIELDS[kind])


def test_verifiers_are_named_as_elsewhere():
    assert {name: ALL_VERIFIERS[name].label for name in VERIFIERS} == VERIFIERS


def test_only_what_differs_from_the_defaults_is_asked_for(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    values = {field.flag: field.default for field in FIELDS["embedded"]}
    values |= {"corpus": "texts", "--python-source": True, "--minutes": 12.5, "--threads": 1}
    asked = arguments_of("embedded", values)
    assert asked == [str(tmp_path / "texts"), "--python-source", "--threads", "1", "--minutes", "12.5"]


def test_the_estimate_is_what_the_last_one_like_it_took(home: Path):
    assert "an estimate appears shortly after the start" in estimate_words("head", {"--minutes": 10.0}, [])
    folder = made_training(home, "one", Status("finished", "training the head", 50, 50, trained_s=25.0))
    began = time.time() - 300
    (folder.path / LAUNCH).write_text(json.dumps(asdict(Launch((), 1, began))))
    settings = replace(folder.settings(), created=time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(began)))
    (folder.path / "settings.json").write_text(json.dumps(asdict(settings)))
    followed = TrainingWatcher(folder)
    followed.look()
    reported = estimate_words("head", {"--steps": 480, "--loss": "talf"}, [followed])
    assert "480 steps, about 4 min at the pace" in reported
    assert "took 5 min in all, under a minute of it training" in reported
    assert "pace" not in estimate_words("head", {"--steps": 480, "--loss": "eagle"}, [followed])


def test_preparing_is_reported_by_its_parts(home: Path):
    folder = made_training(home, "one", Status("preparing", "preparing trees", 3, 64, device="cpu"))
    followed = TrainingWatcher(folder)
    followed.look()
    assert progress_words(followed) == "3 of 64 · preparing trees · cpu"
    status = replace(folder.status(), done=5, written=folder.status().written + 60)
    (folder.path / STATUS).write_text(json.dumps(asdict(status)))
    followed.look()
    assert progress_words(followed).startswith("5 of 64 · about 30 min left of this phase · preparing trees · cpu")
