"""What the training commands share: their folders, and how they end without torch."""

from pathlib import Path

import pytest

from decoding.common.errors import TrainingError, command
from decoding.training.command import training_of


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


def test_a_missing_torch_is_reported(capsys):
    assert command(raising(ModuleNotFoundError("no torch", name="torch")))() == 2
    assert "needs torch" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):
        command(raising(ModuleNotFoundError("no x", name="x")))()
    assert command(raising(TrainingError("No.")))() == 2
