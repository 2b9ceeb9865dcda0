"""Sweep: choose what varies, watch its charts fill, see what is best here, open any run in Step through."""

import streamlit as st

from decoding.experiments.followed import FollowedExperiment
from pages.ui.setup import setup
from pages.ui.sweep_form import draw_form
from pages.ui.sweep_list import LIST_S, VIEW_S, draw_list, followed_experiments, looked_at
from pages.ui.sweep_open import show_opened
from pages.ui.sweep_style import STYLE
from pages.ui.sweep_view import draw_experiment, is_live
from pages.ui.torch_there import need_torch


def main() -> None:
    """List of experiments on the left; on the right the one that is looked at, or the form that starts another."""
    setup("Sweep")
    st.html(STYLE)
    need_torch()
    show_opened()
    found = followed_experiments()
    seen, live = looked_at(found), is_live()
    at_work = seen is not None and seen.stand.running
    left, right = st.columns([1, 3.9], gap="medium")
    with left.container(key="sweep_list"):
        st.fragment(keep_list, run_every=LIST_S)(seen, at_work)
    with right:
        if seen is None:
            draw_form(found)
        else:
            st.fragment(keep_view, run_every=VIEW_S if at_work and live else None)(seen, at_work, live)


# As on Train, what is drawn by the clock asks for the whole page as seldom as it can: the browser loses the page where
# the clock of a fragment strikes while the whole is being drawn.
def keep_list(seen: FollowedExperiment | None, at_work: bool) -> None:
    """The list, looked at again and again; the whole page where what is looked at was begun elsewhere."""
    found = followed_experiments()
    if seen is not None and seen.stand.running and not at_work:
        st.rerun(scope="app")
    draw_list(found)


def keep_view(seen: FollowedExperiment, at_work: bool, live: bool) -> None:
    """The experiment that is looked at, drawn anew while it runs; the whole page where a person began or stilled it."""
    seen.look()
    if (seen.stand.running and not at_work) or is_live() != live:
        st.rerun(scope="app")
    draw_experiment(seen)


main()
