"""Token text that a person can read, with whitespace made visible."""

import unicodedata
from functools import lru_cache

# Marks that readers of tokenizers know; any other invisible character is written as an escape.
_NAMED = {" ": "·", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SHAPELESS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}


# A run shows the same tokens many times.
@lru_cache(maxsize=1 << 14)
def visible(text: str, limit: int | None = None) -> str:
    """Token text with its whitespace visible, cut with an ellipsis at `limit` columns."""
    # Bidirectional overrides and zero-width characters could reorder or hide their neighbours on screen.
    shown = "".join(
        _NAMED.get(each) or (code_of(each) if unicodedata.category(each) in _SHAPELESS else each) for each in text
    )
    shown = shown or "∅"
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
    wide = [unicodedata.east_asian_width(each) in "WF" for each in text if not unicodedata.combining(each)]
    return len(wide) + sum(wide)


def code_of(character: str) -> str:
    """A character as an escape: `\\x00`, `\\ud800`."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def escaped(text: str) -> str:
    """A text with Plotly's markup characters escaped; spaces stay."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quote(text: str) -> str:
    """A token in a sentence."""
    return f"‘{visible(text, 24)}’"
