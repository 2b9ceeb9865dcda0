"""A training and a sweep that were stopped half way: their folders as they were left, packed and unpacked."""

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from decoding.common.errors import TrainingError
from decoding.experiments.executors import LocalExecutor
from decoding.experiments.experiment import Experiment
from decoding.experiments.grid import grid_from
from decoding.experiments.sweep import run_grid
from decoding.models.pair import embedded_pair
from decoding.training import embedded
from decoding.training.folder import Training
from tests.helpers.small_pair import SETUP, write_corpus

HERE = b"/tmp/of-the-golden-set"  # stands in stored files for the folder they lie in
STEPS, STOPPED_AFTER = 12, 7
TEXTS, TRAINING, SWEEP = "texts", "training", "sweep"
GRID = {
    "name": "Half of a sweep", "methods": [{"method": "linear", "vary": {"length": [2, 3]}}], "new_tokens": [8],
    "prompts": {"kinds": ["stories"], "count": 2, "max_tokens": [16]},
}  # fmt: skip


def small_training(patch: pytest.MonkeyPatch) -> None:
    """Let the command train a pair of some thousand weights."""
    patch.setattr(embedded, "setup_of", lambda asked: replace(SETUP, seed=asked["seed"]))


def half_training(home: Path) -> None:
    """Train a small pair from texts below `home`, and stop after some steps."""
    asked = iter([False] * STOPPED_AFTER)
    with pytest.MonkeyPatch.context() as patch:
        small_training(patch)
        patch.setattr(Training, "asked_to_stop", lambda folder: next(asked, True))
        words = [str(write_corpus(home / TEXTS)), "--steps", str(STEPS), "--out", str(home / TRAINING), "--seed", "3"]
        if embedded.main(words) != 1:
            raise TrainingError("The training was to stop half way.")


def half_sweep(home: Path) -> None:
    """Run half of a small grid."""
    kept = []
    executor = LocalExecutor(embedded_pair(), "half")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Experiment, "asked_to_stop", lambda folder: len(kept) > 3)
        run_grid(grid_from(GRID, "half"), executor, home / SWEEP, kept.append)


def packed(home: Path) -> bytes:
    """The folders of both, without what a training can make anew."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz", preset=9) as archive:
        for file in sorted(home.rglob("*")):
            place = file.relative_to(home)
            if file.is_file() and place.parts[0] != TEXTS and place.parts[1] not in ("now", "trees"):
                content = file.read_bytes()
                if file.suffix in (".json", ".jsonl"):
                    content = content.replace(os.fsencode(home), HERE)
                entry = tarfile.TarInfo(place.as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def unpack(content: bytes, home: Path) -> None:
    """Put the folders of both below another one, with the texts that the training reads."""
    write_corpus(home / TEXTS)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(home, filter="data")
    for file in home.rglob("*.json*"):
        file.write_bytes(file.read_bytes().replace(HERE, os.fsencode(home)))
