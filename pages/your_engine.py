"""Your engine: what an inference engine says about its speculative decoding, what that means, and when it pays."""

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from pages.ui.app.pair_dialog import DOCTOR, pair_dialog
from pages.ui.app.setup import setup
from pages.ui.common.errors import escape_markdown, torch_there
from pages.ui.common.models import manager
from pages.ui.common.worker import DIALOG
from pages.ui.engine.batch import draw_batches
from pages.ui.engine.view import PAYS, SAYS, SET, VIEW, draw_metrics, given, read


def main() -> None:
    """The engine's own words on the left; on the right their meaning, or what pays at a batch."""
    setup("Your engine")
    left, right = st.columns([1, 2.6], gap="medium")
    with left:
        st.markdown("What your engine's log means, whether speculation pays at your batch, and with which K.")
        data, is_example = given()
    with right:
        view = st.segmented_control(
            "View", [SAYS, PAYS], default=None if st.session_state.pop(SET, False) else SAYS, required=True, key=VIEW,
            label_visibility="collapsed", persist_state="session", bind="query-params",
        )  # fmt: skip
        metrics = read(data)
        if view == PAYS:
            draw_batches(metrics, "example" if is_example else "own" if metrics else "unread")
        elif metrics is not None:
            draw_metrics(metrics, is_example, _doctor)


def _doctor() -> None:
    """A button that opens the acceptance doctor, which checks the pair that is loaded here."""
    loaded = manager().info
    hint = "Load yours first where this is another" if torch_there() else NEEDS_TORCH
    label = f"Acceptance doctor of {loaded.name}, loaded here" if loaded else "Acceptance doctor"
    if st.button(
        escape_markdown(label),
        key="engine_doctor",
        icon=":material/stethoscope:",
        disabled=not torch_there(),
        help=hint,
    ):
        st.session_state[DIALOG] = True
        pair_dialog(DOCTOR)


main()
