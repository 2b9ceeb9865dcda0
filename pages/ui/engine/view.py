"""What an inference engine says about its speculative decoding: figures, definitions, another K, oddities."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from decoding.common.errors import EngineMetricsError, SettingsError
from decoding.common.formats import plural
from decoding.recorded import recorded_run
from decoding.trace.engine_config import engine_config
from decoding.trace.engine_metrics import MAX_BYTES, EngineMetrics, compared, read_metrics
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.state import current_run, keep_parameter
from pages.ui.engine.own import acceptance_words, is_low
from viz.charts.engines import other_lengths_figure, positions_figure
from viz.tables import Cell, html_table

READ, PASTED = "engine_read", "engine_text"
EXAMPLE = "tree_helps_chain"
PLACEHOLDER = "Paste here: vLLM's /metrics or log, SGLang's log, a response of llama.cpp or TensorRT-LLM, ..."
FORMS = (
    "A scrape of vLLM's `/metrics`, its log or a response with `metrics`; SGLang's log, `meta_info` or `/server_info`; "
    "TensorRT-LLM's iteration statistics; llama.cpp's `timings` or log line; AIPerf's `profile_export.jsonl`; a "
    "`speculation_profile.json`. The form is recognised. Nothing leaves this machine."
)
CHART_HEIGHT = 330
ENOUGH = 0.9  # of what a pass commits beyond its own token: positions after it add little
MOST_IN_ADDRESS = 2_000  # characters
SET = "engine_view_set"  # by a button: then the control has no default beside it
VIEW, SAYS, PAYS = "engine_view", "What your engine says", "What pays at your batch"
WORTH = 0.5  # acceptance of the last position from which a longer draft is


def given() -> tuple[bytes, bool]:
    """What was pasted or uploaded, or the example; and whether it is that. A short paste is in the address."""
    if PASTED not in st.session_state and (before := st.query_params.get("log", "")):
        st.session_state[PASTED] = before[:MOST_IN_ADDRESS]
    st.html(Path(__file__).with_suffix(".css"))
    with st.container(key="engine_given"):
        text = st.text_area(
            "What your engine says", key=PASTED, height=150, placeholder=PLACEHOLDER, help=FORMS,
            persist_state="session",
        )  # fmt: skip
        st.button("Read it", key="engine_apply", icon=":material/input:", help="Or press Ctrl+Enter")
        file = st.file_uploader("Or its file", key="engine_file", help=FORMS, max_upload_size=MAX_BYTES // 2**20)
    keep_parameter("log", text if text and len(text) <= MOST_IN_ADDRESS else "")
    if file is not None:
        return file.getvalue(), False
    if text and text.strip():
        return text.encode(), False
    return example(), True


def example() -> bytes:
    """A profile in the form that engines' tools write, of a recorded run."""
    return engine_config(recorded_run(EXAMPLE), "profile").text.encode()


def read(data: bytes) -> EngineMetrics | None:
    """The record of a file's content, read once; None where it cannot be, which is said."""
    key = hashlib.sha256(data).hexdigest()
    kept = st.session_state.get(READ)
    if kept is None or kept[0] != key:
        try:
            kept = key, read_metrics(data)
        except EngineMetricsError as error:
            kept = key, error
        st.session_state[READ] = kept
    if isinstance(kept[1], EngineMetricsError):
        show_error(kept[1])
        return None
    return kept[1]


def draw_metrics(metrics: EngineMetrics, is_example: bool, doctor: Callable[[], None]) -> None:
    """Headline, charts, definitions, other K, what is odd.

    Args:
        doctor: draws the way to the acceptance doctor.
    """
    about = "" if metrics.passes_exact else "about "
    counts = [metrics.form] if metrics.form != metrics.engine else []
    counts += [f"K = {metrics.draft_length}" if metrics.draft_length else "K unknown"]
    counts += [f"{about}{plural(metrics.passes, 'draft')}"] if metrics.passes else []
    if is_example:
        st.info(f"An example, the profile of a recorded run: {recorded_run(EXAMPLE).label}.", icon=":material/draft:")
    st.markdown(f"**{escape_markdown(metrics.engine)}** · {escape_markdown(' · '.join(counts))}")
    for sentence in () if is_example else metrics.odd:
        st.warning(escape_markdown(sentence), icon=":material/help:")
    for words in filter(None, (next_words(metrics), "" if is_example else acceptance_words(metrics))):
        st.markdown(escape_markdown(words))
    if not is_example and is_low(metrics):
        doctor()
    if not can_pay(metrics):
        st.caption("Which K pays does not follow from these: they have neither rates by position nor a mean length.")
    else:
        look = {VIEW: PAYS, SET: True}
        st.button(f"{PAYS}?", key="engine_pays", icon=":material/arrow_forward:", on_click=st.session_state.update,
                  args=(look,))  # fmt: skip
    ours, label, notes = _own(metrics)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Acceptance by position**")
        if metrics.positions:
            chart(positions_figure(metrics, ours, label, is_dark()), key="engine_positions", height=CHART_HEIGHT)
        else:
            st.caption(f"{escape_markdown(metrics.engine)} says nothing by position here.")
        for note in notes:
            st.caption(escape_markdown(note))
    with right:
        st.markdown("**Another K**", help="Exact for fewer draft tokens: later ones are left out.")
        if metrics.other_lengths:
            chart(other_lengths_figure(metrics, is_dark()), key="engine_lengths", height=CHART_HEIGHT)
            st.caption("Beyond its own K the engine cannot know: the true curve lies between the two bounds.")
        else:
            st.caption("It follows from acceptance by position.")
    with st.expander("One figure, many names"):
        st.html(definitions_html(metrics))
    for note in metrics.notes:
        st.caption(escape_markdown(note))
    version = f"{escape_markdown(metrics.engine)} {escape_markdown(metrics.version)}"
    sources = ", ".join(f"`{source}`" for source in metrics.sources)
    st.caption(f"Names as {version} has them, read on {metrics.read} in {sources}.")


def can_pay(metrics: EngineMetrics) -> bool:
    """Whether gains can be modelled from an engine's figures."""
    return bool(metrics.positions) or metrics.value("mean acceptance length") is not None


def next_words(metrics: EngineMetrics) -> str:
    """What the last positions add, and whether later ones may add more; empty where neither is worth a word."""
    lengths = {each.draft_length: each.stayed for each in metrics.other_lengths if each.exact}
    if metrics.wrong:
        return ""
    whole, most = lengths.get(metrics.draft_length or 0), metrics.draft_length or 0
    if whole is None or whole <= 1:
        return ""
    enough = min(length for length, tokens in lengths.items() if tokens - 1 >= ENOUGH * (whole - 1))
    if enough < most:
        which = f"Position {most} adds" if enough + 1 == most else f"Positions {enough + 1} to {most} add"
        return f"{which} {whole - lengths[enough]:.2f} of the {whole:.2f} tokens that a pass commits."
    last = metrics.positions[-1]
    rate, off = last.conditional or 0.0, 2 * (last.conditional_error or 0.0)
    if rate - off > WORTH:  # few tests tell little
        within = f" (± {off:.0%})" if off >= 0.005 else ""
        return f"The last position is still accepted in {rate:.0%}{within} of its tests: try a larger K."
    return ""


def _own(metrics: EngineMetrics) -> tuple[list[float], str, tuple[str, ...]]:
    """Acceptance by depth of the run on screen, its name, and what to know of the comparison; nothing without one."""
    run = current_run()
    if run is None:
        return [], "", ()
    try:
        found = compared(metrics, run.trace)
    except SettingsError:
        return [], "", ("The run in Step through drafted nothing: decode one with a method that drafts to compare.",)
    rates = [each.run for each in found.positions if each.run is not None]
    apart = [each for each in found.positions if each.standard_errors is not None and abs(each.standard_errors) >= 2]
    said = f"Beside it: {found.run} of Step through, {plural(found.run_passes, 'pass', 'passes')}."
    if apart:
        places = ", ".join(str(each.position) for each in apart)
        said += f" They differ by two standard errors or more at position {places}."
    return rates, f"{found.run} here", (said, *found.notes)


def definitions_html(metrics: EngineMetrics) -> str:
    """Every definition that has a value here, and what it is called where."""
    rows = [
        (each.name, f"{each.value:.3f}", each.formula, "; ".join(f"{who}: {name}" for who, name in each.called))
        for each in metrics.definitions
        if each.value is not None
    ]
    heads = ("figure", Cell("here", "number"), "what is counted", "called")
    return html_table(heads, rows, "ruled engine-names", label="One figure, many names")
