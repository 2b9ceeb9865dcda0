"""A run on screen: the scope at one iteration, and the charts of the whole run below it."""

import plotly.graph_objects as go
import streamlit as st

from decoding.trace import RunTrace
from pages.ui.scope import scope
from pages.ui.state import Run, select_iteration, select_node, selected_iteration
from viz.charts import accepted_length_figure, adaptation_figure, phase_times_over_run, tokens_over_time
from viz.scope_data import scope_data

SCOPE_HEIGHT = 640
# The scope fills the window below menu and toolbar, within reason; Streamlit knows no heights but pixels.
FILL = """
<style>
.st-key-scope_area .st-key-scope, .st-key-scope_area [class*=stBidiComponent] {
  flex: none !important; height: clamp(600px, calc(100vh - 7.2rem), 940px) !important;
}
</style>
"""
CHART_CONFIG = {"displayModeBar": False}


def draw_run(run: Run, key: str = "scope") -> None:
    """The scope at the selected iteration and the charts of the run."""
    if not run.trace.iterations:
        st.info("Nothing is decoded yet: press Start.", icon=":material/play_arrow:")
        return
    draw_scope(run, key)
    draw_charts(run)


def draw_scope(run: Run, key: str = "scope") -> None:
    """The linked views of the selected iteration; arrow keys and the run strip go to another one."""
    index = selected_iteration()
    opened = st.session_state.setdefault("unfolded", {}).get((run.key, index), ())
    data = scope_data(run.trace, index, key=run.key, unfolded=opened)
    with st.container(key="scope_area"):
        st.html(FILL)
        scope(
            data,
            key=key,
            height=SCOPE_HEIGHT,
            on_iteration=select_iteration,
            on_unfold=lambda node: _unfold(run.key, index, node),
            on_select=select_node,
        )


def draw_charts(run: Run) -> None:
    """What the whole run did: thresholds over the iterations, accepted lengths, tokens and time."""
    shown = (run.key, len(run.trace.iterations), is_dark())
    # Figures depend on the run alone: stepping through its iterations must not build them again.
    if st.session_state.get("charts_of") != shown:
        st.session_state["charts_of"], st.session_state["charts"] = shown, _figures(run.trace, is_dark())
    figures = st.session_state["charts"]
    for row in range(0, len(figures), 2):
        for place, (title, figure) in zip(st.columns(2), figures[row : row + 2], strict=False):
            with place.container(border=True):
                st.markdown(f"**{title}**")
                chart(figure, key=f"chart_{title}")


def _figures(trace: RunTrace, dark: bool) -> list[tuple[str, go.Figure]]:
    figures = [
        ("Accepted tokens per iteration", accepted_length_figure([trace], dark)),
        ("Tokens over time", tokens_over_time([trace], dark)),
        ("Time of each iteration by phase", phase_times_over_run(trace, dark)),
    ]
    if any(iteration.history is not None for iteration in trace.iterations):
        figures.insert(0, ("History adaptation: what it saw and what it moved", adaptation_figure(trace, dark)))
    return figures


def chart(figure, key: str, height: int = 300) -> None:
    """A Plotly figure in the app's look, without Plotly's own theme and buttons."""
    figure.update_layout(height=height)
    st.plotly_chart(figure, theme=None, key=key, config=CHART_CONFIG)


def is_dark() -> bool:
    """Whether the browser shows the dark theme; light until it has said so."""
    return st.context.theme.type == "dark"


def _unfold(run_key: str, index: int, node: int) -> None:
    opened = st.session_state.setdefault("unfolded", {})
    opened[run_key, index] = (*opened.get((run_key, index), ()), node)
