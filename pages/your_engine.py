"""Your engine: what an inference engine says about its speculative decoding, what that means, and when it pays."""

import streamlit as st

from pages.ui.app.setup import setup
from pages.ui.engine.batch import draw_batches
from pages.ui.engine.view import PAYS, SAYS, VIEW, draw_metrics, given, read


def main() -> None:
    """The engine's own words on the left; on the right their meaning, or what pays at a batch."""
    setup("Your engine")
    left, right = st.columns([1, 2.6], gap="medium")
    with left:
        st.markdown("What your engine's log means, whether speculation pays at your batch, and with which K.")
        data, is_example = given()
    with right:
        view = st.segmented_control(
            "View", [SAYS, PAYS], default=SAYS, required=True, key=VIEW, label_visibility="collapsed",
            persist_state="session", bind="query-params",
        )  # fmt: skip
        metrics = read(data)
        if view == PAYS:
            draw_batches(metrics, "example" if is_example else "own" if metrics else "unread")
        elif metrics is not None:
            draw_metrics(metrics, is_example)


main()
