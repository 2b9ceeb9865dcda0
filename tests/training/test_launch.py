"""Trainings as processes of their own: started, watched, stopped, killed, resumed and deleted from outside."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from decoding.common.errors import TrainingError
from decoding.training import launch as launching
from decoding.training.folder import SETTINGS, SILENT, Training, Status, TrainingSettings
from decoding.training.launch import (
    LAUNCH,
    Followed,
    Launch,
    LogReader,
    delete,
    end,
    last_launch,
    launch,
    output,
    resume,
    stand,
    trainings,
)
from tests.helpers import toy_training

WAIT_S = 60.0
TOY, STEPS = "tests.helpers.toy_training", "200"


@pytest.fixture(autouse=True)
def toy_trainings(monkeypatch, tmp_path: Path):
    """What is launched is the toy, in a folder of the test; no process outlives it."""
    monkeypatch.setitem(launching.MODULES, "head", TOY)
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    yield
    for folder in trainings():
        if stand(folder).running:
            os.kill(last_launch(folder).pid, signal.SIGKILL)


def wait_for(folder: Training, reached: Callable[[Followed], bool]) -> Followed:
    """Look until something is reached."""
    followed, until = Followed(folder), time.monotonic() + WAIT_S
    while time.monotonic() < until:
        followed.look()
        if reached(followed):
            return followed
        time.sleep(0.05)
    raise AssertionError(f"{followed.stand}\n{output(folder)}")


def ended(followed: Followed) -> bool:
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
    assert stand(folder).state == "starting"
    for act, words in ((delete, "before it is deleted"), (resume, "before it is resumed")):
        with pytest.raises(TrainingError, match=f"at work: stop it {words}"):
            act(folder)

    followed = wait_for(folder, lambda each: each.stand.status.step > 20 and folder.checkpoint.exists())
    os.kill(followed.stand.status.pid, signal.SIGKILL)
    followed = wait_for(folder, ended)
    assert (followed.stand.state, followed.stand.message) == ("failed", SILENT)
    killed_at = followed.stand.status.step
    resume(folder)
    assert stand(folder).state == "starting"

    wait_for(folder, lambda each: each.stand.state == "training" and each.stand.status.step > killed_at)
    folder.ask_to_stop()
    followed = wait_for(folder, ended)
    assert followed.stand.state == "stopped" and not folder.asked_to_stop()
    assert killed_at < followed.stand.status.step < int(STEPS)
    resume(folder)

    followed = wait_for(folder, ended)
    assert (followed.stand.state, followed.stand.status.step) == ("finished", int(STEPS)), output(folder)
    assert weight(folder) == straight(tmp_path) != 0.0
    assert followed.name == "TALF head, toy pair, 2026-11-22" and followed.kind == "head"
    losses = [record["step"] for record in followed.records if "loss" in record]
    assert losses == sorted(set(losses)) and losses[-1] == int(STEPS), "nothing is told twice"
    trees = followed.trees
    assert len(trees) >= 2 and {tree["tree"] for tree in trees} <= {file.name for file in folder.trees()}
    assert trees[0]["tokens_per_pass"] < trees[-1]["tokens_per_pass"]
    delete(folder)
    assert trainings() == [] and not folder.path.exists()


def test_ended_at_once_it_counts_as_stopped():
    folder = launch("head", ("--steps", "400"), name="toy")
    folder.ask_to_stop()
    end(folder)
    followed = wait_for(folder, ended)
    assert (followed.stand.state, followed.stand.message) == ("stopped", launching.ENDED)
    assert not (folder.path / "stop").exists()
    end(folder)  # there is nothing left to end
    assert stand(folder) == followed.stand


def test_what_the_command_refuses_is_told_in_a_sentence():
    folder = launch("head", ("--steps", "many"), name="toy")
    followed = wait_for(folder, ended)
    told = "The setting --steps: invalid int value: 'many'."
    assert (followed.stand.state, followed.stand.message) == ("failed", told)


def test_why_it_failed_is_what_its_process_wrote(tmp_path: Path):
    folder = Training(tmp_path / "diverged")
    assert toy_training.main(["--out", str(folder.path), "--steps", "9", "--diverge-at", "5"]) == 1
    assert stand(folder).state == "failed" and "is nan: resume with a lower" in stand(folder).message


def test_one_that_never_began_is_begun_again(monkeypatch):
    monkeypatch.setitem(launching.MODULES, "head", "tests.training.nothing")
    folder = launch("head", (), name="toy")
    followed = wait_for(folder, ended)
    assert "No module named tests.training.nothing" in output(folder)
    assert followed.stand.state == "failed" and followed.stand.message == launching.NEVER_BEGAN
    resume(folder)
    assert "--resume" not in last_launch(folder).command
    wait_for(folder, ended)
    delete(folder)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("step 1\nstep 2\rstep 3\nerror: The disk is full: free some space.\n", "The disk is full: free some space."),
        ("Traceback (most recent call last):\n  x\nMemoryError\n", "It ended with MemoryError; its output says where."),
        ("Traceback (most recent call last):\nx.y.WrongError: bad\n",
         "It ended with x.y.WrongError: bad; its output says where."),
        ("step 1\nstep 2\n", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_last_words(tmp_path: Path, printed: str, words: str):
    (tmp_path / "output.log").write_text(printed)
    assert launching.last_words(Training(tmp_path)) == words


def test_a_rewritten_line_stands_there_as_it_ended(tmp_path: Path):
    (tmp_path / "output.log").write_bytes(b"\r\x1b[K1 of 3\r\x1b[K2 of 3\ndone \xff\n\n")
    assert output(Training(tmp_path)) == "2 of 3\ndone �"
    assert output(Training(tmp_path / "none")) == ""


def settings_of(folder: Training) -> TrainingSettings:
    command = (TOY, "--steps", "3")
    return TrainingSettings("head", "by hand", command, {}, {}, "2026-11-22T10:00:00")


def test_one_started_on_the_command_line_is_known_and_resumed_in_its_place(tmp_path: Path, monkeypatch):
    folder = Training(tmp_path / "mine")
    folder.begin(settings_of(folder))
    assert stand(folder).state == "starting", "its process is yet to write"
    folder.write_status(Status("stopped", message="Stopped; resume goes on."))
    assert trainings() == [folder] and stand(folder).state == "stopped"
    started = []
    monkeypatch.setattr(launching, "_start", lambda folder, what: started.append((folder, what.command)))
    resume(folder)
    assert started == [(folder, ("-m", TOY, "--steps", "3", "--out", str(folder.path), "--resume"))]


def test_a_process_of_the_same_number_is_not_taken_for_it(tmp_path: Path):
    folder = Training(tmp_path / "old")
    folder.begin(settings_of(folder))
    status = Status("training", pid=os.getpid(), written=1_000_000_000.0)
    (folder.path / "status.json").write_text(json.dumps(asdict(status)))
    assert stand(folder).state == "failed" and stand(folder).message == SILENT


def test_what_is_damaged_is_told_and_a_damaged_launch_is_none(tmp_path: Path):
    folder = Training(tmp_path / "bad")
    folder.begin(settings_of(folder))
    (folder.path / "status.json").write_text("{")
    (folder.path / LAUNCH).write_text("[]")
    assert last_launch(folder) is None
    assert "status" in stand(folder).message and stand(folder).state == "failed"
    (folder.path / SETTINGS).write_text("{")
    followed = Followed(folder)
    assert followed.look() and followed.name == "bad" and followed.kind == ""


def test_only_trainings_are_deleted(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    folder = Training(tmp_path / "mine")
    folder.write_status(Status("stopped"))
    with pytest.raises(TrainingError, match="holds no training, so nothing is deleted"):
        delete(folder)
    with pytest.raises(TrainingError, match="holds no training: start one"):
        resume(folder)
    assert (tmp_path / "mine" / "letter.txt").exists()


def test_folders_get_names_of_their_own(tmp_path: Path):
    made = {launching._free_folder(tmp_path, "A / b…").path.name for _ in range(3)}
    assert len(made) == 3 and all(name.startswith("a-b-20") for name in made)


def test_a_place_that_cannot_be_written_and_a_process_that_cannot_be_started_are_told(tmp_path: Path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TrainingError, match="cannot be written"):
        launch("head", (), "toy", home=tmp_path / "file" / "below")
    monkeypatch.setattr("decoding.common.processes.sys.executable", str(tmp_path / "no-python"))
    with pytest.raises(TrainingError, match="No process could be started"):
        launch("head", (), "toy")


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
    followed = Followed(folder)
    assert followed.look() and not followed.look()
    folder.append({"phase": "x", "step": 1, "trained_s": 0.1, "loss": 2.0})
    assert followed.look() and followed.records[-1]["loss"] == 2.0 and not followed.look()
    folder.append({"phase": "x", "step": 1, "trained_s": 0.1, "tree": "00000-1.dscope", "tokens_per_pass": 2.0})
    assert followed.look() and len(followed.trees) == len(followed.records) == 1


def test_a_launch_is_written_as_it_is_read(tmp_path: Path):
    launched = Launch("head", "x", ("-m", TOY), 7, 8.0)
    (tmp_path / LAUNCH).write_text(json.dumps(asdict(replace(launched))))
    assert last_launch(Training(tmp_path)) == launched
