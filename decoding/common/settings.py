"""What a setting is: declared once, in the metadata of its dataclass field, beside its default.

    length: int = setting(8, 1, 64, group=SHAPE, label="Length", help="Tokens in a row.", paper="DynaTree")

Validation, widgets, links, sweeps and the search for the smallest change all read the declaration (`settings_of`).
"""

import argparse
import dataclasses
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from decoding.common.errors import SettingsError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Made = TypeVar("Made", bound="DataclassInstance")
Source = Literal["paper", "code", "default"]

SHAPE, SEARCH, BREADTH, DEPTH, SIZE = "Shape", "Search", "Breadth", "Depth", "Pruning and size"
VERIFICATION, HISTORY, ENGINE = "Verification", "History", "Engine"
GROUPS = (VERIFICATION, SHAPE, SEARCH, BREADTH, DEPTH, SIZE, HISTORY, ENGINE)

# Logits divided by less than this leave the range of float32 and have no softmax.
TEMPERATURES = (1e-30, 1e30)
SEEDS = 2**63  # what every generator takes


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; an open end is not one of them."""

    low: float
    high: float
    low_open: bool = False
    high_open: bool = False

    def __contains__(self, value: Any) -> bool:
        above = value > self.low if self.low_open else value >= self.low
        return above and (value < self.high if self.high_open else value <= self.high)

    def __str__(self) -> str:
        low, high = (f"{end:g}" if isinstance(end, float) else str(end) for end in (self.low, self.high))
        if self.low_open:
            return f"above {low} and {'below' if self.high_open else 'at most'} {high}"
        return f"from {low} to {'below ' if self.high_open else ''}{high}"


@dataclass(frozen=True)
class SettingInfo:
    """What is declared of one setting."""

    default: Any  # its type is the kind of the setting: a switch, a whole number, a number, a text, or an object
    # label, symbol, help: on the screen: words, the paper's sign (empty where it has none), one line of meaning
    label: str
    symbol: str = ""
    help: str = ""
    group: str = ENGINE  # heading under which the screen shows it, one of `GROUPS`
    accepted: Range | None = None  # numbers that are accepted; None where it is no number
    offered: tuple[float, float] | None = None  # lowest and highest number on a slider, part of `accepted`
    step: float | None = None  # of the slider
    choices: Mapping[str, str] | None = None  # what a text can be, with the words for it; None where it is free
    placeholder: str = ""  # what an empty text means
    needs: str = ""  # name of the switch without which it has no effect
    given_by: str = ""  # name of the text setting that decides it instead where that is not empty
    paper: str = ""  # what gives the default, empty where no paper does; `in_code`: its public code alone does
    in_code: bool = False
    searched: bool = True  # whether another value of it can have kept a token, with the draws that a run had
    name: str = ""  # of the field

    @property
    def title(self) -> str:
        """Label and symbol together."""
        return f"{self.label} ({self.symbol})" if self.symbol else self.label

    @property
    def short(self) -> str:
        """The symbol, or the label where there is none, in lower case unless it begins with an abbreviation."""
        return self.symbol or (self.label if self.label[:2].isupper() else self.label.lower())

    @property
    def source(self) -> Source:
        """Where the default comes from."""
        return "default" if not self.paper else "code" if self.in_code else "paper"

    def offered_with(self, value: float) -> tuple[float, float]:
        """What a slider offers that stands at a value: more where that is accepted all the same."""
        low, high = self.offered or (value, value)
        return min(low, value), max(high, value)

    def words(self, choice: str) -> str:
        """A choice as a person reads it."""
        return (self.choices or {}).get(choice, choice.replace("_", " "))

    def checked(self, value: Any) -> Any:
        """The value in the type of the default; NumPy's numbers and whole ones like 64.0 are taken.

        Raises `SettingsError` where it is of another kind or out of range.
        """
        if not self._accepts(value):
            if self.accepted:
                wanted = f"a {'whole ' if isinstance(self.default, int) else ''}number {self.accepted}"
            elif isinstance(self.default, bool):
                wanted = "true or false"
            else:
                wanted = f"one of {', '.join(self.choices)}" if self.choices else "a string"
            symbol = f" ({self.symbol})" if self.symbol else ""
            shown = value if isinstance(value, Real) else reprlib.repr(value)
            raise SettingsError(f"{self.name}{symbol} must be {wanted}, not {shown}.")
        kind = type(self.default)
        return kind(value) if kind in (bool, int, float) else value

    def _accepts(self, value: Any) -> bool:
        kind = type(self.default)
        if kind is bool:
            return isinstance(value, bool | np.bool_)
        if kind in (int, float):
            number = isinstance(value, Real) and not isinstance(value, bool)
            number = number and self.accepted is not None and value in self.accepted
            return number and (kind is float or value == int(value))
        if kind is str:
            return isinstance(value, str) and (not self.choices or value in self.choices)
        return True  # an object comes from code


def setting(
    default: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    offered: tuple[float, float] | None = None,
    **words: Any,
) -> Any:
    """A dataclass field that is a setting; other arguments are those of `SettingInfo`.

    Args:
        low, high: smallest and largest number accepted; `above` and `below` instead of them leave the end out.
        offered: on a slider, where that is less than what is accepted.
    """
    accepted = None
    if type(default) in (int, float):
        lowest, highest = low if above is None else above, high if below is None else below
        assert lowest is not None and highest is not None, "a number is declared with both ends"
        accepted = Range(lowest, highest, low_open=above is not None, high_open=below is not None)
        offered = offered or (lowest, highest)
    info = SettingInfo(default, accepted=accepted, offered=offered, **words)
    return field(default=default, metadata={"setting": info})


def _settings_of(kind: type) -> Mapping[str, SettingInfo]:
    """What a dataclass declares of its settings, by name."""
    declared = {each.name: each.metadata.get("setting") for each in dataclasses.fields(kind)}
    return MappingProxyType({name: replace(info, name=name) for name, info in declared.items() if info is not None})


# A cached function's own signature takes no class whose instances have a hash of their own.
settings_of: Callable[[type], Mapping[str, SettingInfo]] = cache(_settings_of)


@dataclass(frozen=True)
class WithSettings:
    """A frozen dataclass whose fields are declared by `setting`, but those that are no setting (`compare=False`).

    Raises `SettingsError` where a setting is of another kind, out of range, or contradicts another.
    """

    optional: ClassVar[tuple[str, ...]] = ()  # settings that `settings` leaves out where they are as by default

    def __post_init__(self):
        check_settings(self)

    def settings(self) -> dict[str, Any]:
        """Every setting by name; `optional` ones only where they are not as by default."""
        return dict(self._settings)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        own = [each for each in dataclasses.fields(self) if each.compare]
        values = {each.name: (getattr(self, each.name), each.default) for each in own}
        return {name: value for name, (value, usual) in values.items() if value != usual or name not in self.optional}

    def with_settings(self, **changes: Any) -> Self:
        """The same with some settings changed; out of range raises `SettingsError`."""
        return replace(self, **changes)


def from_arguments(kind: type[Made], args: argparse.Namespace, **others: Any) -> Made:
    """A dataclass with what the arguments that bear its fields' names say, and `others` in their place."""
    asked = {each.name: getattr(args, each.name) for each in dataclasses.fields(kind) if each.name in args}
    return kind(**asked | others)


def check_settings(owner: Any) -> None:
    """Hold every setting of a frozen dataclass against its declaration, and give it the type of its default.

    Raises `SettingsError` where one is of another kind or out of range, with its name and what is accepted.
    """
    for name, info in settings_of(type(owner)).items():
        object.__setattr__(owner, name, info.checked(getattr(owner, name)))


def wrong_sampling(sampling: Any) -> str:
    """A sentence on what is out of its range in a `Sampling` or a record of one; empty where nothing is."""
    low, high = TEMPERATURES
    for name, lowest, highest, rule in (
        ("temperature", low, high, f"0, which decodes greedily, or from {low:g} to {high:g}"),
        ("draft_temperature", low, high, f"from {low:g} to {high:g}"),
        ("top_p", sys.float_info.min, 1, "above 0 and at most 1"),
    ):
        value = getattr(sampling, name)
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and (lowest <= value <= highest or (name == "temperature" and value == 0))):
            return f"{name} must be {rule}, not {value!r}."
    seed = sampling.seed
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < SEEDS:
        return f"seed must be a whole number from 0 to {SEEDS - 1:,}, not {seed!r}."
    return ""


ENGINES = ("auto", "transformers", "packed", "cuda_graph")
# The cuda_graph engine whose trees are drafted and verified by the host's code, to measure what the device's is worth.
STATIC_HOST = "cuda_graph-host"
# What engines were called in files, addresses, commands and digests of before.
FORMER_ENGINES = {"library": "transformers", "lean": "packed", "static-host": STATIC_HOST, "static": "cuda_graph"}
FORMER_ENGINE = re.compile(rf"\b({'|'.join(FORMER_ENGINES)})\b")
# Attention sinks and a window, so many rows together: `streaming` or `streaming-512`. Another distribution than the
# target's.
STREAMING = re.compile(r"streaming(?:-(\d{1,7}))?")
SINKS, STREAMED_ROWS, FEWEST_STREAMED = 4, 256, 64


def present_engines(text: str) -> str:
    """A text with former names of engines, such as a name alone or a line about a machine, with the present ones."""
    return FORMER_ENGINE.sub(lambda found: FORMER_ENGINES[found[1]], text)


def former_engine(name: str) -> str:
    """The name that digests of before hold for an engine."""
    return next((former for former, present in FORMER_ENGINES.items() if present == name), name)


def is_engine(name: str) -> bool:
    """Whether an engine has this name: one of `ENGINES`, `cuda_graph-host`, or `streaming` with or without a number."""
    return name in (*ENGINES, STATIC_HOST) or streamed_rows(name) is not None


def streamed_rows(name: str) -> int | None:
    """Rows that a token sees with a streaming engine, sinks included; None for the name of any other."""
    found = STREAMING.fullmatch(name)
    rows = int(found[1] or STREAMED_ROWS) if found else 0
    return rows if rows >= FEWEST_STREAMED else None


def same_engine(one: str, other: str) -> bool:
    """Whether two names of engines mean the same: `streaming` is `streaming-256`."""
    rows = streamed_rows(one)
    return one == other if rows is None else rows == streamed_rows(other)
