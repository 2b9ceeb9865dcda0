"""What if: change one thing in one iteration and compare both versions, in a history of branches."""

import streamlit as st

from pages.ui.app.setup import setup
from pages.ui.common.errors import load_torch, need_torch
from pages.ui.common.state import open_with_logits
from pages.ui.common.worker import job_bar, take_result
from pages.ui.what_if.branches import SLOT, adopt, current_history, is_chosen
from pages.ui.what_if.change import begin_with_a_branch, draw_pending, draw_toolbar
from pages.ui.what_if.view import STYLE, draw_history, draw_message, draw_models_missing, draw_sides


def main() -> None:
    """Menu, toolbar, branches on the left, A and B on the right, the effect of the change below them."""
    setup("What if")
    st.html(STYLE)
    if not need_torch():
        return
    load_torch()
    if not is_chosen():
        open_with_logits()
    adopt(take_result(SLOT))
    history = current_history()
    begin_with_a_branch(history)
    with st.container(key="toolbar", horizontal=True, vertical_alignment="center", gap="small"):
        draw_toolbar(history)
    with st.container(key="messages"):
        job_bar(SLOT)
        draw_models_missing(history)
        draw_pending(history)
    left, right = st.columns([1, 3.7], gap="small")
    with left:
        draw_history(history)
    with right:
        draw_sides(history)
        draw_message(history)


main()
