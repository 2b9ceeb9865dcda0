"""Train the embedded pair from text: `python -m decoding.training.embedded CORPUS_DIR --minutes N`.

Tokenizer, target and draft are made from any folder of `.txt` and `.txt.gz` files and are then in `out/target` and
`out/draft` of the training's folder, ready for `--target` and `--draft` of every command. A longer training goes on
from where the learning rate was still steady:

    python -m decoding.training.embedded texts --minutes 60 --out pair
    python -m decoding.training.embedded --minutes 600 --out pair --resume

A trained pair is trained on: its tokenizer is kept, and phases are left out.

    python -m decoding.training.embedded texts --minutes 90 --out pair --start-from old --first loops --context 4096
    python -m decoding.training.embedded texts --minutes 60 --out pair --start-from old --first draft --draft 256x2

Exit code 0: finished; 1: stopped, out of memory or failed; 2: what was asked for cannot be done.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import TrainingError, command
from decoding.common.files import local_stamp
from decoding.jobs.process import conduct, preparing
from decoding.models.presets import choose_device
from decoding.training.command import FIELDS, LENGTHS, parser_of, training_of
from decoding.training.folder import MODULES, Training, TrainingSettings

if TYPE_CHECKING:
    from decoding.training.pair_networks import NetworkShape
    from decoding.training.pair_training import PairSetup
    from decoding.training.text import Texts

PAUSE_S = 300.0
CONTEXT = 2560
HEAD_SIZE = 64  # of a draft
ADAM_SHARE = 0.15  # of Muon's learning rate: AdamW's, for embeddings, biases and norms
# Said once: a training that resumes takes them from where it was begun, unless they are given again.
DEFAULTS: Mapping[str, Any] = {
    **{field.name: None if field.default == "" else field.default for field in FIELDS["embedded"]},
    "minutes": None, "steps": None, "pause": PAUSE_S, "first": None, "context": None, "draft": None,
}  # fmt: skip

# What a training had that was begun before it could be chosen.
BEFORE_CONTEXT: Mapping[str, Any] = {"context": 2048, "draft": "128x1"}


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = parser_of("embedded", "Train a small pair from a folder of text.", corpus={"metavar": "CORPUS_DIR"})
    made.add_argument("--pause", type=float, metavar="SECONDS", help=f"time between measurements (default {PAUSE_S:g})")
    made.add_argument("--again", choices=("cooling", "loops"), help="with --resume: redo this phase and all after it")
    made.add_argument(
        "--first", choices=("cooling", "loops", "draft"), help="with --start-from: leave out the phases before"
    )
    made.add_argument("--context", type=int, metavar="N", help=f"tokens of the longest text (default {CONTEXT})")
    made.add_argument("--draft", metavar="WIDTHxLAYERS", help="shape of the draft, in heads of 64 (default 256x2)")
    made.set_defaults(device=None, seed=None, learning_rate=None)  # see DEFAULTS
    return made


@command
def main(arguments: list[str] | None = None) -> int:
    """Train and store a pair; every error is one sentence on stderr."""
    args = parser().parse_args(arguments)
    if args.again and not args.resume:
        raise TrainingError("--again redoes a phase of an existing training run: add --resume and --out DIR.")
    training = training_of(args.out, args.resume, "embedded")
    asked = merged(args, training.settings().settings if args.resume else {})
    return conduct(training, lambda: _prepared(asked, training, args.resume, args.again or ""))


def merged(args: argparse.Namespace, begun_with: Mapping[str, Any]) -> dict[str, Any]:
    """All settings: as typed, else as the training was begun with, else the defaults."""
    typed = {name: value for name, value in vars(args).items() if name in DEFAULTS and value not in (None, False)}
    if begun_with and "context" not in begun_with:
        begun_with = {**BEFORE_CONTEXT, **begun_with}
    if "minutes" in typed or "steps" in typed:
        begun_with = {**begun_with, "minutes": None, "steps": None}
    asked = {**DEFAULTS, **begun_with, **typed}
    if asked["corpus"] is None:
        raise TrainingError(
            f"Give a folder of .txt or .txt.gz files to train on: python -m {MODULES['embedded']} CORPUS_DIR."
        )
    if asked["minutes"] is None and asked["steps"] is None:
        asked["minutes"] = LENGTHS["embedded"][0]
    return {name: str(value) if isinstance(value, Path) else value for name, value in asked.items()}


def _prepared(asked: Mapping[str, Any], training: Training, resume: bool, again: str) -> Callable[[], None]:
    """All that comes before the first step; gives what trains."""
    import torch

    from decoding.training.pair_tokens import TOKENIZER, keep_tokenizer, prepare
    from decoding.training.pair_training import DATA, OUT, Length, PairTraining, trained_folder
    from decoding.training.text import read_corpus

    if asked["threads"]:
        torch.set_num_threads(asked["threads"])
    if asked["first"] and not asked["start_from"]:
        raise TrainingError("Phases are left out only of a trained pair: name its folder in --start-from.")
    length = Length(asked["minutes"], asked["steps"], asked["pause"])
    setup = setup_of(asked)
    read: Callable[[], Texts] = partial(read_corpus, Path(asked["corpus"]), python_source=asked["python_source"])
    if resume:  # it may be longer than it was begun with
        training.write_settings(_settings(asked, training.settings().created))
    else:
        corpus = read()  # what is wrong with the text is said before there is a folder
        training.begin(_settings(asked, local_stamp()))
        if asked["first"]:
            keep_tokenizer(trained_folder(Path(asked["start_from"]), "target"), training.path / DATA / TOKENIZER)
        read = lambda: corpus  # noqa: E731
    report = partial(preparing, training, device=setup.device)
    pairs = PairTraining(training, prepare(training.path / DATA, read, report=report), length, setup)

    def work() -> None:
        pairs.run(resume, again)
        place = training.path / OUT
        print(f"{place}: target and draft; use --target {place / 'target'} --draft {place / 'draft'}")

    return work


def setup_of(asked: Mapping[str, Any]) -> "PairSetup":
    """What is trained and how, of all settings by name."""
    from decoding.training.pair_loops import LoopSettings
    from decoding.training.pair_networks import DRAFT, TARGET
    from decoding.training.pair_phases import DraftSettings, TargetSettings
    from decoding.training.pair_training import FIRST, STEADY, PairSetup

    rate, context = asked["learning_rate"], asked["context"] or TARGET.context
    target = TargetSettings(matrix_rate=rate, other_rate=ADAM_SHARE * rate)
    start_from = Path(asked["start_from"]) if asked["start_from"] else None
    draft = shape_of(asked["draft"]) if asked["draft"] else DRAFT
    return PairSetup(
        asked["seed"],
        choose_device(asked["device"]),
        start_from,
        FIRST[asked["first"]] if asked["first"] else STEADY,
        target_shape=replace(TARGET, context=context),
        draft_shape=replace(draft, context=context),
        target=target,
        loops=LoopSettings(long_window=context),
        draft=DraftSettings(long_window=context),
    )


def shape_of(words: str) -> "NetworkShape":
    """The shape that `WIDTHxLAYERS` asks for; `TrainingError` where it is none."""
    from decoding.training.pair_networks import NetworkShape

    found = re.fullmatch(r"(\d{2,4})x(\d{1,2})", words)
    width, layers = map(int, found.groups()) if found else (0, 0)
    if not width or not layers or width % HEAD_SIZE:
        raise TrainingError(f"A draft {words} is no shape: give a multiple of {HEAD_SIZE} and layers, such as 256x2.")
    return NetworkShape(width, layers, width // HEAD_SIZE)


def _settings(asked: Mapping[str, Any], created: str) -> TrainingSettings:
    """What is kept of it; the command starts it again once a folder is added."""
    words = [asked["corpus"]]
    for name, value in asked.items():
        if name != "corpus" and value not in (None, False) and value != DEFAULTS[name]:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [f"{value}"])]
    name = f"Pair from {Path(asked['corpus']).resolve().name}, {created[:10]}"
    return TrainingSettings("embedded", name, ("-m", MODULES["embedded"], *words), dict(asked), {}, created)


if __name__ == "__main__":
    sys.exit(main())
