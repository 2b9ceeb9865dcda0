"""Charts and table of a comparison: speed, where the time goes, acceptance."""

import html
from dataclasses import replace

import streamlit as st

from decoding.scoreboard import Score
from pages.ui.charts import chart, is_dark
from pages.ui.compare import Outcome
from pages.ui.compare_table import table_html
from pages.ui.compare_words import PAIRED, findings, is_plain, label_of, memory_words, times_words
from pages.ui.errors import escape_markdown
from viz.charts import accepted_length_figure
from viz.compare_charts import Acceptance, acceptance_figure
from viz.glossary import explain_term
from viz.method_charts import (
    Bar,
    Curve,
    TokenCost,
    chart_height,
    latency_figure,
    progress_figure,
    speed_figure,
    token_cost_figure,
)
from viz.theme import PHASE_WORDS

THINNEST = 0.015
MEDIAN_REPEAT = "Of each method the call whose tokens per second are the median of its repeats, the lower one of two."


def draw_overview(scores: tuple[Score, ...], outcome: Outcome) -> None:
    """Speed with its spread, what it comes from in words, and the table."""
    left, right = st.columns([11, 9], gap="medium")
    with left:
        st.markdown(
            "**Tokens per second** · dotted: plain decoding · ×: median of paired ratios",
            help=f"{explain_term('throughput')}\n\n{PAIRED}",
        )
        measured = [entry for entry in scores if entry.measured]
        bars = [_speed_bar(entry, scores) for entry in measured]
        chart(speed_figure(bars, is_dark()), key="compare_speed", height=chart_height(len(bars)))
    with right:
        st.markdown("**What the measurements say**")
        told = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in findings(scores))
        st.html(f'<ul style="margin:0;padding-left:1.1rem;font-size:0.92rem;line-height:1.45">{told}</ul>')
    st.html(table_html(scores, outcome))
    st.caption(memory_words(outcome))


def _speed_bar(entry: Score, scores: tuple[Score, ...]) -> Bar:
    speed = entry.spread_of("throughput")
    over = entry.over_autoregressive or entry.over_hf
    shown = f"{speed.median:.1f}" + (f" · {times_words(over)}" if over and not is_plain(entry) else "")
    return Bar(label_of(entry), speed.median, speed.low, speed.high, shown, is_plain(entry))


def draw_time(scores: tuple[Score, ...], outcome: Outcome) -> None:
    """Tokens over time, time per token by phase, latency."""
    measured = [entry for entry in scores if entry.measured]
    dark = is_dark()
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Tokens over time** · the median repeat of each", help=MEDIAN_REPEAT)
        curves = [Curve(label_of(e), e.typical.timeline.seconds, e.typical.timeline.tokens) for e in measured]
        chart(progress_figure(curves, dark), key="compare_progress", height=400)
    with right:
        phases = [f"**{words}**: {explain_term(words)}" for words in ("prefill", *PHASE_WORDS.values())]
        st.markdown("**Where the time goes** · per committed token, the median repeat", help="\n\n".join(phases))
        costs = [TokenCost(label_of(entry), _token_cost(entry)) for entry in measured]
        chart(token_cost_figure(costs, dark), key="compare_cost", height=max(400, chart_height(len(costs)) + 60))
    st.markdown(
        "**Latency** · median and quartiles over the repeats",
        help="\n\n".join(f"**{word}**: {explain_term(word)}" for word in ("TTFT", "TPOT", "quartiles")),
    )
    timed = [entry for entry in measured if entry.spread_of("tpot_s")]
    if not timed:
        st.caption("Every method ended within its first iteration: there is no time per later token.")
        return
    first, later = ([_latency_bar(entry, name) for entry in timed] for name in ("ttft_s", "tpot_s"))
    chart(latency_figure(first, later, dark), key="compare_latency", height=chart_height(len(timed)))


def _token_cost(entry: Score) -> dict[str, float]:
    call = entry.typical
    if call.phase_s is None:
        return {"whole": call.wall_s / call.new_tokens}
    parts = {"prefill": call.prefill_s or 0.0, **call.phase_s}
    # What would be too thin to see joins the rest, or the legend would be longer than the chart is high.
    parts = {name: seconds for name, seconds in parts.items() if seconds >= THINNEST * call.wall_s}
    parts["other"] = max(0.0, call.wall_s - sum(parts.values()))
    return {name: seconds / call.new_tokens for name, seconds in parts.items()}


def _latency_bar(entry: Score, name: str) -> Bar:
    found = entry.spread_of(name)
    return Bar(label_of(entry), found.median, found.low, found.high, "", is_plain(entry))


def draw_acceptance(scores: tuple[Score, ...], outcome: Outcome) -> None:
    """Accepted lengths as a histogram, and acceptance with both denominators."""
    drafted = [entry for entry in scores if entry.measured and entry.typical.accepted is not None]
    if not drafted:
        st.info("No method of this comparison drafts: add one that does, such as DynaTree.", icon=":material/add:")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown(
            "**Accepted length** · drafted tokens accepted per iteration, share of iterations", help=MEDIAN_REPEAT
        )
        runs = [replace(entry.run, label=label_of(entry)) for entry in drafted]
        chart(accepted_length_figure(runs, is_dark()), key="compare_lengths", height=400)
        means = ", ".join(f"{label_of(e)} {e.typical.accepted_mean:.2f}" for e in drafted)
        st.caption(escape_markdown(f"Mean: {means}."))
    with right:
        st.markdown("**Acceptance** · of drafted and of verified nodes, the final token in neither", help=MEDIAN_REPEAT)
        rows = [Acceptance(label_of(e), e.typical.accepted, e.typical.drafted, e.typical.verified) for e in drafted]
        chart(acceptance_figure(rows, is_dark()), key="compare_acceptance", height=400)
        st.caption("Drafted nodes that are pruned before verification count in the first, not in the second.")
