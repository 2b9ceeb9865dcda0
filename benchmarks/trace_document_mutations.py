"""Ways to spoil the JSON of a saved run; the archive around it is written anew, with right checksums."""

import copy
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

RUN = "run.json"
JUNK = (None, -1, 0, 1, 0.5, -0.5, 1e308, "x", "", [], {}, [1], ["a"], {"a": 1}, True, False, "\u2028</script>", "=1+1")
HUGE = (2**31, 2**53, 2**63, 2**64 - 1, 2**64, 10**30, -(2**31), -(2**63), 1e308, 1e-308)


@dataclass(frozen=True)
class Saved:
    """A saved run taken apart: its bytes, its document and the other entries of its archive by name."""

    data: bytes
    document: dict[str, Any]
    arrays: dict[str, bytes]

    @classmethod
    def of(cls, data: bytes) -> "Saved":
        """Take a good file apart."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        return cls(data, json.loads(entries.pop(RUN)), entries)

    def packed(self, text: bytes | None = None, extra: tuple[tuple[str, bytes], ...] = ()) -> bytes:
        """The bytes of the file with document and arrays as they are; `text` takes the place of the document."""
        text = json.dumps(self.document).encode() if text is None else text
        return packed([(RUN, text), *self.arrays.items(), *extra])


def packed(entries: list[tuple[str, bytes]], stored: bool = False) -> bytes:
    """A zip of some entries, as they are where `stored`; a name may come twice."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _places(value: Any) -> list[tuple[str, Any, Any]]:
    """Every (field, container, key) of a document; entries of a list belong to the field that it is."""
    found, left = [], [("", value)]
    while left:
        field, here = left.pop()
        for key in here if isinstance(here, dict) else range(len(here)):
            name = key if isinstance(here, dict) and not key.isdigit() else field
            found.append((name, here, key))
            if isinstance(here[key], dict | list):
                left.append((name, here[key]))
    return found


def edited(saved: Saved, chance: Random, change: Callable[[Any, Any], None], fits: Callable[[Any], bool]) -> bytes:
    """The file with one to three fitting places of its document changed, in fields that are all as likely."""
    document = copy.deepcopy(saved.document)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        by_field: dict[str, list] = {}
        for field, here, key in _places(document):
            if fits(here[key]):
                by_field.setdefault(field, []).append((here, key))
        if by_field:
            change(*chance.choice(by_field[chance.choice(sorted(by_field))]))
    return replace(saved, document=document).packed()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _types(saved: Saved, chance: Random) -> bytes:
    def change(here: Any, key: Any) -> None:
        here[key] = copy.deepcopy(chance.choice(JUNK))

    return edited(saved, chance, change, lambda value: True)


def _huge(saved: Saved, chance: Random) -> bytes:
    def change(here: Any, key: Any) -> None:
        here[key] = chance.choice(HUGE)

    return edited(saved, chance, change, _is_number)


def _nudged(saved: Saved, chance: Random) -> bytes:
    """Numbers that could be right: off by one, taken from elsewhere, a little larger."""
    everywhere = [here[key] for _, here, key in _places(saved.document) if _is_number(here[key])]

    def change(here: Any, key: Any) -> None:
        value = here[key]
        steps = (value + 1, value - 1, -value, 2 * value, 0, chance.choice(everywhere))
        here[key] = chance.choice(steps)

    return edited(saved, chance, change, _is_number)


def _words(saved: Saved, chance: Random) -> bytes:
    """Words exchanged for other words of the document, so that they are valid but elsewhere."""
    everywhere = [here[key] for _, here, key in _places(saved.document) if isinstance(here[key], str)]

    def change(here: Any, key: Any) -> None:
        here[key] = chance.choice((chance.choice(everywhere), here[key] * 1000, "\0", "\U0010ffff", "<b>"))

    return edited(saved, chance, change, lambda value: isinstance(value, str))


def _lengths(saved: Saved, chance: Random) -> bytes:
    """Lists and mappings that lose, double or reverse their entries."""

    def change(here: Any, key: Any) -> None:
        value = here[key]
        if isinstance(value, dict):
            name = chance.choice(sorted(value))
            value.pop(name) if chance.random() < 0.7 else value.__setitem__(name + "_", value[name])
            return
        here[key] = chance.choice((value[:-1], value[1:], value * 2, value[::-1], value * 500, []))

    return edited(saved, chance, change, lambda value: isinstance(value, dict | list) and bool(value))


def _gone(saved: Saved, chance: Random) -> bytes:
    """Values exchanged for null, which only some fields may be."""

    def change(here: Any, key: Any) -> None:
        here[key] = None

    return edited(saved, chance, change, lambda value: not isinstance(value, dict))


def _deep(saved: Saved, chance: Random) -> bytes:
    depth = chance.choice((50, 900, 3_000, 100_000))
    open_, close = chance.choice((("[", "]"), ('{"a":', "}")))
    nest = open_ * depth + "1" + close * (depth if chance.random() < 0.5 else 0)
    text = json.dumps(saved.document)
    place = chance.choice(("settings", "iterations", "hardware", "format"))
    return saved.packed(text.replace(f'"{place}": ', f'"{place}": {nest}, "{place}": ', 1).encode())


def _text(saved: Saved, chance: Random) -> bytes:
    """A document that is no right JSON or no right text."""
    text = json.dumps(saved.document).encode()
    at = chance.randrange(len(text))
    swaps = (
        (b"0.", b"NaN,0."), (b": 0", b": Infinity"), (b": 0", b": -Infinity"), (b": 1", b": 1e999"),
        (b": 1", b": " + b"9" * 4000), (b'"a"', b'"\\ud800"'), (b'"', b"'"),
    )  # fmt: skip
    ways = (
        text[:at], text[:at] + b"\xff\xfe" + text[at:], text[:at] + b"\0" + text[at:], b"\xef\xbb\xbf" + text,
        text.decode().encode("utf-16"), text + text, b"9" * 5000, b"[]", b"null",
        *(text.replace(old, new, 1) for old, new in swaps),
    )  # fmt: skip
    return saved.packed(chance.choice(ways))


def _version(saved: Saved, chance: Random) -> bytes:
    document = copy.deepcopy(saved.document)
    value = chance.choice((0, -1, 2, 99, 10**30, "1", None, True, 1.0, [1], {}))
    chance.choice((document, document["run"]))[chance.choice(("version", "format_version", "format"))] = value
    return replace(saved, document=document).packed()


DOCUMENT_KINDS: dict[str, Callable[[Saved, Random], bytes]] = {
    "JSON of another type": _types,
    "null": _gone,
    "numbers huge": _huge,
    "numbers nudged": _nudged,
    "words exchanged": _words,
    "lengths": _lengths,
    "deep nesting": _deep,
    "broken JSON": _text,
    "other versions": _version,
}
