"""Prepared data: a folder of shards, each a function of its number alone, that is made once and kept.

manifest.json    what all of them are for
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, training_home, write_whole
from decoding.jobs.process import preparing
from decoding.training.folder import Training

MANIFEST = "manifest.json"
Report = Callable[[int, int], None]  # shards that are there, shards in all


def open_shards(place: Path | None, home: str, flag: str, belongs_to: Mapping[str, Any], grows: Sequence[str]) -> Path:
    """The folder of some shards, which is begun where there is none.

    Args:
        place: None for one below the user's trainings, in `home`. flag: of the command, names another place.
        belongs_to: what tells the shards from others. grows: what of it says only how many there are.

    Raises:
        TrainingError: what is there was prepared for something else.
        DiskError: the folder cannot be written.
    """
    fixed = {**belongs_to, **dict.fromkeys(grows)}
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]
    folder = place or training_home() / home / digest
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        there = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if any(folder.iterdir()):
            raise TrainingError(f"{folder} holds other files: name an empty folder with {flag}.") from None
        write_whole(folder / MANIFEST, json.dumps(belongs_to, indent=1).encode())
        return folder
    except (OSError, ValueError) as error:
        raise TrainingError(f"{folder / MANIFEST} cannot be read ({error}): name another folder with {flag}.") from None
    for name, value in belongs_to.items():
        if name not in grows and there.get(name) != value:
            raise TrainingError(
                f"{folder} was prepared for another {name} ({there.get(name)} instead of {value}): name another "
                f"folder with {flag}."
            )
    return folder


def make_missing(files: Mapping[Path, Callable[[], bytes]], report: Report) -> None:
    """Make the shards that are not there yet; what `report` raises ends it, and what was made is kept.

    Raises:
        DiskError: the disk is full.
    """
    for done, (file, make) in enumerate(files.items()):
        if not file.exists():
            report(done, len(files))
            write_whole(file, make())


def telling(training: Training | None, phase: str, device: torch.device) -> Report:
    """A report that says how far a training is with its data, and that raises `StoppedError` where it is to stop.

    Args:
        training: None tells stderr alone.
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
