"""What the training commands share: their folders, and how they end without torch."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from decoding.common.errors import JobError, TrainingError, command
from decoding.jobs.job import STATUS, Status
from decoding.training.command import training_of
from decoding.training.folder import Training, TrainingSettings


def raising(error: BaseException):
    def work():
        raise error

    return work


def test_folders_get_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    monkeypatch.setattr("decoding.training.command.time.strftime", lambda _: "2030-01-02")
    assert training_of(Path("x"), False, "head-talf").path == Path("x")
    first = training_of(None, False, "head-talf").path
    assert first == tmp_path / "head-talf-2030-01-02"
    first.mkdir()
    assert training_of(None, False, "head-talf").path == tmp_path / "head-talf-2030-01-02-2"


def test_a_training_that_another_process_is_at_is_not_resumed(tmp_path):
    training = Training(tmp_path)
    training.begin(TrainingSettings("head", "a head", (), {}, {}, "2030-01-02"))
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        status = {**vars(Status("running")), "pid": other.pid, "written": time.time()}
        (tmp_path / STATUS).write_text(json.dumps(status))
        training.ask_to_stop()
        with pytest.raises(JobError, match=f"Process {other.pid} is running "):
            training_of(tmp_path, True, "head-talf")
        assert training.stop_asked, "what was asked of the other process stands"
    finally:
        other.kill()
        other.wait()
    assert training_of(tmp_path, True, "head-talf").path == tmp_path
    assert not training.stop_asked


def test_a_missing_torch_is_reported(capsys):
    assert command(raising(ModuleNotFoundError("no torch", name="torch")))() == 2
    assert "needs torch" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):
        command(raising(ModuleNotFoundError("no x", name="x")))()
    assert command(raising(TrainingError("No.")))() == 2
