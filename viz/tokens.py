"""Token text that a person can read, with whitespace made visible; numbers, lists and places in sentences."""

import unicodedata
from collections.abc import Sequence
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


def number(value: float | None, digits: int = 2) -> str:
    """A probability as a person writes it: `0.62`, `<0.01` for what would read 0.00, `–` for none."""
    if value is None or value != value:
        return "–"
    if 0 < value < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}"
    return f"{value:.{digits}f}"


def milliseconds(seconds: float) -> str:
    """A time as a person writes it: `2.9 ms`, `310 µs`, `1.2 s`."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} µs"


def plural(count: int, singular: str, several: str | None = None) -> str:
    """A count with its noun: `1 node`, `3 nodes`."""
    return f"{count:,} {singular if count == 1 else several or singular + 's'}"


def for_plotly(text: str) -> str:
    """Visible token text with the characters escaped that Plotly reads as markup."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def for_plotly_keep(text: str) -> str:
    """A title with the characters escaped that Plotly reads as markup; its spaces stay spaces."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quote(text: str) -> str:
    """A token in a sentence."""
    return f"‘{visible(text, 24)}’"


def ordinal(place: int) -> str:
    """A place in an order: `1st`, `12th`, `23rd`."""
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place:,}{ending}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and a last `and`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def chance(probability: float) -> str:
    """A probability in a sentence: never 0 or 1 where it is neither."""
    if probability in (0.0, 1.0):
        return f"{probability:.0f}"
    for digits in (2, 3, 4):
        if 0 < float(f"{probability:.{digits}f}") < 1:
            return f"{probability:.{digits}f}"
    return "less than 0.0001" if probability < 0.5 else "more than 0.9999"


def percent(probability: float) -> str:
    """A probability as a share: never 0% or 100% where it is neither."""
    if probability in (0.0, 1.0):
        return f"{100 * probability:.0f}%"
    for digits in (1, 2):
        if 0 < float(f"{100 * probability:.{digits}f}") < 100:
            return f"{100 * probability:.{digits}f}%"
    return "less than 0.01%" if probability < 0.5 else "more than 99.99%"


def beside(value: float, *limits: float, digits: int = 3) -> str:
    """A number beside limits that it is held against, with more decimals where it would read like one of them."""
    for more in range(digits, digits + 4):
        said = number(value, more)
        if value in limits or all(said != f"{limit:.{more}f}" for limit in limits):
            break
    return said


def apart(first: float, second: float) -> tuple[str, str]:
    """Two probabilities with as many decimals as show which one is larger, two at least, and that neither is 0 or 1."""
    for digits in (2, 3, 4, 5):
        if f"{first:.{digits}f}" != f"{second:.{digits}f}":
            return _inside(first, digits), _inside(second, digits)
    return f"{first:g}", f"{second:g}"


def limit_and_drawn(limit: float, drawn: float | None) -> tuple[str, str]:
    """What the number drawn in a test has to be below, and that number."""
    return (chance(limit), "none") if drawn is None else apart(limit, drawn)


def _inside(probability: float, digits: int) -> str:
    """A probability with more decimals where it would read 0 or 1."""
    if probability in (0.0, 1.0):
        return f"{probability:.0f}"
    for more in range(digits, 9):
        if 0 < float(f"{probability:.{more}f}") < 1:
            return f"{probability:.{more}f}"
    return f"{probability:.1e}" if probability < 0.5 else f"{probability:.12g}"
