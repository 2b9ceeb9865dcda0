"""Trainings as processes of their own: started, watched, stopped, killed, resumed and deleted from outside."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from decoding.common.errors import TrainingError
from decoding.jobs.job import NEVER_BEGAN, SILENT, Job, Status
from decoding.training.folder import (
    MODULES,
    SETTINGS,
    LogReader,
    Training,
    TrainingSettings,
    TrainingWatcher,
    launch,
    trainings,
)
from tests.helpers import toy_training

WAIT_S = 60.0
TOY, STEPS = "tests.helpers.toy_training", "200"


@pytest.fixture(autouse=True)
def toy_trainings(monkeypatch, tmp_path: Path):
    """What is launched is the toy, in a folder of the test; no process outlives it."""
    monkeypatch.setitem(MODULES, "head", TOY)
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    yield
    for folder in trainings():
        if folder.stand().running:
            os.kill(folder.launched().pid, signal.SIGKILL)


def wait_for(folder: Training, reached: Callable[[TrainingWatcher], bool]) -> TrainingWatcher:
    """Look until something is reached."""
    followed, until = TrainingWatcher(folder), time.monotonic() + WAIT_S
    while time.monotonic() < until:
        followed.look()
        if reached(followed):
            return followed
        time.sleep(0.05)
    raise AssertionError(f"{followed.stand}\n{folder.output()}")


def ended(followed: TrainingWatcher) -> bool:
    return not followed.stand.running


def weight(folder: Training) -> float:
    from decoding.training.loop import load_checkpoint

    return float(load_checkpoint(folder.checkpoint).state["weight"])


def straight(tmp_path: Path) -> float:
    """The weight of the same training that never stopped, in this process."""
    folder = Training(tmp_path / "other home" / "straight")
    assert toy_training.main(["--out", str(folder.path), "--steps", STEPS]) == 0
    return weight(folder)


@pytest.mark.slow
def test_killed_resumed_stopped_and_resumed_it_ends_as_one_that_never_stopped(tmp_path: Path):
    folder = launch("head", ("--steps", STEPS, "--pause", "0.02"), name="TALF, toy")
    assert folder.path.name.startswith("talf-toy-20") and trainings() == [folder]
    assert folder.stand().running
    followed = wait_for(folder, lambda each: each.stand.status.done > 20 and folder.checkpoint.exists())
    os.kill(followed.stand.status.pid, signal.SIGKILL)
    followed = wait_for(folder, ended)
    assert (followed.stand.state, followed.stand.message) == ("failed", SILENT)
    killed_at = followed.stand.status.done
    folder.resume()
    assert folder.stand().running

    wait_for(folder, lambda each: each.stand.state == "running" and each.stand.status.done > killed_at)
    folder.ask_to_stop()
    followed = wait_for(folder, ended)
    assert followed.stand.state == "stopped" and not folder.asked_to_stop()
    assert killed_at < followed.stand.status.done < int(STEPS)
    folder.resume()

    followed = wait_for(folder, ended)
    assert (followed.stand.state, followed.stand.status.done) == ("finished", int(STEPS)), folder.output()
    assert weight(folder) == straight(tmp_path) != 0.0
    assert followed.name == "TALF head, toy pair, 2026-11-22" and followed.kind == "head"
    losses = [record["step"] for record in followed.records if "loss" in record]
    assert losses == sorted(set(losses)) and losses[-1] == int(STEPS), "nothing is reported twice"
    trees = followed.trees
    assert len(trees) >= 2 and {tree["tree"] for tree in trees} <= {file.name for file in folder.trees()}
    assert trees[0]["tokens_per_pass"] < trees[-1]["tokens_per_pass"]
    folder.delete()
    assert trainings() == [] and not folder.path.exists()


def test_why_it_failed_is_what_its_process_wrote(tmp_path: Path):
    folder = Training(tmp_path / "diverged")
    assert toy_training.main(["--out", str(folder.path), "--steps", "9", "--diverge-at", "5"]) == 1
    assert folder.stand().state == "failed" and "is nan: resume with a lower" in folder.stand().message


def test_one_that_never_began_is_begun_again(monkeypatch):
    monkeypatch.setitem(MODULES, "head", "tests.training.nothing")
    folder = launch("head", (), name="toy")
    followed = wait_for(folder, ended)
    assert "No module named tests.training.nothing" in folder.output()
    assert followed.stand.state == "failed" and followed.stand.message == NEVER_BEGAN
    folder.resume()
    assert "--resume" not in folder.launched().command
    wait_for(folder, ended)
    folder.delete()


def settings_of(folder: Training) -> TrainingSettings:
    command = (TOY, "--steps", "3")
    return TrainingSettings("head", "by hand", command, {}, {}, "2026-11-22T10:00:00")


def test_one_started_on_the_command_line_is_known_and_resumed_in_its_place(tmp_path: Path, monkeypatch):
    folder = Training(tmp_path / "mine")
    folder.begin(settings_of(folder))
    assert folder.stand().state == "starting", "its process is yet to write"
    folder.write_status(Status("stopped", message="Stopped; resume continues it."))
    assert trainings() == [folder] and folder.stand().state == "stopped"
    started = []
    monkeypatch.setattr(Job, "start", lambda job, command, *_: started.append((job, command)))
    folder.resume()
    assert started == [(folder, ("-m", TOY, "--steps", "3", "--out", str(folder.path), "--resume"))]


def test_what_is_damaged_hides_no_training(tmp_path: Path):
    folder = Training(tmp_path / "bad")
    folder.begin(settings_of(folder))
    folder.write_status(Status("stopped"))
    (folder.path / SETTINGS).write_text("{")
    followed = TrainingWatcher(folder)
    assert followed.look() and followed.name == "bad" and followed.kind == ""
    with pytest.raises(TrainingError, match="cannot be read"):
        folder.resume_command()


def test_a_log_is_read_on_from_where_it_was_left(tmp_path: Path):
    file = tmp_path / "log.jsonl"
    reader = LogReader(file)
    assert not reader.read()
    lines = [json.dumps({"phase": "x", "step": step, "trained_s": 0.5 * step}) for step in range(3)]
    with file.open("a") as stream:
        stream.write(f'{lines[0]}\nnonsense\n[1]\n{{"step": 1}}\n{lines[1][:9]}')
    assert reader.read() and [record["step"] for record in reader.records] == [0]
    first = reader.records
    assert not reader.read(), "a line that is still being written waits"
    with file.open("a") as stream:
        stream.write(f"{lines[1][9:]}\n{lines[2]}\n")
    assert reader.read() and reader.records is first and [record["step"] for record in first] == [0, 1, 2]
    other = tmp_path / "other"
    other.write_text("".join(f"{lines[step]}\n" for step in (0, 2, 2, 2)))
    other.replace(file)  # a training that was resumed has dropped the end of its log and has gone on
    assert reader.read() and [record["step"] for record in reader.records] == [0, 2, 2, 2]


def test_looking_again_tells_whether_anything_changed(tmp_path: Path):
    folder = Training(tmp_path / "run")
    folder.begin(settings_of(folder))
    folder.write_status(Status("stopped"))
    followed = TrainingWatcher(folder)
    assert followed.look() and not followed.look()
    folder.append({"phase": "x", "step": 1, "trained_s": 0.1, "loss": 2.0})
    assert followed.look() and followed.records[-1]["loss"] == 2.0 and not followed.look()
    folder.append({"phase": "x", "step": 1, "trained_s": 0.1, "tree": "00000-1.dscope", "tokens_per_pass": 2.0})
    assert followed.look() and len(followed.trees) == len(followed.records) == 1
