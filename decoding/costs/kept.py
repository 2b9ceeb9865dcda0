"""What is measured once per pair and kept: one file per pair and kind in the user's cache folder, and in memory.

    rates = recall(pair, "", entry, are_rates)          # None: measure, then
    keep(pair, "", entry, rates, are_rates)

The files lie in `draftscope/calibration/`; a damaged one is said aloud and measured again.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decoding.common.errors import DiskError
from decoding.common.files import cache_home, write_whole
from decoding.models.pair import Pair, pair_identity

ELSEWHERE = "name another cache folder in XDG_CACHE_HOME"

_known: dict[tuple[Path, str], Any] = {}


def recall(pair: Pair, kind: str, entry: str, valid: Callable[[Any], bool]) -> Any | None:
    """What is kept of a pair under an entry, None if nothing is.

    Args:
        kind: ending of the file's name, empty for acceptance by rank.
        valid: whether a value read from a file can be what it is taken for.
    """
    file = kept_file(pair, kind)
    if (file, entry) not in _known:
        entries = _read(file, valid)
        if entry not in entries:
            return None
        _known[file, entry] = entries[entry]
    return _known[file, entry]


def keep(pair: Pair, kind: str, entry: str, value: Any, valid: Callable[[Any], bool]) -> None:
    """Keep a value that JSON can hold; other entries of the file stay."""
    file = kept_file(pair, kind)
    _write(file, pair, _read(file, valid) | {entry: value})
    _known[file, entry] = value


def kept_file(pair: Pair, kind: str = "") -> Path:
    """Where the values of one kind are kept for a pair."""
    digest = hashlib.sha256(json.dumps(pair_identity(pair), sort_keys=True).encode()).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9]+", "-", pair.info.name.lower()).strip("-")[:60]
    return cache_home() / "calibration" / f"{'-'.join(filter(None, (name, digest, kind)))}.json"


def _read(file: Path, valid: Callable[[Any], bool]) -> dict[str, Any]:
    """The entries of a file; none if there is no file, or if it is damaged, which is said aloud."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        entries = content["entries"]
        if all(valid(value) for value in entries.values()):
            return entries
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    warnings.warn(f"The calibration in {file} cannot be read; it is measured again.", stacklevel=4)
    return {}


def _write(file: Path, pair: Pair, entries: dict[str, Any]) -> None:
    """Write the entries, or say aloud that the disk does not take them: what was measured serves without a file too."""
    text = json.dumps({"pair": pair_identity(pair), "entries": entries}, indent=1)
    try:
        write_whole(file, text.encode(), advice=ELSEWHERE)
    except DiskError as error:
        warnings.warn(f"The calibration cannot be kept: {error}", stacklevel=4)
