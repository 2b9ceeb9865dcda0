"""Token text that a person can read, with whitespace made visible."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from decoding.trace.records import IterationTrace

# Marks that readers of tokenizers know; any other invisible character is written as an escape.
_NAMED = {" ": "·", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SHAPELESS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}

# Bytes that are no whole character, as a record has them; and those that begin one which the next tokens may complete.
_BYTES = re.compile(r"(?:<0x[89A-F][0-9A-F]>)+")
_BEGUN = re.compile(r"<0x[C-F][0-9A-F]>(?:<0x[89AB][0-9A-F]>){0,2}$")
PIECE = "‥"  # in place of bytes whose character stands at the token that completes it


def whole(text: str) -> str:
    """A text with the bytes of a character that stand together joined to it; others stay as `<0xD9>`."""

    def joined(found: re.Match) -> str:
        read = bytes(int(each, 16) for each in re.findall("0x(..)", found.group())).decode(errors="surrogateescape")
        return "".join(f"<0x{ord(each) - 0xDC00:02X}>" if "\udc80" <= each <= "\udcff" else each for each in read)

    return _BYTES.sub(joined, text) if "<0x" in text else text


def _read(before: str, text: str) -> tuple[str, str]:
    """What a token reads after bytes that begin a character, and the bytes that begin one after it."""
    joined = whole(before + text)
    begun = _BEGUN.search(joined) if "<0x" in joined else None
    return whole(text) if joined.startswith(before) else joined, begun.group() if begun else ""


def read_along(texts: Sequence[str], before: str = "") -> list[str]:
    """Tokens that follow one another: a character of several stands at the last of them, `PIECE` at the others."""
    shown: list[str] = []
    begun, since = before, 0
    for place, text in enumerate(texts):
        read, left = _read(begun, text)
        if begun and read != whole(text):
            shown[since:] = [_BYTES.sub(PIECE, each) for each in shown[since:]]
        if not (left and begun and left.startswith(begun)):
            since = place
        shown.append(read)
        begun = left
    return shown


def token_text(iteration: IterationTrace, token: int) -> str:
    """The text of a token as its iteration has it; its number where the record lacks it."""
    return iteration.texts.get(token, f"<{token}>")


def readable(iteration: IterationTrace) -> IterationTrace:
    """An iteration in whose texts a character of several tokens stands where its path has them all."""
    if not any("<0x" in node.text for node in iteration.nodes):
        return iteration
    texts: list[str] = []
    begun: list[str] = []
    for node in iteration.nodes:
        read, left = _read(begun[node.parent_id] if node.node_id else "", node.text)
        texts.append(read)
        begun.append(left)
    nodes = tuple(replace(node, text=text) for node, text in zip(iteration.nodes, texts, strict=True))
    committed = tuple(read_along(iteration.committed_texts, begun[0]))
    return replace(iteration, nodes=nodes, committed_texts=committed)


# A run shows the same tokens many times.
@lru_cache(maxsize=1 << 14)
def visible(text: str, limit: int | None = None) -> str:
    """Token text with its whitespace visible, cut with an ellipsis at `limit` columns."""
    # Bidirectional overrides and zero-width characters could reorder or hide their neighbours on screen.
    shown = "".join(
        _NAMED.get(each) or (code_of(each) if unicodedata.category(each) in _SHAPELESS else each)
        for each in whole(text)
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


def quote(text: str, limit: int = 24) -> str:
    """A token in a sentence, cut at `limit` columns."""
    return f"‘{visible(text, limit)}’"
