"""Which methods a sweep runs, and which of their settings take which values."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from decoding.common.errors import ExperimentError
from decoding.trace.records import Setting
from pages.ui.common.errors import escape_markdown
from pages.ui.sweep.sentences import setting_title
from pages.ui.widgets.contestants import Field, contestant_bar, slots
from pages.ui.widgets.controls import (
    method_as_verified,
    picked_settings,
    say_again,
    seed,
    setting_help,
    setting_key,
    shown_settings,
)
from pages.ui.widgets.trained import TRAINED, trained_choices

if TYPE_CHECKING:
    from decoding.methods.method import Method

SWEEP = Field("sweep", "sweep_method", "sweep", 8, ("fixed_tree",), engines=True)
FIRST = {"fixed_tree": {"max_depth": "4, 6, 8", "branching": "2, 3"}}  # what varies where nothing was chosen yet
RANGE = re.compile(r"(-?\d{1,6})\s*\.\.\s*(-?\d{1,6})")
MOST_OF_RANGE = 200
COLUMNS = 3


def draw_methods() -> dict[str, dict[str, list[Setting]]]:
    """Widgets for the methods and what varies of each; returns the values by setting for each method's key."""
    contestant_bar(SWEEP)
    return {key: _draw_varied(key) for key in slots(SWEEP)}


def methods_content(varied: Mapping[str, dict[str, list[Setting]]]) -> list[dict[str, Any]]:
    """What a grid file says in its tables `[[methods]]`.

    Raises:
        ExperimentError: there is no method.
        SettingsError: settings of one contradict one another.
    """
    if not varied:
        raise ExperimentError("Add a method: a sweep needs at least one.")
    return [{"method": _line(key), "vary": values} for key, values in varied.items()]


def values_of(text: str, default: Setting) -> list[Setting]:
    """Typed values: `3, 4, 5` or `3..5`; of a setting that is a text with semicolons between.

    What is no number stays a text: the grid says what a setting can be.
    """
    pieces = [piece.strip() for piece in text.split(";" if isinstance(default, str) else ",")]
    if isinstance(default, str):
        return [piece for piece in pieces if piece]
    found: list[Setting] = []
    for piece in filter(None, pieces):
        span = RANGE.fullmatch(piece)
        if span is not None and 0 <= int(span[2]) - int(span[1]) < MOST_OF_RANGE:
            found += range(int(span[1]), int(span[2]) + 1)
        else:
            found.append(number_or_text(piece))
    return list(dict.fromkeys(found))


def number_or_text(piece: str) -> int | float | str:
    """A typed value: a whole number, a number, or what was typed."""
    for kind in (int, float):
        try:
            return kind(piece)
        except ValueError:
            continue
    return piece


def _line(key: str) -> str:
    """A contestant as a grid names it; a verifier that nobody clicked is left to the sampling."""
    from decoding.compare.comparison import Contestant
    from decoding.compare.contestants import format_contestant
    from decoding.methods.methods import METHODS

    name = st.session_state[key]
    if name not in METHODS:
        return name
    method = method_as_verified(name, key)
    method = method.with_settings(**picked_settings(method, key))
    if st.session_state.get(setting_key(key, name, "verifier")) is None:
        method = method.with_settings(verifier=METHODS[name].verifier.name)
    engine = st.session_state.get(f"{key}_engine")
    known = engine if engine and " " not in engine else None  # "as loaded" is none
    return format_contestant(Contestant(method.label, method=method, engine=known))


def _draw_varied(key: str) -> dict[str, list[Setting]]:
    """Which settings of one method vary, and over which values."""
    from decoding.methods.methods import METHODS

    name = st.session_state[key]
    if name not in METHODS:
        return {}
    method, defaults = METHODS[name], shown_settings(name, key)
    if not method.drafter.uses_draft_model:
        return {}
    with st.container(border=True, key=f"sweep_part_{key}"):
        widget, first = f"{key}_{name}_varied", FIRST.get(name, {})
        seed(widget, [each for each in first if each in defaults])
        st.session_state[widget] = [each for each in st.session_state[widget] if each in defaults]
        varied = st.multiselect(
            f"What varies of {escape_markdown(method.label)}", list(defaults), key=widget, format_func=setting_title,
            persist_state="session", placeholder="Nothing: one run with its settings as they are",
            help="Every combination of the values is run. What does not vary is set behind the method's button above.",
        )  # fmt: skip
        found: dict[str, list[Setting]] = {}
        for start in range(0, len(varied), COLUMNS):
            for place, each in zip(st.columns(COLUMNS), varied[start : start + COLUMNS], strict=False):
                with place:
                    found[each] = _draw_values(method, key, each, defaults[each], first.get(each, ""))
    return found


def _draw_values(method: "Method", key: str, name: str, default: Setting, first: str) -> list[Setting]:
    """The values of one setting: picked where there are few, else typed."""
    widget, title = f"{key}_{method.name}_{name}_values", setting_title(name)
    info = method_as_verified(method.name, key).infos[name]
    choices = _choices(method, key, name, default)
    shared = {"key": widget, "persist_state": "session", "help": setting_help(info, default)}
    if choices is not None:
        seed(widget, list(choices) if isinstance(default, bool) else [default])
        st.session_state[widget] = [each for each in st.session_state[widget] if each in choices]
        return st.multiselect(title, list(choices), format_func=choices.get, placeholder="Pick values", **shared)
    seed(widget, first or (default if isinstance(default, str) else f"{default:g}"))
    say_again(widget)
    separator = "1,1,3; 1,2,2" if isinstance(default, str) else "3, 4, 5 or 3..5" if isinstance(default, int) else ""
    typed = st.text_input(title, placeholder=separator or "0.01, 0.05, 0.1", **shared)
    return values_of(typed or "", default)


def _choices(method: "Method", key: str, name: str, default: Setting) -> Mapping[Setting, str] | None:
    """What a setting can be, as the screen calls it; None where it is typed."""
    from decoding.verifiers import VERIFIERS

    if name == "verifier":
        return {each: kind.label for each, kind in VERIFIERS.items()}
    if name in TRAINED:
        return trained_choices(method_as_verified(method.name, key)).get(name, {"": "none"})
    if isinstance(default, bool):
        return {True: "on", False: "off"}
    choices = method_as_verified(method.name, key).infos[name].choices
    return dict(choices) if choices else None
