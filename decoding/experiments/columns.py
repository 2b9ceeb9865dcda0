"""The columns of a row, and how a table of rows is packed before it is kept.

Rows are kept by the thousand, so a table holds figures to 12 bits (1 in 8,000), and where a text does not repeat itself
not a second time those of what came before it does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from decoding.trace.records import PHASES

VERSION_KEY, VERSION = "draftscope_rows", "4"

_TEXT, _WHOLE, _REAL, _SWITCH = pa.string(), pa.int64(), pa.float64(), pa.bool_()
FIGURE = pa.float32()
_BITS_LEFT_OUT = 11  # of the 23 behind the point; nothing here is measured to more than 3 digits
IDENTITY: dict[str, pa.DataType] = {
    "key": _TEXT,
    "experiment": _TEXT,
    "block": _TEXT,
    "reference": _SWITCH,
    "pair": _TEXT,
    "target": _TEXT,
    "draft": _TEXT,
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
    return _only_what_differs(_shortened(table))


def _shortened(table: pa.Table) -> pa.Table:
    """A table with its figures rounded to the bits that are kept."""
    for place, each in enumerate(SCHEMA):
        if each.type == FIGURE:
            column = table.column(each.name)
            bits = column.fill_null(0).to_numpy().copy().view(np.uint32)
            rounded = (bits + (1 << (_BITS_LEFT_OUT - 1))) >> _BITS_LEFT_OUT << _BITS_LEFT_OUT
            kept = pa.array(rounded.view(np.float32), FIGURE, mask=column.is_null().to_numpy())
            table = table.set_column(place, each, kept)
    return table


def _only_what_differs(table: pa.Table) -> pa.Table:
    """A table without the loop-free figures of texts that do not repeat themselves: they are those of the whole."""
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


def read_for(columns: Sequence[str]) -> list[str]:
    """The columns that `unpacked` needs for some columns."""
    behind = [name.removeprefix(LOOP_FREE) for name in columns if name.startswith(LOOP_FREE)]
    more = ["loop_free_tokens", "new_tokens", *(name for name in behind if name in MEASURED)] if behind else []
    return list(dict.fromkeys([*columns, *more]))
