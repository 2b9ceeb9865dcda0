"""What the training commands share: arguments, the folder that they train in, and what is noted of them. Torch-free.

What can be set before a training starts is one line per argument, which a page shows as a widget; what few need stands
in the parser of a command alone.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import TrainingError
from decoding.common.files import local_stamp, training_home
from decoding.heads.store import LOSSES
from decoding.jobs.job import free_folder
from decoding.models.presets import pair_settings
from decoding.training.folder import MODULES, Kind, Training, TrainingSettings

if TYPE_CHECKING:
    from decoding.models.pair import Pair


@dataclass(frozen=True)
class Flag:
    """One argument of a training command.

    Attributes:
        flag: as the command takes it; without dashes it is given by its place.
        label, meaning: words beside the widget, and what it does in a sentence.
        default: of the command; "" and None leave the argument away.
        low, high, step: what a number can be; choices: what a word can be, with the words shown for them.
        more: whether it stands among the settings that few need. placeholder: what an empty text means.
    """

    flag: str
    label: str
    meaning: str
    default: Any
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: Mapping[str, str] | None = None
    more: bool = False
    placeholder: str = ""

    @property
    def name(self) -> str:
        """What parsed arguments and keys of widgets call it."""
        return self.flag.removeprefix("--").replace("-", "_")

    def add_to(self, parser: argparse.ArgumentParser, **more: Any) -> None:
        """Have a command take it; `more` is of `add_argument`."""
        usual = "" if self.default in ("", None, False) else f" Default: {self.default}."
        said = f"{self.label}. {self.meaning}{usual}".replace("%", "%%")
        asked: dict[str, Any] = {"help": said, "default": self.default}
        if self.choices is not None:
            asked["choices"] = tuple(self.choices)
        elif self.default is False:
            asked["action"] = "store_true"
        elif self.default == "":
            asked |= {"default": None, "metavar": "DIR", "type": Path}
        else:
            asked |= {"type": int if self.default is None else type(self.default), "metavar": "N"}
        if not self.flag.startswith("--"):
            asked["nargs"] = "?"
        parser.add_argument(self.flag, **asked | more)


CORPUS = "corpus"
VERIFIERS = {"specinfer": "SpecInfer", "nss": "NSS", "naive_tree": "Naive tree", "spectr": "SpecTr", "khisti": "Khisti",
             "traversal": "Traversal"}  # fmt: skip
TEXTS = Flag("--corpus", "Folder of text", "A folder of .txt or .txt.gz files on this machine. Empty: the target "
              "itself continues the sample prompts.", "",
              placeholder="none: the target continues the sample prompts")  # fmt: skip
RATE = Flag("--learning-rate", "Learning rate", "Its peak; lower it if the loss becomes nan.", 3e-4, 1e-6, 1.0,
             more=True)  # fmt: skip
DEVICE = Flag("--device", "Device", "Automatic uses a GPU if there is one.", "auto", more=True,
               choices={"auto": "automatic", "cuda": "GPU (CUDA)", "mps": "Apple GPU", "cpu": "CPU"})  # fmt: skip
SEED = Flag("--seed", "Seed", "For initial weights and batches: the same seed gives the same training run.", 0,
             0, 2**31 - 1, 1, more=True)  # fmt: skip
OF_HEAD = (
    Flag("--loss", "Loss", "EAGLE: next token and feature at every position of the text. HASS: the same along a chain "
          "of the head's own features. TALF: at every node of a tree that the target builds.", "talf", choices=LOSSES),
    Flag("--start-from", "Start from", "A trained head to start from. As in the paper, HASS and TALF start from a "
          "head trained with EAGLE's loss.", ""),
    TEXTS,
    Flag("--top-k", "Training tree width", "Nodes per level of the tree that the target builds; TALF only.",
          4, 1, 64, 1),
    Flag("--windows", "Windows", "A window is a piece of text; the head is prepared for and trained on this many. "
          "Preparation time is proportional to their number.", 1024, 1, 10**7, 64),
    Flag("--roots", "Tokens per window", "The head is trained after each of them.", 256, 8, 32_768, 32, more=True),
    Flag("--depth", "Depth", "Head forwards that are trained: at the root and on the levels below.",
          3, 1, 8, 1, more=True),
    Flag("--batch", "Batch", "Windows per step.", 4, 1, 4096, 1, more=True),
    Flag("--regression", "Weight of the features (λ_reg)", "EAGLE and HASS: of the mean absolute difference of the "
          "features.", 1.0, 0.0, 1000.0, 0.5, more=True),
    Flag("--classification", "Weight of the tokens (λ_cls)", "EAGLE and HASS: of the cross-entropy with the target's "
          "distribution.", 10.0, 0.0, 1000.0, 0.5, more=True),
    Flag("--distillation", "Weight of the likeliest tokens (λ_distil)", "HASS: of the same over the target's likeliest "
          "tokens alone.", 10.0, 0.0, 1000.0, 0.5, more=True),
    Flag("--distilled-tokens", "Likeliest tokens (K)", "HASS: how many of them.", 10, 1, 1000, 1, more=True),
    Flag("--mlp-size", "MLP size", "Inner size of the MLP; empty: 1.6 times the hidden size.", None, 1, 2**20, 64,
          more=True, placeholder="1.6 times the hidden size"),
    Flag("--continued", "Continued windows", "Share of the windows that the target continues after their first "
          "quarter, so that the head sees the target's own text.", 0.5, 0.0, 1.0, 0.05, more=True),
    Flag("--temperature", "Continuation temperature", "Temperature of the continued windows.", 1.0, 0.05, 4.0, 0.05,
          more=True),
    RATE, DEVICE, SEED,
)  # fmt: skip
OF_PAIR = (
    Flag(CORPUS, "Folder of text", "A folder of .txt or .txt.gz files on this machine; a file's name up to the first "
          "dot is its kind of text, and the last 2% of each are held out.", "",
          placeholder="such as /home/me/texts"),
    Flag("--python-source", "Add Python's standard library", "Adds its source files as one more kind of text.",
          False),
    Flag("--start-from", "Start from", "A folder with a trained target and draft to start from; empty: random "
          "weights.", "", more=True, placeholder="nothing: random weights"),
    Flag("--threads", "Threads", "CPU threads; empty: all. One fewer keeps the app responsive.", None, 1, 256, 1,
          more=True, placeholder="all threads"),
    replace(RATE, default=0.02),
    DEVICE,
    SEED,
)  # fmt: skip
OF_SELECTOR = (
    Flag("--verifier", "Verifier", "Whose expected tokens it learns: a selector works with one verifier only.",
          "specinfer", choices=VERIFIERS),
    TEXTS,
    Flag("--texts", "Texts", "Pieces of text whose roots are labelled for training; labelling time is proportional to "
          "their number, and labels are saved for the other verifiers.", 112, 1, 10**6, 14),
    Flag("--held-out", "Held-out texts", "Pieces of text by which weights are chosen; as many more judge them.", 14, 1,
          10**6, 14, more=True),
    Flag("--roots", "Roots per text", "Positions in a text at which trees are labelled.", 10, 1, 1000, 1, more=True),
    Flag("--spacing", "Spacing", "Tokens between two roots.", 16, 1, 1000, 1, more=True),
    Flag("--trees", "Trees per root", "Drawn trees whose labels are averaged.", 1, 1, 64, 1,
          more=True),
    Flag("--rule", "Learns", "Expected tokens of every shape, divided by its time on this machine; or which shape to "
          "take, as in the paper.", "tokens", choices={"tokens": "expected tokens", "policy": "the shape"}, more=True),
    Flag("--batch", "Batch", "Roots per step, each under one sampling.", 256, 1, 65_536, 32, more=True),
    Flag("--penalty", "Penalty (λ)", "Weight of roots where the selector is worse than the best static shape (Eq. 12).",
          1.0, 0.0, 100.0, 0.1, more=True),
    Flag("--worst", "Worst share (α)", "Share of worst roots that the penalty applies to (Eq. 12).", 0.1, 0.01, 1.0,
          0.05, more=True),
    Flag("--dropout", "Dropout", "Share of hidden units dropped in a step.", 0.2, 0.0, 0.95, 0.05, more=True),
    Flag("--weight-decay", "Weight decay", "Pulls weights towards 0.", 0.02, 0.0, 1.0, more=True),
    Flag("--time", "Pass time", "By number of tokens, as measured on this machine, or by the paper's Eq. 11.", "rows",
          choices={"rows": "by number of tokens", "paper": "as in the paper"}, more=True),
    replace(RATE, default=1e-3), DEVICE, SEED,
)  # fmt: skip
FIELDS: dict[Kind, tuple[Flag, ...]] = {"head": OF_HEAD, "selector": OF_SELECTOR, "embedded": OF_PAIR}
# Minutes and steps that the form begins with.
LENGTHS: dict[Kind, tuple[float, int]] = {"head": (10.0, 600), "selector": (1.0, 2000), "embedded": (60.0, 5000)}


def parser_of(kind: Kind, description: str, **more: Mapping[str, Any]) -> argparse.ArgumentParser:
    """The arguments that a page shows, and those of every training; `more` is of `add_argument`, by field."""
    made = argparse.ArgumentParser(prog=f"python -m {MODULES[kind]}", description=description)
    for field in FIELDS[kind]:
        field.add_to(made, **more.get(field.name, {}))
    made.add_argument("--out", type=Path, metavar="DIR", help="folder of the training run (default: a new one)")
    made.add_argument("--resume", action="store_true", help="resume the training run in --out")
    length = made.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, metavar="N", help=f"time to train (default {LENGTHS[kind][0]:g})")
    length.add_argument("--steps", type=int, metavar="N", help="optimiser steps to train")
    return made


def minutes_of(args: argparse.Namespace, kind: Kind) -> float | None:
    """Minutes to train, None where steps are asked for."""
    return LENGTHS[kind][0] if args.minutes is None and args.steps is None else args.minutes


NO_FLAGS = ("device", "engine", "attention", "chat")  # of a pair in training; the device is every training's


def pair_of(args: argparse.Namespace) -> "Pair":
    """Load the pair, its target run by an engine that takes passes of any size."""
    from transformers import logging

    from decoding.models.pair import load_pair

    logging.set_verbosity_error()
    pair = load_pair(pair_settings(args))
    return pair.with_engine("transformers") if pair.target.info.engine == "cuda_graph" else pair


def training_of(out: Path | None, resume: bool, words: str) -> Training:
    """The training asked for, else a new one below `training_home()`, such as `head-talf-2026-11-22`.

    Raises:
        TrainingError: what is to be resumed is not named or not there.
        JobError: another process is at work on it.
    """
    if out is None and resume:
        raise TrainingError("Name the training run to resume: --out DIR.")
    if out is None:
        return Training(free_folder(training_home(), f"{words}-{time.strftime('%Y-%m-%d')}"))
    training = Training(out)
    if resume:
        training.settings()
        training.claim()
        training.clear_stop()
    return training


def noted(kind: Kind, name: str, words: Sequence[str], settings: Mapping[str, Any], pair: "Pair") -> TrainingSettings:
    """What is noted of a training for a pair, which was called with some words."""
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
        created=local_stamp(),
    )
