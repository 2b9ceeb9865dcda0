"""Widgets for prompt, method, settings, sampling and length. Values last for the browser session, on every page.

    prompt = prompt_picker("prompt")                    # PromptChoice
    method = method_picker("method")                    # Method, or None with the sentence shown beside the widgets
    sampling = sampling_controls("sampling")
    tokens = length_control()

Keys name what is picked: pages that use the same key share the value, Compare uses one key per method.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.errors import PromptError, SettingsError
from decoding.common.prompts import Prompt, load_prompts
from decoding.recorded import PROMPT as HOME_PROMPT
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.models import manager
from pages.ui.common.state import PromptChoice
from pages.ui.widgets.settings import (
    length_control,
    picked,
    picked_settings,
    sampling_controls,
    say_again,
    seed,
    setting_key,
    settings_form,
)
from pages.ui.widgets.trained import presets

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.sampling.sampling import Sampling

__all__ = [
    "error_key",
    "length_control",
    "method_picker",
    "method_words",
    "picked_prompt_words",
    "preset_picker",
    "prompt_picker",
    "prompt_words",
    "reset_button",
    "sample_prompts",
    "sampling_controls",
    "set_method",
    "settings_form",
]

OWN_TEXT = "own text"
DEFAULT_PROMPT = HOME_PROMPT
DEFAULT_METHOD = "dynatree"


@lru_cache(maxsize=1)
def sample_prompts() -> dict[str, Prompt]:
    """The prompts that come with the program by `kind/name`."""
    return {f"{prompt.kind}/{prompt.name}": prompt for prompt in load_prompts()}


def prompt_words(name: str) -> str:
    """A prompt's name as the screen writes it: `Stories · Tim and the bell`."""
    return " · ".join(part.replace("_", " ").capitalize() for part in name.split("/"))


def prompt_picker(key: str = "prompt", bind: bool = True) -> PromptChoice:
    """Pick a sample prompt or write one's own; with a chat pair also whether the chat template is used."""
    samples = _samples_or_sentence()
    names = [*samples, OWN_TEXT]
    text_key = f"{key}_text"
    seed(key, DEFAULT_PROMPT if samples else OWN_TEXT, {name: prompt_words(name) for name in names})

    def take_sample() -> None:
        sample = samples.get(st.session_state[key])
        st.session_state[text_key] = sample.text if sample else ""

    name = st.selectbox(
        "Prompt",
        names,
        key=key,
        format_func=prompt_words,
        on_change=take_sample,
        persist_state="session",
        bind="query-params" if bind else None,
    )
    if text_key not in st.session_state:
        take_sample()
    else:
        say_again(text_key)

    def own_once_edited() -> None:
        sample = samples.get(st.session_state[key])
        if sample is not None and st.session_state[text_key] != sample.text:
            st.session_state[key] = OWN_TEXT

    text = st.text_area(
        "Text to continue",
        key=text_key,
        height=160,
        on_change=own_once_edited,
        persist_state="session",
        placeholder="Type what the models should continue",
    )
    return PromptChoice(name, text or "", _chat_toggle(f"{key}_chat"))


def method_picker(
    key: str = "method", columns: int = 2, sampling: "Sampling | None" = None, bind: bool = True
) -> "Method | None":
    """Pick a method and its settings; a contradiction is told in a sentence here and gives None.

    With a sampling given, a verifier that would bias the output under it is one, too.
    """
    from decoding.methods.methods import METHODS

    seed(key, DEFAULT_METHOD, {name: METHODS[name].label for name in METHODS})
    place, beside = st.columns(2)
    name = place.selectbox(
        "Method",
        list(METHODS),
        key=key,
        format_func=lambda name: METHODS[name].label,
        persist_state="session",
        bind="query-params" if bind and key == "method" else None,
    )
    method = METHODS[name]
    with beside:
        preset_picker(key)
    cost = f" Costs {method.drafter.cost}." if method.drafter.uses_draft_model else ""
    st.caption(escape_markdown(f"{method.summary} {method.paper}.{cost}"))
    place = st.empty()  # above the widgets: a contradiction must be seen without scrolling
    values = settings_form(method, key, columns, sampling=sampling)
    st.session_state[error_key(key)] = None
    try:
        chosen = method.with_settings(**values)
        if sampling is not None:
            chosen.check(sampling)
        return chosen
    except SettingsError as error:
        st.session_state[error_key(key)] = error
        show_error(error, place)
        return None


def error_key(key: str) -> str:
    """Session-state key of the contradiction in the settings under `key`, None where there is none."""
    return f"{key}_error"


def preset_picker(key: str = "method") -> None:
    """Pick a configuration of the papers: it sets the method and all of its settings under `key`."""
    widget, known = f"{key}_preset", presets()

    def take_preset() -> None:
        chosen = st.session_state.get(widget)
        if chosen is not None:
            set_method(key, known[chosen])
            st.session_state[widget] = None

    st.selectbox(
        "Configuration of the papers",
        list(known),
        index=None,
        key=widget,
        on_change=take_preset,
        placeholder="Take one over",
    )


def set_method(key: str, method: "Method") -> None:
    """Put a method and all its settings into the widgets of `key`; only in callbacks or before they are drawn."""
    st.session_state[key] = method.name
    for name, value in method.all_settings().items():
        st.session_state[setting_key(key, method.name, name)] = value
    if method.verifier.greedy_only:  # nobody clicked it: at a temperature it gives way to one that fits
        st.session_state[setting_key(key, method.name, "verifier")] = None


def reset_button(key: str) -> None:
    """A button that puts the paper's defaults into all widgets of the method picked under `key`."""
    from decoding.methods.methods import METHODS

    chosen = METHODS[st.session_state[key]]
    label, put = "Back to the paper's defaults", (key, chosen)
    st.button(label, key=f"{key}_reset", on_click=set_method, args=put, icon=":material/undo:")


def picked_prompt_words() -> str:
    """The prompt that is picked, for a button."""
    return prompt_words(picked("prompt", DEFAULT_PROMPT, {name: prompt_words(name) for name in _samples_or_sentence()}))


def method_words(key: str = "method") -> str:
    """What is picked under `key`, for a button: method, draft head, and how many settings differ from the paper's."""
    from decoding.methods.methods import METHODS

    method = METHODS[picked(key, DEFAULT_METHOD, {name: method.label for name, method in METHODS.items()})]
    defaults = method.settings()
    changed = sum(
        st.session_state.get(setting_key(key, method.name, name)) not in (None, value)
        for name, value in defaults.items()
    )
    label = method.with_settings(draft_head=picked_settings(method, key).get("draft_head", "")).label
    return f"{label} · {changed} changed" if changed else label


def _chat_toggle(key: str) -> bool:
    if not manager().settings.chat:
        return False
    seed(key, True)
    return st.toggle(
        "Chat template", key=key, persist_state="session", help="Off: the text goes to the models as it is."
    )


def _samples_or_sentence() -> dict[str, Prompt]:
    try:
        return sample_prompts()
    except PromptError as error:
        show_error(error)
        return {}
