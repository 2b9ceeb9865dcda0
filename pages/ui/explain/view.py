"""Below the scope: why a token was accepted, rejected or never drafted, whether it was luck, what was possible."""

import streamlit as st

from pages.ui.common.state import Run, selected_iteration
from pages.ui.explain.hindsight import draw_luck, draw_possible
from pages.ui.explain.reasons import draw_reasons
from pages.ui.scope.run import as_text, draw_charts, draw_scope
from pages.ui.widgets.controls import seed

PARTS = {"Why": draw_reasons, "Lucky or not": draw_luck, "What was possible": draw_possible}
HELP = {
    "Why": "The node or token selected above: what decided about it, with the numbers of this run.",
    "Lucky or not": "What the verifier committed here, beside what it commits on average over its draws.",
    "What was possible": "The best tree and the best budget in hindsight, and what the run lost against them.",
}
# As high as its highest part: the charts below do not jump when another part or iteration is looked at.
STYLE = """
<style>
.st-key-why_part { min-height: 19rem; }
.why { font-size: 0.9rem; line-height: 1.45; }
.why.told { min-height: 6.2rem; }
.why p { margin: 0 0 0.5rem; }
.why .quiet { opacity: 0.72; }
.why h5 { font-size: 0.9rem; font-weight: 600; margin: 0.7rem 0 0.2rem; padding: 0; }
.why code.token { font-size: 1rem; font-weight: 600; white-space: pre; }
.why table { border-collapse: collapse; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
.why table { margin: 0.2rem 0 0.5rem; }
.why th, .why td { border: 0; border-bottom: 1px solid var(--st-border-color); padding: 0.12rem 0.8rem 0.12rem 0;
  text-align: left; }
.why th { font-weight: 600; }
.why td.number, .why th.number { text-align: right; }
.why td.token { font-family: var(--st-code-font), monospace; white-space: pre; }
.why dl { display: flex; flex-wrap: wrap; gap: 0.25rem 1.4rem; margin: 0.3rem 0 0.5rem; padding: 0; }
.why dl div { margin: 0; padding: 0; }
.why dt { font-size: 0.78rem; opacity: 0.72; font-weight: 400; }
.why dl dd, .why dl dt { margin: 0; padding: 0; }
.why dd { font-variant-numeric: tabular-nums; font-weight: 600; }
</style>
"""


def draw_why(run: Run) -> None:
    """The part that is chosen, for the selected iteration."""
    if not run.trace.iterations[selected_iteration()].nodes:
        return
    with st.container(key="why", border=True):
        _draw(run)


@st.fragment
def _draw(run: Run) -> None:
    """A fragment: a click in here draws no scope again."""
    seed("why_shown", next(iter(PARTS)))
    st.html(STYLE)
    shown = st.segmented_control(
        "About this iteration", list(PARTS), key="why_shown", required=True, label_visibility="collapsed",
        persist_state="session",
    )  # fmt: skip
    st.caption(f"Iteration {selected_iteration() + 1}. {HELP[shown]}")
    with st.container(key="why_part"):
        PARTS[shown](run)


def draw_run(run: Run, key: str = "scope") -> None:
    """The scope at the selected iteration and the charts of the run."""
    if not run.trace.iterations:
        st.info("Nothing is decoded yet: press Start.", icon=":material/play_arrow:")
        return
    draw_scope(run, key)
    draw_why(run)
    as_text(run)
    draw_charts(run)
