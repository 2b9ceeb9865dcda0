"""A Plotly figure in the app's style, with a description and its numbers behind a button; and what figures count."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

from decoding.trace.exports import csv_table
from decoding.trace.metrics import COUNTINGS, NGRAM, Counting
from pages.ui.common.downloads import download_button
from viz.charts.description import chart_sentence, chart_table
from viz.scope.outline import Table, table_html

CHART_CONFIG = {"displayModeBar": False}
STYLE = Path(__file__).with_suffix(".css")


def chart(
    figure: go.Figure, key: str, height: int = 300, sentence: str = "", table: Callable[[], Table] | None = None
) -> None:
    """A Plotly figure in the app's style with its description, and its numbers behind a button at its lower right.

    `sentence` and `table` replace those that are read from the figure.
    """
    figure.update_layout(height=height)
    with st.container(key=f"{key}_described", gap=None):
        sentence = sentence or chart_sentence(figure)
        st.plotly_chart(figure, theme=None, key=key, config=CHART_CONFIG, alt=sentence)
        numbers_popover(key, sentence, table or partial(chart_table, figure))


def numbers_popover(key: str, sentence: str, table: Callable[[], Table]) -> None:
    """A chart's description and numbers, as a table and as CSV, behind a button; made when it opens."""
    numbers = st.popover("Table", key=f"{key}_numbers", type="tertiary", on_change="rerun", width="content")
    if numbers.open:
        with numbers:
            made = table()
            st.text(sentence)
            download_button("Save as CSV", csv_table(made.heads, made.rows), f"{key}.csv", "text/csv", f"{key}_csv")
            st.html(STYLE)
            st.html(table_html(made))


def is_dark() -> bool:
    """Whether the browser shows the dark theme; light until it has reported it."""
    return st.context.theme.type == "dark"


COUNTED_HELP = (
    "Small models repeat themselves under greedy decoding, and a text that repeats itself is easy to draft. Whole "
    "texts count every token, as papers do; loop-free texts end where the last "
    f"{NGRAM} tokens have occurred before. Both are read from the same runs."
)


def counting_switch(key: str, first: Counting, disabled: bool = False) -> Counting:
    """What figures count: whole or loop-free texts; the choice kept under `key`, at first `first`."""
    st.session_state.setdefault(key, first)
    return st.segmented_control(
        "Counted", list(COUNTINGS), key=key, format_func=lambda name: COUNTINGS[name].capitalize(), required=True,
        label_visibility="collapsed", persist_state="session", disabled=disabled, help=COUNTED_HELP,
    )  # fmt: skip


def counted_words(counted: float, asked: float, counting: Counting) -> str:
    """How many tokens stand behind figures: `116 of 1,000 tokens counted: loop-free texts`."""
    of = f"{counted:,.0f}" if round(counted) == round(asked) else f"{counted:,.0f} of {asked:,.0f}"
    return f"{of} tokens counted per run: {COUNTINGS[counting]}"
