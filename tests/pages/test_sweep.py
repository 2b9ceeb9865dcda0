"""The page Sweep: the form and what it refuses, experiments in every state, charts, the best, a run opened again."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from decoding.common.prompts import EMBEDDED_KINDS, KINDS
from decoding.experiments import experiment as following
from decoding.experiments.estimates import aggregated, ranked
from decoding.experiments.executors import LocalExecutor
from decoding.experiments.experiment import Experiment
from decoding.experiments.grid import grid_from, read_grid
from decoding.experiments.rows import SCHEMA, with_settings
from decoding.experiments.sweep import run_grid
from decoding.jobs.job import STOP, Job, Status
from decoding.methods.methods import METHODS, method_label
from decoding.models.pair import embedded_pair
from decoding.recorded import recorded_run
from pages.ui.sweep import runs as sweep_runs
from pages.ui.sweep.form import folder_for, proposed_values, samplings_of, values_of
from pages.ui.sweep.runs import decoded_again, run_words, typical
from pages.ui.sweep.sentences import asked_words, base_label, with_labels
from pages.ui.sweep.view import HEAT, LINES, PARALLEL, RUNS, picked_place
from tests.helpers.experiments import made_experiment, made_row, made_rows
from tests.helpers.families import family
from tests.helpers.without_torch import run_without_torch
from tests.pages.apptest import ROOT, finish, open_page, sentences

PAGE = "pages/sweep.py"
METHOD = "sweep_method_0"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DRAFTSCOPE_EXPERIMENTS", str(tmp_path / "home"))
    monkeypatch.setattr(following, "SHIPPED", tmp_path / "shipped")
    return tmp_path / "home"


@pytest.fixture
def started(monkeypatch) -> list[tuple[str, ...]]:
    """Commands that were started; nothing runs."""
    commands: list[tuple[str, ...]] = []

    def note(job: Job, command, *_) -> None:
        commands.append(tuple(command))
        job.path.mkdir(parents=True, exist_ok=True)
        known = {"command": list(command), "pid": os.getpid(), "started": 5e9}
        (job.path / "launch.json").write_text(json.dumps(known))

    monkeypatch.setattr(Job, "start", note)
    return commands


def words(at: AppTest) -> str:
    shown = [*at.markdown, *at.caption, *at.info, *at.warning, *at.error]
    texts = [element.value for element in shown] + [bar.proto.text for bar in at.get("progress")]
    return " ".join(texts).replace("\\", "")


def labels(at: AppTest) -> list[str]:
    return [button.label.replace("\\", "") for button in at.button]


def typed(at: AppTest, key: str, text: str) -> AppTest:
    return at.text_input(key=key).set_value(text).run()


def test_without_experiments_it_says_what_to_do():
    at = open_page(PAGE)
    assert sentences(at) == [] and "No sweep has run on this machine yet" in words(at)
    assert "6 combinations · 28 runs including references · 1,792 tokens · the time is unknown until" in (
        words(at).replace("**", "")
    )
    assert at.button(key="sweep_start").disabled is False and at.query_params["experiment"] in ("new", ["new"])


@pytest.mark.slow
def test_time_is_reported_by_rows_of_this_machine_else_by_those_that_came_with_the_program(home, tmp_path):
    made_experiment(tmp_path / "shipped", "theirs")
    at = open_page(PAGE).button(key="sweep_new").click().run()
    assert "minute at the time per token in the results shipped with Draftscope" in words(at)
    made_experiment(home, "mine")
    at = open_page(PAGE).button(key="sweep_new").click().run()
    assert "minute at the time per token on this machine so far" in words(at)


def test_a_grid_of_ones_own_is_written_and_started(home, started):
    at = open_page(PAGE)
    asked = {f"{METHOD}_fixed_tree_max_depth_values": "3..5, 8", "sweep_plan_temperature": "0, 0.8",
             "sweep_plan_seeds": "1, 2", "sweep_plan_new_tokens": "16, 32", "sweep_plan_name": "My trees"}  # fmt: skip
    for key, text in asked.items():
        at.session_state[key] = text
    at.button(key="sweep_start").click().run()
    (command,) = started
    grid = read_grid(home / "my-trees" / "grid.toml")
    assert command[2] == str(home / "my-trees" / "grid.toml")
    assert grid.name == "My trees" and grid.new_tokens == (16, 32) and grid.prompts.kinds == EMBEDDED_KINDS
    assert grid.methods[0].method == "fixed_tree" and grid.methods[0].vary["max_depth"] == (3, 4, 5, 8)
    assert [(each.temperature, each.seed) for each in grid.samplings] == [(0.0, 0), (0.8, 1), (0.8, 2)]
    assert (
        sentences(at) == []
        and at.query_params["experiment"] in ("my-trees", ["my-trees"])
        and "Starting its process" in words(at)
    )
    assert at.button(key="sweep_stop").disabled is False


@pytest.mark.slow
def test_a_ready_grid_goes_where_its_rows_always_go(home, started):
    at = open_page(PAGE)
    at.button_group(key="sweep_kind").set_value("A ready grid").run()
    at.selectbox(key="sweep_ready").select("fixed_tree_sweep").run()
    assert "90 combinations" in words(at) and "Children per node (B): 2, 3, 4" in words(at)
    at.number_input(key="sweep_ready_count_fixed_tree_sweep").set_value(2).run()
    at.button(key="sweep_start").click().run()
    assert started[0][2:5] == (str(home / "fixed_tree_sweep" / "grid.toml"), "--out", str(home / "fixed_tree_sweep"))
    grid = read_grid(home / "fixed_tree_sweep" / "grid.toml")
    assert grid.name == "fixed trees" and grid.prompts.count == 2


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        (f"{METHOD}_fixed_tree_max_depth_values", "3, deep", "max_depth must be a whole number, not 'deep'"),
        (f"{METHOD}_fixed_tree_max_depth_values", "", "max_depth of fixed_tree has no values"),
        (f"{METHOD}_fixed_tree_max_depth_values", "99", "must be a whole number from 1 to 32, not 99"),
        ("sweep_plan_new_tokens", "0", "new_tokens must be a list of whole numbers, 1 or more"),
        ("sweep_plan_temperature", "-1", "temperature must be 0, which decodes greedily"),
        ("sweep_plan_temperature", "", "The grid names no sampling"),
        ("sweep_plan_max_tokens", "many", "max_tokens must be a list of whole numbers, 0 or more"),
    ],
)
def test_what_cannot_be_is_reported_and_nothing_starts(key: str, text: str, said: str, home):
    at = typed(open_page(PAGE), key, text)
    (sentence,) = sentences(at)
    assert said in sentence and at.button(key="sweep_start").disabled and not home.exists()
    assert at.text_input(key="sweep_plan_new_tokens").value, "the form stays"


def test_folders_and_data_sets(home, started, tmp_path):
    at = open_page(PAGE)
    at.button_group(key="sweep_plan_source").set_value("Folder").run()
    assert "Enter a folder of .txt files" in sentences(at)[0]
    assert "There is no set of prompts '/nowhere'" in sentences(typed(at, "sweep_plan_folder", "/nowhere"))[0]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("Once upon a time")
    assert sentences(typed(at, "sweep_plan_folder", str(tmp_path / "texts"))) == []
    assert "7 runs including references" in words(at)
    at.button_group(key="sweep_plan_source").set_value("Data set").run()
    assert sentences(at) == [] and "28 runs" in words(at), "nothing is fetched to count"
    at.button(key="sweep_start").click().run()
    assert len(started) == 1


def test_an_experiment_shows_the_best_and_all_charts(home):
    made_experiment(home, "one")
    at = open_page(PAGE)
    assert sentences(at) == []
    reported = words(at)
    line = next(each.value for each in at.markdown if "Bottom line" in each.value).replace("\\", "")
    assert "Use Fixed tree · D_max 4, B 3 for" in line and "1.72× (95% interval 1.70 to 1.73" in line
    assert "finished · 20 runs" in reported and "Fixed tree · Maximum depth (D_max): 3, 4" in reported
    best = at.dataframe[0].value
    changed = ["D_max 4, B 3", "D_max 4, B 2", "D_max 3, B 3", "D_max 3, B 2"]
    assert [way.partition(" · ")[2] for way in best["Method"]] == changed and best["Best in"][0] == "100%"
    at.selectbox(key="sweep_figure_one").select("tpot_s").run()
    assert sentences(at) == [] and "D_max 4, B 3: TPOT, ms 5.83" in words(at)
    assert "Resume" not in labels(at), "nothing is missing"


@pytest.mark.parametrize("kind", family((HEAT, LINES, PARALLEL, RUNS), HEAT))
def test_every_chart_is_drawn_and_its_numbers_stand_behind_it(kind: str, home):
    made_experiment(home, "one")
    at = open_page(PAGE)
    at.session_state["sweep_kind_of_one"], at.session_state["sweep_numbers"] = kind, True
    at.run()
    assert sentences(at) == [] and len(at.get("plotly_chart")) == 1
    (table,) = (each.body for each in at.get("html") if "<table" in each.body)
    assert "1.6" in table and table.count("<tr") > 4, "the numbers that the chart is made of"


@pytest.mark.parametrize(
    ("more_methods", "axes"),
    [(False, ["settings.max_depth", "settings.branching"]), (True, ["asked_tokens", "base"])],
    ids=["settings of all", "settings of a few"],
)
def test_a_heat_map_begins_with_what_tells_most(more_methods: bool, axes: list[str], home):
    rows = made_rows()
    for number in range(4 * more_methods):  # most runs are of methods without depth and breadth
        for method in ("linear", "dynatree", "opt_tree", "salf", "hf_generate"):
            prompt = rows[5 * number]["prompt"]
            rows += [made_row(method, prompt, 90.0, asked_tokens=tokens) for tokens in (32, 64)]
    made_experiment(home, "one", rows)
    at = open_page(PAGE)
    assert sentences(at) == [] and [at.selectbox(key=f"sweep_{HEAT}_{place}_one").value for place in "xy"] == axes


def test_whole_and_loop_free_texts_are_two_views_of_the_same_runs(home):
    made = made_rows()
    for each in made:
        if not each["reference"]:
            each |= {"loop_free_tokens": 12, "loop_free_new_tokens": 12, "loop_free_tokens_per_iteration": 3.0}
    made[1] |= {name: None for name in made[1] if name.startswith("loop_free_")} | {"loop_free_tokens": 0}
    made_experiment(home, "two", made)
    at = open_page(PAGE)
    assert "12 of 32 tokens counted per run: loop-free texts" in words(at)
    assert "1 run repeats its text from the start and holds whole texts only" in words(at)
    assert set(at.dataframe[0].value["Tokens per run"]) == {"12"} and set(at.dataframe[0].value["Prompts"]) == {3}
    at.button_group(key="sweep_counted").set_value("whole").run()
    assert "32 tokens counted per run: whole texts" in words(at) and "holds whole texts only" not in words(at)
    assert set(at.dataframe[0].value["Tokens per run"]) == {"32"} and set(at.dataframe[0].value["Prompts"]) == {4}


def test_axes_can_be_changed_and_what_is_averaged_is_reported(home):
    rows = [*made_rows(), *({**row, "key": f"{row['key']} long", "block": f"{row['block']} long"}
                            for row in made_rows(asked_tokens=64))]  # fmt: skip
    made_experiment(home, "two", rows)
    at = open_page(PAGE)
    assert "and over new tokens." in words(at)
    at.selectbox(key=f"sweep_{HEAT}_x_two").select("asked_tokens").run()
    assert "and over Maximum depth (D_max)" in words(at) and sentences(at) == []
    at.session_state["sweep_only_two_asked_tokens"] = 64
    at.run()
    assert sentences(at) == [] and any(label == "new tokens 64" for label in popovers(at))
    assert "over new tokens" not in words(at) and set(at.dataframe[0].value["Prompts"]) == {4}


def popovers(at: AppTest) -> list[str]:
    return [each.proto.popover.label.replace("\\", "") for each in at.get("popover")]


@pytest.mark.parametrize("what", [[made_row("autoregressive", "a", 1.0)], made_rows(prompts=1), made_rows((3,), (2,))])
def test_few_rows_are_no_trouble(what: list, home):
    made_experiment(home, "few", what)
    at = open_page(PAGE)
    assert sentences(at) == []


def test_one_at_work_is_watched_and_stopped(home):
    status = Status("running", "Fixed tree: stories/frog", 12, 400, 1, left_s=300.0, pid=os.getpid())
    folder = made_experiment(home, "run", made_rows(prompts=2), status)
    at = open_page(PAGE)
    reported = words(at)
    assert sentences(at) == [] and "12 of 400 runs · 1 failed · about 5 min left · Fixed tree" in reported
    assert {"Stop sweep", "New sweep"} <= set(labels(at)) and "Resume" not in labels(at)
    at.button(key="sweep_stop").click().run()
    assert (folder / STOP).exists() and at.button(key="sweep_stop").disabled and "Stopping" in labels(at)
    at.button(key="sweep_new").click().run()
    assert "1 sweep running on this machine (Made run)" in words(at)


def test_one_that_stopped_goes_on(home, started):
    status = Status("stopped", done=10, total=20, message="Stopped; go on.")
    folder = made_experiment(home, "half", made_rows(prompts=2), status)
    at = open_page(PAGE)
    assert "Stopped; go on." in words(at)
    at.button(key="sweep_resume").click().run()
    assert started[0][2:] == ("--out", str(folder), "--resume")
    assert sentences(at) == [] and "Starting its process" in words(at)


def test_what_went_wrong_is_one_sentence_and_rows_stay(home):
    status = Status("failed", done=20, total=40, message="The disk of rows is full.")
    folder = made_experiment(home, "bad", status=status)
    old = SCHEMA.with_metadata({"draftscope_rows": "0"}).empty_table()
    pq.write_table(old, folder / "rows" / "part-000009-1.parquet")
    at = open_page(PAGE)
    said = sentences(at)
    assert "The disk of rows is full." in said and len(said) == 2
    assert any(
        "has results of version 0, and this is version" in each and "All other results are shown" in each
        for each in said
    )
    assert len(at.get("plotly_chart")) == 1 and "Resume" in labels(at)


def test_a_data_set_without_a_network_is_reported_where_the_charts_would_be(home):
    folder = home / "gsm8k"
    folder.mkdir(parents=True)
    (folder / "launch.json").write_text(json.dumps({"command": ["-m", "x"], "pid": 2**22 + 1, "started": 1.0}))
    (folder / "output.log").write_text(
        "error: The data set gsm8k is not kept on this machine: connect to the network.\n"
    )
    at = open_page(PAGE)
    assert sentences(at) == ["The data set gsm8k is not kept on this machine: connect to the network."]
    assert "No result was stored" in words(at) and "Resume" in labels(at)


def test_an_address_restores_the_view(home):
    for name in ("one", "two"):
        made_experiment(home, name)
    for name in ("one", "two"):
        at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        at.query_params["experiment"] = name
        at.switch_page(PAGE).run()
        assert f"**Made {name}** · finished" in words(at) and at.query_params["experiment"] in (name, [name])


@pytest.mark.slow
def test_a_run_is_opened_again_in_step_through(home):
    content = {"name": "Again", "new_tokens": [10], "pair": {"device": "cpu"},
               "prompts": {"count": 2, "max_tokens": [12]},
               "methods": [{"method": "fixed_tree", "vary": {"max_depth": [2, 3]}}]}  # fmt: skip
    run_grid(grid_from(content, "again"), LocalExecutor(embedded_pair(), "Again"), home / "again")
    at = open_page(PAGE)
    at.session_state["sweep_picked"] = (home / "again", {"settings.max_depth": "3"}, "maximum depth 3")
    at.run()
    assert "2 runs** · maximum depth 3" in words(at) and "It is decoded again" in words(at)
    at.button(key="sweep_open").click().run()
    if "sweep_open" in [button.key for button in at.button]:
        finish(at, "sweep_open")
    assert sentences(at) == []
    run = at.session_state["run"]
    assert "the same 10 tokens as in the sweep" in run.origin and run.trace.settings["max_depth"] == 3
    assert run.trace.totals.new_tokens == 10 and len(run.trace.prompt_ids) == 12 and run.origin in words(at)
    assert at.session_state["method"] == "fixed_tree" and at.session_state["max_new_tokens"] == 10


@pytest.mark.slow
def test_the_best_is_decoded_again_for_an_engine_with_the_price_of_the_best_chain(home, monkeypatch):
    content = {"name": "Engine", "new_tokens": [24], "pair": {"device": "cpu"},
               "prompts": {"count": 3, "max_tokens": [12]},
               "methods": [{"method": "fixed_tree", "vary": {}}, {"method": "linear", "vary": {}}]}  # fmt: skip
    run_grid(grid_from(content, "engine"), LocalExecutor(embedded_pair(), "Engine"), home / "engine")
    at = open_page(PAGE)
    runs = at.session_state["sweep_shown"][3]
    found = ranked(runs, "speedup")
    tree, chain = (next(each for each in found if each.way.startswith(name)) for name in ("fixed_tree", "linear"))
    row = typical(runs, tree)
    assert row["method"] == "fixed_tree"
    decoded = decoded_again(lambda row: recorded_run("tree_helps" if row["method"] == "fixed_tree" else
                                                     "tree_helps_chain"), runs, [tree, chain], tree)  # fmt: skip
    assert decoded[0] == recorded_run("tree_helps")
    assert decoded[1].speed == pytest.approx(np.mean([c / t for c, t in zip(chain.values, tree.values, strict=True)]))
    assert decoded_again(lambda row: recorded_run("tree_helps_chain"), runs, [chain, tree], chain)[1] is None
    if "sweep_engine" in [button.key for button in at.button]:  # the machine was quiet enough to name a best
        shown: list[tuple] = []
        monkeypatch.setattr(sweep_runs, "engine_dialog", lambda *found: shown.append(found))
        at.button(key="sweep_engine").click().run()
        finish(at, "sweep_engine")
        assert sentences(at) == [] and len(shown) == 1 and found[0].way.startswith(shown[0][0].method)


@pytest.mark.slow
def test_a_run_that_cannot_be_opened_says_why(home):
    rows = made_rows(prompts=1)
    made_experiment(home, "far", [{**row, "pair": "Pythia", "prompt_set": "gsm8k", "prompt": "00000"} for row in rows])
    at = open_page(PAGE)
    at.session_state["sweep_picked"] = (home / "far", {"settings.max_depth": "3"}, "")
    at.run()
    at.button(key="sweep_open").click().run()
    finish(at, "sweep_open")
    assert "was decoded with Pythia, and Embedded pair is loaded" in sentences(at)[0]


CODE = """
import sys
from tests.pages.apptest import open_page, sentences
at = open_page("pages/sweep.py")
assert sentences(at) == [] and len(at.get("plotly_chart")) == 1
assert at.button(key="sweep_resume").disabled
at.session_state["sweep_picked"] = (at.session_state["sweep_shown"][0][0], {"settings.max_depth": "3"}, "")
at.run()
assert sentences(at) == [] and at.button(key="sweep_open").disabled
print(*[each.value for each in at.info], "torch" in sys.modules)
"""


@pytest.mark.slow
def test_without_torch_rows_are_shown_and_nothing_can_be_started(home, tmp_path):
    made_experiment(home, "one", status=Status("stopped", done=20, total=40))
    printed = run_without_torch(tmp_path, "-c", CODE)
    assert "needs torch" in printed and printed.split()[-1] == "False"


def test_a_click_stands_for_a_place():
    columns = ["settings.max_depth", "settings.branching"]
    assert picked_place([{"customdata": ["3", "2"]}], HEAT, columns) == dict(zip(columns, "32", strict=True))
    assert picked_place([{"customdata": {"0": "3"}}], LINES, columns[:1]) == {"settings.max_depth": "3"}
    assert picked_place([{"customdata": ["abc"]}], RUNS, []) == {"key": "abc"}
    assert picked_place([], HEAT, columns) is None and picked_place([{"x": 1}], HEAT, columns) is None


def test_values_are_proposed_around_the_default_as_far_as_they_are_accepted():
    infos = METHODS["dynatree"].infos
    assert proposed_values(infos["node_budget"], 64) == "32, 64, 128"
    assert proposed_values(infos["branch_min"], 1) == "1, 2", "0 is no number of children"
    assert proposed_values(infos["confidence_high"], 0.9) == "0.45, 0.9", "1.8 is no confidence"
    assert proposed_values(METHODS["specinfer"].infos["widths"], "1,1,3") == "1,1,3"


def test_typed_values():
    assert values_of("3, 4,5", 1) == [3, 4, 5] and values_of("3..6, 3", 1) == [3, 4, 5, 6]
    assert values_of("0.1, 1", 0.5) == [0.1, 1] and values_of("x, 2", 1) == ["x", 2] and values_of(" ", 1) == []
    assert values_of("1,1,3; 2,2", "1,2") == ["1,1,3", "2,2"]
    assert values_of("1..999999", 1) == ["1..999999"], "nobody means that many"


def test_samplings_are_all_combinations_and_greedy_is_there_once():
    found = samplings_of([0, 0.6], [0.9, 1], [1], [3, 4])
    assert [(each["temperature"], each["top_p"], each["seeds"]) for each in found] == [
        (0, 1.0, [0]), (0.6, 0.9, [3, 4]), (0.6, 1, [3, 4])
    ]  # fmt: skip


def test_folders_of_ones_own_sweeps(home):
    assert folder_for("My Trees!").name == "my-trees" and folder_for("木").name == "sweep"
    (home / "my-trees").mkdir(parents=True)
    assert folder_for("My trees").name == "my-trees-2"
    assert folder_for("dynatree main").name == "dynatree-main"
    with pytest.raises(Exception, match="is the name of a grid shipped with Draftscope"):
        folder_for("DynaTree, main")


def test_ways_have_the_labels_of_every_other_page_and_name_what_varies():
    rows = [*made_rows(), made_row("linear", "a", 110.0), made_row("gone:depth=3", "a", 90.0, label="As it was called")]
    runs = with_labels(aggregated(with_settings(pd.DataFrame(rows))))
    trees = [METHODS["fixed_tree"].with_settings(max_depth=d, branching=b) for d in (3, 4) for b in (2, 3)]
    labels = {method_label(tree, ("max_depth", "branching")) for tree in trees}
    assert "Fixed tree · D_max 3, B 3" in labels, "3 children are the usual number"
    assert set(runs["label"]) == {"Linear chain", "As it was called", *labels}


def test_what_was_asked_for_is_reported_in_lines():
    grid = asdict(grid_from({
        "methods": [{"method": "dynatree@packed:base_depth=3", "vary": {"history": [True, False]}},
                    {"method": "hf_generate"}],
        "sampling": [{"temperature": 0.8, "top_p": 0.9, "seeds": [1]}], "repeats": 2,
        "prompts": {"set": "long", "kinds": ["stories"], "parts": 4, "max_tokens": [0, 64]},
    }, "x"))  # fmt: skip
    lines = asked_words(json.loads(json.dumps(grid)))
    assert lines[0] == "DynaTree (packed) (base_depth=3) · History adaptation: on, off" and len(lines) == 3
    assert "whole and at most 64 tokens" in lines[-1] and "T 0.8 top-p 0.9 seed 1 · 2 times" in lines[-1]
    assert "all prompts of long texts (stories) in 4 parts" in lines[-1]
    assert base_label("fixed tree D5 B2 (ablation)") == "fixed tree D5 B2 (ablation)"
    assert set(EMBEDDED_KINDS) <= set(KINDS) and asked_words({}) == []


def test_one_is_deleted_when_asked_twice(home):
    for name in ("one", "two"):
        made_experiment(home, name)
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    at.query_params["experiment"] = "one"
    at.switch_page(PAGE).run()
    at.button(key="sweep_delete").click().run()
    assert (home / "one").exists() and "Keep it" in labels(at)
    at.button(key="sweep_delete_sure").click().run()
    assert sentences(at) == [] and not (home / "one").exists() and "**Made two** · finished" in words(at)


def test_an_address_of_one_that_is_not_here_is_answered_with_a_sentence(home):
    made_experiment(home, "one")
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    at.query_params["experiment"] = "gone"
    at.switch_page(PAGE).run()
    assert sentences(at) == ["There is no sweep “gone” here: choose one from the list, or start a new one."]
    assert "sweep_start" in [button.key for button in at.button], "the form"
    at.button(key="sweep_see_one").click().run()
    at.button(key="sweep_new").click().run()
    assert sentences(at) == []


def test_nothing_is_started_twice(home, started):
    made_experiment(home, "run", status=Status("running", done=1, total=20, pid=os.getpid()))
    assert Experiment(home / "run").stand().running and Experiment(home / "run").launched() is None
    at = open_page(PAGE)
    assert "sweep_resume" not in [button.key for button in at.button]


@pytest.mark.slow
def test_the_best_is_that_of_the_experiment_that_is_looked_at(home):
    made_experiment(home, "one")
    made_experiment(home, "two", [{**row, "loop_free_throughput": 900.0, "started": "2031-01-01T00:00:00"}
                                  if row["label"] == "D 3 B 2" else {**row, "started": "2031-01-01T00:00:00"}
                                  for row in made_rows()])  # fmt: skip
    at = open_page(PAGE)
    at.button(key="sweep_see_one").click().run()
    assert "Use Fixed tree · D_max 4, B 3 for" in words(at) and "1.72×" in words(at)
    at.button(key="sweep_see_two").click().run()
    line = next(each.value for each in at.markdown if "Bottom line" in each.value)
    assert "D\\_max 3, B 2" in line and "D\\_max 4" not in line, "the same runs have the same keys"


def test_pairs_on_machines_are_never_mixed(home):
    fast = [{**row, "machine": "another", "key": f"another {row['key']}", "started": "2031-01-01T00:00:00",
             "loop_free_throughput": row["loop_free_throughput"] * (1 if row["reference"] else 3)}
            for row in made_rows()]  # fmt: skip
    made_experiment(home, "both", [*made_rows(), *fast])
    at = open_page(PAGE)
    assert "5.1" in words(at) and "1.72×" not in words(at)
    at.selectbox(key="sweep_source_both").select("Embedded pair on a test").run()
    assert "1.72×" in words(at) and sentences(at) == []


def test_a_shipped_sweep_is_of_the_machine_that_it_was_made_on(tmp_path):
    made_experiment(tmp_path / "shipped", "theirs", made_rows(machine="AMD EPYC, cpu float32"))
    assert "on AMD EPYC" in next(each.value for each in open_page(PAGE).markdown if "Bottom line" in each.value)


def test_a_run_is_reported_apart_from_its_neighbours():
    row = made_row("fixed_tree", "frog", 100.0, label="Fixed tree")
    others = [{}, {"cut": 100}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}, {"draft_temperature": 0.6},
              {"repeat": 1}, {"temperature": 1.0, "seed": 3}]  # fmt: skip
    said = [run_words({**row, **other}) for other in others]
    assert len(set(said)) == len(others) and said[3].endswith("T 1, top-p 0.9, seed 0")
