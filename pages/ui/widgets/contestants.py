"""The contestants of a comparison or a race: methods with their settings in slots, and their errors."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

import decoding
from decoding.common.errors import SettingsError, require
from decoding.common.formats import listed
from decoding.common.settings import ENGINES, SINKS, STREAMED_ROWS
from decoding.recorded import COMPARED, RACERS
from pages.ui.common.errors import escape_markdown, guarded
from pages.ui.widgets import controls
from pages.ui.widgets.trained import head_methods, head_words
from viz.race.lanes import MOST

if TYPE_CHECKING:
    from decoding.compare.contestants import Contestant
    from decoding.methods.method import Method

FEWEST = 2
AS_LOADED = "as loaded"
BASELINE = "Hugging Face's own loop on the same models, with a clean generation config; it has no settings."
ADD_COLUMNS, ADD_WIDTH = 3, 720
ENGINE_CHOICES = (AS_LOADED, *(name for name in ENGINES if name != "auto"), "streaming")


@dataclass(frozen=True)
class ContestantForm:
    """A form with a list of contestants.

    Attributes:
        name: prefix of session keys. slot: prefix of the key of each contestant.
        event: its name in sentences. most: the largest number of contestants.
        defaults: the initial contestants, as `decoding.compare.contestants` writes them.
        engines: whether each contestant can have its own engine.
        question, asked: a question that a button puts, and the contestants that answer it.
    """

    name: str
    slot: str
    event: str
    most: int
    defaults: tuple[str, ...]
    engines: bool = False
    question: str = ""
    asked: tuple[str, ...] = ()


COMPARE = ContestantForm(
    "compare", "contestant", "comparison", 6, COMPARED, question="Do I need a draft model?",
    asked=(
        "autoregressive", "DynaTree, first level may branch", "lookup_or_draft", "prompt_lookup", "suffix",
        "token_recycling",
    ),
)  # fmt: skip
RACE = ContestantForm(
    "race", "racer", "race", MOST, tuple(RACERS.values()), engines=True,
)  # fmt: skip


def slots(field: ContestantForm) -> list[str]:
    """Widget keys of the contestants in their order."""
    name = f"{field.name}_slots"
    if name not in st.session_state:
        _fill(field, field.defaults)
    return st.session_state[name]


def _fill(field: ContestantForm, texts: Sequence[str]) -> None:
    from decoding.compare.contestants import parse_contestant

    st.session_state[f"{field.name}_slots"] = []
    for text in texts:
        contestant = parse_contestant(text)
        key = add_slot(field, contestant.baseline or contestant.method.name)
        if contestant.method and text not in decoding.METHODS:
            controls.set_method(key, contestant.method)


def add_slot(field: ContestantForm, name: str) -> str:
    """One more contestant, a method with the paper's settings or an outside baseline; returns its key."""
    number = st.session_state.get(f"{field.name}_count", 0)
    st.session_state[f"{field.name}_count"] = number + 1
    key = f"{field.slot}_{number}"
    st.session_state[key] = name
    st.session_state[f"{field.name}_slots"] = [*st.session_state[f"{field.name}_slots"], key]
    return key


def include(field: ContestantForm, method: "Method") -> None:
    """Add a method unless it takes part already; the last contestant gives way where there is no room.

    Whoever comes with a method of their own is shown no recorded figures of others.
    """
    st.session_state[f"{field.name}_asked"] = True
    keys = slots(field)
    for key in keys:
        with suppress(SettingsError):  # of a contestant whose settings contradict one another Compare tells
            if slot_method(key) == method:
                return
    if len(keys) == field.most:
        st.session_state[f"{field.name}_slots"] = keys[:-1]
    controls.set_method(add_slot(field, method.name), method)


def contestant_bar(field: ContestantForm) -> None:
    """One button per contestant that opens its settings, and one that adds another where there is room for it."""
    from decoding.compare.contestants import parse_contestant
    from decoding.compare.hf_generate import BASELINES

    names = {**{name: method.label for name, method in decoding.METHODS.items()}, **BASELINES}
    with st.container(key=f"{field.name}_bar", horizontal=True, gap="small", vertical_alignment="center"):
        for key in slots(field):
            words, icon = slot_words(key)
            place = controls.settings_popover(escape_markdown(words), f"{key}_open", icon)
            if place.open:
                with place, st.container(width=700):
                    _slot_form(field, key, names)
        asked = [parse_contestant(text) for text in field.asked]
        if field.question and [each.name for each in asked] != [st.session_state[key] for key in slots(field)]:
            named = listed([each.label for each in asked])
            st.button(
                field.question, key=f"{field.name}_question", on_click=_fill, args=(field, field.asked),
                type="tertiary", icon=":material/help:",
                help=escape_markdown(f"Puts {named} here. The bottom line of their {field.event} answers it."),
            )  # fmt: skip
        adding = f"{field.name}_add"
        if len(slots(field)) >= field.most:
            st.button("Add", key=f"{field.name}_full", icon=":material/add:", disabled=True,
                      help=f"A {field.event} has at most {field.most} methods: remove one first.")  # fmt: skip
            return
        with st.popover("Add", key=adding, icon=":material/add:", on_change="rerun"):
            summaries = {name: method.summary for name, method in decoding.METHODS.items()}
            entries: list[tuple[str, str, str, tuple]] = [
                (f"{adding}_{name}", label, summaries.get(name, BASELINE), (name,)) for name, label in names.items()
            ]
            for method in head_methods().values():
                about = f"{method.summary} {head_words(method.draft_head)}"
                entries.append(
                    (f"{adding}_{method.name}_{method.draft_head}", method.label, about, (method.name, method))
                )
            with st.container(width=ADD_WIDTH):  # all in view at once, read down the columns
                columns = [each.container(gap="xsmall") for each in st.columns(ADD_COLUMNS, gap="small")]
                rows = -(-len(entries) // ADD_COLUMNS)
                for place, (key, label, about, added) in enumerate(entries):
                    columns[place // rows].button(
                        escape_markdown(label), key=key, on_click=_add_and_close, args=(field, *added), width="stretch",
                        help=escape_markdown(about),
                    )  # fmt: skip


def _add_and_close(field: ContestantForm, name: str, method: "Method | None" = None) -> None:
    """Add a contestant, with the settings of `method` if given."""
    key = add_slot(field, name)
    if method is not None:
        controls.set_method(key, method)
    st.session_state[f"{field.name}_add"] = False


def _slot_form(field: ContestantForm, key: str, names: dict[str, str]) -> None:
    def remove() -> None:
        st.session_state[f"{field.name}_slots"] = [other for other in slots(field) if other != key]

    left, right = st.columns(2)
    name = left.selectbox("Method", list(names), key=key, format_func=names.get, persist_state="session")
    method = decoding.METHODS.get(name)
    if method is None:
        st.caption(BASELINE)
    else:
        with right:
            controls.preset_picker(key)
        cost = f" Costs {method.drafter.cost}." if method.drafter.drafts else ""
        st.caption(escape_markdown(f"{method.summary} {method.paper}.{cost}"))
        with guarded():
            method.with_settings(**controls.settings_form(method, key, columns=3, sampling=controls.picked_sampling()))
        with st.container(horizontal=True, vertical_alignment="bottom"):
            if field.engines:
                controls.seed(f"{key}_engine", AS_LOADED)
                st.selectbox(
                    "Engine", ENGINE_CHOICES, key=f"{key}_engine", persist_state="session", width=180,
                    help="Runs the forward passes of this method: the same weights can race in two engines. "
                    f"streaming is StreamingLLM: a token sees the first {SINKS} tokens and the last "
                    f"{STREAMED_ROWS - SINKS}, so its text differs from full attention.",
                )  # fmt: skip
            if method.drafter.drafts:
                controls.reset_button(key)
    st.button("Remove", key=f"{key}_remove", on_click=remove, icon=":material/close:")


def _engine(key: str) -> str | None:
    chosen = st.session_state.get(f"{key}_engine", AS_LOADED)
    return None if chosen == AS_LOADED else chosen


def slot_method(key: str) -> "Method | None":
    """The method of a slot with the values of its widgets; None for an outside baseline.

    Raises `SettingsError` where the settings contradict one another, or the verifier would bias the output.
    """
    if st.session_state[key] not in decoding.METHODS:
        return None
    method = controls.method_as_verified(st.session_state[key], key)
    chosen = method.with_settings(**controls.picked_settings(method, key))
    chosen.check(controls.picked_sampling())
    return chosen


def slot_words(key: str) -> tuple[str, str]:
    """The text of a contestant's button - its label, or that its settings contradict one another - and its icon.

    While the button is open its text stays as it was, as a change would close it.
    """
    from decoding.compare.hf_generate import BASELINES

    name, kept, icon = st.session_state[key], f"{key}_words", ":material/tune:"
    if st.session_state.get(f"{key}_open") and kept in st.session_state:
        return st.session_state[kept]
    try:
        method = slot_method(key)
        words = decoding.method_label(method) if method else BASELINES[name]
    except SettingsError:
        words, icon = f"{decoding.METHODS[name].label}: settings?", ":material/error:"
    engine = _engine(key)
    st.session_state[kept] = f"{words} ({engine})" if engine else words, icon
    return st.session_state[kept]


def chosen_contestants(field: ContestantForm) -> "list[Contestant]":
    """The contestants, each with a distinct label.

    Raises:
        SettingsError: too few, too many, duplicates, or settings that contradict one another.
    """
    from decoding.compare.contestants import Contestant
    from decoding.compare.hf_generate import BASELINES

    chosen: list[Contestant] = []
    for key in slots(field):
        method, name = slot_method(key), st.session_state[key]
        engine = _engine(key) if method else None
        label = decoding.method_label(method) if method else BASELINES[name]
        label = f"{label} ({engine})" if engine else label
        taken = {contestant.label for contestant in chosen}
        names = [label, *(f"{label} ({number})" for number in range(2, len(chosen) + 2))]
        label = next(name for name in names if name not in taken)
        chosen.append(Contestant(label, method=method, baseline=None if method else name, engine=engine))
    check_contestants(field, chosen)
    return chosen


def check_contestants(field: ContestantForm, contestants: "Sequence[Contestant]") -> None:
    """Raise `SettingsError` unless their number is allowed and none occurs twice."""
    from decoding.compare.contestants import format_contestant

    count = len(contestants)
    are = "is 1" if count == 1 else f"are {count}"
    require(count >= FEWEST, f"A {field.event} needs at least {FEWEST} methods and there {are}: add one.")
    require(count <= field.most, f"A {field.event} takes at most {field.most} methods and there {are}: remove one.")
    seen: dict[str, str] = {}
    for contestant in contestants:
        written = format_contestant(contestant)
        twice = f"{seen.get(written)} occurs twice with the same settings: change a setting of one or remove one."
        require(written not in seen, twice)
        seen[written] = contestant.label
