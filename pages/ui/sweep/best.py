"""What is best for this machine and these prompts, how sure that is, and the methods in their order."""

import pandas as pd
import streamlit as st

from decoding.experiments.estimates import BASE, CONDITIONS, FEWEST, Ranked, axes, best_words, ranked
from decoding.experiments.launch import FollowedExperiment
from pages.ui.common.errors import escape_markdown
from pages.ui.sweep.runs import pick
from pages.ui.sweep.sentences import Told, axis_of, base_label
from viz.charts.sweeps import told

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


KEPT, TABLE = "sweep_ranked", "sweep_best_table"
SHOWN, ROW_PX = 4, 35
HIGH_HELP = "95% of the bootstrap over prompts: other prompts of this kind would give a mean in there."
CHANCE_HELP = "In how many of 2,000 draws of the prompts, with replacement, it is the best of all."


def draw_best(followed: FollowedExperiment, runs: pd.DataFrame, told: Told) -> None:
    """A sentence on the best way, and a table of the first ones with their intervals."""
    found, figure = ranking(runs, told), told.figure
    with st.container(border=True, key="sweep_part_best"):
        words = best_words(found, figure.words, figure.scale, figure.digits)
        with st.container(key="sweep_best_words"):
            where = f"on {runs['machine'].iloc[0].partition(',')[0]}" if followed.shipped else "for this machine"
            st.markdown(
                f":material/trophy: **Best {escape_markdown(where)} and these prompts** · {escape_markdown(words)}",
                help="By the mean over prompts, on prompts, lengths and samplings that all ways have been run on.",
            )
        if len(found) > 1:
            _draw_table(followed, found, told)


def ranking(runs: pd.DataFrame, told: Told) -> list[Ranked]:
    """The ways in their order, computed once for the same runs and figure."""
    own = runs[["key", "started"]]  # the same run has the same key in every experiment
    kept_of, kept_told, found = st.session_state.get(KEPT, (None, None, []))
    if kept_of is None or kept_told != told or not kept_of.equals(own):
        found = ranked(runs, told.figure.column, told.higher)
        st.session_state[KEPT] = own, told, found
    return found


def best_frame(found: list[Ranked], told: Told) -> pd.DataFrame:
    """The ways as a table shows them."""
    figure = told.figure
    few = found[0].figure.prompts < FEWEST

    def shown(value: float) -> str:
        return f"{figure.scale * value:,.{figure.digits}f}"

    return pd.DataFrame(
        {
            "Way": [each.label for each in found],
            figure.words: [shown(each.figure.value) for each in found],
            "95% interval": ["few prompts" if few else f"{shown(each.figure.low)} to {shown(each.figure.high)}"
                             for each in found],
            "Best in": ["–" if few else f"{each.chance:.0%}" for each in found],
            "Prompts": [each.figure.prompts for each in found],
        }
    )  # fmt: skip


def _draw_table(followed: FollowedExperiment, found: list[Ranked], told: Told) -> None:
    key = f"{TABLE}_{followed.key}_{told.figure.column}"

    def take() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        pick(followed, {"way": found[rows[0]].way} if rows else None, found[rows[0]].label if rows else "")

    st.dataframe(
        best_frame(found, told), key=key, hide_index=True, on_select=take, selection_mode="single-row",
        height=ROW_PX * (min(len(found), SHOWN) + 1) + 3,
        column_config={"Way": st.column_config.Column(width="large"),
                       "95% interval": st.column_config.Column(help=HIGH_HELP),
                       "Best in": st.column_config.Column(help=CHANCE_HELP)},
        alt=f"Ways in the order of their {told.figure.words}, the best first.",
    )  # fmt: skip
