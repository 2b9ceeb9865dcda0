"""All that a training needs to go on as if it had never stopped, in one file that is replaced whole."""

import io
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from decoding.common.errors import TrainingError
from decoding.common.files import write_whole

VERSION = 1
MOST_TOLD = 80  # characters of a value in a sentence


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a training.

    Attributes:
        belongs_to: what it can go on with: pair, settings that shape the weights, data; compared as a whole.
        phase: of the training. step: optimiser steps done in it. trained_s: seconds spent in it.
        state: of the learner: weights, optimiser, and whatever else its next step depends on.
    """

    belongs_to: Mapping[str, Any]
    phase: str
    step: int
    trained_s: float
    state: Mapping[str, Any]


def save_checkpoint(file: Path, checkpoint: Checkpoint) -> None:
    """Write it; on a full disk the one before stays.

    Raises:
        TrainingError: the disk is full, or the place cannot be written.
    """
    buffer = io.BytesIO()
    torch.save({"version": VERSION, **vars(checkpoint)}, buffer)
    write_whole(file, buffer.getvalue())


def load_checkpoint(file: Path, belongs_to: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint of this very training; only tensors and plain values are read, nothing is run.

    Args:
        belongs_to: what it must belong to; None takes any.

    Raises:
        TrainingError: there is none, it is damaged, or it belongs to another pair or other settings.
    """
    try:
        known = torch.load(file, map_location="cpu", weights_only=True)
        version = known.pop("version")
        checkpoint = Checkpoint(**known)
    except FileNotFoundError:
        raise TrainingError(f"There is no checkpoint {file}: start the training without --resume.") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, zipfile.BadZipFile, TypeError, KeyError, AttributeError):
        raise TrainingError(f"{file} is damaged or no checkpoint: start the training again in another --out.") from None
    if version != VERSION:
        raise TrainingError(f"{file} is of version {version}, not {VERSION}: start the training again.")
    if belongs_to is not None and checkpoint.belongs_to != belongs_to:
        raise TrainingError(
            f"{file} belongs to another training ({_difference(checkpoint.belongs_to, belongs_to)}): "
            "resume that one, or choose another --out."
        )
    return checkpoint


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The first thing in which two trainings differ, in words."""
    name = next(name for name in sorted({*there, *here}) if there.get(name) != here.get(name))
    told = [repr(side.get(name)) for side in (there, here)]
    if max(map(len, told)) > MOST_TOLD:  # measured times, say: nobody wants to read them all
        return f"another {name}"
    return f"{name} {told[0]} instead of {told[1]}"
