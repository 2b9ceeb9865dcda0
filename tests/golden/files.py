"""Where the golden set lies, and how it is held against what the program gives now."""

import io
import json
import lzma
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decoding.common.settings import present_engines
from decoding.trace.older import rename_fields
from decoding.trace.records import FORMAT_VERSION, RESIDUAL_TOKENS
from decoding.trace.run_file import save_run
from tests.golden import data, halves, traces
from tests.helpers.traces import run_mixed

FOLDER = Path(__file__).parent
RECORDS, PLAIN, HALVES = FOLDER / "records.json.xz", FOLDER / "plain.json", FOLDER / "halves.tar.xz"
PARTS = ("grids", "verdicts", "addresses", "names")
# Numbers are kept to four digits, and another processor rounds in another order.
NEAR = {"rel_tol": 3e-3, "abs_tol": 1e-5}
UNLIKELY = 1e-6
TIED = {1065: 980}  # of one residual both have 0.0037542 and the last place of the list: rounding chooses


def write() -> None:
    """Make the whole set anew; whoever does so says in the commit what has changed and why that is right."""
    made = {name: each for size in traces.SIZES for name, each in traces.records(size)}
    RECORDS.write_bytes(lzma.compress(_written(made), preset=9))
    PLAIN.write_bytes(_written({name: getattr(data, name)() for name in PARTS}, indent=1))
    stream = io.BytesIO()
    save_run(run_mixed(), stream)
    (FOLDER / f"version-{FORMAT_VERSION}.dscope").write_bytes(stream.getvalue())
    with tempfile.TemporaryDirectory() as home:
        halves.half_training(Path(home))
        halves.half_sweep(Path(home))
        HALVES.write_bytes(halves.packed(Path(home)))


def records() -> dict[str, Any]:
    """The records as they were, their fields under the names of today."""
    kept = json.loads(lzma.decompress(RECORDS.read_bytes()))
    for run in kept.values():
        rename_fields({"run": run})
    return kept


def plain() -> dict[str, Any]:
    """Everything else that is plain data, by part, its engines under the names of today."""
    kept = json.loads(PLAIN.read_bytes())
    kept["names"]["engines"] = [present_engines(name) for name in kept["names"]["engines"]]
    return kept


def as_kept(value: Any) -> Any:
    """A value as JSON gives it back."""
    return json.loads(_written(value))


def differences(kept: Any, found: Any, place: str = "") -> list[str]:
    """Where two values part, numbers within rounding."""
    if isinstance(kept, Mapping) and isinstance(found, Mapping):
        kept, found = _likely(kept), _likely(found)
        missing = [f"{place}.{name}: only {'kept' if name in kept else 'found'}" for name in kept.keys() ^ found.keys()]
        return missing + [
            each
            for name in kept.keys() & found.keys()
            for each in differences(kept[name], found[name], f"{place}.{name}")
        ]
    if isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        pairs = enumerate(zip(kept, found, strict=True))
        return [each for number, (one, other) in pairs for each in differences(one, other, f"{place}[{number}]")]
    if isinstance(kept, float) and isinstance(found, float | int) and not isinstance(found, bool):
        return [] if math.isclose(kept, found, **NEAR) else [f"{place}: {kept} is {found} now"]
    if isinstance(kept, str) and isinstance(found, str) and (numbers := _numbers(kept)) and _numbers(found):
        return differences(numbers, _numbers(found), place)
    return [] if kept == found else [f"{place}: {kept!r} is {found!r} now"]


def _likely(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record whose residuals hold only tokens that are no rounding error of another machine."""
    if not {"residual_ids", "residual_probs"} <= record.keys():
        return record
    probs = [[each for each in row if each > UNLIKELY] for row in record["residual_probs"]]
    ids = [row[: len(left)] for row, left in zip(record["residual_ids"], probs, strict=True)]
    ids = [[*row[:-1], TIED.get(row[-1], row[-1])] if len(row) == RESIDUAL_TOKENS else row for row in ids]
    return {**record, "residual_ids": ids, "residual_probs": probs}


def _numbers(text: str) -> list[float]:
    """The numbers of a setting that is a list of them: `1.63 0.9368`; none for any other text."""
    try:
        return [float(word) for word in text.split()]
    except ValueError:
        return []


def _written(value: Any, indent: int | None = None) -> bytes:
    separators = (",", ":") if indent is None else None
    return json.dumps(value, sort_keys=True, separators=separators, indent=indent).encode()
