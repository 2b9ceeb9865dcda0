"""Sentences of the training and sweep commands in the words of a page, which has no `--out` and no `--resume`."""

import re

from pages.ui.train_fields import FIELDS

# What a sentence says about the command line, and what a page says in its place; longer ones first.
PHRASES = (
    (
        r"(cannot be written \([^)]*\)): choose another --out",
        r"\1: make it writable, or name another folder in DRAFTSCOPE_TRAINING or DRAFTSCOPE_EXPERIMENTS",
    ),
    (r"go on with --resume or choose another --out", "resume it or start a new one"),
    (r"start (?:the training )?again in another --out", "start a new training"),
    (r"take it away or choose another --out", "move it away and start again"),
    (r"choose another --out", "start a new one"),
    (r"go on with --resume", "it goes on when it is resumed"),
    (r"start the training without --resume", "start a new training"),
    (r"start one with --out .+?(?=\.?$)", "start a new one"),
    (r"name (?:an empty|another) folder with --(?:prepared|data)", "move its files away and start again"),
    (r"choose another --start-from", "choose another one to go on from"),
    (r"load the pair with --dtype bfloat16", "load the pair in bfloat16"),
    (r"resume it without", "resume it"),
    (r"run its benchmark with --save", "run its benchmark again"),
    (r"pip install ray, or leave --ray away", "pip install ray"),
)
LABELS = {field.flag: field.label for fields in FIELDS.values() for field in fields}


def on_page(sentence: str) -> str:
    """The sentence as a page says it: without options of a command, which become the names of their widgets."""
    for said, instead in PHRASES:
        sentence = re.sub(said, instead, sentence)
    return re.sub(r"--[a-z][a-z-]+", _label, sentence)


def _label(found: re.Match) -> str:
    """The name of a widget, or what stood there: a command to type, such as `hf download`, keeps its options."""
    return f"“{LABELS[found[0]]}”" if found[0] in LABELS else found[0]
