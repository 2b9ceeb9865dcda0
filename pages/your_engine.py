"""Your engine: what an inference engine says about its speculative decoding, and what that means."""

import streamlit as st

from pages.ui.app.setup import setup
from pages.ui.engine.view import draw_metrics, given, read


def main() -> None:
    """The engine's own words on the left, their meaning on the right."""
    setup("Your engine")
    left, right = st.columns([1, 2.6], gap="medium")
    with left:
        st.markdown("Acceptance by position, mean length in every engine's definition, what another K would give.")
        data, is_example = given()
    with right:
        metrics = read(data)
        if metrics is not None:
            draw_metrics(metrics, is_example)


main()
