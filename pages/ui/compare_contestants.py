"""Who takes part in a comparison: two to six methods with their settings, and what stands against them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from decoding.errors import SettingsError, require
from decoding.trace import Setting
from pages.ui.controls import preset_picker, reset_button
from pages.ui.errors import escape_markdown, guarded
from pages.ui.setting_info import info_of
from pages.ui.setting_widgets import method_as_verified, picked_sampling, seed, setting_key, settings_form

if TYPE_CHECKING:
    from decoding.comparison import Contestant
    from decoding.methods import Method

FEWEST, MOST = 2, 6
DEFAULTS = ("autoregressive", "hf_generate", "linear", "fixed_tree", "dynatree")
LONGEST_LABEL = 44


def slots() -> list[str]:
    """Widget keys of the contestants in their order."""
    if "compare_slots" not in st.session_state:
        st.session_state["compare_slots"] = []
        for name in DEFAULTS:
            add_slot(name)
    return st.session_state["compare_slots"]


def add_slot(name: str = "dynatree") -> None:
    """One more contestant with the paper's settings."""
    number = st.session_state.get("compare_count", 0)
    st.session_state["compare_count"] = number + 1
    key = f"contestant_{number}"
    st.session_state[key] = name
    st.session_state["compare_slots"] = [*st.session_state["compare_slots"], key]


def remove_slot(key: str) -> None:
    """Take a contestant out."""
    st.session_state["compare_slots"] = [other for other in slots() if other != key]


def contestant_bar() -> None:
    """One button per contestant that opens its settings, and one that adds another."""
    from decoding.baselines.hf_generate import BASELINES
    from decoding.methods import METHODS

    names = {**{name: method.label for name, method in METHODS.items()}, **BASELINES}
    with st.container(key="contestants", horizontal=True, gap="small", vertical_alignment="center"):
        for key in slots():
            words, icon = _steady_words(key)
            # The contents are drawn only while it is open: six forms of twenty widgets would slow every click down.
            place = st.popover(escape_markdown(words), key=f"{key}_open", on_change="rerun", icon=icon)
            if place.open:
                with place, st.container(width=700):
                    _slot_form(key, names)
        full = len(slots()) >= MOST
        with st.popover("Add", key="compare_add", icon=":material/add:", disabled=full, on_change="rerun"):
            for name, label in names.items():
                st.button(label, key=f"add_{name}", on_click=_add_and_close, args=(name,), width="stretch")


def _add_and_close(name: str) -> None:
    add_slot(name)
    st.session_state["compare_add"] = False


def _steady_words(key: str) -> tuple[str, str]:
    """The words of a slot's button; while it is open those it was opened with, for other words would close it."""
    kept = f"{key}_words"
    if st.session_state.get(f"{key}_open") and kept in st.session_state:
        return st.session_state[kept]
    st.session_state[kept] = slot_words(key)
    return st.session_state[kept]


def _slot_form(key: str, names: dict[str, str]) -> None:
    from decoding.methods import METHODS

    seed(key, "dynatree")
    left, right = st.columns(2)
    name = left.selectbox("Method", list(names), key=key, format_func=names.get, persist_state="session")
    method = METHODS.get(name)
    with right:
        if method is not None:
            preset_picker(key)
    if method is None:
        st.caption("Greedy, with a clean generation config, on the same models; it has no settings here.")
    else:
        st.caption(escape_markdown(f"{method.summary} {method.paper}."))
        with guarded():
            sampling = picked_sampling()
            method.with_settings(**settings_form(method, key, columns=3, sampling=sampling))
        if method.drafter.uses_draft_model:
            reset_button(key, method)
    st.button(
        "Take it out", key=f"{key}_remove", on_click=remove_slot, args=(key,), icon=":material/close:",
    )  # fmt: skip


def slot_method(key: str) -> "Method | None":
    """The method of a slot with the values of its widgets; None for an outside baseline.

    Raises:
        SettingsError: the settings contradict one another, or the verifier would bias the output.
    """
    from decoding.methods import METHODS

    if st.session_state[key] not in METHODS:
        return None
    method = method_as_verified(st.session_state[key], key)
    values = {name: st.session_state.get(setting_key(key, method.name, name)) for name in method.settings()}
    chosen = method.with_settings(**{name: value for name, value in values.items() if value is not None})
    chosen.check(picked_sampling())
    return chosen


def slot_words(key: str) -> tuple[str, str]:
    """What stands on a contestant's button: its label, or that its settings contradict one another; and an icon."""
    from decoding.baselines.hf_generate import BASELINES
    from decoding.methods import METHODS

    name = st.session_state[key]
    try:
        method = slot_method(key)
    except SettingsError:
        return f"{METHODS[name].label}: settings?", ":material/error:"
    return (short_label(method), ":material/tune:") if method else (BASELINES[name], ":material/tune:")


def short_label(method: "Method") -> str:
    """A method's name and what was changed, short enough for an axis: `DynaTree · no history, D_0 3`."""
    from decoding.contestants import changed_settings

    label = method.label
    changes = [_change(name, value) for name, value in changed_settings(method).items()]
    for number, change in enumerate(changes):
        longer = f"{label}, {change}" if number else f"{label} · {change}"
        left = len(changes) - number
        if len(longer) + (4 if left > 1 else 0) > LONGEST_LABEL:
            return f"{label} +{left}"
        label = longer
    return label


def _change(name: str, value: Setting) -> str:
    info = info_of(name, value)
    if isinstance(value, bool):
        return info.label.lower() if value else f"no {info.label.lower()}"
    if isinstance(value, str):
        return value.replace("_", " ")
    return f"{info.symbol or info.label.lower()} {value:g}"


def chosen_contestants() -> "list[Contestant]":
    """Who takes part, each with a label of its own.

    Raises:
        SettingsError: too few, too many, twice the same, or settings that contradict one another.
    """
    from decoding.baselines.hf_generate import BASELINES
    from decoding.comparison import Contestant

    contestants: list[Contestant] = []
    for key in slots():
        method = slot_method(key)
        name = st.session_state[key]
        label = _free_label(short_label(method) if method else BASELINES[name], contestants)
        contestants.append(Contestant(label, method=method, baseline=None if method else name))
    check_contestants(contestants)
    return contestants


def check_contestants(contestants: "Sequence[Contestant]") -> None:
    """Raise `SettingsError` unless there are two to six different contestants."""
    from decoding.contestants import format_contestant

    count = len(contestants)
    require(count >= FEWEST, f"A comparison needs at least {FEWEST} methods and there {_are(count)}: add one.")
    require(count <= MOST, f"A comparison takes at most {MOST} methods and there {_are(count)}: take one out.")
    seen: dict[str, str] = {}
    for contestant in contestants:
        written = format_contestant(contestant)
        twice = f"{seen.get(written)} is there twice with the same settings: change a setting of one or take one out."
        require(written not in seen, twice)
        seen[written] = contestant.label


def _are(count: int) -> str:
    return f"is {count}" if count == 1 else f"are {count}"


def _free_label(label: str, before: "Sequence[Contestant]") -> str:
    taken = {contestant.label for contestant in before}
    names = [label, *(f"{label} ({number})" for number in range(2, len(before) + 2))]
    return next(name for name in names if name not in taken)
