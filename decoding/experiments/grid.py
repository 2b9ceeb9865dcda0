"""A grid of experiments: methods with settings that vary, prompts, lengths and samplings; and its TOML file.

name = "fixed trees"
reference = "autoregressive"        # runs in every block, so that a speed-up is a ratio within it
new_tokens = [64]
repeats = 1
keep = "all"                        # "tokens" leaves out figures per iteration, "figures" the tokens too

[prompts]
set = "samples"                     # or a folder, or a data set by name
count = 4
max_tokens = [64]                   # longer prompts are cut

[[sampling]]
temperature = 0.0
seeds = [0]

[[methods]]
method = "fixed_tree"               # NAME[@ENGINE][:setting=value,...]
vary = { max_depth = [3, 4, 5], branching = [2, 3], prune_probability = [0.03, 0.1] }
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from decoding.common.errors import ExperimentError, SettingsError
from decoding.common.files import write_whole
from decoding.compare.contestants import Contestant, parse_contestant
from decoding.experiments.rows import GRID
from decoding.methods.method import Method, fitted
from decoding.methods.methods import method_label
from decoding.models.presets import PairSettings
from decoding.sampling.sampling import Sampling
from decoding.trace.records import Setting

Keep = Literal["figures", "tokens", "all"]


@dataclass(frozen=True)
class PromptSet:
    """Which prompts."""

    set: str = "samples"  # `samples`, a folder of `.txt` files, or the name of a data set
    count: int | None = None  # how many, one kind of text after another in turn; None takes all
    kinds: tuple[str, ...] = ()  # of text; empty for all
    # Lengths that longer prompts are cut to, each a run of its own; 0 leaves them whole
    max_tokens: tuple[int, ...] = (0,)
    parts: int = 1  # equal parts that every text is split into, each a prompt; all first parts come first


@dataclass(frozen=True)
class MethodAxis:
    """A method, and which of its settings take which values; all combinations are run."""

    method: str  # as `contestants.parse_contestant` reads it
    vary: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)  # values by setting


@dataclass(frozen=True)
class Grid:
    """Everything that is to be run."""

    name: str
    methods: tuple[MethodAxis, ...]  # at least one
    prompts: PromptSet = field(default_factory=PromptSet)
    samplings: tuple[Sampling, ...] = (Sampling(),)  # without seeds, which are in `seeds`
    new_tokens: tuple[int, ...] = (64,)
    reference: str = "autoregressive"  # method that runs in every block; empty for none
    repeats: int = 1  # of the whole grid, one after another
    ignore_end_of_text: bool = True  # decode on past the stop tokens, so that all outputs are of one length
    skip_contradictions: bool = False  # leave out combinations that contradict themselves instead of refusing the grid
    # Of every run `figures`, also its `tokens`, or `all`: figures per iteration too, which take the most room
    keep: Keep = "all"
    pair: Mapping[str, Any] = field(default_factory=dict)  # what to load, by the names of `PairSettings`

    @property
    def pair_settings(self) -> PairSettings:
        """The pair to load; `ExperimentError` for a name or value that `PairSettings` does not know."""
        known = {each.name for each in fields(PairSettings)}
        for name in self.pair:
            expect(name in known, f"[pair] has no {name!r}: choose {', '.join(sorted(known))}.")
        try:
            return PairSettings(**self.pair)
        except TypeError:
            said = ", ".join(f"{name} = {value!r}" for name, value in self.pair.items())
            raise ExperimentError(f"[pair] has a value of the wrong type: {said}.") from None


def contestants(grid: Grid, sampling: Sampling) -> tuple[list[Contestant], list[str]]:
    """Everything that a grid runs under a sampling, the reference first, and what was left out with the reason.

    Where the method's line names no verifier, one that would bias the output gives way to NSS. Raises `ExperimentError`
    for an unknown method, setting or value, or a contradiction that is not to be skipped.
    """
    found = [] if not grid.reference else [_variant(MethodAxis(grid.reference), {}, sampling)]
    left_out = []
    for axis in grid.methods:
        for values in product(*axis.vary.values()):
            changes = dict(zip(axis.vary, values, strict=True))
            try:
                found.append(_variant(axis, changes, sampling))
            except SettingsError as error:
                which = ", ".join(f"{name}={value}" for name, value in changes.items())
                said = f"{axis.method}{f' with {which}' if which else ''}: {error}"
                if not grid.skip_contradictions or not _is_known(axis, changes):
                    raise ExperimentError(said) from None
                left_out.append(said)
    return list({_same(each): each for each in found}.values()), left_out


def _variant(axis: MethodAxis, changes: Mapping[str, Setting], sampling: Sampling) -> Contestant:
    base = parse_contestant(axis.method)
    if base.method is None:
        expect(not changes, f"{axis.method} has no settings to vary.")
        return base
    method = base.method.with_settings(**_typed(base.method, changes)[0])
    if "verifier=" not in axis.method and "verifier" not in changes:
        method = fitted(method, sampling)
    method.check(sampling)
    label = method_label(method)
    return replace(base, method=method, label=f"{label} ({base.engine})" if base.engine else label)


def _is_known(axis: MethodAxis, changes: Mapping[str, Setting]) -> bool:
    """Whether the method, the settings and the kinds of their values are known: then they contradict one another."""
    try:
        method = parse_contestant(axis.method).method
        return method is not None and changes.keys() <= _typed(method, changes)[1]
    except SettingsError:
        return False


def _typed(method: Method, changes: Mapping[str, Setting]) -> tuple[dict[str, Setting], set[str]]:
    """Changes in the types of their settings, and the settings that there are; a verifier may have some of its own."""
    known = method.with_settings(verifier=changes.get("verifier")).all_settings()
    return {name: _as_default(name, value, known) for name, value in changes.items()}, set(known)


def _as_default(name: str, value: Any, known: Mapping[str, Setting]) -> Setting:
    """A value in the type of the setting's default; an unknown name is reported by the method itself."""
    default = known.get(name)
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if default is not None and type(value) is not type(default):
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}[type(default)]
        raise SettingsError(f"{name} must be {kind}, not {value!r}.")
    return value


def _same(contestant: Contestant) -> tuple:
    method = contestant.method
    settings = () if method is None else tuple(sorted(method.settings().items()))
    return contestant.name, settings, contestant.engine


def expect(condition: bool, message: str) -> None:
    """Raise `ExperimentError(message)` unless `condition` holds."""
    if not condition:
        raise ExperimentError(message)


SWITCHES = ("ignore_end_of_text", "skip_contradictions")
SAMPLED = ("temperature", "top_p", "draft_temperature")
MOST_RUNS = 1_000_000
MOST_PARTS = 100
MOST_FILE_BYTES = 1 << 20
LARGEST = 2**63 - 1  # whole number that a row can hold


def read_grid(path: Path) -> Grid:
    """The grid in a TOML file; `ExperimentError` where there is none, or what `grid_from` refuses."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_FILE_BYTES)
        return grid_from(tomllib.loads(text.decode()), path.stem)
    except OSError as error:
        raise ExperimentError(f"{path} cannot be read ({error.strerror}): give a grid as a .toml file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path} is not a TOML file ({error}): see decoding/experiments/grids.") from None


def grid_from(content: Mapping[str, Any], name: str) -> Grid:
    """The grid that a TOML document describes, checked as far as that goes without a pair.

    Raises `ExperimentError` for what is unknown or of the wrong kind, in one sentence that names it.
    """
    known = {each.name for each in fields(Grid)} - {"samplings"} | {"sampling"}
    _only(content, known, "the grid")
    plain = {key: content[key] for key in ("name", "reference", "repeats", "keep", *SWITCHES)
             if key in content}  # fmt: skip
    grid = Grid(
        **{"name": name, **plain},
        methods=tuple(_axis(entry) for entry in _tables(content, "methods")),
        prompts=_prompts(content.get("prompts", {})),
        samplings=tuple(each for entry in _tables(content, "sampling", [{}]) for each in _samplings(entry)),
        new_tokens=_numbers(content.get("new_tokens", [64]), "new_tokens", least=1),
        pair=content.get("pair", {}),
    )
    expect(bool(grid.methods), "The grid names no methods: add a table [[methods]].")
    expect(bool(grid.samplings), "The grid names no sampling: give at least a temperature, 0 for greedy decoding.")
    expect(isinstance(grid.name, str) and bool(grid.name.strip()), "name must be the name of the grid, a string.")
    expect(isinstance(grid.reference, str), "reference must be the name of a method, or an empty string for none.")
    expect(type(grid.repeats) is int and grid.repeats >= 1, f"repeats must be at least 1, not {grid.repeats!r}.")
    expect(grid.keep in get_args(Keep), f"keep must be one of {', '.join(get_args(Keep))}, not {grid.keep!r}.")
    for name in SWITCHES:
        expect(isinstance(getattr(grid, name), bool), f"{name} must be true or false, not {getattr(grid, name)!r}.")
    expect(isinstance(grid.pair, Mapping), "pair must be a table of pair settings.")
    grid.pair_settings  # noqa: B018 - raises where a setting is unknown
    samplings = {(s.temperature, s.top_p, s.draft_temperature): s for s in grid.samplings}
    found = [contestants(grid, sampling) for sampling in samplings.values()]
    lines, left_out = sum(len(each) for each, _ in found), [said for _, each in found for said in each]
    if left_out and lines == len(found) * bool(grid.reference):
        raise ExperimentError(left_out[0])  # nothing could be run
    runs = lines * len(grid.new_tokens) * len(grid.prompts.max_tokens) * grid.repeats
    expect(runs <= MOST_RUNS, f"The grid has {runs:,} runs per prompt: at most {MOST_RUNS:,} are possible.")
    return grid


def _axis(entry: Mapping[str, Any]) -> MethodAxis:
    _only(entry, {"method", "vary"}, "[[methods]]")
    method, vary = entry.get("method"), entry.get("vary", {})
    if not isinstance(method, str):
        raise ExperimentError('Each [[methods]] table needs a method, such as method = "fixed_tree".')
    expect(isinstance(vary, Mapping), f"vary of {method} must be a table: vary = {{ branching = [2, 3] }}.")
    values = {name: tuple(each if isinstance(each, list) else [each]) for name, each in vary.items()}
    for name, each in values.items():
        expect(bool(each), f"{name} of {method} has no values: give at least one.")
    return MethodAxis(method, values)


def _prompts(entry: Any) -> PromptSet:
    known = [each.name for each in fields(PromptSet)]
    expect(isinstance(entry, Mapping), f"prompts must be a table: [prompts] with {', '.join(known)}.")
    _only(entry, {*known}, "[prompts]")
    count, kinds = entry.get("count"), entry.get("kinds", [])
    expect(count is None or (type(count) is int and count >= 1), f"count of prompts must be at least 1, not {count!r}.")
    expect(isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds), "kinds must be a list of strings.")
    expect(isinstance(entry.get("set", ""), str), "set of prompts must be samples, a folder or the name of a data set.")
    tokens = _numbers(entry.get("max_tokens", [0]), "max_tokens", least=0)
    parts = entry.get("parts", 1)
    expect(type(parts) is int and 1 <= parts <= MOST_PARTS, f"parts must be from 1 to {MOST_PARTS}, not {parts!r}.")
    return PromptSet(entry.get("set", "samples"), count, tuple(kinds), tokens, parts)


def _samplings(entry: Mapping[str, Any]) -> list[Sampling]:
    _only(entry, {*SAMPLED, "seeds"}, "[[sampling]]")
    named = {name: entry[name] for name in SAMPLED if name in entry}
    for name, value in named.items():
        expect(type(value) in (int, float), f"{name} of [[sampling]] must be a number, not {value!r}.")
    seeds = _numbers(entry.get("seeds", [0]), "seeds", least=0)
    plain = {name: float(value) for name, value in named.items()}
    try:
        return [Sampling(**plain, seed=seed) for seed in seeds]
    except SettingsError as error:
        raise ExperimentError(str(error)) from None


def _tables(content: Mapping[str, Any], name: str, instead: Sequence[Mapping] = ()) -> Sequence[Mapping[str, Any]]:
    found = content.get(name, instead)
    expect(
        isinstance(found, Sequence) and all(isinstance(each, Mapping) for each in found),
        f"{name} must be a list of tables: write [[{name}]].",
    )
    return found


def _numbers(values: Any, name: str, least: int) -> tuple[int, ...]:
    given = values if isinstance(values, list) else [values]
    expect(
        bool(given) and all(type(value) is int and value >= least for value in given),
        f"{name} must be a list of whole numbers, {least} or more, not {values!r}.",
    )
    expect(max(given) <= LARGEST, f"{name} has a number above {LARGEST:,}, the largest that can be saved.")
    return tuple(given)


def _only(content: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in content:
        expect(name in known, f"{where} has no {name!r}: choose {', '.join(sorted(known))}.")


PLAIN = ("name", "reference", "new_tokens", "repeats", "keep", *SWITCHES)


def grid_toml(grid: Grid) -> str:
    """The text of a file that describes a grid."""
    plain = {name: getattr(grid, name) for name in PLAIN}
    parts = [_lines(plain), "[prompts]", _lines(vars(grid.prompts))]
    for sampling in grid.samplings:
        named = {name: getattr(sampling, name) for name in SAMPLED}
        parts += ["[[sampling]]", _lines(named | {"seeds": (sampling.seed,)})]
    for axis in grid.methods:
        varied = {f"vary.{name}": values for name, values in axis.vary.items()}
        parts += ["[[methods]]", _lines({"method": axis.method, **varied})]
    if grid.pair:
        parts += ["[pair]", _lines(grid.pair)]
    return "\n".join(parts)


def write_grid(grid: Grid, folder: Path) -> Path:
    """Put a grid into the folder of an experiment; returns its file. `DiskError` where it cannot be written."""
    file = folder / "grid.toml"
    write_whole(file, grid_toml(grid).encode())
    return file


def kept_grid(folder: Path) -> Grid:
    """The grid that an experiment ran last; `ExperimentError` where there is none, damaged, or unknown here."""
    file = folder / GRID
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        samplings = [{"seeds": [each.pop("seed")], **each} for each in content.pop("samplings")]
        content["prompts"] = {name: value for name, value in content["prompts"].items() if value is not None}
    except FileNotFoundError:
        raise ExperimentError(f"{folder} has no grid: start your own sweep.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExperimentError(f"{file} cannot be read ({error}): start the sweep again; no result is lost.") from None
    return grid_from({**content, "sampling": samplings}, folder.name)


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
