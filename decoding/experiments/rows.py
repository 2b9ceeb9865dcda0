"""What is kept of every run, a row each, in Parquet files that are only ever added to.

    rows/part-000000-4711.parquet    some rows: number of the part, process that wrote it
    rows/part-000001-4711.parquet

A part is there whole or not at all. `RowStore` gives every run once, whatever interruption came when.
"""

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from decoding.common.errors import ExperimentError
from decoding.common.files import write_whole
from decoding.common.settings import FORMER_ENGINES
from decoding.trace.records import PHASES

VERSION_KEY, VERSION = "draftscope_rows", "6"
FORMER = ("4", "5")  # read too, without what they had not
ADDED = ("text_hash", "weights", *(prefix + name for prefix in ("", "loop_free_") for name in ("agreeing", "compared")))

_TEXT, _WHOLE, _REAL, _SWITCH = pa.string(), pa.int64(), pa.float64(), pa.bool_()
FIGURE = pa.float32()
_BITS_LEFT_OUT = 11  # of the 23 after the point; nothing here is measured to more than 3 digits
IDENTITY: dict[str, pa.DataType] = {
    "key": _TEXT,
    "experiment": _TEXT,
    "block": _TEXT,
    "reference": _SWITCH,
    "pair": _TEXT,
    "target": _TEXT,
    "draft": _TEXT,
    "weights": _TEXT,  # of the embedded pair, `embedded_weights`: it may be trained anew under its name
    "device": _TEXT,
    "dtype": _TEXT,
    "engine": _TEXT,
    "machine": _TEXT,
    "versions": _TEXT,
    "commit": _TEXT,
    "method": _TEXT,
    "label": _TEXT,
    "line": _TEXT,
    "settings": _TEXT,
    "prompt_set": _TEXT,
    "kind": _TEXT,
    "prompt": _TEXT,
    "text_hash": _TEXT,  # of the prompt's whole text
    "cut": _WHOLE,
    "prompt_tokens": _WHOLE,
    "asked_tokens": _WHOLE,
    "temperature": _REAL,
    "top_p": _REAL,
    "draft_temperature": _REAL,
    "seed": _WHOLE,
    "repeat": _WHOLE,
    "started": _TEXT,
    "failure": _TEXT,
    "loop_free_tokens": _WHOLE,
    "output_ids": pa.list_(pa.int32()),
}
# Of the whole call, and, with `loop_free_` in front, of what came before its text began to repeat itself.
MEASURED: dict[str, pa.DataType] = {
    "new_tokens": _WHOLE,
    "wall_s": FIGURE,
    "prefill_s": FIGURE,
    "throughput": FIGURE,
    "decode_throughput": FIGURE,
    "ttft_s": FIGURE,
    "tpot_s": FIGURE,
    "iterations": _WHOLE,
    "tokens_per_iteration": FIGURE,
    "drafted": _WHOLE,
    "verified": _WHOLE,
    "accepted": _WHOLE,
    "accepted_mean": FIGURE,
    "acceptance_drafted": FIGURE,
    "acceptance_verified": FIGURE,
    "agreeing": _WHOLE,  # see `metrics.node_agreement`
    "compared": _WHOLE,
    "draft_forwards": _WHOLE,
    "draft_passes_s": FIGURE,
    "target_passes": _WHOLE,
    "peak_memory_bytes": _WHOLE,
    **{f"{phase}_s": FIGURE for phase in PHASES},
}
# Per iteration of the whole call.
SERIES: dict[str, pa.DataType] = {
    "accepted_lengths": pa.list_(pa.int32()),
    "drafted_nodes": pa.list_(pa.int32()),
    "committed_tokens": pa.list_(pa.int32()),  # so far
    "pass_us": pa.list_(pa.int64()),  # since the end of the one before; the first since the beginning of the call
}
LOOP_FREE = "loop_free_"
SCHEMA = pa.schema({**IDENTITY, **MEASURED, **{LOOP_FREE + name: kind for name, kind in MEASURED.items()}, **SERIES})
Row = Mapping[str, Any]


def packed(table: pa.Table) -> pa.Table:
    """Rows as they are kept: figures in fewer bits, those before a loop only where there is a loop."""
    for place, each in enumerate(SCHEMA):
        if each.type == FIGURE:
            column = table.column(each.name)
            bits = column.fill_null(0).to_numpy().copy().view(np.uint32)
            rounded = (bits + (1 << (_BITS_LEFT_OUT - 1))) >> _BITS_LEFT_OUT << _BITS_LEFT_OUT
            kept = pa.array(rounded.view(np.float32), FIGURE, mask=column.is_null().to_numpy())
            table = table.set_column(place, each, kept)
    whole = _is_whole(table)
    for name in MEASURED:
        column = table.column(LOOP_FREE + name)
        same = pc.fill_null(pc.and_(whole, pc.equal(column, table.column(name))), False)
        kept = pc.if_else(same, pa.scalar(None, column.type), column)
        place = SCHEMA.get_field_index(LOOP_FREE + name)
        table = table.set_column(place, SCHEMA.field(place), kept)
    return table


def unpacked(table: pa.Table) -> pa.Table:
    """What `packed` was given but for rounding, as far as the table has the columns."""
    for place, name in enumerate(table.column_names):
        if name.startswith(LOOP_FREE) and name.removeprefix(LOOP_FREE) in MEASURED:
            column, of_all = table.column(name), table.column(name.removeprefix(LOOP_FREE))
            missing = pc.and_(_is_whole(table), column.is_null())
            table = table.set_column(place, name, pc.if_else(missing, of_all, column))
    return table


def _is_whole(table: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(table.column("loop_free_tokens"), table.column("new_tokens")), False)


FOLDER, PARTS = "rows", "part-*.parquet"
GRID = "grid.json"  # what was asked for last, beside them


class RowStore:
    """The rows of an experiment, in `rows/` of its folder; one process at a time should write to it.

    What reads them raises `ExperimentError` where a file is damaged or of another version.
    """

    def __init__(self, folder: Path):
        self.folder = folder / FOLDER
        self._next = max((_number(file) for file in self._files()), default=-1) + 1

    def append(self, rows: Sequence[Row]) -> None:
        """Keep rows; what a row leaves out is null. A `DiskError` leaves what was kept before as it was."""
        if not rows:
            return
        whole = [{name: row.get(name) for name in SCHEMA.names} for row in rows]
        self._write(pa.Table.from_pylist(whole, schema=SCHEMA))

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows in the order in which they were kept, each run once."""
        wanted = (
            SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in dict.fromkeys(["key", *columns])])
        )
        tables = [read_part(file, wanted.names) for file in self._files()]
        table = pa.concat_tables(tables) if tables else wanted.empty_table()
        first: dict[str, int] = {}
        for place, key in enumerate(table.column("key").to_pylist()):
            first.setdefault(key, place)
        return table if len(first) == table.num_rows else table.take(pa.array(first.values(), pa.int64()))

    def frame(self) -> pd.DataFrame:
        """The same as pandas has it, settings in columns of their own: `settings.max_depth`."""
        return with_settings(self.table().to_pandas())

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
        write_whole(file, stream.getvalue())
        self._next += 1

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(PARTS))


def read_part(file: Path, columns: list[str]) -> pa.Table:
    """The rows of one file; `ExperimentError` where it is damaged, or was written by another version."""
    try:
        with pq.ParquetFile(file) as parquet:
            version = (parquet.metadata.metadata or {}).get(VERSION_KEY.encode(), b"").decode()
            if version in (VERSION, *FORMER):
                wanted = pa.schema([SCHEMA.field(name) for name in columns])
                behind = [name.removeprefix(LOOP_FREE) for name in wanted.names if name.startswith(LOOP_FREE)]
                needed = ["loop_free_tokens", "new_tokens", *(name for name in behind if name in MEASURED)]
                read = list(dict.fromkeys([*wanted.names, *(needed if behind else ())]))
                there = set(parquet.schema_arrow.names) if version in FORMER else set(read)
                missing = [name for name in read if name in ADDED and name not in there]
                table = parquet.read([name for name in read if name not in missing])
                for name in missing:
                    table = table.append_column(name, pa.nulls(table.num_rows, SCHEMA.field(name).type))
                table = unpacked(table).select(wanted.names).cast(wanted).replace_schema_metadata(None)
                return _with_present_engines(table)
    except (pa.ArrowException, OSError, KeyError, ValueError, UnicodeDecodeError) as error:
        said = str(error).split("\n")[0]
        raise ExperimentError(f"{file} is damaged ({said}): move it out of its folder and re-run.") from None
    whose = f"version {version}" if version else "another program"
    raise ExperimentError(
        f"{file} has results of {whose}, and this is version {VERSION}: move it or choose another --out."
    )


def _with_present_engines(table: pa.Table) -> pa.Table:
    for name in {"engine", "machine", "line"}.intersection(table.column_names):
        place, column = table.schema.get_field_index(name), table.column(name)
        for former, present in FORMER_ENGINES.items():
            column = pc.replace_substring_regex(column, rf"\b{former}\b", present)
        table = table.set_column(place, table.schema.field(place), column)
    return table


def with_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with a column `settings.NAME` for every setting that occurs in its rows."""
    settings = pd.json_normalize([json.loads(text) for text in frame["settings"]]).add_prefix("settings.")
    return pd.concat([frame.reset_index(drop=True), settings], axis=1)


def all_rows(folders: Iterable[Path]) -> pd.DataFrame:
    """The rows of several experiments below one another."""
    frames = [RowStore(folder).table().to_pandas() for folder in folders]
    frames = [frame for frame in frames if len(frame)]
    return with_settings(pd.concat(frames, ignore_index=True)) if frames else SCHEMA.empty_table().to_pandas()


def _number(file: Path) -> int:
    digits = file.stem.split("-")[1]
    return int(digits) if digits.isdecimal() else -1
