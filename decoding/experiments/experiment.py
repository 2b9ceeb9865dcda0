"""The folder of one experiment: what was asked for, its rows, how far it is, and whether somebody wants it to end.

grid.json      what was asked for last
rows/          see `rows.py`
status.json    how far it is: replaced whole, with the time of writing as a heartbeat
stop           is there when somebody wants it to end after the run it is at
"""

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from decoding.common.errors import ExperimentError
from decoding.common.files import disk_errors, write_whole
from decoding.common.processes import alive
from decoding.experiments.rows import RowStore

if TYPE_CHECKING:
    from decoding.experiments.grid import Grid

GRID, STATUS, STOP = "grid.json", "status.json", "stop"

State = Literal["running", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class Status:
    """How far an experiment is.

    Attributes:
        done, runs: runs kept, those of earlier times included, and runs of the whole grid.
        failed: of them that could not be made.
        now: what runs.
        left_s: estimated seconds until the end, None while unknown.
        message: for a person, where it ended early.
        pid, written: the process, and when it wrote this (seconds since 1970).
    """

    state: State = "running"
    done: int = 0
    runs: int = 0
    failed: int = 0
    now: str = ""
    left_s: float | None = None
    message: str = ""
    pid: int = 0
    written: float = 0.0


class Experiment:
    """The folder of one experiment.

    Args:
        folder: made when something is to be kept in it.
    """

    def __init__(self, folder: Path):
        self.folder, self.store = folder, RowStore(folder)

    def status(self) -> Status | None:
        """How far it is; None where nothing was ever run. A process that died without a word counts as stopped.

        Raises:
            ExperimentError: the status is damaged.
        """
        file = self.folder / STATUS
        try:
            status = Status(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise ExperimentError(f"{file} cannot be read ({error}): run the grid again, no row is lost.") from None
        if status.state == "running" and not alive(status.pid, status.written):
            return replace(status, state="stopped", message="Its process ended: run the grid again, it goes on.")
        return status

    def write_status(self, status: Status) -> None:
        """Say how far it is."""
        status = replace(status, pid=os.getpid(), written=time.time())
        write_whole(self.folder / STATUS, json.dumps(asdict(status)).encode(), ExperimentError)

    def ask_to_stop(self) -> None:
        """Ask the process that runs it to end after the run it is at."""
        with disk_errors(self.folder, ExperimentError):
            (self.folder / STOP).touch()

    def asked_to_stop(self) -> bool:
        """Whether somebody has."""
        return (self.folder / STOP).exists()

    def begin(self, grid: "Grid") -> None:
        """Make the folder ready for a grid.

        Raises:
            ExperimentError: another process runs it, or the folder cannot be written.
        """
        status = self.status()
        if status is not None and status.state == "running" and status.pid != os.getpid():
            raise ExperimentError(f"Process {status.pid} runs the experiment in {self.folder}: wait for it or stop it.")
        with disk_errors(self.folder, ExperimentError):
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / STOP).unlink(missing_ok=True)
        write_whole(self.folder / GRID, json.dumps(asdict(grid), indent=1).encode(), ExperimentError)
