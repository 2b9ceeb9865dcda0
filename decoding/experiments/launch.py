"""Start grids, each in a process of its own that outlives the app; where they stand; how long they take. Torch-free.

folder = launch("dynatree_main")      # python -m decoding.experiments.sweep .../grids/dynatree_main.toml
stand(folder).state                   # starting, running, finished, stopped, failed or kept
go_on(folder)

Beside what `experiment` describes, the folder of an experiment that was started here holds

    launch.json      the process started last, known before that has written a word
    output.log       all that it printed
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from decoding.common.errors import ExperimentError
from decoding.common.files import disk_errors, new_folder, write_whole
from decoding.common.processes import alive, kill_process, printed, remove_folder, start_process
from decoding.experiments.experiment import STATUS, STOP, Experiment, State, Status
from decoding.experiments.homes import GRIDS, experiments_home
from decoding.experiments.rows import FOLDER

LAUNCH, OUTPUT = "launch.json", "output.log"
NEVER_BEGAN = "Its process ended before it began; its output says why."
ENDED = "Ended before it began; nothing was lost."
ERROR = "error: "


@dataclass(frozen=True)
class Launch:
    """A process that was started here: its words behind the interpreter, and when (seconds since 1970)."""

    command: tuple[str, ...]
    pid: int
    started: float


@dataclass(frozen=True)
class Stand:
    """Where an experiment stands as far as one can tell from outside.

    Attributes:
        state: of its process; `starting` while that has not said a word yet, `kept` where there are rows alone.
        message: for a person, where it stopped or failed.
        status: what the process wrote last.
    """

    state: State | Literal["starting", "kept"]
    message: str
    status: Status

    @property
    def running(self) -> bool:
        """Whether a process is at work."""
        return self.state in ("starting", "running")


def launch(grid: str | Path, *more: str, folder: Path | None = None) -> Path:
    """Run a grid, by its name in `decoding/experiments/grids` or its file; returns the folder of the experiment.

    Args:
        more: arguments of the command, such as `"--count", "2"`.
        folder: of the experiment; by default one of the grid's name below `experiments_home()`.

    Raises:
        ExperimentError: it is at work, the folder cannot be made, or no process can be started.
    """
    file = Path(grid) if str(grid).endswith(".toml") else GRIDS / f"{grid}.toml"
    folder = experiments_home() / file.stem if folder is None else folder
    begin(folder, ("-m", "decoding.experiments.sweep", str(file), "--out", str(folder), *more))
    return folder


def go_on(folder: Path) -> None:
    """Run what an experiment still lacks: the grid that it ran last, or what was started and never began.

    Raises:
        ExperimentError: it is at work, its grid cannot be read, or no process can be started.
    """
    from decoding.experiments.grid_writing import kept_grid, write_grid  # they bring torch

    grid, launched = kept_grid(folder), last_launch(folder)
    if grid is not None:
        launch(write_grid(grid, folder), folder=folder)
    elif launched is not None:
        begin(folder, launched.command)
    else:
        raise ExperimentError(f"{folder} holds no grid: start a sweep of your own.")


def end(folder: Path) -> None:
    """End a process that has not begun yet, and hears nothing: it may be fetching a data set.

    Raises:
        ExperimentError: another user's process, or the disk does not take the note.
    """
    found, launched = stand(folder), last_launch(folder)
    if found.state != "starting" or launched is None:
        return
    kill_process(launched.pid, folder.name, ExperimentError)
    Experiment(folder).write_status(replace(found.status, state="stopped", message=ENDED))


def delete(folder: Path) -> None:
    """Delete an experiment of the user's own with all its rows.

    Raises:
        ExperimentError: it is at work, it is not the user's own, or it cannot be deleted.
    """
    if stand(folder).running:
        raise ExperimentError(f"{folder.name} is at work: stop it before it is deleted.")
    marks = (LAUNCH, STATUS, FOLDER)
    if folder.parent != experiments_home() or not any((folder / name).exists() for name in marks):
        raise ExperimentError(f"{folder} holds no experiment of yours, so nothing is deleted.")
    remove_folder(folder, ExperimentError)


def stand(folder: Path) -> Stand:
    """Where an experiment stands: what its process wrote last, or what became of one that never wrote."""
    launched = last_launch(folder)
    try:
        status = Experiment(folder).status()
    except ExperimentError as error:
        return Stand("failed", str(error), Status())
    written = status.written if status is not None else 0.0
    if launched is not None and launched.started > written:
        if alive(launched.pid, launched.started):
            return Stand("starting", "", status or Status())
        return Stand("failed", error_sentence(folder) or NEVER_BEGAN, status or Status())
    if status is None:
        return Stand("kept", "", Status())
    said = error_sentence(folder) if launched is not None and status.state == "stopped" else ""
    return Stand("failed", said, status) if said else Stand(status.state, status.message, status)


def asked_to_stop(folder: Path) -> bool:
    """Whether somebody wants the process at work to end."""
    return (folder / STOP).exists()


def last_launch(folder: Path) -> Launch | None:
    """The process started last for an experiment, None where it was not started here."""
    try:
        found = Launch(**json.loads((folder / LAUNCH).read_text(encoding="utf-8")))
        return replace(found, command=tuple(found.command))
    except (OSError, ValueError, TypeError):
        return None


def output(folder: Path) -> str:
    """The end of what the last process of an experiment printed."""
    return printed(folder / OUTPUT)


def last_words(folder: Path) -> str:
    """The last line that the process of an experiment printed."""
    return output(folder).rpartition("\n")[2].strip()


def seconds_per_token(rows: pd.DataFrame) -> float | None:
    """What a token has cost so far in runs that are kept, a mean over them; None without any."""
    kept = rows[rows["failure"].isna() & (rows["new_tokens"] > 0)] if len(rows) else rows
    return float(kept["wall_s"].sum() / kept["new_tokens"].sum()) if len(kept) else None


def error_sentence(folder: Path) -> str:
    """The error with which the last process ended, empty where it left none."""
    said = last_words(folder)
    return said.removeprefix(ERROR) if said.startswith(ERROR) else ""


def begin(folder: Path, command: Sequence[str]) -> None:
    """Start a process for a folder; it is known there before it has written a word.

    Args:
        command: behind the interpreter.

    Raises:
        ExperimentError: one is at work, the folder cannot be made, or no process can be started.
    """
    if stand(folder).running:
        raise ExperimentError(f"{folder.name} is at work: stop it before it is started again.")
    with new_folder(folder, ExperimentError):
        with disk_errors(folder, ExperimentError):
            log = (folder / OUTPUT).open("wb")
        started = time.time()
        with log:
            process = start_process(command, log, ExperimentError)
        known = Launch(tuple(command), process.pid, started)
        try:
            write_whole(folder / LAUNCH, json.dumps(asdict(known), indent=1).encode(), ExperimentError)
        except ExperimentError:
            process.kill()  # one that no list knows could not be stopped
            process.wait()
            raise
