"""Your engine: what an inference engine says about its speculative decoding, what that means, and when it pays."""

import streamlit as st

from pages.ui.app.setup import setup
from pages.ui.engine.batch import draw_batches
from pages.ui.engine.view import draw_metrics, given, read


def main() -> None:
    """The engine's own words on the left; their meaning, and until which batch speculation pays, on the right."""
    setup("Your engine")
    left, right = st.columns([1, 2.6], gap="medium")
    with left:
        st.markdown("Acceptance by position, mean length in every engine's definition, what another K would give.")
        data, is_example = given()
    with right:
        said, pays = st.tabs(["What it says", "When does it stop to pay?"])
        with said:
            metrics = read(data)
            if metrics is not None:
                draw_metrics(metrics, is_example)
        with pays:
            draw_batches(metrics, is_example)


main()
