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
from decoding.training.folder import MODULES, Kind, Training, TrainingSettings

if TYPE_CHECKING:
    from decoding.models.pair import Pair


def add_common_arguments(parser: argparse.ArgumentParser, minutes: float, learning_rate: float) -> None:
    """Arguments of every training; `minutes` is how long it takes unless told otherwise."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the training; default: a new one")
    parser.add_argument("--resume", action="store_true", help="go on with the training in --out")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, metavar="N", help=f"time to train (default {minutes:g})")
    length.add_argument("--steps", type=int, metavar="N", help="optimiser steps to train")
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "mps", "cpu"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=learning_rate, metavar="RATE")


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
