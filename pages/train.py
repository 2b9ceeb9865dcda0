"""Train: start one of the three trainings, watch its curves and its trees, stop it, go on, use what came out."""

import streamlit as st

from decoding.training.follow import Followed
from pages.ui.setup import setup
from pages.ui.train_form import draw_form
from pages.ui.train_runs import LIST_S, VIEW_S, draw_list, followed_trainings, looked_at
from pages.ui.train_style import STYLE
from pages.ui.train_view import draw_training, is_live


def main() -> None:
    """List of trainings on the left; on the right the one that is looked at, or the form that starts another."""
    setup("Train")
    st.html(STYLE)
    found = followed_trainings()
    seen, live = looked_at(found), is_live()
    at_work = seen is not None and seen.stand.running
    left, right = st.columns([1, 3.7], gap="medium")
    with left.container(key="train_list"):
        st.fragment(keep_list, run_every=LIST_S)(seen, at_work)
    with right:
        if seen is None:
            draw_form(found)
        else:
            st.fragment(keep_view, run_every=VIEW_S if at_work and live else None)(seen, at_work, live)


# A view that is drawn by the clock asks for the whole page as seldom as it can: the browser loses the page where the
# clock of a fragment strikes while the whole is being drawn ("Cannot set a node at a delta path").
def keep_list(seen: Followed | None, at_work: bool) -> None:
    """The list, looked at again and again; the whole page where the training that is looked at was begun elsewhere."""
    found = followed_trainings()
    if seen is not None and seen.stand.running and not at_work:
        st.rerun(scope="app")
    draw_list(found)


def keep_view(seen: Followed, at_work: bool, live: bool) -> None:
    """The training that is looked at, drawn anew while it runs; the whole page where a person began or stilled it."""
    seen.look()
    if (seen.stand.running and not at_work) or is_live() != live:
        st.rerun(scope="app")
    draw_training(seen)


main()
