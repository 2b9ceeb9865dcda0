"""What is measured once per pair and kept: one file per pair and kind in the user's cache folder, and in memory.

    COSTS = Kept("costs", CostModel.from_json, CostModel.as_json)
    costs = COSTS.of(pair, entry, measure)

The files lie in `draftscope/calibration/`; a damaged one is said aloud and measured again.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from decoding.common.errors import DiskError
from decoding.common.files import user_folder, write_whole
from decoding.models.pair import Pair, pair_identity

T = TypeVar("T")
ELSEWHERE = "name another cache folder in XDG_CACHE_HOME"

_known: dict[tuple[Path, str], Any] = {}


def kept_file(pair: Pair, kind: str = "") -> Path:
    """Where the values of one kind are kept for a pair."""
    digest = hashlib.sha256(json.dumps(pair_identity(pair), sort_keys=True).encode()).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9]+", "-", pair.info.name.lower()).strip("-")[:60]
    return user_folder("calibration") / f"{'-'.join(filter(None, (name, digest, kind)))}.json"


@dataclass(frozen=True)
class Kept(Generic[T]):
    """Values of one kind, an entry of the pair's file for each thing that they depend on beside the pair.

    Attributes:
        kind: ending of the files' names, empty for acceptance by rank.
        read: what JSON held to a value; raises ValueError, KeyError, TypeError or AttributeError where it cannot be.
        write: a value to what JSON can hold.
    """

    kind: str
    read: Callable[[Any], T]
    write: Callable[[T], Any]

    def known(self, pair: Pair, entry: str) -> T | None:
        """What is kept of a pair under an entry, None if nothing is."""
        file = kept_file(pair, self.kind)
        if (file, entry) not in _known:
            entries = self._entries(file)
            if entry not in entries:
                return None
            _known[file, entry] = self.read(entries[entry])
        return _known[file, entry]

    def of(self, pair: Pair, entry: str, measure: Callable[[], T], again: bool = False) -> T:
        """What is kept, or is measured now and kept; other entries of the file stay.

        Args:
            again: measure even where a value is kept.
        """
        known = None if again else self.known(pair, entry)
        if known is not None:
            return known
        value, file = measure(), kept_file(pair, self.kind)
        entries = self._entries(file) | {entry: self.write(value)}
        text = json.dumps({"pair": pair_identity(pair), "entries": entries}, indent=1)
        try:
            write_whole(file, text.encode(), advice=ELSEWHERE)
        except DiskError as error:  # what was measured serves without a file too
            warnings.warn(f"The calibration cannot be kept: {error}", stacklevel=3)
        _known[file, entry] = value
        return value

    def _entries(self, file: Path) -> dict[str, Any]:
        """The entries of a file as JSON holds them; none if there is no file, or if it is damaged."""
        try:
            entries = json.loads(file.read_text(encoding="utf-8"))["entries"]
            for stored in entries.values():
                self.read(stored)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            warnings.warn(f"The calibration in {file} cannot be read; it is measured again.", stacklevel=4)
            return {}
        return entries
