"""What takes part in a comparison, also as one line of text: `dynatree@packed:base_depth=3,history=false`, and back."""

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

from decoding.common.errors import SettingsError, require
from decoding.common.settings import ENGINES, is_engine, present_engines
from decoding.compare.hf_generate import BASELINES, Baseline
from decoding.methods.method import Method
from decoding.methods.methods import METHODS, PRESETS, changed_settings, method_label
from decoding.trace.records import Setting


@dataclass(frozen=True)
class Contestant:
    """One way to decode: a method of ours, or an outside baseline.

    Attributes:
        engine: what runs the models of a method, one of `presets.ENGINES`; None leaves it to the pair.
    """

    label: str
    method: Method | None = None
    baseline: Baseline | None = None
    engine: str | None = None

    def __post_init__(self):
        require(
            self.engine is None or is_engine(self.engine),
            f"unknown engine {self.engine!r}: choose {', '.join(ENGINES)} or streaming.",
        )
        require(self.engine is None or self.method is not None, f"{self.label}: a baseline has no engine to choose.")
        require((self.method is None) != (self.baseline is None), f"{self.label}: give either a method or a baseline.")
        require(
            self.baseline is None or self.baseline in BASELINES,
            f"unknown baseline {self.baseline!r}: choose {', '.join(BASELINES)}.",
        )

    @property
    def own_method(self) -> Method:
        """The method of ours; an outside baseline has none, and raises `ValueError`."""
        if self.method is None:
            raise ValueError(f"{self.label} is an outside baseline")
        return self.method

    @property
    def name(self) -> str:
        """The key of its baseline or of its method."""
        return self.baseline or self.own_method.name

    @property
    def draft_model(self) -> bool:
        """Whether it needs a draft model or a draft head."""
        return self.baseline == "hf_assisted" if self.method is None else self.method.drafter.uses_draft_model


_SWITCH = {"true": True, "on": True, "false": False, "off": False}


def parse_contestant(text: str, also: Collection[str] = ()) -> Contestant:
    """`NAME[@ENGINE][:setting=value,...]` as a contestant; NAME is a key of METHODS, PRESETS or BASELINES.

    Its label names settings that differ from those of the name, and those of `also`. Raises `SettingsError` where a
    name, a setting or a value is unknown.
    """
    named, _, listed = (part.strip() for part in text.partition(":"))
    name, at, engine = (part.strip() for part in present_engines(named).partition("@"))
    known = ", ".join((*ENGINES, "streaming"))
    require(not at or is_engine(engine), f"There is no engine {engine!r}: choose {known}, or streaming-N for N rows.")
    if name in BASELINES:
        require(not listed and not at, f"{name} has no settings: write {name} alone instead of {text!r}.")
        return Contestant(BASELINES[name], baseline=name)
    method = METHODS.get(name) or PRESETS.get(name)
    if method is None:
        near = get_close_matches(name, [*METHODS, *BASELINES, *PRESETS], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose {', '.join([*METHODS, *BASELINES])} or a preset."
        raise SettingsError(f"There is no method {name!r}: {hint}")
    parts = listed.split(",") if listed else []
    # A verifier may have settings of its own, wherever in the line it is named.
    pieces = [[piece.strip() for piece in part.partition("=")] for part in parts]
    verifier = next((value for key, _, value in pieces if key == "verifier" and value), None)
    settled = method.with_settings(verifier=verifier)
    defaults, changes = settled.all_settings(), {}
    for part, (key, equals, value) in zip(parts, pieces, strict=True):
        require(bool(key and equals and value), f"{part.strip()!r} in {text!r} is not a setting: write setting=value.")
        require(key in defaults, f"{settled.label} has no setting {key!r}; it has {', '.join(defaults)}.")
        changes[key] = _read(key, value, defaults[key])
    changed = method.with_settings(**changes) if changes else method
    label = method_label(changed, also)
    return Contestant(f"{label} ({engine})" if at else label, method=changed, engine=engine or None)


def format_contestant(contestant: Contestant) -> str:
    """The text that `parse_contestant` reads; only settings that differ from those of the name are written."""
    if contestant.baseline:
        return contestant.baseline
    method = contestant.own_method
    changes = changed_settings(method, METHODS.get(_base_name(method)) or PRESETS[_base_name(method)])
    written = ",".join(f"{name}={_write(value)}" for name, value in changes.items())
    base = _base_name(method) + (f"@{contestant.engine}" if contestant.engine else "")
    return f"{base}:{written}" if written else base


def _base_name(method: Method) -> str:
    preset = PRESETS.get(method.label)
    return method.label if preset is not None and preset.name == method.name else method.name


def _read(name: str, value: str, default: Setting) -> Setting:
    if isinstance(default, str):
        return value
    if isinstance(default, bool):
        require(value.lower() in _SWITCH, f"{name} must be true or false, not {value!r}.")
        return _SWITCH[value.lower()]
    kind, words = (int, "a whole number") if isinstance(default, int) else (float, "a number")
    try:
        return kind(value)
    except ValueError:
        raise SettingsError(f"{name} must be {words}, not {value!r}.") from None


def _write(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
