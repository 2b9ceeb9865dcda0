"""Papers: every table and figure that can be run again here, ours beside theirs, and whether its ordering holds."""

import streamlit as st

from pages.ui.papers_list import draw_list, judged_exhibits, looked_at
from pages.ui.papers_style import STYLE
from pages.ui.papers_view import draw_exhibit
from pages.ui.setup import setup


def main() -> None:
    """The exhibits on the left; on the right the one that is looked at."""
    setup("Papers")
    st.html(STYLE)
    outcomes = judged_exhibits()
    left, right = st.columns([1, 3.3], gap="medium")
    with left.container(key="papers_list", gap=None):
        draw_list(outcomes)
    with right:
        draw_exhibit(outcomes[looked_at()])


main()
