"""Experiments that are started in processes of their own: where they stand, whatever became of the process."""

import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from decoding.common import processes
from decoding.common.errors import ExperimentError
from decoding.experiments import experiment as launching
from decoding.experiments.experiment import (
    ENDED,
    GRID,
    NEVER_BEGAN,
    STATUS,
    STOP,
    Experiment,
    Status,
    asked_to_stop,
    delete,
    end,
    go_on,
    last_launch,
    last_words,
    launch,
    output,
    seconds_per_token,
    stand,
)
from decoding.experiments.grid import grid_from, write_grid
from decoding.experiments.rows import RowStore
from tests.helpers.experiments import made_experiment, made_rows
from tests.helpers.without_torch import run_without_torch


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DRAFTSCOPE_EXPERIMENTS", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def python(monkeypatch, tmp_path: Path):
    """Puts a shell script in the place of the interpreter that is started; ends what it left running."""
    file, begun = tmp_path / "python", []

    def write(script: str) -> None:
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setattr(processes.sys, "executable", str(file))

    real = processes.subprocess.Popen
    monkeypatch.setattr(processes.subprocess, "Popen", lambda *a, **k: begun.append(real(*a, **k)) or begun[-1])
    yield write
    for process in begun:
        if process.poll() is None:
            process.kill()


def ended(folder: Path) -> Path:
    """Wait until the process of an experiment is gone."""
    until = time.monotonic() + 30
    while stand(folder).running:
        assert time.monotonic() < until, output(folder)
        time.sleep(0.02)
    return folder


def test_a_process_is_known_before_it_has_said_a_word(python, home):
    python("sleep 60")
    folder = launch("dynatree_main", "--count", "2")
    assert folder == home / "dynatree_main" and stand(folder).state == "starting" and stand(folder).running
    command = last_launch(folder).command
    assert command[:2] == ("-m", "decoding.experiments.sweep")
    assert command[2].endswith("decoding/experiments/grids/dynatree_main.toml")
    assert command[3:] == ("--out", str(folder), "--count", "2")
    with pytest.raises(ExperimentError, match="dynatree_main is at work: stop it before it is started again"):
        launch("dynatree_main")
    os.kill(last_launch(folder).pid, signal.SIGKILL)
    assert (stand(ended(folder)).state, stand(folder).message) == ("failed", NEVER_BEGAN)


def test_one_that_has_not_begun_is_ended_at_once(python, home):
    python("sleep 60")
    folder = launch("dynatree_main")
    end(folder)
    assert (stand(folder).state, stand(folder).message) == ("stopped", ENDED)
    end(folder)
    assert stand(folder).state == "stopped", "once is enough"


def test_only_what_is_ones_own_and_at_rest_is_deleted(python, home, tmp_path):
    python("sleep 60")
    with pytest.raises(ExperimentError, match="is at work: stop it before it is deleted"):
        delete(launch("dynatree_main"))
    for folder in (made_experiment(tmp_path / "shipped", "one"), home):
        with pytest.raises(ExperimentError, match="holds no experiment of yours"):
            delete(folder)
    delete(made_experiment(home, "one"))
    assert not (home / "one").exists()


def test_what_the_process_could_not_do_is_told(python, home):
    python("echo 'starting'; echo 'error: The data set pg-19 is not kept on this machine.'; exit 2")
    folder = ended(launch("dynatree_main"))
    found = stand(folder)
    assert (found.state, found.message) == ("failed", "The data set pg-19 is not kept on this machine.")
    assert output(folder).startswith("starting\n") and last_words(folder).startswith("error: The data set")
    python("sleep 60")
    go_on(folder)
    assert stand(folder).state == "starting" and output(folder) == "", "what never began is begun again"


def test_a_full_disk_in_the_middle_is_told_and_the_rows_are_there(home):
    folder = made_experiment(home, "full", status=Status("running", 3, 20, pid=2**22 + 1))
    (folder / "launch.json").write_text(json.dumps({"command": ["-m", "x"], "pid": 2**22 + 1, "started": 1.0}))
    assert stand(folder).state == "stopped" and "it goes on" in stand(folder).message
    (folder / "output.log").write_text("3 of 20 runs\nerror: The disk of rows is full: free some space and resume.\n")
    found = stand(folder)
    assert found.state == "failed" and found.message.startswith("The disk of rows is full") and found.status.done == 3
    assert RowStore(folder).table().num_rows == 20


def test_states_that_the_process_wrote_are_kept(home):
    assert stand(made_experiment(home, "done")).state == "finished"
    assert stand(made_experiment(home, "broken", status=Status("failed", message="oh"))).message == "oh"
    running = made_experiment(home, "running", status=Status("running", 1, 20, pid=os.getpid()))
    assert stand(running).running and not asked_to_stop(running)
    Experiment(running).ask_to_stop()
    assert asked_to_stop(running) and (running / STOP).exists()
    with pytest.raises(ExperimentError, match="is at work"):
        go_on(running)
    rows_alone = made_experiment(home, "rows")
    (rows_alone / STATUS).unlink()
    assert stand(rows_alone).state == "kept"
    (rows_alone / STATUS).write_text("{")
    assert stand(rows_alone).state == "failed" and "no row is lost" in stand(rows_alone).message


def test_going_on_runs_the_grid_that_was_run_last(python, home):
    python("sleep 60")
    folder = made_experiment(home, "mine", status=Status("stopped", 3, 20), new_tokens=[48], prompts={"count": 3})
    go_on(folder)
    command = last_launch(folder).command
    assert command[2:] == (str(folder / "grid.toml"), "--out", str(folder))
    assert "new_tokens = [48]" in (folder / "grid.toml").read_text()
    with pytest.raises(ExperimentError, match="holds no grid: start a sweep"):
        go_on(home / "nothing")


def test_no_process_and_no_room_are_one_sentence(monkeypatch, home, python, tmp_path):
    monkeypatch.setattr(processes.sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(ExperimentError, match="No process could be started"):
        launch("dynatree_main")
    python("sleep 60")

    def full(file, content, kind):
        raise kind("The disk is full.")

    monkeypatch.setattr(launching, "write_whole", full)
    with pytest.raises(ExperimentError, match=r"The disk is full\."):
        launch("dynatree_main")
    assert last_launch(home / "dynatree_main") is None
    (tmp_path / "file").write_text("")
    with pytest.raises(ExperimentError, match="cannot be written"):
        launch("dynatree_main", folder=tmp_path / "file" / "deeper")


def test_the_cost_of_a_token_is_that_of_kept_runs():
    rows = pd.DataFrame(made_rows())
    assert seconds_per_token(rows[rows["reference"]].head(1)) == pytest.approx(0.01)
    assert seconds_per_token(rows[:0]) is None
    assert seconds_per_token(rows.assign(failure="no room")) is None


def test_where_experiments_stand_is_known_without_torch(home, tmp_path):
    made_experiment(home, "done")
    code = "import sys; from decoding.experiments.experiment import *; "
    code += "found = [FollowedExperiment(*each) for each in experiments()]; "
    code += "print(found[0].stand.state, len(found[0].rows()), 'torch' in sys.modules)"
    assert run_without_torch(tmp_path, "-c", code).split() == ["finished", "20", "False"]


@pytest.mark.slow
def test_a_real_grid_is_started_stopped_and_goes_on(home):
    content = {
        "name": "real", "new_tokens": [96], "pair": {"device": "cpu"}, "repeats": 40,
        "prompts": {"count": 2, "kinds": ["stories"], "max_tokens": [16]},
        "methods": [{"method": "fixed_tree", "vary": {"max_depth": [2, 4]}}],
    }  # fmt: skip
    folder = home / "real"
    launch(write_grid(grid_from(content, "real"), folder), folder=folder)
    until = time.monotonic() + 90
    try:
        while not list(folder.glob("rows/*.parquet")):
            assert time.monotonic() < until and stand(folder).running, output(folder)
            time.sleep(0.05)
        Experiment(folder).ask_to_stop()
        assert stand(ended(folder)).state == "stopped" and 0 < stand(folder).status.done < 240
        before = RowStore(folder).keys()
        shorter = grid_from({**content, "repeats": 1}, "real")
        (folder / GRID).write_text(json.dumps(asdict(shorter)))
        go_on(folder)
        assert stand(ended(folder)).state == "finished", output(folder)
        assert stand(folder).status.done == 6 and RowStore(folder).keys() >= before
    finally:
        if stand(folder).running:
            os.kill(last_launch(folder).pid, signal.SIGKILL)
