"""The switch between whole and loop-free texts, on every page whose figures count tokens."""

import streamlit as st

from decoding.trace.metrics import COUNTINGS, NGRAM, Counting
from pages.ui.widgets.controls import seed

HELP = (
    "Small models repeat themselves under greedy decoding, and a text that repeats itself is easy to draft. Whole "
    "texts count every token, as papers do; loop-free texts end where the last "
    f"{NGRAM} tokens have occurred before. Both are read from the same runs."
)


def counting_switch(key: str, first: Counting, disabled: bool = False) -> Counting:
    """What figures count: the choice kept under `key`, at first `first`."""
    seed(key, first)
    return st.segmented_control(
        "Counted", list(COUNTINGS), key=key, format_func=lambda name: COUNTINGS[name].capitalize(), required=True,
        label_visibility="collapsed", persist_state="session", disabled=disabled, help=HELP,
    )  # fmt: skip


def counted_words(counted: float, asked: float, counting: Counting) -> str:
    """How many tokens stand behind figures: `116 of 1,000 tokens counted: loop-free texts`."""
    of = f"{counted:,.0f}" if round(counted) == round(asked) else f"{counted:,.0f} of {asked:,.0f}"
    return f"{of} tokens counted per run: {COUNTINGS[counting]}"
