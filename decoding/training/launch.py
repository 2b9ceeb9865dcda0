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
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, training_home, write_whole
from decoding.common.processes import alive, kill_process, printed, remove_folder, start_process
from decoding.training.run_folder import SETTINGS, SILENT, Kind, RunFolder, State, Status

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
