"""How training commands end: exit codes, what the status says, and signals that ask to stop."""

import signal
from pathlib import Path

import pytest

from decoding.common.errors import OutOfMemoryError, TrainingError
from decoding.training.command import conduct, folder_of, run_command
from decoding.training.folder import Training, Status, TrainingSettings
from decoding.training.loop import StoppedError


@pytest.fixture
def folder(tmp_path) -> Training:
    made = Training(tmp_path / "run")
    made.begin(TrainingSettings("head", "a head", ("-m", "x"), {}, {}, "2030-01-02T03:04:05"))
    made.write_status(Status("training", "a phase", step=7))
    return made


def raising(error: BaseException):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("status", "share"),
    [
        (Status("training", step=3, steps=12), 0.25),
        (Status("training", trained_s=30.0, planned_s=120.0), 0.25),
        (Status("training", trained_s=130.0, planned_s=120.0), 1.0),
        (Status("training", trained_s=30.0), None),
    ],
)
def test_how_much_of_a_phase_is_done(status, share):
    assert status.share == share


def test_a_training_that_ends_well(folder):
    assert conduct(folder, lambda: lambda: None) == 0
    status = folder.status()
    assert (status.state, status.step, status.message) == ("finished", 7, "")


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        (TrainingError("The disk is full."), "failed", "The disk is full."),
        (OutOfMemoryError("The GPU is full."), "failed", "The GPU is full."),
        (RuntimeError("CUDA out of memory. Tried"), "failed", "ran out of memory: resume with less at once"),
        (StoppedError("Stopped after 7 steps; go on with --resume."), "stopped", "Stopped after 7 steps"),
    ],
)
def test_what_ends_a_training_is_in_its_status(folder, capsys, error, state, said):
    assert conduct(folder, lambda: raising(error)) == 1
    assert folder.status().state == state and said in folder.status().message and folder.status().step == 7
    assert said in capsys.readouterr().err


def test_what_cannot_begin_has_a_code_of_its_own(folder, tmp_path, capsys):
    assert conduct(folder, raising(TrainingError("There is no text."))) == 2
    assert folder.status().state == "failed"
    nowhere = Training(tmp_path / "nowhere")
    assert conduct(nowhere, raising(TrainingError("There is no text."))) == 2
    assert not nowhere.path.exists(), "nothing is begun"
    assert capsys.readouterr().err.count("error: There is no text.") == 2


def test_a_stop_while_it_prepares(folder):
    folder.ask_to_stop()
    assert conduct(folder, raising(StoppedError("Stopped."))) == 1
    assert folder.status().state == "stopped" and not folder.asked_to_stop()


@pytest.mark.parametrize("error", [ValueError("a mistake"), KeyboardInterrupt()])
def test_a_mistake_is_not_hidden(folder, error):
    with pytest.raises(type(error)):
        conduct(folder, lambda: raising(error))
    assert folder.status().state == "failed" and type(error).__name__ in folder.status().message


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_to_stop_and_a_second_one_ends(folder, number):
    before = signal.getsignal(number)
    seen = []

    def work():
        signal.raise_signal(number)
        seen.append((folder.asked_to_stop(), signal.getsignal(number) == before))
        raise StoppedError("Stopped.")

    assert conduct(folder, lambda: work) == 1
    assert seen == [(True, True)] and signal.getsignal(number) == before
    assert folder.status().state == "stopped"


def test_folders_get_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    monkeypatch.setattr("decoding.training.command.time.strftime", lambda _: "2030-01-02")
    assert folder_of(Path("x"), "head-talf").path == Path("x")
    first = folder_of(None, "head-talf").path
    assert first == tmp_path / "head-talf-2030-01-02"
    first.mkdir()
    assert folder_of(None, "head-talf").path == tmp_path / "head-talf-2030-01-02-2"


def test_a_missing_torch_is_told(capsys):
    assert run_command(raising(ModuleNotFoundError("no torch", name="torch"))) == 2
    assert "needs torch" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):
        run_command(raising(ModuleNotFoundError("no x", name="x")))
    assert run_command(raising(TrainingError("No."))) == 2
