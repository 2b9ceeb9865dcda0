"""Work in processes of its own: started, watched, asked to stop, ended, resumed and deleted from outside."""

import errno
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from decoding.common.errors import DiskError, JobError
from decoding.jobs import job as jobs
from decoding.jobs.job import (
    LAUNCH,
    NEVER_BEGAN,
    OUTPUT,
    SILENT,
    STATUS,
    Job,
    JobWatcher,
    Status,
    free_folder,
    jobs_below,
)
from tests.helpers.full_disk import fill_disk
from tests.helpers.process import ended

COMMAND = ("-m", "some.work", "--out", "here")
GONE = 2**22 + 1  # no process has this number


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "home" / "work")


def launched(job: Job, pid: int = GONE, started: float = 1.0) -> None:
    job.path.mkdir(parents=True, exist_ok=True)
    (job.path / LAUNCH).write_text(json.dumps({"command": COMMAND, "pid": pid, "started": started}))


def reported(job: Job, state: str, message: str) -> bool:
    return (job.stand().state, job.stand().message) == (state, message)


def test_a_process_is_known_before_it_has_said_a_word(python, job):
    python("sleep 60")
    job.start(COMMAND, "head", "A name")
    assert job.stand().state == "starting" and job.stand().running
    assert (job.launched().command, job.launched().kind, job.launched().name) == (COMMAND, "head", "A name")
    for act, words in ((job.delete, "deleted"), (job.resume, "resumed"), (lambda: job.start(COMMAND), "restarted")):
        with pytest.raises(JobError, match=f"work is running: stop it before it is {words}"):
            act()
    os.kill(job.launched().pid, signal.SIGKILL)
    assert reported(ended(job), "failed", NEVER_BEGAN)


def test_one_is_ended_at_once(python, job):
    python("sleep 60")
    job.start(COMMAND)
    job.ask_to_stop()
    assert job.stop_asked
    job.end()
    assert reported(job, "stopped", Job.ENDED) and not job.stop_asked
    job.end()
    assert reported(job, "stopped", Job.ENDED), "there is nothing left to end"


def test_what_the_process_could_not_do_is_reported_and_it_is_begun_again(python, job):
    python("echo 'starting'; echo 'error: There is no pair.'; exit 2")
    job.start(COMMAND, "head", "A name")
    assert reported(ended(job), "failed", "There is no pair.") and job.output().startswith("starting\n")
    python("sleep 60")
    job.resume()
    assert job.stand().state == "starting" and job.launched().command == COMMAND and job.launched().name == "A name"
    assert "There is no pair." in job.output(), "what was printed before stays"


def test_a_process_that_ended_without_a_word_has_failed(job):
    launched(job)
    job.write_status(Status("running", done=3, total=20))
    assert job.stand().state == "running" and job.stand().status.share == 0.15, "it is this very process"
    (job.path / STATUS).write_text(json.dumps(asdict(Status("running", done=3, total=20, pid=GONE, written=2.0))))
    assert reported(job, "failed", SILENT) and job.stand().status.done == 3
    (job.path / OUTPUT).write_text("3 of 20\nerror: The disk is full: free some space.\n")
    assert reported(job, "failed", "The disk is full: free some space.")
    old = Status("running", pid=os.getpid(), written=1e9)  # numbers are given again after a restart
    (job.path / STATUS).write_text(json.dumps(asdict(old)))
    assert job.stand().state == "failed"


def test_words_of_an_earlier_process_are_not_those_of_the_last(job):
    launched(job, started=9e9)
    (job.path / OUTPUT).write_text("error: What was wrong before.\n")
    assert reported(job, "failed", NEVER_BEGAN)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("step 1\nstep 2\rstep 3\nerror: The disk is full: free some space.\n", "The disk is full: free some space."),
        ("x.py: error: argument --steps: invalid int value: 'many'\n",
         "The setting --steps: invalid int value: 'many'."),
        ("Traceback (most recent call last):\n  x\nMemoryError\n",
         "It failed with MemoryError; its output says where."),
        ("Traceback (most recent call last):\nx.y.WrongError: bad\n",
         "It failed with x.y.WrongError: bad; its output says where."),
        ("step 1\nstep 2\n", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_last_words(tmp_path: Path, printed: str, words: str):
    (tmp_path / OUTPUT).write_text(printed)
    assert Job(tmp_path).last_words() == words


def test_a_rewritten_line_stands_there_as_it_ended(tmp_path: Path):
    (tmp_path / OUTPUT).write_bytes(b"\r\x1b[K1 of 3\r\x1b[K2 of 3\ndone \xff\n\n")
    assert Job(tmp_path).output() == "2 of 3\ndone �"
    assert Job(tmp_path / "none").output() == ""


@pytest.mark.parametrize(
    "older",
    [
        {"state": "training", "phase": "here", "step": 3, "steps": 5, "trained_s": 0.6, "planned_s": None,
         "left_s": None, "device": "cpu", "memory_bytes": 8, "message": "", "pid": 0, "written": 1.0},
        {"state": "running", "done": 3, "runs": 5, "failed": 0, "now": "here", "left_s": 1.5, "message": "", "pid": 0,
         "written": 1.0},
    ],
    ids=["training", "sweep"],
)  # fmt: skip
def test_a_status_of_before_is_read(tmp_path: Path, older: dict):
    (tmp_path / STATUS).write_text(json.dumps({**older, "pid": os.getpid(), "written": 9e9}))
    status = Job(tmp_path).status()
    assert (status.state, status.phase, status.done, status.total, status.share) == ("running", "here", 3, 5, 0.6)


def test_what_is_damaged_is_reported_and_a_damaged_launch_is_none(job):
    launched(job)
    for content in ("{", "[]", '{"what": 1}', '{"state": "running", "what": 1}'):
        (job.path / STATUS).write_text(content)
        assert job.stand().state == "failed" and "status.json cannot be read" in job.stand().message
    (job.path / LAUNCH).write_text("[]")
    assert job.launched() is None


def test_only_what_holds_a_job_is_deleted_or_resumed(job, monkeypatch):
    job.path.mkdir(parents=True)
    (job.path / "letter.txt").write_text("dear")
    job.write_status(Status("stopped"))
    with pytest.raises(JobError, match="has no job, so nothing was deleted"):
        job.delete()
    with pytest.raises(JobError, match="has no job: start one"):
        job.resume()
    assert (job.path / "letter.txt").exists()
    launched(job)

    def refused(_folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched:
        patched.setattr(jobs.shutil, "rmtree", refused)
        with pytest.raises(JobError, match=r"cannot be deleted \(Permission denied\): delete the folder by hand"):
            job.delete()
    job.delete()
    assert not job.path.exists()


def test_no_process_and_no_room_are_one_sentence(monkeypatch, python, job, tmp_path):
    monkeypatch.setattr(jobs.sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(JobError, match="No process could be started"):
        job.start(COMMAND)
    assert not job.path.exists(), "nothing has begun in it"
    python("sleep 60")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DiskError, match="cannot be written"):
        Job(tmp_path / "file" / "below").start(COMMAND)
    fill_disk(monkeypatch)
    with pytest.raises(DiskError, match="is full"):
        job.start(COMMAND)
    assert not job.path.exists() and python.begun[-1].wait(10) != 0, "one that no list knows could not be stopped"


def test_the_one_begun_last_is_first(tmp_path: Path):
    for number, name in enumerate(("b", "a", "c")):
        launched(Job(tmp_path / name))
        os.utime(tmp_path / name / LAUNCH, (1000 + number // 2, 1000 + number // 2))
    (tmp_path / "other").mkdir()
    assert [each.path.name for each in jobs_below(tmp_path, Job)] == ["c", "a", "b"]


def test_folders_get_names_of_their_own(tmp_path: Path):
    assert free_folder(tmp_path, "A / b…").name == "a-b" and free_folder(tmp_path, "木", "sweep").name == "sweep"
    (tmp_path / "a-b").mkdir()
    assert free_folder(tmp_path, "a b", taken=("a-b-2",)).name == "a-b-3"


def test_looking_again_tells_whether_anything_changed(job):
    followed = JobWatcher(job)
    job.write_status(Status("preparing", "trees", 3, 64))
    assert followed.look() and not followed.look() and followed.left_s is None
    first = job.status().written
    status = Status("preparing", "trees", 5, 64, pid=os.getpid(), written=first + 60)
    (job.path / STATUS).write_text(json.dumps(asdict(status)))
    assert followed.look() and followed.left_s == pytest.approx(59 * 30)
    job.write_status(Status("running", left_s=7.0))
    assert followed.look() and followed.left_s == 7.0 and (followed.key, followed.name) == ("work", "work")
