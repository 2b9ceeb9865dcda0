"""A run's method as the configuration of an inference engine, to copy."""

from collections.abc import Callable

import streamlit as st

from decoding.analysis.batch import chain_by_batch, run_acceptance, speed_by_batch
from decoding.analysis.bottom_line import Interval
from decoding.common.errors import SettingsError
from decoding.trace.draft_figures import draft_figures
from decoding.trace.engine_config import engine_config
from decoding.trace.engine_fields import ENGINE_SOURCES, ENGINES
from decoding.trace.engine_limits import MeasuredChain
from decoding.trace.records import RunTrace
from pages.ui.common.errors import escape_markdown
from pages.ui.common.models import manager

HELP = (
    "What to give vLLM, SGLang, TensorRT-LLM, llama.cpp or transformers to draft as this run did, and what it cannot do"
)
LABEL, ICON = "Use it in an engine", ":material/deployed_code:"


def engine_button(run: RunTrace, key: str, chain: Callable[[], MeasuredChain | None] = lambda: None) -> None:
    """A button that shows a run's method as the configuration of an engine.

    Args:
        chain: finds the best chain measured beside it.
    """
    if st.button(LABEL, key=key, icon=ICON, disabled=not run.iterations, help=HELP):
        engine_dialog(run, chain())


def measured_chain(label: str, run: RunTrace, speed: Interval) -> MeasuredChain | None:
    """A run with its speed over that of a tree; None where it drafted no chains of one length, or from the text."""
    figures = draft_figures(run)
    if figures is None or not figures.chains or not (figures.fixed or figures.drafted_by == "text"):
        return None
    ends = (speed.low, speed.high) if speed.decides else (None, None)
    return MeasuredChain(label, run, speed.value, *ends)


def _by_batch(run: RunTrace) -> list[tuple[int, int, int]]:
    """The best chain by batch size, where the pair in memory made the run and its passes over batches are measured."""
    models = manager()
    costs = models.batch_costs.get(run.draft_head)
    if not costs or models.info is None or models.info.name != run.pair.name:
        return []
    try:
        return chain_by_batch(speed_by_batch(costs, run_acceptance(run)))
    except SettingsError:  # its trees were not recorded
        return []


@st.dialog(LABEL, width="large")
def engine_dialog(run: RunTrace, chain: MeasuredChain | None = None) -> None:
    """The engines to choose from, and what one of them takes."""
    chosen = st.segmented_control(
        "Engine", ENGINES, default=ENGINES[0], required=True, key="engine_chosen", label_visibility="collapsed",
        format_func=lambda name: ENGINE_SOURCES[name].label,
    )  # fmt: skip
    config = engine_config(run, chosen, chain, _by_batch(run))
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
