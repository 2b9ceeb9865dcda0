"""Papers: every table and figure that can be re-run, our numbers next to theirs, and whether the order matches."""

from collections.abc import Mapping

import streamlit as st

from decoding.papers import PAPER_RESULTS
from decoding.papers.paper_result import PaperResult
from decoding.trace.metrics import Counting
from pages.ui.app.setup import setup
from pages.ui.common.errors import show_error
from pages.ui.papers.contents import IN_ORDER, draw_explained, draw_list, looked_at
from pages.ui.papers.rows import judgement, kept_rows, known_outcomes
from pages.ui.papers.run import at_work, work_of
from pages.ui.papers.view import STYLE, draw_paper_result, looked_at_counting, source_key

FIRST_S, MORE_S = 0.4, 0.6  # time to judge before the page is drawn, and on each later look


def main() -> None:
    """The list of results on the left, the selected one on the right."""
    setup("Papers")
    st.html(STYLE)
    chosen, kept, running = looked_at(), kept_rows(), at_work()
    for each in kept:
        if each.error is not None:
            show_error(each.error)
    selected = next(each for each in IN_ORDER if each.key == chosen)
    sources = {each.key: st.session_state.get(source_key(each)) for each in PAPER_RESULTS}
    counting = looked_at_counting()
    outcomes = known_outcomes(kept, sources, FIRST_S, counting)
    left, right = st.columns([1, 3.3], gap="medium")
    with left.container(key="papers_list", gap=None):
        draw_list(outcomes, running, chosen)
    with right:
        if isinstance(selected, PaperResult):
            draw_paper_result(judgement(selected, kept, sources[chosen], counting=counting), kept, running)
        else:
            draw_explained(selected)
    # A run refreshes itself: only one of two timers may rerun the whole page.
    working = isinstance(selected, PaperResult) and work_of(selected) in running
    if len(outcomes) < len(PAPER_RESULTS) and not working:
        st.fragment(judge_on, run_every=MORE_S)(sources, counting)


def judge_on(sources: Mapping[str, str | None], counting: Counting) -> None:
    """Judge the remaining results a few at a time, then redraw the list with every mark."""
    if len(known_outcomes(kept_rows(), sources, MORE_S, counting)) == len(PAPER_RESULTS):
        st.rerun(scope="app")


main()
