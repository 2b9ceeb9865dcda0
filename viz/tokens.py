"""Token text that a person can read, with whitespace made visible."""

import unicodedata
from functools import lru_cache

# The two marks that a reader of tokenizers knows; everything else that has no shape is written as an escape.
_NAMED = {" ": "·", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SHAPELESS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}


# A run says the same tokens again and again.
@lru_cache(maxsize=1 << 14)
def visible(text: str, limit: int | None = None) -> str:
    """Token text with its whitespace visible, cut with an ellipsis at `limit` columns."""
    shown = "".join(_visible_character(character) for character in text) or "∅"
    if limit is None or columns(shown) <= limit:
        return shown
    kept = ""
    for character in shown:
        if columns(kept + character) >= limit:
            break
        kept += character
    return kept + "…"


@lru_cache(maxsize=1 << 14)
def columns(text: str) -> int:
    """Width of a text in monospace columns; wide East Asian characters and emoji take two."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _visible_character(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    # Bidirectional overrides and zero-width characters could reorder or hide their neighbours on screen.
    if unicodedata.category(character) in _SHAPELESS:
        code = ord(character)
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    return character


def escaped(text: str) -> str:
    """A text with the characters escaped that Plotly reads as markup; its spaces stay spaces."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quote(text: str) -> str:
    """A token in a sentence."""
    return f"‘{visible(text, 24)}’"
