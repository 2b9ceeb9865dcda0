"""Train: start one of the three trainings, watch its curves and its trees, stop it, go on, use what came out."""

import streamlit as st

from decoding.training.follow import Followed
from pages.ui.setup import setup
from pages.ui.train_form import draw_form
from pages.ui.train_runs import RESTING_S, RUNNING_S, draw_list, followed_trainings, looked_at, names_running
from pages.ui.train_style import STYLE
from pages.ui.train_view import draw_training, is_live


def main() -> None:
    """List of trainings on the left; on the right the one that is looked at, or the form that starts another."""
    setup("Train")
    st.html(STYLE)
    found = followed_trainings()
    seen, running, live = looked_at(found), names_running(found), is_live()
    left, right = st.columns([1, 3.7], gap="medium")
    with left.container(key="train_list"):
        st.fragment(keep_list, run_every=RUNNING_S if running else RESTING_S)(running)
    with right:
        if seen is None:
            draw_form(found)
        else:
            at_work = seen.stand.running
            st.fragment(keep_view, run_every=RUNNING_S if at_work and live else None)(seen, at_work, live)


def keep_list(running: frozenset[str]) -> None:
    """The list, looked at again and again; the whole page is drawn anew where a training begins or ends."""
    found = followed_trainings()
    if names_running(found) != running:
        st.rerun(scope="app")
    draw_list(found)


def keep_view(seen: Followed, at_work: bool, live: bool) -> None:
    """The training that is looked at, drawn anew while it runs; the whole page where a person began it or stilled it.

    Where it ends, `keep_list` has the whole page drawn: of two views that run by the clock only one may ask for that.
    """
    seen.look()
    if (seen.stand.running and not at_work) or is_live() != live:
        st.rerun(scope="app")
    draw_training(seen)


main()
