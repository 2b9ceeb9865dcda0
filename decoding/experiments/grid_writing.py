"""A grid as a TOML file that `grid_file.read_grid` reads back to the same grid, and the grid an experiment had last."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from decoding.common.errors import ExperimentError
from decoding.common.files import disk_errors, write_whole
from decoding.experiments.experiment import GRID
from decoding.experiments.grid import Axis, Grid
from decoding.experiments.grid_file import SWITCHES, grid_from

FILE = "grid.toml"
PLAIN = ("name", "reference", "new_tokens", "repeats", "keep", *SWITCHES)
SAMPLED = ("temperature", "top_p", "draft_temperature")


def grid_toml(grid: Grid) -> str:
    """The text of a file that describes a grid."""
    plain = {name: getattr(grid, name) for name in PLAIN}
    prompts = grid.prompts
    chosen = {"set": prompts.set, "count": prompts.count, "kinds": prompts.kinds, "max_tokens": prompts.max_tokens}
    parts = [_lines(plain), "[prompts]", _lines(chosen)]
    for sampling in grid.samplings:
        named = {name: getattr(sampling, name) for name in SAMPLED}
        parts += ["[[sampling]]", _lines(named | {"seeds": (sampling.seed,)})]
    for axis in grid.methods:
        parts += ["[[methods]]", "\n".join(_axis_lines(axis)) + "\n"]
    if grid.pair:
        parts += ["[pair]", _lines(grid.pair)]
    return "\n".join(parts)


def write_grid(grid: Grid, folder: Path) -> Path:
    """Put a grid into the folder of an experiment; returns its file.

    Raises:
        ExperimentError: the disk is full, or the folder cannot be written.
    """
    with disk_errors(folder, ExperimentError):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, grid_toml(grid).encode(), ExperimentError)
    return folder / FILE


def kept_grid(folder: Path) -> Grid | None:
    """The grid that an experiment ran last; None where it has run none.

    Raises:
        ExperimentError: what is kept of it is damaged, or names what is unknown here.
    """
    file = folder / GRID
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        samplings = [{**each, "seeds": [each["seed"]]} for each in content.pop("samplings")]
        for each in samplings:
            del each["seed"]
        content["prompts"] = {name: value for name, value in content["prompts"].items() if value is not None}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExperimentError(f"{file} cannot be read ({error}): start the sweep anew, no row is lost.") from None
    return grid_from({**content, "sampling": samplings}, folder.name)


def _axis_lines(axis: Axis) -> Iterator[str]:
    yield f"method = {_written(axis.method)}"
    for name, values in axis.vary.items():
        yield f"vary.{name} = {_written(values)}"


def _lines(values: Mapping[str, Any]) -> str:
    """`name = value`, a line each; what is None stays at its default."""
    return "".join(f"{name} = {_written(value)}\n" for name, value in values.items() if value is not None)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A basic string of TOML is one of JSON but for this one character, which it wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, Sequence):
        return f"[{', '.join(_written(each) for each in value)}]"
    return repr(value)
