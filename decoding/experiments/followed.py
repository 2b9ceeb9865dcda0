"""Experiments as one follows them: where they stand, what was asked for, their rows as they come. Torch-free."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from decoding.common.errors import ExperimentError
from decoding.experiments.columns import SCHEMA, SERIES
from decoding.experiments.experiment import GRID
from decoding.experiments.homes import SHIPPED, experiments_home
from decoding.experiments.launch import LAUNCH, Stand, stand
from decoding.experiments.rows import FOLDER, read_part, with_settings

# What charts and tables are made of: per-iteration lists and output tokens would fill the memory.
COLUMNS = [name for name in SCHEMA.names if name not in (*SERIES, "output_ids")]
SHIPPED_MARK = "results/"
PARTS = "part-*.parquet"
ASKED = {"name", "methods", "prompts", "samplings", "new_tokens", "reference", "repeats"}


class FollowedExperiment:
    """An experiment as one reader sees it; of its rows only what has come is read.

    Attributes:
        folder: its own. shipped: whether it came with the program.
        stand: where it stood at the last look.
        asked: the grid that it ran last as plain data; empty before its process has planned it.
        troubles: sentences on files of rows that cannot be read; the rows of all others count.
    """

    def __init__(self, folder: Path, shipped: bool = False):
        self.folder, self.shipped = folder, shipped
        self.troubles: tuple[str, ...] = ()
        self._tables: dict[tuple[Path, int], pa.Table | str] = {}
        self._frame: pd.DataFrame | None = None
        self.look()

    @property
    def key(self) -> str:
        """What an address calls it."""
        return f"{SHIPPED_MARK if self.shipped else ''}{self.folder.name}"

    @property
    def name(self) -> str:
        """What lists call it: the name of its grid."""
        return str(self.asked.get("name") or self.folder.name.replace("_", " "))

    def look(self) -> None:
        """See where it stands."""
        self.stand: Stand = stand(self.folder)
        self.asked: dict[str, Any] = _asked(self.folder / GRID)

    def rows(self) -> pd.DataFrame:
        """All rows so far, each run once; the same object for as long as none has come."""
        files = {file: _stamp(file) for file in sorted((self.folder / FOLDER).glob(PARTS))}
        there = {(file, stamp) for file, stamp in files.items() if stamp is not None}
        if self._frame is not None and there == set(self._tables):
            return self._frame
        tables = {key: self._tables.get(key) or _read(key[0]) for key in sorted(there)}
        self._tables = {key: table for key, table in tables.items() if table is not None}
        self.troubles = tuple(said for said in self._tables.values() if isinstance(said, str))
        self._frame = _joined([table for table in self._tables.values() if not isinstance(table, str)])
        return self._frame


def experiments() -> list[tuple[Path, bool]]:
    """Folders of all experiments, newest first, and by name those that came with the program: `True` beside them."""
    found = [(file.parent, False) for name in (LAUNCH, GRID, FOLDER) for file in experiments_home().glob(f"*/{name}")]
    found += [(file.parent, True) for file in SHIPPED.glob(f"*/{FOLDER}")]
    return sorted(dict.fromkeys(found), key=lambda each: (each[1], not each[1] and -_began(each[0]), each[0].name))


def _asked(file: Path) -> dict[str, Any]:
    """A grid as plain data; empty where there is none or another version wrote it."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and content.keys() >= ASKED else {}


def _began(folder: Path) -> float:
    """When something was last started there, in seconds since 1970."""
    started = max(_stamp(folder / name) or 0 for name in (LAUNCH, GRID))
    return (started or _stamp(folder / FOLDER) or 0) / 1e9


def _stamp(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def _read(file: Path) -> pa.Table | str | None:
    """A file of rows; a sentence where it cannot be read; None where another process has just put it into a larger."""
    try:
        return read_part(file, COLUMNS)
    except ExperimentError as error:
        return str(error) if file.exists() else None


def _joined(tables: list[pa.Table]) -> pd.DataFrame:
    if not tables:
        return pa.schema([SCHEMA.field(name) for name in COLUMNS]).empty_table().to_pandas()
    return with_settings(pa.concat_tables(tables).to_pandas().drop_duplicates("key"))
