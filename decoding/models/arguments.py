"""The arguments that choose a pair on a command line, each declared once. Torch-free."""

import argparse
from dataclasses import fields
from typing import Any

from decoding.common.settings import ENGINES, present_engines
from decoding.models.presets import (
    ATTENTIONS,
    CONTEXT_LENGTH,
    DEVICES,
    DTYPES,
    EMBEDDED,
    WIDTHS,
    PairSettings,
)

WIDEN_HELP = "make the embedded target so many times as wide: the same texts at the cost of a larger model"
MODEL = "a folder, a GGUF file, or a Hugging Face id"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "target": {"default": EMBEDDED, "help": MODEL},
    "draft": {"default": EMBEDDED, "help": MODEL},
    "widen": {"type": int, "default": 1, "choices": WIDTHS, "help": WIDEN_HELP},
    "device": {"choices": DEVICES, "default": "auto"},
    "dtype": {"choices": DTYPES, "default": "auto"},
    "engine": {"choices": ENGINES, "default": "auto", "type": present_engines},
    "attention": {"choices": ATTENTIONS, "default": "auto"},
    "context_length": {"type": int, "default": CONTEXT_LENGTH, "metavar": "N", "help": "most tokens, with the prompt"},
    "split": {"action": "store_true", "help": "spread the target over several GPUs"},
    "chat": {"action": "store_true", "help": "put prompts through the chat template"},
}  # fmt: skip


def add_pair_arguments(parser: argparse.ArgumentParser, *left_out: str) -> None:
    """Arguments that choose a pair, those `left_out` aside; the embedded one by default."""
    pair = parser.add_argument_group("pair")
    for name, words in ARGUMENTS.items():
        if name not in left_out:
            pair.add_argument(f"--{name.replace('_', '-')}", **words)


def pair_settings(args: argparse.Namespace, **others: Any) -> PairSettings:
    """What the arguments say of a pair, with `others` in their place."""
    asked = {each.name: getattr(args, each.name) for each in fields(PairSettings) if each.name in args}
    return PairSettings(**asked | others)
