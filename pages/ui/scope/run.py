"""A run on screen: the scope at one iteration, and charts of the whole run."""

import plotly.graph_objects as go
import streamlit as st

from decoding.trace.records import RunTrace
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.state import Run, select_iteration, select_node, selected_iteration
from pages.ui.scope.component import scope
from pages.ui.scope.film import film, film_state, reported, unfold
from viz.charts.run import accepted_length_figure, adaptation_figure, phase_times_over_run, tokens_over_time

SCOPE_HEIGHT = 640
# The scope fills the window below menu and toolbar, within reason; Streamlit knows no heights but pixels.
FILL = """
<style>
.st-key-scope_area .st-key-scope, .st-key-scope_area [class*=stBidiComponent] {
  flex: none !important; height: clamp(600px, calc(100vh - 7.2rem), 940px) !important;
}
</style>
"""


def draw_scope(run: Run, key: str = "scope") -> None:
    """The linked views of the run; the browser steps through its iterations and says where it has come to rest."""
    state = film_state(key, run)

    def see(index: int) -> None:
        if index != selected_iteration():
            st.session_state["absent"] = None
        select_iteration(index)
        reported(state, index)

    def choose(node: int) -> None:
        st.session_state["absent"] = None
        select_node(node)

    with st.container(key="scope_area"):
        st.html(FILL)
        scope(
            film(run, key),
            key=key,
            height=SCOPE_HEIGHT,
            on_iteration=see,
            on_unfold=lambda node: unfold(state, selected_iteration(), node),
            on_select=choose,
            on_absent=lambda told: _ask_about(run, told),
        )


def _ask_about(run: Run, told: dict) -> None:
    """Keep which token without a node was asked about, for the part of the page that explains it."""
    st.session_state["absent"] = (run.key, told["iteration"], told["parent"], told["token_id"])


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
