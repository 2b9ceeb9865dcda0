"""Widgets for single settings, sampling and length; `controls` puts them together."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from decoding.trace import Setting
from pages.ui.models import manager
from pages.ui.setting_info import GROUPS, IDLE_WITHOUT, SettingInfo, info_of

if TYPE_CHECKING:
    from decoding.methods import Method
    from decoding.sampling import Sampling

DEFAULT_NEW_TOKENS = 96


def settings_form(method: "Method", key: str, columns: int = 2, groups: Sequence[str] = GROUPS) -> dict[str, Setting]:
    """Widgets for every setting of a method, in groups; returns the values, idle ones included."""
    defaults = _shown_settings(method)
    values: dict[str, Setting] = {}
    for group in groups:
        names = [name for name in defaults if info_of(name, defaults[name]).group == group]
        if names:
            _group(group, names, defaults, values, method, key, columns)
    return values


def _group(
    group: str, names: list[str], defaults: dict, values: dict, method: "Method", key: str, columns: int
) -> None:
    """One group: its switches beside the heading, what they switch off below."""
    switches = [name for name in names if isinstance(defaults[name], bool)]
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.markdown(f"**{group}**", width="content")
        for name in switches:
            values[name] = setting_widget(setting_key(key, method.name, name), name, defaults[name])
    others = [name for name in names if name not in switches]
    for start in range(0, len(others), columns):
        for place, name in zip(st.columns(columns), others[start : start + columns], strict=False):
            idle = any(name in idle and values.get(switch) is False for switch, idle in IDLE_WITHOUT.items())
            with place:
                values[name] = setting_widget(setting_key(key, method.name, name), name, defaults[name], idle)


def setting_widget(key: str, name: str, default: Setting, disabled: bool = False) -> Any:
    """One setting: a switch, a choice or a slider, with its meaning and the paper's default in the help."""
    info = info_of(name, default)
    seed(key, default)
    shared = {"key": key, "disabled": disabled, "persist_state": "session", "help": setting_help(info, default)}
    if isinstance(default, bool):
        return st.toggle(info.title, **shared)
    if isinstance(default, str):
        choices = info.choices or _verifier_names()
        return st.selectbox(info.title, choices, format_func=lambda word: word.replace("_", " "), **shared)
    kind = int if isinstance(default, int) else float
    low, high = kind(info.low), kind(info.high)
    st.session_state[key] = min(max(kind(st.session_state[key]), low), high)
    return st.slider(info.title, low, high, step=kind(info.step), **shared)


def setting_help(info: SettingInfo, default: Setting) -> str:
    """Meaning and default of a setting."""
    shown = {True: "on", False: "off"}.get(default, default) if isinstance(default, bool) else default
    return f"{info.meaning} Default of the paper: {shown}.".strip()


def sampling_controls(key: str = "sampling") -> "Sampling":
    """Temperature, top-p and seed where some verifier can sample; a line that says greedy where none can."""
    from decoding.sampling import Sampling
    from decoding.verifiers import VERIFIERS

    if all(kind.greedy_only for kind in VERIFIERS.values()):
        st.caption("Greedy decoding: the target's most likely token, temperature 0.")
        return Sampling()
    names = {
        "temperature": (0.0, 2.0, 0.05, 0.0),
        "top_p": (0.05, 1.0, 0.01, 1.0),
        "draft_temperature": (0.05, 2.0, 0.05, 1.0),
    }
    values = {}
    for place, (name, (low, high, step, default)) in zip(st.columns(len(names)), names.items(), strict=True):
        seed(f"{key}_{name}", default)
        label = name.replace("_", " ").capitalize().replace("Top p", "Top-p")
        values[name] = place.slider(label, low, high, step=step, key=f"{key}_{name}", persist_state="session")
    seed(f"{key}_seed", 0)
    number = st.number_input("Seed", 0, 2**31 - 1, key=f"{key}_seed", persist_state="session")
    return Sampling(**values, seed=int(number))


def length_control(key: str = "max_new_tokens", default: int = DEFAULT_NEW_TOKENS) -> int:
    """How many tokens to decode at most; what does not fit behind the prompt is told when the run starts."""
    info = manager().info
    most = info.context if info is not None else manager().settings.context_length
    seed(key, default)
    st.session_state[key] = min(max(int(st.session_state[key] or 1), 1), most)
    return int(
        st.number_input(
            "New tokens at most",
            1,
            most,
            key=key,
            step=16,
            persist_state="session",
            help=f"Prompt and new tokens together fit into {most:,} tokens.",
        )
    )


def setting_key(key: str, method_name: str, name: str) -> str:
    """Session-state key of a setting's widget."""
    return f"{key}_{method_name}_{name}"


def _shown_settings(method: "Method") -> dict[str, Setting]:
    """The paper's defaults of the settings that have an effect."""
    from decoding.methods import METHODS
    from decoding.verifiers import VERIFIERS

    settings = METHODS[method.name].settings()
    if len(VERIFIERS) < 2:
        settings.pop("verifier", None)
    if not method.drafter.uses_draft_model:
        settings.pop("cache_policy", None)
    return settings


def _verifier_names() -> tuple[str, ...]:
    from decoding.verifiers import VERIFIERS

    return tuple(VERIFIERS)


def seed(key: str, default: Any, words: Mapping[Any, str] | Sequence[tuple[Any, str]] = ()) -> None:
    """First value of a widget; a value from before or a valid one from the address comes first.

    Streamlit writes an option into the address as the screen shows it: `words` has the options by value, as a
    mapping or in pairs; without it any value from the address is left to the widget.
    """
    if key in st.session_state:
        return
    asked = st.query_params.get(key)
    if asked is None or (words and asked not in dict(words).values()):
        st.session_state[key] = default


def picked(key: str, default: Any, words: Mapping[Any, str]) -> Any:
    """What a widget made with `seed` holds or will hold, for what is drawn before it."""
    if key in st.session_state:
        return st.session_state[key]
    return next((value for value, shown in words.items() if shown == st.query_params.get(key)), default)
