"""Settings by name alone, for what is said of several methods at once; a method itself has its own (`Method.infos`)."""

import re
from collections.abc import Mapping
from functools import cache

from decoding.settings import SettingInfo, settings_of

# Settings of a call, whose widgets are not a method's.
CALL_LABELS = {"draft_temperature": "Draft temperature", "top_p": "Top-p", "max_new_tokens": "New tokens at most"}


@cache
def known_settings() -> Mapping[str, SettingInfo]:
    """Every setting of every drafter, verifier and method by name; those of one name share their words."""
    from decoding.drafters import DRAFTERS
    from decoding.method import Method
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
