"""A Plotly figure in the app's look, with a sentence for its picture and its numbers behind a button.

chart(figure, key, height)
"""

import plotly.graph_objects as go
import streamlit as st

from pages.ui.common.downloads import download_button
from viz.charts.description import chart_sentence, chart_table
from viz.scope.outline import table_csv, table_html

CHART_CONFIG = {"displayModeBar": False}
STYLE = """
<style>
.as-text { --line: 1px solid color-mix(in srgb, currentColor 18%, transparent); font-size: 0.88rem; overflow-x: auto; }
.as-text ul { list-style: none; margin: 0; padding-left: 1.3rem; }
.as-text > ul { padding-left: 0; }
.as-text li { margin: 0; padding: 0.06rem 0 0.06rem 0.5rem; border-left: var(--line); }
.as-text table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0.3rem 0 0; }
.as-text caption { text-align: left; font-weight: 600; padding: 0.2rem 0; color: inherit; }
.as-text th, .as-text td {
  padding: 0.12rem 0.9rem 0.12rem 0; text-align: left; vertical-align: top; border: 0; border-bottom: var(--line);
}
.as-text tbody th { font-weight: 400; white-space: nowrap; }
.as-text p { margin: 0.2rem 0 0.6rem; font-size: inherit; }
.as-text-tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(27rem, 100%), 1fr)); gap: 0 2rem; }
</style>
"""


def chart(figure: go.Figure, key: str, height: int = 300) -> None:
    """A Plotly figure in the app's look: a sentence says what it shows, a button at its lower right has its numbers."""
    figure.update_layout(height=height)
    with st.container(key=f"{key}_described", gap=None):
        sentence = chart_sentence(figure)
        st.plotly_chart(figure, theme=None, key=key, config=CHART_CONFIG, alt=sentence)
        numbers = st.popover("Table", key=f"{key}_numbers", type="tertiary", on_change="rerun", width="content")
        if numbers.open:
            with numbers:
                table = chart_table(figure)
                st.text(sentence)
                download_button("Save as CSV", table_csv(table), f"{key}.csv", "text/csv", f"{key}_csv")
                st.html(STYLE + table_html(table))


def is_dark() -> bool:
    """Whether the browser shows the dark theme; light until it has said so."""
    return st.context.theme.type == "dark"
