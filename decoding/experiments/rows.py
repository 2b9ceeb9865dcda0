"""What is kept of every run, a row each, in Parquet files that are only ever added to.

    rows/part-000000-4711.parquet    some rows: number of the part, process that wrote it
    rows/part-000001-4711.parquet

A part is there whole or not at all. `RowStore` gives every run once, whatever interruption came when.
"""

import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from decoding.common.errors import ExperimentError
from decoding.common.files import disk_errors, write_whole
from decoding.experiments.columns import FIGURE, SCHEMA, VERSION, VERSION_KEY, Row, packed, read_for, unpacked

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "rows"


class RowStore:
    """The rows of a folder; one process at a time should write to it.

    Args:
        folder: of the experiment; its rows lie in `rows/`.
    """

    def __init__(self, folder: Path):
        self.folder = folder / FOLDER
        self._next = max((_number(file) for file in self._files()), default=-1) + 1

    def append(self, rows: Sequence[Row]) -> None:
        """Keep rows; what a row leaves out is null.

        Raises:
            ExperimentError: the disk is full or cannot be written; what was kept before is as it was.
        """
        if not rows:
            return
        table = pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in rows], schema=SCHEMA)
        with disk_errors(self.folder, ExperimentError):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._write(table)

    def keys(self) -> set[str]:
        """Keys of all runs that are kept.

        Raises:
            ExperimentError: a file is damaged or of another version.
        """
        return set(self._table(["key"]).column("key").to_pylist())

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows in the order in which they were kept, each run once.

        Raises:
            ExperimentError: a file is damaged or of another version.
        """
        wanted = None if columns is None else list(dict.fromkeys(["key", *columns]))
        table = self._table(wanted)
        first: dict[str, int] = {}
        for place, key in enumerate(table.column("key").to_pylist()):
            first.setdefault(key, place)
        return table if len(first) == table.num_rows else table.take(pa.array(first.values(), pa.int64()))

    def frame(self, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """The same as pandas has it, settings in columns of their own: `settings.max_depth`."""
        frame = self.table(columns).to_pandas()
        return with_settings(frame) if "settings" in frame else frame

    def compact(self) -> None:
        """Put all parts into one, so that a long experiment does not end as thousands of files."""
        parts = self._files()
        if len(parts) > 1:
            self._write(self.table())
            for part in parts:  # one that is left when this is cut short holds runs that are read once all the same
                part.unlink(missing_ok=True)

    def _write(self, table: pa.Table) -> None:
        stream, figures = io.BytesIO(), [each.name for each in SCHEMA if each.type == FIGURE]
        # Statistics and Arrow's own schema would take more room than some hundred rows.
        with pq.ParquetWriter(
            stream, SCHEMA, compression="zstd", compression_level=19, write_statistics=False,
            store_schema=False, use_byte_stream_split=figures,
            use_dictionary=[name for name in SCHEMA.names if name not in figures],
        ) as writer:  # fmt: skip
            writer.write_table(packed(table).cast(SCHEMA))
            writer.add_key_value_metadata({VERSION_KEY: VERSION})
        file = self.folder / f"part-{self._next:06d}-{os.getpid()}.parquet"
        write_whole(file, stream.getvalue(), ExperimentError)
        self._next += 1

    def _table(self, columns: list[str] | None) -> pa.Table:
        tables = [read_part(file, columns) for file in self._files()]
        if tables:
            return pa.concat_tables(tables)
        schema = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
        return schema.empty_table()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.parquet"))


def read_part(file: Path, columns: list[str] | None = None) -> pa.Table:
    """The rows of one file.

    Raises:
        ExperimentError: it is damaged, or was written by another version.
    """
    try:
        with pq.ParquetFile(file) as parquet:
            version = (parquet.metadata.metadata or {}).get(VERSION_KEY.encode(), b"").decode()
            if version == VERSION:
                wanted = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
                table = unpacked(parquet.read(read_for(wanted.names)))
                return table.select(wanted.names).cast(wanted).replace_schema_metadata(None)
    except (pa.ArrowException, OSError, KeyError, ValueError, UnicodeDecodeError) as error:
        said = str(error).split("\n")[0]
        raise ExperimentError(f"{file} is damaged ({said}): take it out of its folder and run again.") from None
    whose = f"version {version}" if version else "another program"
    raise ExperimentError(
        f"{file} holds rows of {whose}, and this is version {VERSION}: take it away or choose another --out."
    )


def with_settings(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A frame with a column `settings.NAME` for every setting that occurs in its rows."""
    import pandas as pd

    settings = pd.json_normalize([json.loads(text) for text in frame["settings"]]).add_prefix("settings.")
    return pd.concat([frame.reset_index(drop=True), settings], axis=1)


def all_rows(folders: Iterable[Path]) -> "pd.DataFrame":
    """The rows of several experiments below one another."""
    import pandas as pd

    frames = [RowStore(folder).table().to_pandas() for folder in folders]
    frames = [frame for frame in frames if len(frame)]
    return with_settings(pd.concat(frames, ignore_index=True)) if frames else SCHEMA.empty_table().to_pandas()


def _number(file: Path) -> int:
    digits = file.stem.split("-")[1]
    return int(digits) if digits.isdecimal() else -1
