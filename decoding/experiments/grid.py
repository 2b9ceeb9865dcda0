"""A grid of experiments: methods with settings that vary, prompts, lengths and samplings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, Literal

from decoding.common.errors import ExperimentError, SettingsError
from decoding.compare.comparison import Contestant
from decoding.compare.contestants import contestant_label, parse_contestant
from decoding.methods.method import Method, fitted
from decoding.models.presets import PairSettings
from decoding.sampling.sampling import Sampling
from decoding.trace.records import Setting

Keep = Literal["figures", "tokens", "all"]


@dataclass(frozen=True)
class PromptChoice:
    """Which prompts.

    Attributes:
        set: `samples`, a folder of `.txt` files, or the name of a data set.
        count: how many, one kind of text after another in turn; None takes all.
        kinds: of text; empty for all.
        max_tokens: lengths that longer prompts are cut to, each a run of its own; 0 leaves them whole.
    """

    set: str = "samples"
    count: int | None = None
    kinds: tuple[str, ...] = ()
    max_tokens: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Axis:
    """A method, and which of its settings take which values; all combinations are run.

    Attributes:
        method: as `contestants.parse_contestant` reads it.
        vary: values by setting.
    """

    method: str
    vary: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """Everything that is to be run.

    Attributes:
        methods: at least one.
        samplings: without seeds, which are in `seeds`.
        reference: method that runs in every block; empty for none.
        repeats: of the whole grid, one after another.
        ignore_end_of_text: decode on past the stop tokens, so that all outputs are of one length.
        skip_contradictions: leave out combinations that contradict themselves instead of refusing the grid.
        keep: of every run `figures`, also its `tokens`, or `all`: figures per iteration too, which take the most room.
        pair: what to load, by the names of `PairSettings`.
    """

    name: str
    methods: tuple[Axis, ...]
    prompts: PromptChoice = field(default_factory=PromptChoice)
    samplings: tuple[Sampling, ...] = (Sampling(),)
    new_tokens: tuple[int, ...] = (64,)
    reference: str = "autoregressive"
    repeats: int = 1
    ignore_end_of_text: bool = True
    skip_contradictions: bool = False
    keep: Keep = "all"
    pair: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pair_settings(self) -> PairSettings:
        """The pair to load.

        Raises:
            ExperimentError: a name or value that `PairSettings` does not know.
        """
        known = {each.name for each in fields(PairSettings)}
        for name in self.pair:
            expect(name in known, f"[pair] has no {name!r}: choose {', '.join(sorted(known))}.")
        try:
            return PairSettings(**self.pair)
        except TypeError:
            said = ", ".join(f"{name} = {value!r}" for name, value in self.pair.items())
            raise ExperimentError(f"[pair] has a value of another kind than is wanted: {said}.") from None


def contestants(grid: Grid, sampling: Sampling) -> tuple[list[Contestant], list[str]]:
    """Everything that a grid runs under a sampling, the reference first, and what was left out with the reason.

    Where the method's line names no verifier, one that would bias the output gives way to NSS.

    Raises:
        ExperimentError: an unknown method, setting or value, or a contradiction that is not to be skipped.
    """
    found = [] if not grid.reference else [_variant(Axis(grid.reference), {}, sampling)]
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


def _variant(axis: Axis, changes: Mapping[str, Setting], sampling: Sampling) -> Contestant:
    base = parse_contestant(axis.method)
    if base.method is None:
        expect(not changes, f"{axis.method} has no settings that could vary.")
        return base
    settled = base.method.with_settings(**({"verifier": changes["verifier"]} if "verifier" in changes else {}))
    known = settled.all_settings()
    method = base.method.with_settings(**{name: _as_default(name, value, known) for name, value in changes.items()})
    if "verifier=" not in axis.method and "verifier" not in changes:
        method = fitted(method, sampling)
    method.check(sampling)
    label = contestant_label(method)
    return replace(base, method=method, label=f"{label} ({base.engine})" if base.engine else label)


def _is_known(axis: Axis, changes: Mapping[str, Setting]) -> bool:
    """Whether the method, the settings and the kinds of their values are known: then they contradict one another."""
    try:
        base = parse_contestant(axis.method).method
        known = base.with_settings(
            **({"verifier": changes["verifier"]} if "verifier" in changes else {})
        ).all_settings()
        for name, value in changes.items():
            _as_default(name, value, known)
    except SettingsError:
        return False
    return set(changes) <= set(known)


def _as_default(name: str, value: Any, known: Mapping[str, Setting]) -> Setting:
    """A value in the type of the setting's default; an unknown name is told by the method itself."""
    default = known.get(name)
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if default is not None and type(value) is not type(default):
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[type(default)]
        raise SettingsError(f"{name} is {kind}, not {value!r}.")
    return value


def _same(contestant: Contestant) -> tuple:
    method: Method | None = contestant.method
    settings = () if method is None else tuple(sorted(method.settings().items()))
    return contestant.baseline or method.name, settings, contestant.engine


def expect(condition: bool, message: str) -> None:
    """Raise `ExperimentError(message)` unless `condition` holds."""
    if not condition:
        raise ExperimentError(message)
