"""How a comparison or a race is made: prompt, length and repeats, sampling, in popovers that say what is chosen."""

import streamlit as st

from pages.ui.compare import MOST_REPEATS, MOST_WARMUP, Plan
from pages.ui.controls import length_control, picked_prompt_words, prompt_picker
from pages.ui.errors import escape_markdown
from pages.ui.setting_widgets import DEFAULT_NEW_TOKENS, picked_sampling, sampling_controls, sampling_words, seed
from viz.tokens import plural

DEFAULT_REPEATS, DEFAULT_WARMUP = 3, 1


def plan_controls(name: str, shown: str, sampled: str, bind_prompt: bool = True) -> Plan:
    """The plan as it stands in the widgets.

    Args:
        name: begins the keys of the widgets that other pages do not share.
        shown: what becomes of the repeats. sampled: what sampling does to the outputs. Both are whole sentences.
        bind_prompt: whether the address keeps the prompt.
    """
    with st.popover(escape_markdown(picked_prompt_words()), key=f"{name}_prompt_open", icon=":material/edit_note:"):
        prompt = prompt_picker("prompt", bind=bind_prompt)
    repeats_key, warmup_key = f"{name}_repeats", f"{name}_warmup"
    seed(repeats_key, DEFAULT_REPEATS)
    seed(warmup_key, DEFAULT_WARMUP)
    tokens = st.session_state.get("max_new_tokens", DEFAULT_NEW_TOKENS)
    words = f"{tokens} tokens × {plural(st.session_state[repeats_key], 'repeat')}"
    with st.popover(words, key=f"{name}_plan_open", icon=":material/repeat:"):
        tokens = length_control()
        repeats = st.number_input(
            "Measured repeats", 1, MOST_REPEATS, key=repeats_key, persist_state="session",
            help="Every method runs once per repeat, one after the other, so that drift of the machine hits all "
            f"alike. {shown}",
        )  # fmt: skip
        warmup = st.number_input(
            "Warm-up rounds", 0, MOST_WARMUP, key=warmup_key, persist_state="session",
            help="Rounds before the measured ones; their times are thrown away.",
        )  # fmt: skip
    with (
        st.popover(sampling_words(picked_sampling()), key=f"{name}_sampling_open", icon=":material/casino:"),
        st.container(width=520),
    ):
        sampling = sampling_controls()
        st.caption(f"For all methods alike. {sampled}")
    return Plan(prompt, tokens, int(repeats), int(warmup), sampling)
