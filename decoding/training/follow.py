"""Look at a training again and again and read each time only what has changed. Torch-free.

followed = Followed(folder)
followed.look()              # True if anything has changed
followed.stand, followed.records, followed.trees
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decoding.common.errors import TrainingError
from decoding.training.launch import Launch, Stand, last_launch, stand
from decoding.training.run_folder import LOG, SETTINGS, RunFolder, Status, TrainingSettings

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
