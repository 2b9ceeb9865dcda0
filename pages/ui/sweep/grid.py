"""What a sweep varies of which methods, on which prompts it runs, how long, under which sampling, how often."""

import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

import streamlit as st

from decoding.common.errors import ExperimentError
from decoding.common.prompts import EMBEDDED_KINDS, KINDS
from decoding.models.presets import EMBEDDED
from decoding.trace.records import Setting
from pages.ui.common.errors import escape_markdown
from pages.ui.common.models import manager
from pages.ui.sweep.sentences import base_label, setting_title
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
        with suppress(ValueError):
            return kind(piece)
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


SAMPLES, FOLDER, DATA_SET = "Samples", "Folder", "Data set"
NO_REFERENCE = ""
SHARES = [1, 1, 1, 1, 1.25]


def plan_content() -> dict[str, Any]:
    """Widgets for all but the methods; returns what a grid file says of it, its name empty where none was given."""
    with st.container(border=True, key="sweep_part_prompts"):
        prompts = _prompts()
    with st.container(border=True, key="sweep_part_how"):
        columns = st.columns(SHARES)
        with columns[0]:
            new_tokens = _typed("new_tokens", "New tokens", "64", 1, "Of every run; several lengths with commas.")
        with columns[1]:
            prompts["max_tokens"] = _typed(
                "max_tokens", "Prompt tokens", "256", 0,
                "Longer prompts are cut to these; 0 leaves them whole; several lengths with commas.",
            )  # fmt: skip
        repeats = columns[2].number_input(
            "Repeats", 1, 100, key=_kept("repeats", 1), persist_state="session",
            help="Of the whole grid, one after another: times vary.",
        )  # fmt: skip
        with columns[3]:
            reference = _reference()
        name = columns[4].text_input(
            "Name", key=_kept("name", ""), placeholder="by what varies", persist_state="session",
            help="What the list calls this sweep; its rows bear the name.",
        )  # fmt: skip
        columns = st.columns(SHARES, vertical_alignment="bottom")
        samplings = _samplings(columns)
        with columns[4].container(gap="xsmall"):
            ignore = st.toggle(
                "Ignore end of text", key=_kept("ignore_end", True), persist_state="session",
                help="On: all outputs are of one length. Off: a run ends where the target ends its text.",
            )  # fmt: skip
            skip = st.toggle(
                "Skip contradictions", key=_kept("skip", True), persist_state="session",
                help="On: combinations that contradict themselves are left out and told. Off: they refuse the grid.",
            )  # fmt: skip
    return {
        "name": (name or "").strip(), "prompts": prompts, "new_tokens": new_tokens, "repeats": int(repeats or 1),
        "reference": reference, "ignore_end_of_text": ignore, "skip_contradictions": skip, "sampling": samplings,
    }  # fmt: skip


def samplings_of(
    temperatures: list[Setting], top_ps: list[Setting], draft_temperatures: list[Setting], seeds: list[Setting]
) -> list[dict[str, Any]]:
    """The tables `[[sampling]]` for all combinations; a greedy law has no nucleus and no seed."""
    made: list[dict[str, Any]] = []
    for temperature, top_p, draft in product(temperatures, top_ps, draft_temperatures):
        greedy = temperature == 0
        entry = {"temperature": temperature, "top_p": 1.0 if greedy else top_p, "draft_temperature": draft,
                 "seeds": [0] if greedy else seeds}  # fmt: skip
        if entry not in made:
            made.append(entry)
    return made


def _prompts() -> dict[str, Any]:
    from decoding.experiments.plan import DATA_SETS
    from decoding.experiments.plan import SAMPLES as SAMPLE_SET

    left, middle, right = st.columns([2, 4, 1])
    source = left.segmented_control(
        "Prompts", [SAMPLES, FOLDER, DATA_SET], key=_kept("source", SAMPLES), required=True, persist_state="session"
    )
    content: dict[str, Any] = {"set": SAMPLE_SET}
    if source == SAMPLES:
        first = list(EMBEDDED_KINDS) if manager().settings.target == EMBEDDED else []
        content["kinds"] = middle.multiselect(
            "Kinds of text", KINDS, key=_kept("kinds", first), persist_state="session", placeholder="All kinds"
        )
    elif source == FOLDER:
        typed = middle.text_input(
            "Folder of .txt files", key=_kept("folder", ""), placeholder="such as /home/me/prompts",
            persist_state="session",
        )  # fmt: skip
        content["set"] = (typed or "").strip()
    else:
        content["set"] = middle.selectbox(
            "Data set", list(DATA_SETS), key=_kept("data_set", next(iter(DATA_SETS))), persist_state="session",
            help="Of the Hugging Face hub. It is fetched once, which needs a network, and kept on this machine.",
        )  # fmt: skip
    count = right.number_input(
        "How many", 1, 10_000, key=_kept("count", 4), persist_state="session",
        help="One kind of text after another in turn.",
    )  # fmt: skip
    return {**content, "count": int(count or 1)}


def _reference() -> str:
    from decoding.compare.hf_generate import BASELINES
    from decoding.methods.methods import METHODS

    names = [*METHODS, *BASELINES]
    words = {NO_REFERENCE: "none", **{name: BASELINES.get(name, base_label(name)) for name in names}}
    return st.selectbox(
        "Reference", list(words), key=_kept("reference", "autoregressive"), format_func=words.get,
        persist_state="session",
        help="Runs in every block of runs; a speed-up is tokens per second over its own on the same prompt.",
    )  # fmt: skip


def _samplings(columns: list) -> list[dict[str, Any]]:
    with columns[0]:
        temperatures = _typed("temperature", "Temperature", "0", 0.0, "0 decodes greedily; several with commas.")
    with columns[1]:
        top_ps = _typed("top_p", "Top-p", "1", 1.0, "The target's law is cut to its nucleus; not where it is greedy.")
    with columns[2]:
        drafts = _typed("draft_temperature", "Draft temperature", "1", 1.0, "Of the law that draft tokens come from.")
    with columns[3]:
        seeds = _typed("seeds", "Seeds", "0", 0, "Each is a run of its own, under a temperature above 0.")
    return samplings_of(temperatures, top_ps, drafts, seeds)


def _kept(name: str, first: Any) -> str:
    """The key of a widget that begins with a value and keeps what it is set to."""
    key = f"sweep_plan_{name}"
    seed(key, first)
    say_again(key)
    return key


def _typed(name: str, label: str, first: str, like: Setting, help_text: str) -> list[Setting]:
    typed = st.text_input(label, key=_kept(name, first), help=help_text, persist_state="session")
    return values_of(typed or "", like)
