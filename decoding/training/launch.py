"""Start, resume, stop and delete trainings, each a process of its own that outlives the one that began it. Torch-free.

    folder = launch("head", ("--loss", "talf", "--minutes", "10"), name="talf")
    stand(folder).state          # starting, preparing, training, finished, stopped or failed
    folder.ask_to_stop()
    resume(folder)

Nothing here waits. Beside what `run_folder` describes, the folder of a training that was started here holds

    launch.json      the process started last, known before that has written a word
    output.log       all that it printed
"""

import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, training_home, write_whole
from decoding.common.processes import alive, kill_process, printed, remove_folder, start_process
from decoding.training.common.run_folder import LOG, SETTINGS, SILENT, Kind, RunFolder, State, Status, TrainingSettings

LAUNCH, OUTPUT = "launch.json", "output.log"
MODULES: dict[Kind, str] = {
    "embedded": "decoding.training.embedded",
    "head": "decoding.training.head",
    "selector": "decoding.training.selector",
}
ENDED = "Ended at once: resume goes on from its last checkpoint."
NEVER_BEGAN = "Its process ended before it began; its output says why."


@dataclass(frozen=True)
class Launch:
    """A process that was started here.

    Attributes:
        kind, name: what is trained, and how the lists call it until its own settings are written.
        command: words behind the interpreter. pid, started: the process, and when (seconds since 1970).
    """

    kind: Kind
    name: str
    command: tuple[str, ...]
    pid: int
    started: float


@dataclass(frozen=True)
class Stand:
    """Where a training stands as far as one can tell from outside.

    Attributes:
        state: of the training; `starting` while its process has not said a word yet.
        message: for a person, where it failed or stopped.
        status: what the process wrote last.
    """

    state: State | Literal["starting"]
    message: str
    status: Status

    @property
    def running(self) -> bool:
        """Whether a process is at work."""
        return self.state in ("starting", "preparing", "training")


def launch(kind: Kind, arguments: Sequence[str], name: str, home: Path | None = None) -> RunFolder:
    """Start a training in a folder of its own below `home` (default: `training_home()`).

    Args:
        arguments: of its command, without `--out`.
        name: a few words for the lists and for the folder.

    Raises:
        TrainingError: the folder cannot be made, or no process can be started.
    """
    folder = _free_folder(training_home() if home is None else home, name or kind)
    command = ("-m", MODULES[kind], *arguments, "--out", str(folder.path))
    try:
        _start(folder, Launch(kind, name, command, 0, 0.0))
    except TrainingError:
        shutil.rmtree(folder.path, ignore_errors=True)  # nothing has begun in it
        raise
    return folder


def resume(folder: RunFolder) -> None:
    """Go on with a training that stopped or failed; one that had not begun is begun.

    Raises:
        TrainingError: it is at work, or no process can be started.
    """
    if stand(folder).running:
        raise TrainingError(f"{folder.path.name} is at work: stop it before it is resumed.")
    folder.clear_stop()
    if (folder.path / SETTINGS).exists():
        settings = folder.settings()
        command = settings.command if settings.command[:1] == ("-m",) else ("-m", *settings.command)
        again = Launch(settings.kind, settings.name, (*command, "--out", str(folder.path), "--resume"), 0, 0.0)
    else:
        again = last_launch(folder)
        if again is None:
            raise TrainingError(f"{folder.path} holds no training: start one.")
    _start(folder, again)


def end(folder: RunFolder) -> None:
    """End a training at once; what came since its last checkpoint is lost.

    Raises:
        TrainingError: another user's process, or the disk does not take the note.
    """
    standing, launched = stand(folder), last_launch(folder)
    if not standing.running:
        return
    pid = launched.pid if standing.state == "starting" and launched is not None else standing.status.pid
    kill_process(pid, folder.path.name, TrainingError)
    folder.clear_stop()
    folder.write_status(replace(standing.status, state="stopped", message=ENDED))


def delete(folder: RunFolder) -> None:
    """Delete a training with its checkpoint, its curves and its result.

    Raises:
        TrainingError: it is at work, the folder is no training's, or it cannot be deleted.
    """
    if stand(folder).running:
        raise TrainingError(f"{folder.path.name} is at work: stop it before it is deleted.")
    if not any((folder.path / name).exists() for name in (SETTINGS, LAUNCH)):
        raise TrainingError(f"{folder.path} holds no training, so nothing is deleted.")
    remove_folder(folder.path, TrainingError)


def trainings(home: Path | None = None) -> list[RunFolder]:
    """Every training below a folder, newest first, those that have only just been started included."""
    home = training_home() if home is None else home
    born: dict[Path, float] = {}
    for name in (SETTINGS, LAUNCH):
        for file in home.glob(f"*/{name}"):
            try:
                written = file.stat().st_mtime
            except FileNotFoundError:  # deleted meanwhile
                continue
            # The settings are written once; a launch again with every resume.
            born.setdefault(file.parent, written)
    return [RunFolder(path) for path in sorted(born, key=lambda path: (-born[path], path.name))]


def stand(folder: RunFolder) -> Stand:
    """Where a training stands: what its process wrote last, or what became of a process that never wrote."""
    launched = last_launch(folder)
    try:
        status = folder.status()
    except TrainingError as error:
        return Stand("failed", str(error), Status())
    if launched is not None and launched.started > status.written:
        if alive(launched.pid, launched.started):
            return Stand("starting", "", status)
        return Stand("failed", last_words(folder) or NEVER_BEGAN, status)
    if status.pid == 0:
        return Stand("starting", "", status)
    if status.message == SILENT:
        return Stand("failed", last_words(folder) or SILENT, status)
    return Stand(status.state, status.message, status)


def last_launch(folder: RunFolder) -> Launch | None:
    """The process started last for a training, None where it was not started here."""
    try:
        found = Launch(**json.loads((folder.path / LAUNCH).read_text(encoding="utf-8")))
        return replace(found, command=tuple(found.command))
    except (OSError, ValueError, TypeError):
        return None


def output(folder: RunFolder) -> str:
    """The end of what the processes of a training printed; a line that was rewritten stands there as it ended."""
    return printed(folder.path / OUTPUT)


def last_words(folder: RunFolder) -> str:
    """The sentence with which the last process ended, empty where it left none."""
    last = output(folder).rpartition("\n")[2]
    said = re.fullmatch(r"error: (.+)|.*?\berror: argument (.+)|([\w.]*(?:Error|Exception|Interrupt)\b.*)", last)
    if said is None:
        return ""
    sentence, argument, defect = said.groups()
    if sentence:
        return sentence
    return f"The setting {argument}." if argument else f"It ended with {defect}; its output says where."


def _free_folder(home: Path, name: str) -> RunFolder:
    """A folder that was not there before, named by words and time."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    stem = "-".join(filter(None, (words, datetime.now().strftime("%Y-%m-%d-%H%M%S"))))
    with disk_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        for number in range(1, 100):
            path = home / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return RunFolder(path)
    raise TrainingError(f"{home} already holds a hundred trainings {stem}: wait a second and start again.")


def _start(folder: RunFolder, what: Launch) -> None:
    """Start a process; it is known here before it has written a word."""
    started = time.time()
    with disk_errors(folder.path):
        log = (folder.path / OUTPUT).open("ab")
    with log:
        process = start_process(what.command, log, TrainingError)
    launched = replace(what, pid=process.pid, started=started)
    try:
        write_whole(folder.path / LAUNCH, json.dumps(asdict(launched), indent=1).encode())
    except TrainingError:
        process.kill()  # a training that no list knows could not be stopped
        process.wait()
        raise


PLACE = {"phase": str, "step": int, "trained_s": int | float}


@dataclass
class LogReader:
    """The records of a log that another process appends to; one that was replaced is read again from its beginning."""

    file: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    _inode: int = 0
    _read: int = 0

    def read(self) -> bool:
        """Take in what was added; returns whether anything has changed. A line that is still being written waits."""
        try:
            with self.file.open("rb") as stream:
                there = os.fstat(stream.fileno())
                replaced = there.st_ino != self._inode or there.st_size < self._read
                if not replaced and there.st_size == self._read:
                    return False
                if replaced:
                    self.records, self._inode, self._read = [], there.st_ino, 0
                stream.seek(self._read)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except FileNotFoundError:
            return False
        self._read += len(whole) + len(newline)
        added = [record for line in whole.splitlines() if (record := _record(line)) is not None]
        self.records += added
        return replaced or bool(added)


@dataclass
class Followed:
    """One training as it was when last looked at.

    Attributes:
        settings: what was asked for, None until its process has written it or where it cannot be read.
        launched: the process started last, None where it was not started here.
        stand: where it stands.
    """

    folder: RunFolder
    settings: TrainingSettings | None = None
    launched: Launch | None = None
    stand: Stand = field(default_factory=lambda: Stand("starting", "", Status()))
    _seen: Status | None = None
    _log: LogReader = field(init=False)

    def __post_init__(self) -> None:
        self._log = LogReader(self.folder.path / LOG)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The curves: records with figures."""
        return [record for record in self._log.records if "tree" not in record]

    @property
    def trees(self) -> list[dict[str, Any]]:
        """Records of the drafted held-out prompt: `tree`, the file's name in `trees/`, and `tokens_per_pass`."""
        return [record for record in self._log.records if "tree" in record]

    @property
    def name(self) -> str:
        """What the lists call it."""
        known = self.settings or self.launched
        return known.name if known is not None else self.folder.path.name

    @property
    def kind(self) -> str:
        """What is trained, empty where its settings cannot be read."""
        known = self.settings or self.launched
        return known.kind if known is not None else ""

    @property
    def left_s(self) -> float | None:
        """Estimated seconds: until the whole training ends, or the part that is being prepared; None while unknown."""
        status, seen = self.stand.status, self._seen
        if self.stand.state != "preparing":
            return status.left_s if self.stand.state == "training" else None
        if seen is None or not status.steps or status.step == seen.step:
            return None
        return (status.steps - status.step) * (status.written - seen.written) / (status.step - seen.step)

    def look(self) -> bool:
        """Read what has changed; returns whether anything has."""
        before = self.stand, self.settings
        if self.settings is None and (self.folder.path / SETTINGS).exists():
            self.settings = self._settings()
        self.launched = last_launch(self.folder)
        self.stand = stand(self.folder)
        status, seen = self.stand.status, self._seen
        if seen is None or (seen.phase, seen.steps) != (status.phase, status.steps) or status.step < seen.step:
            self._seen = status  # from here on its pace is measured
        return self._log.read() or before != (self.stand, self.settings)

    def _settings(self) -> TrainingSettings | None:
        try:
            return self.folder.settings()
        except TrainingError:  # told where the training is looked at: the list goes on without
            return None


def _record(line: bytes) -> dict[str, Any] | None:
    """A record with its place, None where the line holds none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    placed = isinstance(record, dict) and all(isinstance(record.get(name), kind) for name, kind in PLACE.items())
    return record if placed else None
