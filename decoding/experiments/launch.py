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
from typing import Any, Literal

import pandas as pd
import pyarrow as pa

from decoding.common.errors import ExperimentError
from decoding.common.files import disk_errors, new_folder, write_whole
from decoding.common.processes import alive, kill_process, printed, remove_folder, start_process
from decoding.experiments.experiment import GRID, STATUS, STOP, Experiment, State, Status
from decoding.experiments.homes import GRIDS, SHIPPED, experiments_home
from decoding.experiments.rows import FOLDER, SCHEMA, SERIES, read_part, with_settings

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
    from decoding.experiments.grid_file import (
        kept_grid,
        write_grid,  # they bring torch
    )

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


# What charts and tables are made of: per-iteration lists and output tokens would fill the memory.
COLUMNS = [name for name in SCHEMA.names if name not in (*SERIES, "output_ids")]
SHIPPED_MARK = "results/"
PARTS = "part-*.parquet"
ASKED = {"name", "methods", "prompts", "samplings", "new_tokens", "reference", "repeats"}


class FollowedExperiment:
    """An experiment as one reader sees it; of its rows only what has come is read.

    Attributes:
        folder: its own. shipped: whether it came with the program.
        stand: where it stood at the last look.
        asked: the grid that it ran last as plain data; empty before its process has planned it.
        troubles: sentences on files of rows that cannot be read; the rows of all others count.
    """

    def __init__(self, folder: Path, shipped: bool = False):
        self.folder, self.shipped = folder, shipped
        self.troubles: tuple[str, ...] = ()
        self._tables: dict[tuple[Path, int], pa.Table | str] = {}
        self._frame: pd.DataFrame | None = None
        self.look()

    @property
    def key(self) -> str:
        """What an address calls it."""
        return f"{SHIPPED_MARK if self.shipped else ''}{self.folder.name}"

    @property
    def name(self) -> str:
        """What lists call it: the name of its grid."""
        return str(self.asked.get("name") or self.folder.name.replace("_", " "))

    def look(self) -> None:
        """See where it stands."""
        self.stand: Stand = stand(self.folder)
        self.asked: dict[str, Any] = _asked(self.folder / GRID)

    def rows(self) -> pd.DataFrame:
        """All rows so far, each run once; the same object for as long as none has come."""
        files = {file: _stamp(file) for file in sorted((self.folder / FOLDER).glob(PARTS))}
        there = {(file, stamp) for file, stamp in files.items() if stamp is not None}
        if self._frame is not None and there == set(self._tables):
            return self._frame
        tables = {key: self._tables.get(key) or _read(key[0]) for key in sorted(there)}
        self._tables = {key: table for key, table in tables.items() if table is not None}
        self.troubles = tuple(said for said in self._tables.values() if isinstance(said, str))
        self._frame = _joined([table for table in self._tables.values() if not isinstance(table, str)])
        return self._frame


def experiments() -> list[tuple[Path, bool]]:
    """Folders of all experiments, newest first, and by name those that came with the program: `True` beside them."""
    found = [(file.parent, False) for name in (LAUNCH, GRID, FOLDER) for file in experiments_home().glob(f"*/{name}")]
    found += [(file.parent, True) for file in SHIPPED.glob(f"*/{FOLDER}")]
    return sorted(dict.fromkeys(found), key=lambda each: (each[1], not each[1] and -_began(each[0]), each[0].name))


def _asked(file: Path) -> dict[str, Any]:
    """A grid as plain data; empty where there is none or another version wrote it."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and content.keys() >= ASKED else {}


def _began(folder: Path) -> float:
    """When something was last started there, in seconds since 1970."""
    started = max(_stamp(folder / name) or 0 for name in (LAUNCH, GRID))
    return (started or _stamp(folder / FOLDER) or 0) / 1e9


def _stamp(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def _read(file: Path) -> pa.Table | str | None:
    """A file of rows; a sentence where it cannot be read; None where another process has just put it into a larger."""
    try:
        return read_part(file, COLUMNS)
    except ExperimentError as error:
        return str(error) if file.exists() else None


def _joined(tables: list[pa.Table]) -> pd.DataFrame:
    if not tables:
        return pa.schema([SCHEMA.field(name) for name in COLUMNS]).empty_table().to_pandas()
    return with_settings(pa.concat_tables(tables).to_pandas().drop_duplicates("key"))
