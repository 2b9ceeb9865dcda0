"""How the process of a job ends: exit codes, what the status says, and signals that ask to stop."""

import signal
import sys

import pytest

from decoding.common.errors import OutOfMemoryError, TrainingError
from decoding.jobs.job import Job, Status
from decoding.jobs.process import ProgressLine, StoppedError, conduct, preparing


@pytest.fixture
def job(tmp_path) -> Job:
    made = Job(tmp_path / "run")
    made.write_status(Status("running", "a phase", done=7))
    return made


def raising(error: BaseException):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("status", "share"),
    [
        (Status("running", done=3, total=12), 0.25),
        (Status("running", trained_s=30.0, planned_s=120.0), 0.25),
        (Status("running", trained_s=130.0, planned_s=120.0), 1.0),
        (Status("running", trained_s=30.0), None),
    ],
)
def test_how_much_of_a_phase_is_done(status, share):
    assert status.share == share


def test_a_training_that_ends_well(job):
    assert conduct(job, lambda: lambda: None) == 0
    status = job.status()
    assert (status.state, status.done, status.message) == ("finished", 7, "")


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        (TrainingError("The disk is full."), "failed", "The disk is full."),
        (OutOfMemoryError("The GPU is full."), "failed", "The GPU is full."),
        (RuntimeError("CUDA out of memory. Tried"), "failed", "ran out of memory: resume with less per step"),
        (StoppedError("Stopped after 7 steps; go on with --resume."), "stopped", "Stopped after 7 steps"),
    ],
)
def test_what_ends_a_training_is_in_its_status(job, capsys, error, state, said):
    assert conduct(job, lambda: raising(error)) == 1
    assert job.status().state == state and said in job.status().message and job.status().done == 7
    assert said in capsys.readouterr().err


def test_what_cannot_begin_has_a_code_of_its_own(job, tmp_path, capsys):
    assert conduct(job, raising(TrainingError("There is no text."))) == 2
    assert job.status().state == "failed"
    nowhere = Job(tmp_path / "nowhere")
    assert conduct(nowhere, raising(TrainingError("There is no text."))) == 2
    assert not nowhere.path.exists(), "nothing is begun"
    assert capsys.readouterr().err.count("error: There is no text.") == 2


def test_a_stop_while_it_prepares(job):
    job.ask_to_stop()
    assert conduct(job, raising(StoppedError("Stopped."))) == 1
    assert job.status().state == "stopped" and not job.asked_to_stop()


@pytest.mark.parametrize("error", [ValueError("a mistake"), KeyboardInterrupt()])
def test_a_mistake_is_not_hidden(job, error):
    with pytest.raises(type(error)):
        conduct(job, lambda: raising(error))
    assert job.status().state == "failed" and type(error).__name__ in job.status().message


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_to_stop_and_a_second_one_ends(job, number):
    before = signal.getsignal(number)
    seen = []

    def work():
        signal.raise_signal(number)
        seen.append((job.asked_to_stop(), signal.getsignal(number) == before))
        raise StoppedError("Stopped.")

    assert conduct(job, lambda: work) == 1
    assert seen == [(True, True)] and signal.getsignal(number) == before
    assert job.status().state == "stopped"


def test_a_signal_before_there_is_a_folder_ends_it(tmp_path):
    nowhere = Job(tmp_path / "nowhere")
    assert conduct(nowhere, lambda: signal.raise_signal(signal.SIGTERM)) == 1 and not nowhere.path.exists()


def test_what_comes_before_is_reported_and_can_be_stopped(job, capsys):
    preparing(job, "drawing trees", 3, 64, device="cpu")
    status = job.status()
    assert (status.state, status.phase, status.share, status.device) == ("preparing", "drawing trees", 3 / 64, "cpu")
    assert capsys.readouterr().err == "drawing trees: 3 of 64\n"
    job.ask_to_stop()
    with pytest.raises(StoppedError, match="continue with --resume"):
        preparing(job, "drawing trees", 4, 64)


def test_a_line_of_progress_comes_now_and_then(capsys):
    line = ProgressLine(every_s=60)
    for done in range(1, 5):
        line(Status("running", "runs", done, 4, left_s=120.0))
    line(Status("running", "a phase", 3, trained_s=30.0, planned_s=120.0), {"held_out_loss": 2.0})
    assert capsys.readouterr().err.splitlines() == [
        "runs [######..................] 25%  1 of 4  about 2 min left",
        "runs [########################] 100%  4 of 4  about 2 min left",
        "a phase [######..................] 25%  3  held_out_loss 2",
    ]


def test_a_text_is_shown_now_and_then_and_rewritten_on_a_terminal(monkeypatch, capsys):
    line = ProgressLine(every_s=60)
    for text in ("first", "second", ""):
        line.show(text)
    assert capsys.readouterr().err == "first\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ProgressLine().show("here")
    assert capsys.readouterr().err == "\r\x1b[Khere"
