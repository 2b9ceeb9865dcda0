"""Sentences of the engine and of commands as a page tells them: settings and options by the names of their widgets.

A page has no `--out` and no `--resume`.
"""

import re
from collections.abc import Mapping
from functools import cache

from decoding.common.settings import SettingInfo, settings_of
from decoding.training.command import FIELDS

# Settings of a call, whose widgets are not a method's.
CALL_LABELS = {"draft_temperature": "Draft temperature", "top_p": "Top-p", "max_new_tokens": "New tokens at most"}


@cache
def known_settings() -> Mapping[str, SettingInfo]:
    """Every setting of every drafter, verifier and method by name; those of one name share their words.

    They stand where they are computed with: none is known without torch.
    """
    from pages.ui.common.torch_there import torch_there  # it tells of errors, which are told in these sentences

    if not torch_there():
        return {}
    from decoding.drafters import DRAFTERS
    from decoding.methods.method import Method
    from decoding.verifiers import VERIFIERS

    known: dict[str, SettingInfo] = {}
    for kind in (*DRAFTERS.values(), *VERIFIERS.values(), Method):
        known |= settings_of(kind)
    return known


def info_of(name: str) -> SettingInfo:
    """The words for a setting; its name alone where this program does not know it."""
    return known_settings().get(name) or SettingInfo(None, name.replace("_", " ").capitalize(), name=name)


def as_labelled(sentence: str) -> str:
    """A sentence of the engine with settings named as their widgets name them: `“Children, sure (B_min)”`."""

    def label(found: re.Match) -> str:
        name, opening = found.groups()
        if name in CALL_LABELS:
            return f"“{CALL_LABELS[name]}”{opening}"
        info = info_of(name)
        # What follows in brackets is the symbol, or the value with it.
        return f"“{info.label}”{opening}" if opening else f"“{info.title}”"

    names = "|".join(name for name in (*known_settings(), *CALL_LABELS) if "_" in name)
    return re.sub(rf"\b({names})\b( \(|)", label, sentence)


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
LABELS = {field.flag: f"“{field.label}”" for fields in FIELDS.values() for field in fields}


def on_page(sentence: str) -> str:
    """The sentence as a page says it: without options of a command, which become the names of their widgets."""
    for said, instead in PHRASES:
        sentence = re.sub(said, instead, sentence)
    # What is no option of a training stays: a command to type, such as `hf download`, keeps its options.
    return re.sub(r"--[a-z][a-z-]+", lambda found: LABELS.get(found[0], found[0]), sentence)
