"""One training on disk: what was asked, how far it is, its curves, its trees, its checkpoint. Torch-free.

    settings.json    what was asked for: kind, command, settings, pair; written once
    status.json      where it stands; replaced whole, with the time of writing as a heartbeat
    log.jsonl        the curves: one record per line, appended
    trees/           the same held-out prompt drafted again and again: NUMBER-STEP.dscope, each told in the log
    checkpoint.pt    all that a training needs to go on as if it had never stopped; replaced whole
    stop             is there when somebody wants the training to stop at its next step

The process that trains writes; anyone may read, and may ask it to stop.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, new_folder, write_whole
from decoding.common.processes import alive

Kind = Literal["embedded", "head", "selector"]
State = Literal["preparing", "training", "finished", "stopped", "failed"]
KINDS: tuple[Kind, ...] = ("embedded", "head", "selector")
RUNNING: tuple[State, ...] = ("preparing", "training")
SETTINGS, STATUS, LOG, TREES, CHECKPOINT, STOP = (
    "settings.json",
    "status.json",
    "log.jsonl",
    "trees",
    "checkpoint.pt",
    "stop",
)
SILENT = "Its process ended without a word: resume it."
START_SLACK_S = 2.0  # Linux knows to a second when a process started


@dataclass(frozen=True)
class TrainingSettings:
    """What was asked for.

    Attributes:
        name: what the lists call it, such as `TALF head, Embedded pair, 2026-11-22`.
        command: words that start it again, without the interpreter.
        settings: of this kind of training, by name.
        pair: `pair_identity` of the pair it is for; empty where it makes the pair.
        created: date and time, ISO 8601.
    """

    kind: Kind
    name: str
    command: tuple[str, ...]
    settings: Mapping[str, Any]
    pair: Mapping[str, Any]
    created: str


@dataclass(frozen=True)
class Status:
    """Where a training stands.

    Attributes:
        phase: what it is doing, in words: `reading the corpus`, `training the target`.
        step, steps: optimiser steps done and planned in this phase; None where it is planned by time.
        trained_s, planned_s: seconds spent in this phase over all its sessions, and planned; None where by steps.
        left_s: estimated seconds until the whole training ends, None while unknown.
        device: what it runs on. memory_bytes: that the process holds, on the GPU where there is one.
        message: for a person, where it failed or stopped.
        pid, written: the process, and when it wrote this (seconds since 1970).
    """

    state: State = "preparing"
    phase: str = ""
    step: int = 0
    steps: int | None = None
    trained_s: float = 0.0
    planned_s: float | None = None
    left_s: float | None = None
    device: str = ""
    memory_bytes: int = 0
    message: str = ""
    pid: int = 0
    written: float = 0.0

    @property
    def running(self) -> bool:
        """Whether a process says that it is at work."""
        return self.state in RUNNING

    @property
    def share(self) -> float | None:
        """How much of the phase is done, from 0 to 1."""
        if self.steps:
            return min(1.0, self.step / self.steps)
        return min(1.0, self.trained_s / self.planned_s) if self.planned_s else None


@dataclass(frozen=True)
class RunFolder:
    """The folder of one training."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """Where its state is kept; the file may not be there yet."""
        return self.path / CHECKPOINT

    def begin(self, settings: TrainingSettings) -> None:
        """Make the folder and note what was asked for.

        Raises:
            TrainingError: another training is there, or the folder cannot be written.
        """
        if (self.path / SETTINGS).exists():
            raise TrainingError(f"{self.path} holds a training already: go on with --resume or choose another --out.")
        with new_folder(self.path):
            with disk_errors(self.path):
                (self.path / TREES).mkdir(exist_ok=True)
            write_whole(self.path / SETTINGS, json.dumps(asdict(settings), indent=1).encode())

    def settings(self) -> TrainingSettings:
        """What was asked for.

        Raises:
            TrainingError: there is no training here, or its settings are damaged.
        """
        try:
            known = json.loads((self.path / SETTINGS).read_text(encoding="utf-8"))
            settings = TrainingSettings(**known)
            return replace(settings, command=tuple(settings.command))
        except FileNotFoundError:
            raise TrainingError(f"{self.path} holds no training: start one with --out {self.path}.") from None
        except (OSError, ValueError, TypeError) as error:
            raise TrainingError(f"The settings in {self.path} cannot be read ({error}): choose another run.") from None

    def status(self) -> Status:
        """Where it stands; a process that died without a word is told as failed.

        Raises:
            TrainingError: the status is damaged.
        """
        file = self.path / STATUS
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
            status = Status(**{field.name: known[field.name] for field in fields(Status)})
        except FileNotFoundError:
            return Status()
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise TrainingError(f"The status in {file} cannot be read ({error}): resume the training.") from None
        if status.running and not alive(status.pid, status.written):
            return replace(status, state="failed", message=SILENT)
        return status

    def write_status(self, status: Status) -> Status:
        """Say where the training stands; returns it with process and time filled in."""
        status = replace(status, pid=os.getpid(), written=time.time())
        write_whole(self.path / STATUS, json.dumps(asdict(status)).encode())
        return status

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record to the curves: `phase`, `step`, `trained_s`, `written` (when), and numbers by name."""
        with disk_errors(self.path), (self.path / LOG).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record, allow_nan=False) + "\n")

    def cut_log(self, step: int, phase: str) -> None:
        """Drop records of a phase behind a step: a training that resumes writes them again."""
        kept = [record for record in self.log() if record.get("phase") != phase or record.get("step", 0) <= step]
        text = "".join(json.dumps(record) + "\n" for record in kept)
        write_whole(self.path / LOG, text.encode())

    def log(self) -> list[dict[str, Any]]:
        """All records; a last line that is still being written is left out."""
        try:
            lines = (self.path / LOG).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [record for line in lines if (record := _record(line)) is not None]

    def trees(self) -> list[Path]:
        """Recorded runs of the held-out prompt, in the order in which they were made."""
        return sorted((self.path / TREES).glob("*.dscope"))

    def ask_to_stop(self) -> None:
        """Ask the process to write a checkpoint and end."""
        with disk_errors(self.path):
            (self.path / STOP).touch()

    def asked_to_stop(self) -> bool:
        """Whether somebody has asked this process; what was asked before it began was meant for an earlier one."""
        try:
            asked = (self.path / STOP).stat().st_mtime
        except FileNotFoundError:
            return False
        import psutil

        return asked >= psutil.Process().create_time() - START_SLACK_S

    def clear_stop(self) -> None:
        """Forget that somebody asked."""
        (self.path / STOP).unlink(missing_ok=True)


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
