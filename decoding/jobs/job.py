"""One piece of long work: its folder, and the process that works on it and outlives whoever began it. Torch-free.

    status.json    where it stands; replaced whole, with the time of writing as a heartbeat
    stop           is there when somebody wants it to stop
    launch.json    the process that was started last from here, known before that has written a word
    output.log     all that such processes printed

The process writes its status; anyone may read, and may ask it to stop. Nothing here waits:

    job.start(("-m", "module", "--out", str(job.path)))
    job.stand().state               # starting, preparing, running, finished, stopped or failed
    job.ask_to_stop()
    job.resume()
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import psutil

from decoding.common.errors import JobError
from decoding.common.files import ROOT, disk_errors, new_folder, write_whole

State = Literal["preparing", "running", "finished", "stopped", "failed"]
STATUS, STOP, LAUNCH, OUTPUT = "status.json", "stop", "launch.json", "output.log"
SILENT = "Its process ended without an error message: resume it."
NEVER_BEGAN = "Its process ended before it started work; its output says why."
# What files of before call states and fields.
OLDER = {"training": "running", "step": "done", "steps": "total", "runs": "total", "now": "phase"}
TAIL_BYTES = 16_000
START_SLACK_S = 2.0  # Linux knows to a second when a process started
CLOCK_SLACK_S = 60.0  # a clock that is set while a process runs moves the time at which it seems to have started


@dataclass(frozen=True)
class Status:
    """Where a job stands, as its process says."""

    state: State = "preparing"
    phase: str = ""  # what it is doing, in words: `reading the corpus`, `Fixed tree: stories/frog`
    # done, total: steps, runs or texts, of this phase where there are several; no total where it is planned by time
    done: int = 0
    total: int | None = None
    failed: int = 0  # of those done, what could not be made
    # trained_s, planned_s: seconds spent in this phase over all its processes, and planned where it is by time
    trained_s: float = 0.0
    planned_s: float | None = None
    left_s: float | None = None  # estimated seconds until the end, None while unknown
    # device: what it runs on. memory_bytes: that the process holds, on the GPU where there is one.
    device: str = ""
    memory_bytes: int = 0
    message: str = ""  # for a person, where it failed or stopped
    # pid, written: the process, and when it wrote this (seconds since 1970)
    pid: int = 0
    written: float = 0.0

    @property
    def running(self) -> bool:
        """Whether a process says that it is at work."""
        return self.state in ("preparing", "running")

    @property
    def share(self) -> float | None:
        """How much of the phase is done, from 0 to 1."""
        if self.total:
            return min(1.0, self.done / self.total)
        return min(1.0, self.trained_s / self.planned_s) if self.planned_s else None


@dataclass(frozen=True)
class Launch:
    """A process that was started from here."""

    # command: words after the interpreter. pid, started: the process, and when (seconds since 1970).
    command: tuple[str, ...]
    pid: int
    started: float
    # kind, name: what the job is, and how lists call it until its own files say so
    kind: str = ""
    name: str = ""


@dataclass(frozen=True)
class JobState:
    """Where a job stands as far as one can tell from outside."""

    # `starting` while its process has not said a word yet, `kept` where there are results alone
    state: State | Literal["starting", "kept"]
    message: str  # for a person, where it failed or stopped
    status: Status  # what the process wrote last

    @property
    def running(self) -> bool:
        """Whether a process is at work."""
        return self.state in ("starting", "preparing", "running")


@dataclass(frozen=True)
class Job:
    """A piece of long work by its folder; each kind of work says in a class of its own what else lies there."""

    path: Path

    NOUN: ClassVar[str] = "job"
    UNIT: ClassVar[str] = ""  # of what its status counts
    MARKS: ClassVar[tuple[str, ...]] = (LAUNCH,)  # files by which the folder of one is known
    ENDED: ClassVar[str] = "Killed: resume it."  # message of one that the user killed

    # What its process does.

    def write_status(self, status: Status) -> Status:
        """Say where it stands; returns it with process and time filled in."""
        status = replace(status, pid=os.getpid(), written=time.time())
        write_whole(self.path / STATUS, json.dumps(asdict(status)).encode())
        return status

    def asked_to_stop(self) -> bool:
        """Whether somebody has asked this process; what was asked before it began was meant for an earlier one."""
        try:
            asked = (self.path / STOP).stat().st_mtime
        except FileNotFoundError:
            return False
        return asked >= psutil.Process().create_time() - START_SLACK_S

    def claim(self) -> None:
        """Raise `JobError` where another process is at work on it: two would write over each other."""
        status = self.status()
        if status.running and status.pid not in (0, os.getpid()):
            raise JobError(f"Process {status.pid} is running {self.path}: wait for it or stop it.")

    def clear_stop(self) -> None:
        """Forget that somebody asked."""
        (self.path / STOP).unlink(missing_ok=True)

    # What anyone may see.

    def status(self) -> Status:
        """What its process wrote last; one that died in silence counts as failed. `JobError` where it is damaged."""
        file = self.path / STATUS
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
            known = {OLDER.get(name, name): value for name, value in known.items()}
            status = Status(**known | {"state": OLDER.get(known["state"], known["state"])})
        except FileNotFoundError:
            return Status()
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise JobError(f"The status in {file} cannot be read ({error}): resume it; nothing is lost.") from None
        if status.running and not alive(status.pid, status.written):
            return replace(status, state="failed", message=SILENT)
        return status

    def launched(self) -> Launch | None:
        """The process that was started last from here, if any was."""
        try:
            found = Launch(**json.loads((self.path / LAUNCH).read_text(encoding="utf-8")))
            return replace(found, command=tuple(found.command))
        except (OSError, ValueError, TypeError):
            return None

    def stand(self) -> JobState:
        """Where it stands: what its process wrote last, or what became of a process that never wrote."""
        launched = self.launched()
        try:
            status = self.status()
        except JobError as error:
            return JobState("failed", str(error), Status())
        if launched is not None and launched.started > status.written:
            if alive(launched.pid, launched.started):
                return JobState("starting", "", status)
            return JobState("failed", self.last_words() or NEVER_BEGAN, status)
        if not status.written:
            return JobState("kept", "", status)
        message = (self.last_words() if status.message == SILENT else "") or status.message
        return JobState(status.state, message, status)

    def output(self) -> str:
        """The end of what its processes printed; a line that was rewritten stands there as it ended."""
        try:
            with (self.path / OUTPUT).open("rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
                text = stream.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        lines = (line.rsplit("\r", 1)[-1].replace("\x1b[K", "").rstrip() for line in text.split("\n"))
        return "\n".join(line for line in lines if line)

    def last_words(self) -> str:
        """The sentence with which the last process ended, empty where it left none."""
        launched, log = self.launched(), self.path / OUTPUT
        if launched is not None and log.exists() and log.stat().st_mtime < launched.started - START_SLACK_S:
            return ""  # the words are those of an earlier process
        last = self.output().rpartition("\n")[2]
        said = re.fullmatch(r"error: (.+)|.*?\berror: argument (.+)|([\w.]*(?:Error|Exception|Interrupt)\b.*)", last)
        sentence, argument, defect = said.groups() if said else ("", "", "")
        if argument:
            return f"The setting {argument}."
        return f"It failed with {defect}; its output says where." if defect else sentence

    # What a person does with it.

    def start(self, command: Sequence[str], kind: str = "", name: str = "") -> None:
        """Start a process for it, after the interpreter's name, which is known here before it has written a word.

        It has a session of its own, so that neither closing the app nor Ctrl+C there ends it.

        Raises `JobError` where it is at work, or no process can be started.
        """
        self._must_rest("restarted")
        with new_folder(self.path):
            self.clear_stop()
            started, words, unbuffered = time.time(), [sys.executable, *command], {"PYTHONUNBUFFERED": "1"}
            with disk_errors(self.path):
                log = (self.path / OUTPUT).open("ab")
            try:
                with log:
                    process = subprocess.Popen(
                        words, cwd=ROOT, env={**os.environ, **unbuffered}, start_new_session=True,
                        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    )  # fmt: skip
            except OSError as failed:
                reason = failed.strerror or failed
                raise JobError(f"No process could be started ({reason}): end other programs and try again.") from None
            # Somebody must take note of its end, or it stays in the list of processes for as long as this one lives.
            threading.Thread(target=process.wait, name=f"process-{process.pid}", daemon=True).start()
            launched = Launch(tuple(command), process.pid, started, kind, name)
            try:
                write_whole(self.path / LAUNCH, json.dumps(asdict(launched), indent=1).encode())
            except BaseException:
                process.kill()  # one that no list knows could not be stopped
                process.wait()
                raise

    def resume_command(self) -> tuple[str, ...] | None:
        """Words that go on with it; None where nothing was begun."""
        launched = self.launched()
        return launched.command if launched is not None else None

    def resume(self) -> None:
        """Go on with one that stopped or failed, or begin what had not begun; `JobError` where that cannot be."""
        self._must_rest("resumed")
        command, launched = self.resume_command(), self.launched()
        if command is None:
            raise JobError(f"{self.path} has no {self.NOUN}: start one.")
        self.start(command, launched.kind if launched else "", launched.name if launched else "")

    def ask_to_stop(self) -> None:
        """Ask its process to keep what it has and to end."""
        with disk_errors(self.path):
            (self.path / STOP).touch()

    @property
    def stop_asked(self) -> bool:
        """Whether somebody has asked it to stop."""
        return (self.path / STOP).exists()

    def end(self) -> None:
        """End its process at once; what it has not written yet is lost. `JobError` where it is another user's."""
        standing, launched = self.stand(), self.launched()
        if not standing.running:
            return
        ours = launched is not None and launched.started > standing.status.written
        pid = launched.pid if launched is not None and ours else standing.status.pid
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            pass
        except psutil.AccessDenied:
            raise JobError(f"{self.path.name} was started by another user: only they can end it.") from None
        self.clear_stop()
        self.write_status(replace(standing.status, state="stopped", message=self.ENDED))

    def delete(self) -> None:
        """Delete it with its folder; `JobError` where it is at work, no job, or the disk refuses."""
        self._must_rest("deleted")
        if not any((self.path / name).exists() for name in self.MARKS):
            raise JobError(f"{self.path} has no {self.NOUN}, so nothing was deleted.")
        try:
            shutil.rmtree(self.path)
        except OSError as failed:
            reason = failed.strerror or failed
            raise JobError(f"{self.path} cannot be deleted ({reason}): delete the folder by hand.") from None

    def _must_rest(self, before: str) -> None:
        if self.stand().running:
            raise JobError(f"{self.path.name} is running: stop it before it is {before}.")


J = TypeVar("J", bound=Job)


def jobs_below(home: Path, kind: type[J]) -> list[J]:
    """Every job of a kind in the folders of a home, the one that was begun last first."""
    begun: dict[Path, float] = {}
    for mark in kind.MARKS:
        for file in home.glob(f"*/{mark}"):
            try:
                begun[file.parent] = max(begun.get(file.parent, 0.0), file.stat().st_mtime)
            except FileNotFoundError:  # deleted meanwhile
                continue
    return [kind(path) for path in sorted(begun, key=lambda path: (-begun[path], path.name))]


def free_folder(home: Path, name: str, otherwise: str = "job", taken: Collection[str] = ()) -> Path:
    """A folder below a home that is not there yet nor `taken`, named by words: `a-name`, `a-name-2`.

    It is called `otherwise` where no letter of the name can be had.
    """
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or otherwise
    numbered = (words if number == 1 else f"{words}-{number}" for number in range(1, 10_000))
    return next(home / each for each in numbered if not (home / each).exists() and each not in taken)


class JobWatcher:
    """A job as one reader sees it: where it stood when last looked at; `shipped` ones came with the program."""

    def __init__(self, job: Job, shipped: bool = False):
        self.job, self.shipped = job, shipped
        self.stand = JobState("starting", "", Status())
        self.launched: Launch | None = None
        self._seen = Status()

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.job.path

    @property
    def key(self) -> str:
        """What an address calls it."""
        return self.folder.name

    @property
    def name(self) -> str:
        """What lists call it."""
        return (self.launched.name.strip() if self.launched is not None else "") or self.folder.name

    @property
    def resumable(self) -> bool:
        """Whether there is something that a process could go on with."""
        return self.stand.state in ("stopped", "failed")

    @property
    def command(self) -> tuple[str, ...]:
        """Words after the interpreter that begin it; none where it was not started from here."""
        return self.launched.command if self.launched is not None else ()

    @property
    def started_s(self) -> float:
        """When it was started, in seconds since 1970; 0 where it was not started from here."""
        return self.launched.started if self.launched is not None else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds: until its end, or, while it prepares, until the end of that part; None while unknown."""
        status, seen = self.stand.status, self._seen
        if self.stand.state != "preparing":
            return status.left_s if self.stand.state == "running" else None
        if not status.total or status.done == seen.done:
            return None
        return (status.total - status.done) * (status.written - seen.written) / (status.done - seen.done)

    def look(self) -> bool:
        """See where it stands now; returns whether anything has changed."""
        before = self.stand
        self.launched, self.stand = self.job.launched(), self.job.stand()
        status, seen = self.stand.status, self._seen
        if not seen.written or (seen.phase, seen.total) != (status.phase, status.total) or status.done < seen.done:
            self._seen = status  # from here on its pace is measured
        return before != self.stand


def alive(pid: int, written: float) -> bool:
    """Whether the process of this number runs on this machine, one that was there when something was `written`."""
    if pid <= 0:
        return False
    try:
        process = psutil.Process(pid)
        # Numbers are given again: after a restart of the machine another process may have it.
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= written + CLOCK_SLACK_S
    except psutil.NoSuchProcess:
        return False
