"""What the training commands share: arguments, the folder that they train in, and what is noted of them."""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import TrainingError
from decoding.common.files import training_home
from decoding.jobs.job import free_folder
from decoding.models.presets import DTYPES, EMBEDDED, PairSettings
from decoding.training.fields import FIELDS, LENGTHS
from decoding.training.folder import MODULES, Kind, Training, TrainingSettings

if TYPE_CHECKING:
    from decoding.models.pair import Pair


def parser_of(kind: Kind, description: str, **more: Mapping[str, Any]) -> argparse.ArgumentParser:
    """The arguments that a page shows, and those of every training.

    Args:
        more: of `add_argument`, by the name of a field.
    """
    made = argparse.ArgumentParser(prog=f"python -m {MODULES[kind]}", description=description)
    for field in FIELDS[kind]:
        field.add_to(made, **more.get(field.name, {}))
    made.add_argument("--out", type=Path, metavar="DIR", help="folder of the training; default: a new one")
    made.add_argument("--resume", action="store_true", help="go on with the training in --out")
    length = made.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, metavar="N", help=f"time to train (default {LENGTHS[kind][0]:g})")
    length.add_argument("--steps", type=int, metavar="N", help="optimiser steps to train")
    return made


def minutes_of(args: argparse.Namespace, kind: Kind) -> float | None:
    """Minutes to train, None where steps are asked for."""
    return LENGTHS[kind][0] if args.minutes is None and args.steps is None else args.minutes


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of trainings that are for a pair, and learn from its target's text."""
    pair = parser.add_argument_group("pair")
    pair.add_argument("--target", default=EMBEDDED, help="Hugging Face id or folder")
    pair.add_argument("--draft", default=EMBEDDED, help="Hugging Face id or folder")
    pair.add_argument("--dtype", choices=DTYPES, default="auto")
    pair.add_argument("--context-length", type=int, default=2048, metavar="N", help="tokens that must fit")
    pair.add_argument("--split", action="store_true", help="spread the target over several GPUs")


def pair_of(args: argparse.Namespace) -> "Pair":
    """Load the pair, its target run by an engine that takes passes of any size."""
    from transformers import logging

    from decoding.models.pair import load_pair

    logging.set_verbosity_error()
    asked = {name: getattr(args, name) for name in ("target", "draft", "device", "dtype", "split", "context_length")}
    pair = load_pair(PairSettings(**asked))
    return pair.with_engine("library") if pair.target.info.engine == "static" else pair


def training_of(out: Path | None, resume: bool, words: str) -> Training:
    """The training asked for, else a new one below `training_home()`, such as `head-talf-2026-11-22`.

    Raises:
        TrainingError: what is to be resumed is not named or not there.
    """
    if out is None and resume:
        raise TrainingError("Name the training that --resume is to go on with: --out DIR.")
    if out is None:
        return Training(free_folder(training_home(), f"{words}-{time.strftime('%Y-%m-%d')}"))
    training = Training(out)
    if resume:
        training.settings()
        training.clear_stop()
    return training


def noted(kind: Kind, name: str, words: Sequence[str], settings: Mapping[str, Any], pair: "Pair") -> TrainingSettings:
    """What is noted of a training for a pair.

    Args:
        words: that it was called with.
    """
    from decoding.models.pair import pair_identity

    # Without the folder and without --resume: with those added they start the training again.
    kept = [word for word, before in zip(words, ["", *words], strict=False)
            if word not in ("--out", "--resume") and before != "--out" and not word.startswith("--out=")]  # fmt: skip
    shown = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
    return TrainingSettings(
        kind=kind,
        name=f"{name}, {pair.info.name}, {time.strftime('%Y-%m-%d')}",
        command=("-m", MODULES[kind], *kept),
        settings=shown,
        pair=pair_identity(pair),
        created=time.strftime("%Y-%m-%dT%H:%M:%S"),
    )
