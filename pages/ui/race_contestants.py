"""Who takes part in a race: two to four methods with their settings, and what stands against them."""

from typing import TYPE_CHECKING

import streamlit as st

from decoding.errors import require
from decoding.presets import ENGINES
from pages.ui.compare_contestants import check_contestants, short_label, slot_method, slot_words
from pages.ui.controls import method_picker, reset_button, set_method
from pages.ui.errors import escape_markdown
from pages.ui.setting_widgets import picked_sampling, seed
from viz.race_lanes import FEWEST, MOST

if TYPE_CHECKING:
    from decoding.comparison import Contestant

DEFAULTS = ("autoregressive", "linear:length=3", "dynatree:branch_first_level=true", "hardware_aware")
AS_LOADED = "as loaded"
ENGINE_CHOICES = (AS_LOADED, *(name for name in ENGINES if name != "auto"))


def slots() -> list[str]:
    """Keys of the methods in their order."""
    if "race_slots" not in st.session_state:
        from decoding.contestants import parse_contestant

        st.session_state["race_slots"] = []
        for text in DEFAULTS:
            key = _add(parse_contestant(text).method.name)
            set_method(key, parse_contestant(text).method)
    return st.session_state["race_slots"]


def _add(name: str) -> str:
    number = st.session_state.get("race_count", 0)
    st.session_state["race_count"] = number + 1
    key = f"racer_{number}"
    st.session_state[key] = name
    st.session_state["race_slots"] = [*st.session_state["race_slots"], key]
    return key


def _add_and_close(name: str) -> None:
    _add(name)
    st.session_state["race_add"] = False


def _remove(key: str) -> None:
    st.session_state["race_slots"] = [other for other in slots() if other != key]


def race_bar() -> None:
    """One button per method that opens its settings, and one that adds another."""
    from decoding.baselines.hf_generate import BASELINES
    from decoding.methods import METHODS

    with st.container(key="racers", horizontal=True, gap="small", vertical_alignment="center"):
        for key in slots():
            words, icon = _steady_words(key)
            place = st.popover(escape_markdown(words), key=f"{key}_open", on_change="rerun", icon=icon)
            if place.open:  # closed ones draw nothing: their values last for the session all the same
                with place, st.container(width=700):
                    _slot_form(key)
        full = len(slots()) >= MOST
        with st.popover("Add", key="race_add", icon=":material/add:", disabled=full, on_change="rerun"):
            for name, label in ({name: method.label for name, method in METHODS.items()} | BASELINES).items():
                st.button(label, key=f"race_add_{name}", on_click=_add_and_close, args=(name,), width="stretch")


def _slot_form(key: str) -> None:
    from decoding.methods import METHODS

    if st.session_state[key] in METHODS:
        method_picker(key, columns=3, sampling=picked_sampling())
        with st.container(horizontal=True, vertical_alignment="bottom"):
            seed(f"{key}_engine", AS_LOADED)
            st.selectbox(
                "Engine", ENGINE_CHOICES, key=f"{key}_engine", persist_state="session", width=180,
                help="What runs the forward passes of this method: the same weights raced in two engines, for example.",
            )  # fmt: skip
            reset_button(key)
    else:
        st.caption("Hugging Face's own loop on the same models, with a clean generation config. It has no settings.")
    st.button("Take it out", key=f"{key}_remove", on_click=_remove, args=(key,), icon=":material/close:")


def _steady_words(key: str) -> tuple[str, str]:
    """The words of a method's button; while it is open those it was opened with, for other words would close it."""
    kept = f"{key}_words"
    if not st.session_state.get(f"{key}_open") or kept not in st.session_state:
        words, icon = slot_words(key)
        st.session_state[kept] = f"{words} ({_engine(key)})" if _engine(key) else words, icon
    return st.session_state[kept]


def _engine(key: str) -> str | None:
    chosen = st.session_state.get(f"{key}_engine", AS_LOADED)
    return None if chosen == AS_LOADED else chosen


def racers() -> "list[Contestant]":
    """Who takes part, each with a label of its own.

    Raises:
        SettingsError: too few, too many, twice the same, or settings that contradict one another.
    """
    from decoding.baselines.hf_generate import BASELINES
    from decoding.comparison import Contestant

    chosen: list[Contestant] = []
    for key in slots():
        method, name = slot_method(key), st.session_state[key]
        engine = _engine(key) if method else None
        label = short_label(method) if method else BASELINES[name]
        label = f"{label} ({engine})" if engine else label
        chosen.append(Contestant(label, method=method, baseline=None if method else name, engine=engine))
    count = len(chosen)
    are = "is 1" if count == 1 else f"are {count}"
    require(count >= FEWEST, f"A race needs at least {FEWEST} methods and there {are}: add one.")
    require(count <= MOST, f"A race takes at most {MOST} methods and there are {count}: take one out.")
    check_contestants(chosen)
    return chosen
