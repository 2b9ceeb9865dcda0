"""Prepared data: a folder of shards, each a function of its number alone, that is made once and kept.

manifest.json    what all of them are for
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import psutil
import torch

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, training_home, write_whole
from decoding.jobs.process import preparing
from decoding.training.folder import Training

MANIFEST = "manifest.json"
Report = Callable[[int, int], None]  # shards that are there, shards in all


@dataclass
class Shards:
    """A folder of prepared data; what is in its shards and how they are made is said by a class for each kind.

    Attributes:
        plan: how much is prepared, and how.
        belongs_to: what tells the data from others.
    """

    HOME: ClassVar[str]  # name below the user's trainings
    FLAG: ClassVar[str]  # of the command, names another place
    GROWS: ClassVar[tuple[str, ...]]  # what of `belongs_to` says only how many shards there are
    MISSING: ClassVar[str]  # what to do where a shard is missing, or damaged
    DAMAGED: ClassVar[str]

    folder: Path
    plan: Any
    belongs_to: Mapping[str, Any]
    _known: dict[Path, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, place: Path | None, plan: Any, belongs_to: Mapping[str, Any]) -> Self:
        """The data in a place, by default one below the user's trainings; `TrainingError` where other data is there."""
        fixed = {**belongs_to, **dict.fromkeys(cls.GROWS)}
        digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]
        folder = place or training_home() / cls.HOME / digest
        other = f"name another folder with {cls.FLAG}"
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            there = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            if any(folder.iterdir()):
                raise TrainingError(f"{folder} contains other files: name an empty folder with {cls.FLAG}.") from None
            write_whole(folder / MANIFEST, json.dumps(belongs_to, indent=1).encode())
            return cls(folder, plan, belongs_to)
        except (OSError, ValueError) as error:
            raise TrainingError(f"{folder / MANIFEST} cannot be read ({error}): {other}.") from None
        for name, value in belongs_to.items():
            if name not in cls.GROWS and there.get(name) != value:
                raise TrainingError(
                    f"{folder} was prepared for a different {name} ({there.get(name)} instead of {value}): {other}."
                )
        return cls(folder, plan, belongs_to)

    def read_once(self, file: Path, read: Callable[[Path], Any], damaged: tuple[type[Exception], ...]) -> Any:
        """What is read of a shard; `TrainingError` where it is missing, or `damaged` is raised."""
        if file not in self._known:
            try:
                self._known[file] = read(file)
            except FileNotFoundError:
                raise TrainingError(f"{file} is missing: {self.MISSING}.") from None
            except damaged as error:
                raise TrainingError(f"{file} is damaged ({error}): {self.DAMAGED}.") from None
        return self._known[file]


def make_missing(files: Mapping[Path, Callable[[], bytes]], report: Report) -> None:
    """Make the shards that are not there yet; what `report` raises ends it, and what was made is kept."""
    for done, (file, make) in enumerate(files.items()):
        if not file.exists():
            report(done, len(files))
            write_whole(file, make())


def telling(training: Training | None, phase: str, device: torch.device) -> Report:
    """A report that says how far a training is with its data, on stderr alone where there is no training.

    It raises `StoppedError` where the training is to stop.
    """

    def report(done: int, total: int) -> None:
        if training is None:
            print(f"{phase}: {done} of {total}", file=sys.stderr, flush=True)
        else:
            preparing(training, phase, done, total, device=str(device), memory_bytes=memory_bytes(device))

    return report


def memory_bytes(device: torch.device) -> int:
    """Bytes that this process holds, on the GPU where it uses one."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return psutil.Process().memory_info().rss
