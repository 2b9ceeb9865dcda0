"""A view as the parameters of an address, and back: prompt, method, settings, sampling, length, iteration, node.

    link = encode(View(method="linear", settings={"length": 4}, iteration=7, node=3))
    link.query                                        # "method=Linear+chain&length=4&iteration=7&node=3"
    view, ignored = decode({"method": ["Linear chain"], "length": ["4"]}, recorded=())
    with_run(link, RunName(run.id, 46)).query         # "run=...&method=..."; `split_run` takes it out again

An address is untrusted input: a name must be in a table, a number is parsed by the type of its setting and must lie
in its range, text is bounded and only ever becomes the content of a text field. What fails is left out, and one
sentence says so. Setting names are the program's own, as in `Method.settings()`.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote_plus, urlencode

import decoding
from decoding.common.settings import SettingInfo
from decoding.trace.records import Setting
from pages.ui.common.run_store import RUN_ID
from pages.ui.widgets.controls import DEFAULT_METHOD, SAMPLING
from pages.ui.widgets.prompts import MAX_TEXT, prompt_words, sample_prompts
from viz.scope.phases import FINAL_ID
from viz.tokens import visible

MAX_ADDRESS = 8_000  # characters of all names and values together
MAX_WORDS = 200
MOST = 100_000  # iterations, node ids, new tokens: more than any run has
NAMED = 4  # ignored parameters that the message names one by one
NAMED_RUN = re.compile(rf"({RUN_ID.pattern})(?:\.([1-9][0-9]{{0,4}}))?")
WHOLE = re.compile(r"-?[0-9]{1,10}")
DECIMAL = re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,17})?(e-?[0-9]{1,2})?", re.IGNORECASE)
PLAIN_WORDS = re.compile(r"[0-9A-Za-z .,:;+_/\-]*")
SWITCH = {"on": True, "off": False, "true": True, "false": False}


class NotInAddressError(ValueError):
    """A value that an address may not set; the message says what is allowed."""


@dataclass(frozen=True)
class View:
    """What a link holds; None and missing entries are left as they are.

    Attributes:
        recorded: name of a run shipped with Draftscope.
        prompt: name of a sample prompt; `text`: a prompt of one's own instead; `chat`: through the chat template.
        method, settings: key in `METHODS`, and its settings that differ from the defaults.
        sampling: temperature, top-p, draft temperature, seed where they differ from the defaults.
        iteration: 1-based, as on the screen. node: id in that iteration's tree, -2 is its final token.
        pair: name of the pair that decoded it, None for the embedded one.
    """

    recorded: str | None = None
    prompt: str | None = None
    text: str | None = None
    chat: bool | None = None
    method: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    sampling: Mapping[str, Setting] = field(default_factory=dict)
    max_new_tokens: int | None = None
    iteration: int | None = None
    node: int | None = None
    pair: str | None = None


@dataclass(frozen=True)
class Link:
    """The parameters of an address, and a sentence on what it cannot hold, empty where it holds everything."""

    query: str
    lacks: str = ""


@dataclass(frozen=True)
class RunName:
    """The run that an address names, and how many iterations it had; None where the address cannot decode it again."""

    id: str
    iterations: int | None = None


def with_run(link: Link, name: RunName) -> Link:
    """The same link, naming a run that the server may still have."""
    known = name.id if name.iterations is None else f"{name.id}.{name.iterations}"
    return Link("&".join(filter(None, (f"run={known}", link.query))), link.lacks)


def split_run(params: Mapping[str, Sequence[str]]) -> tuple[RunName | None, dict[str, Sequence[str]]]:
    """The run that an address names, and its other parameters; whatever is no such name is left with those."""
    match = NAMED_RUN.fullmatch(params["run"][0]) if len(params.get("run", ())) == 1 else None
    if match is None:
        return None, dict(params)
    rest = {name: values for name, values in params.items() if name != "run"}
    return RunName(match[1], int(match[2]) if match[2] else None), rest


def encode(view: View) -> Link:
    """The shortest parameters from which `decode` makes the same view; without a place where they would mislead."""
    if view.text is not None and _has_control_characters(view.text):
        return Link("", "The prompt contains control characters, which a link cannot hold: save the run instead.")
    if view.text is not None and len(quote_plus(view.text)) > MAX_TEXT:
        lacks = f"The prompt is longer than a link can hold ({MAX_TEXT:,} encoded characters): save the run instead."
        return Link("", lacks)
    values = {
        "recorded": view.recorded,
        "prompt": None if view.prompt is None else prompt_words(view.prompt),
        "text": view.text,
        "chat": view.chat,
        "method": None if view.method is None else _labels()[view.method],
        **view.settings,
        **view.sampling,
        "max_new_tokens": view.max_new_tokens,
        "iteration": view.iteration,
        "node": "final" if view.node == FINAL_ID else view.node,
        "pair": view.pair,
    }
    return Link(urlencode({name: _written(value) for name, value in values.items() if value is not None}))


def decode(params: Mapping[str, Sequence[str]], recorded: Collection[str]) -> tuple[View, str]:
    """The view that an address requests, and one sentence on what was ignored, empty if nothing was.

    `recorded` has the names of the shipped runs. Never raises, whatever `params` holds.
    """
    if sum(len(name) + sum(map(len, values)) for name, values in params.items()) > MAX_ADDRESS:
        return View(), f"The link is longer than {MAX_ADDRESS:,} characters and was ignored as a whole."
    found, ignored = {}, []
    readers = {
        "recorded": lambda text: _named(text, {name: name for name in recorded}, "recorded run"),
        "prompt": lambda text: _named(text, {name: prompt_words(name) for name in sample_prompts()}, "sample prompt"),
        "text": _own_text,
        "chat": _switch,
        "method": lambda text: _named(text, _labels(), "method"),
        **{
            name: partial(_number, type(default), low=low, high=high)
            for name, (_, low, high, _, default, _) in SAMPLING.items()
        },
        "max_new_tokens": lambda text: _number(int, text, 1, MOST),
        "iteration": lambda text: _number(int, text, 1, MOST),
        "node": lambda text: FINAL_ID if text == "final" else _number(int, text, 0, MOST),
        "pair": lambda text: _own_text(text, MAX_WORDS),
    }
    for name, read in readers.items():
        if name in params:
            _take(name, params[name], read, found, ignored)
    others = [name for name in params if name not in readers]
    settings, method = {}, found.get("method")
    if others:
        method = found.setdefault("method", DEFAULT_METHOD)
        infos = _infos(method, params.get("verifier", ()))
        for name in others:
            if name in infos:
                _take(name, params[name], partial(_setting, infos[name]), settings, ignored)
            else:
                ignored.append(f"‘{visible(name, 24)}’ (not a known parameter)")
    if "text" in found:
        found.pop("prompt", None)
    sampling = {name: found.pop(name) for name in SAMPLING if name in found}
    if not settings and "method" not in params:
        found.pop("method", None)
    return View(**found, settings=settings, sampling=sampling), _sentence(ignored)


def _take(name: str, values: Sequence[str], read: Callable[[str], Setting], into: dict, ignored: list[str]) -> None:
    """Read one parameter, or note why not."""
    try:
        if len(values) != 1:
            raise NotInAddressError("given more than once")
        into[name] = read(values[0])
    except NotInAddressError as error:
        ignored.append(f"{name} ({error})")


def _sentence(ignored: list[str]) -> str:
    if not ignored:
        return ""
    more = f" and {len(ignored) - NAMED} more" if len(ignored) > NAMED else ""
    return f"Some of the link was ignored: {', '.join(ignored[:NAMED])}{more}."


def _labels() -> dict[str, str]:
    return {name: method.label for name, method in decoding.METHODS.items()}


def _infos(method: str, verifier: Sequence[str]) -> dict[str, SettingInfo]:
    """The settings of a method with the verifier that the address names, and those of that verifier."""
    from decoding.verifiers import VERIFIERS

    known = [name for name in verifier if name in VERIFIERS]
    settled = decoding.METHODS[method].with_settings(verifier=known[0] if len(known) == 1 else None)
    return {name: settled.infos[name] for name in settled.all_settings()}


def _setting(info: SettingInfo, text: str) -> Setting:
    """A setting, parsed by the type of its default, within the range of its widget."""
    if isinstance(info.default, bool):
        return _switch(text)
    from decoding.verifiers import VERIFIERS

    choices = VERIFIERS if info.name == "verifier" else info.choices
    if choices:
        return _named(text, {choice: choice for choice in choices}, "choice")
    if isinstance(info.default, str):
        if len(text) > MAX_WORDS or not PLAIN_WORDS.fullmatch(text):
            raise NotInAddressError(f"at most {MAX_WORDS} letters, digits and simple punctuation marks")
        return text
    return _number(type(info.default), text, *info.offered)


def _named(text: str, names: Mapping[str, str], kind: str) -> str:
    """A key of a table, given as the key itself or as shown on the screen."""
    for name, words in names.items():
        if text in (name, words):
            return name
    raise NotInAddressError(f"no {kind} of that name")


def _switch(text: str) -> bool:
    if text.lower() not in SWITCH:
        raise NotInAddressError("on or off")
    return SWITCH[text.lower()]


def _number(kind: type, text: str, low: float, high: float) -> int | float:
    pattern = WHOLE if kind is int else DECIMAL
    value = kind(text) if pattern.fullmatch(text) else math.nan
    if not low <= value <= high:
        raise NotInAddressError(f"a {'whole ' if kind is int else ''}number from {low:g} to {high:,g}")
    return value


def _own_text(text: str, most: int = MAX_TEXT) -> str:
    if not text.strip() or _has_control_characters(text):
        raise NotInAddressError("text without control characters")
    if len(quote_plus(text)) > most:
        raise NotInAddressError(f"at most {most:,} encoded characters")
    return text


def _has_control_characters(text: str) -> bool:
    """Whether a text has control or surrogate characters other than newline and tab."""
    return any(unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t" for sign in text)


def _written(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
