"""Trainings: what the folder of one holds beside what every job has, started and followed. Torch-free.

settings.json    what was asked for: kind, command, settings, pair; written once
example.json     what a head is trained on at one root, to be drawn
log.jsonl        the curves: one record per line, appended
trees/           the same held-out prompt drafted again and again: NUMBER-STEP.dscope, each noted in the log
checkpoint.pt    all that a training needs to go on as if it had never stopped; replaced whole
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, new_folder, training_home, write_whole
from decoding.jobs.job import LAUNCH, Job, JobState, JobWatcher, free_folder, jobs_below

Kind = Literal["embedded", "head", "selector"]
MODULES: dict[Kind, str] = {kind: f"{__package__}.{kind}" for kind in get_args(Kind)}  # what trains each
SETTINGS, LOG, TREES, CHECKPOINT = "settings.json", "log.jsonl", "trees", "checkpoint.pt"
EXAMPLE = "example.json"
PLACE = {"phase": str, "step": int, "trained_s": int | float}  # what every record of a log has


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


class Training(Job):
    """The folder of one training."""

    NOUN, UNIT = "training", "steps"
    MARKS = (SETTINGS, LAUNCH)
    ENDED = "Killed: resume continues from its last checkpoint."

    @property
    def checkpoint(self) -> Path:
        """Where its state is kept; the file may not be there yet."""
        return self.path / CHECKPOINT

    def begin(self, settings: TrainingSettings) -> None:
        """Make the folder and note what was asked for; `TrainingError` where another training is there."""
        if (self.path / SETTINGS).exists():
            raise TrainingError(f"{self.path} has a training already: continue with --resume or choose another --out.")
        with new_folder(self.path):
            self.write_settings(settings)

    def write_settings(self, settings: TrainingSettings) -> None:
        """Note what was asked for in the place of what was noted before."""
        write_whole(self.path / SETTINGS, json.dumps(asdict(settings), indent=1).encode())

    def settings(self) -> TrainingSettings:
        """What was asked for; `TrainingError` where there is no training, or its settings are damaged."""
        try:
            settings = TrainingSettings(**json.loads((self.path / SETTINGS).read_text(encoding="utf-8")))
            return replace(settings, command=tuple(settings.command))
        except FileNotFoundError:
            raise TrainingError(f"{self.path} has no training: start one with --out {self.path}.") from None
        except (OSError, ValueError, TypeError) as error:
            raise TrainingError(f"The settings in {self.path} cannot be read ({error}): choose another run.") from None

    def stand(self) -> JobState:
        """Where it stands; one that was begun in a terminal is yet to say its first word."""
        found = super().stand()
        begun = found.state == "kept" and (self.path / SETTINGS).exists()
        return replace(found, state="starting") if begun else found

    def resume_command(self) -> tuple[str, ...] | None:
        """Words that go on from its checkpoint, or begin what never began."""
        if not (self.path / SETTINGS).exists():
            return super().resume_command()
        command = self.settings().command
        return (*(() if command[:1] == ("-m",) else ("-m",)), *command, "--out", str(self.path), "--resume")

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record to the curves: `phase`, `step`, `trained_s`, `written` (when), and numbers by name."""
        with disk_errors(self.path), (self.path / LOG).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record, allow_nan=False) + "\n")

    def cut_log(self, step: int, phase: str) -> None:
        """Drop records of a phase after a step: a training that resumes writes them again."""
        kept = [record for record in self.log() if record["phase"] != phase or record["step"] <= step]
        write_whole(self.path / LOG, "".join(json.dumps(record) + "\n" for record in kept).encode())

    def log(self) -> list[dict[str, Any]]:
        """All records; a last line that is still being written is left out."""
        reader = LogReader(self.path / LOG)
        reader.read()
        return reader.records

    def trees(self) -> list[Path]:
        """Recorded runs of the held-out prompt, in the order in which they were made."""
        return sorted((self.path / TREES).glob("*.dscope"))


def launch(kind: Kind, arguments: Sequence[str], name: str) -> Training:
    """Start a training in a folder of its own below `training_home()`; `arguments` are without `--out`."""
    stem = f"{(name or kind)[:40]}-{datetime.now():%Y-%m-%d-%H%M%S}"
    training = Training(free_folder(training_home(), stem))
    training.start(("-m", MODULES[kind], *arguments, "--out", str(training.path)), kind, name)
    return training


def trainings() -> list[Training]:
    """Every training of the user, also those that have only just been started, the one begun last first."""
    return jobs_below(training_home(), Training)


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
        before = len(self.records)
        for line in whole.splitlines():
            with suppress(ValueError):  # of a line that is damaged
                record = json.loads(line)
                if isinstance(record, dict) and all(isinstance(record.get(name), kind) for name, kind in PLACE.items()):
                    self.records.append(record)
        return replaced or len(self.records) > before


class TrainingWatcher(JobWatcher):
    """One training as it was when last looked at.

    Attributes:
        settings: what was asked for, None until its process has written it or where it cannot be read.
    """

    job: Training

    def __init__(self, job: Training):
        super().__init__(job)
        self.settings: TrainingSettings | None = None
        self._log = LogReader(job.path / LOG)

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
        return self.settings.name if self.settings is not None else super().name

    @property
    def kind(self) -> str:
        """What is trained, empty where its settings cannot be read."""
        known = self.settings or self.launched
        return known.kind if known is not None else ""

    @property
    def command(self) -> tuple[str, ...]:
        """Words after the interpreter that begin it."""
        return self.settings.command if self.settings is not None else super().command

    @property
    def started_s(self) -> float:
        """When it was first started, in seconds since 1970."""
        if self.settings is not None:
            with suppress(ValueError):
                return datetime.fromisoformat(self.settings.created).timestamp()
        return super().started_s

    def look(self) -> bool:
        """Read what has changed; returns whether anything has."""
        known = self.settings
        if known is None and (self.folder / SETTINGS).exists():
            with suppress(TrainingError):  # a list goes on without what is damaged
                self.settings = self.job.settings()
        moved, read = super().look(), self._log.read()
        return moved or read or known != self.settings
