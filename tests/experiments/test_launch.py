"""Experiments that are started in processes of their own: which command, what goes on, what may be deleted."""

import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from decoding.common.errors import ExperimentError, JobError
from decoding.experiments import experiment as experiments_module
from decoding.experiments.experiment import Experiment, launch, seconds_per_token
from decoding.experiments.grid import grid_from, write_grid
from decoding.experiments.rows import GRID, RowStore
from decoding.jobs.job import STATUS, Status
from tests.helpers.experiments import made_experiment, made_rows
from tests.helpers.process import ended
from tests.helpers.without_torch import run_without_torch


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DRAFTSCOPE_EXPERIMENTS", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_grid_is_run_by_its_name_in_a_folder_of_its_name(python, home):
    python("sleep 60")
    experiment = launch("dynatree_main", "--count", "2")
    assert experiment.path == home / "dynatree_main" and experiment.stand().state == "starting"
    command = experiment.launched().command
    assert command[:2] == ("-m", "decoding.experiments.sweep")
    assert command[2].endswith("decoding/experiments/grids/dynatree_main.toml")
    assert command[3:] == ("--out", str(experiment.path), "--count", "2")
    with pytest.raises(JobError, match="dynatree_main is running: stop it before it is restarted"):
        launch("dynatree_main")


def test_going_on_runs_the_grid_that_was_run_last(python, home):
    python("sleep 60")
    experiment = Experiment(made_experiment(home, "mine", status=Status("stopped", done=3, total=20)))
    experiment.resume()
    command = ("-m", "decoding.experiments.sweep", "--out", str(experiment.path), "--resume")
    assert experiment.launched().command == command
    with pytest.raises(JobError, match="has no sweep: start one"):
        Experiment(home / "nothing").resume()


def test_only_what_is_ones_own_and_at_rest_is_deleted(python, home, tmp_path, monkeypatch):
    python("sleep 60")
    with pytest.raises(JobError, match="dynatree_main is running: stop it before it is deleted"):
        launch("dynatree_main").delete()
    monkeypatch.setattr(experiments_module, "SHIPPED", tmp_path / "shipped")
    with pytest.raises(ExperimentError, match="one is included with Draftscope and cannot be deleted"):
        Experiment(made_experiment(tmp_path / "shipped", "one")).delete()
    with pytest.raises(JobError, match="has no sweep, so nothing was deleted"):
        Experiment(home).delete()
    Experiment(made_experiment(home, "one")).delete()
    assert not (home / "one").exists()


def test_rows_alone_are_kept_ones(home):
    rows_alone = made_experiment(home, "rows")
    (rows_alone / STATUS).unlink()
    assert Experiment(rows_alone).stand().state == "kept"


def test_the_cost_of_a_token_is_that_of_kept_runs():
    rows = pd.DataFrame(made_rows())
    assert seconds_per_token(rows[rows["reference"]].head(1)) == pytest.approx(0.01)
    assert seconds_per_token(rows[:0]) is None
    assert seconds_per_token(rows.assign(failure="no room")) is None


@pytest.mark.slow
def test_where_experiments_stand_is_known_without_torch(home, tmp_path):
    made_experiment(home, "done")
    code = "import sys; from decoding.experiments.experiment import *; "
    code += "found = [ExperimentWatcher(each) for each in experiments()]; found[0].look(); "
    code += "print(found[0].stand.state, len(found[0].rows()), 'torch' in sys.modules)"
    assert run_without_torch(tmp_path, "-c", code).split() == ["finished", "20", "False"]


@pytest.mark.slow
def test_a_real_grid_is_started_stopped_and_goes_on(home):
    content = {
        "name": "real", "new_tokens": [96], "pair": {"device": "cpu"}, "repeats": 40,
        "prompts": {"count": 2, "kinds": ["stories"], "max_tokens": [16]},
        "methods": [{"method": "fixed_tree", "vary": {"max_depth": [2, 4]}}],
    }  # fmt: skip
    experiment = launch(write_grid(grid_from(content, "real"), home / "real"), folder=home / "real")
    until = time.monotonic() + 240
    try:
        while not list(experiment.path.glob("rows/*.parquet")):
            assert time.monotonic() < until and experiment.stand().running, experiment.output()
            time.sleep(0.05)
        experiment.ask_to_stop()
        assert ended(experiment).stand().state == "stopped" and 0 < experiment.stand().status.done < 240
        before = set(RowStore(experiment.path).table()["key"].to_pylist())
        shorter = grid_from({**content, "repeats": 1}, "real")
        (experiment.path / GRID).write_text(json.dumps(asdict(shorter)))
        experiment.resume()
        assert ended(experiment).stand().state == "finished", experiment.output()
        assert experiment.stand().status.done == 6 and before <= set(experiment.store.table()["key"].to_pylist())
    finally:
        if experiment.stand().running:
            os.kill(experiment.launched().pid, signal.SIGKILL)
