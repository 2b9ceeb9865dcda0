"""A Plotly figure in the app's style, with a description for screen readers and its numbers behind a button."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

from decoding.trace.exports import csv_table
from pages.ui.common.downloads import download_button
from viz.charts.description import chart_sentence, chart_table
from viz.scope.outline import Table, table_html

CHART_CONFIG = {"displayModeBar": False}
STYLE = Path(__file__).with_suffix(".css")


def chart(figure: go.Figure, key: str, height: int = 300) -> None:
    """A Plotly figure in the app's style, with a description; a button at its lower right opens its numbers."""
    figure.update_layout(height=height)
    with st.container(key=f"{key}_described", gap=None):
        sentence = chart_sentence(figure)
        st.plotly_chart(figure, theme=None, key=key, config=CHART_CONFIG, alt=sentence)
        numbers_popover(key, sentence, partial(chart_table, figure))


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
