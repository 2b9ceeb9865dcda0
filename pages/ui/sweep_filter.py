"""Which runs of an experiment charts and ranking are made of: one value of a condition, or all of them."""

import pandas as pd
import streamlit as st

from decoding.experiments.followed import FollowedExperiment
from decoding.experiments.swept import BASE, CONDITIONS, axes
from pages.ui.errors import escape_markdown
from pages.ui.sweep_words import axis_of, base_label
from viz.sweep_charts import told

ALL = "all"


def draw_filter(followed: FollowedExperiment, runs: pd.DataFrame) -> pd.DataFrame:
    """A popover with a choice for every condition that varies; returns the runs that are left."""
    offered = {name: values for name, values in axes(runs).items() if name in (BASE, *CONDITIONS, "kind")}
    if not offered:
        return runs
    picked = {name: st.session_state.get(_key(followed, name), ALL) for name in offered}
    said = [f"{axis_of(name).words} {_told(name, value)}" for name, value in picked.items() if value != ALL]
    label = ", ".join(said) or "All runs"
    with st.popover(
        escape_markdown(label), key="sweep_filter", icon=":material/filter_alt:", on_change="rerun"
    ) as place:
        if place.open:
            with st.container(width=320):
                for name, values in offered.items():
                    _draw_choice(followed, name, values)
    for name, value in picked.items():
        if value in offered[name]:
            runs = runs[runs[name] == value]
    return runs


def _draw_choice(followed: FollowedExperiment, name: str, values: tuple) -> None:
    words, key = axis_of(name).words, _key(followed, name)
    st.selectbox(
        words[0].upper() + words[1:], [ALL, *values], key=key, persist_state="session",
        format_func=lambda value: "all" if value == ALL else _told(name, value),
    )  # fmt: skip


def _told(name: str, value: object) -> str:
    return base_label(value) if name == BASE else told(value)


def _key(followed: FollowedExperiment, name: str) -> str:
    return f"sweep_only_{followed.key}_{name}"
