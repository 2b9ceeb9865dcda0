"""A run's method as the configuration of an inference engine, to copy."""

import streamlit as st

from decoding.trace.engine_config import engine_config
from decoding.trace.engine_fields import ENGINE_SOURCES, ENGINES
from decoding.trace.records import RunTrace
from pages.ui.common.errors import escape_markdown

HELP = (
    "What to give vLLM, SGLang, TensorRT-LLM, llama.cpp or transformers to draft as this run did, and what it cannot do"
)


def engine_button(run: RunTrace | None, key: str) -> None:
    """A button that shows a run's method as the configuration of an engine."""
    idle = run is None or not run.iterations
    if st.button("Use it in an engine", key=key, icon=":material/deployed_code:", disabled=idle, help=HELP) and run:
        engine_dialog(run)


@st.dialog("Use it in an engine", width="large")
def engine_dialog(run: RunTrace) -> None:
    """The engines to choose from, and what one of them takes."""
    chosen = st.segmented_control(
        "Engine", ENGINES, default=ENGINES[0], required=True, key="engine_chosen", label_visibility="collapsed",
        format_func=lambda name: ENGINE_SOURCES[name].label,
    )  # fmt: skip
    config = engine_config(run, chosen)
    for limit in config.limits:
        st.warning(escape_markdown(limit), icon=":material/difference:")
    if not config.text:
        return
    st.code(config.text, language=config.language, wrap_lines=True)
    if config.load_test:
        st.markdown(
            "**Load test** with the acceptance of this run in the place of the draft's; its output means nothing"
        )
        st.code(config.load_test, language=config.language, wrap_lines=True)
    for note in config.notes:
        st.caption(escape_markdown(note))
    sources = ", ".join(f"`{source}`" for source in config.sources)
    version = f"{config.engine} {escape_markdown(config.version)}"
    st.caption(f"Names as {version} has them, read on {config.read} in {sources}.")
