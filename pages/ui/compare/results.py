"""Charts and table of a comparison: speed, where the time goes, acceptance."""

import html
from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from decoding.compare.scoreboard import Score
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown
from pages.ui.compare.plan import Outcome
from pages.ui.compare.sentences import PAIRED, findings, is_plain, label_of, memory_words, same_words, times_words
from viz.charts.methods import (
    Acceptance,
    Bar,
    Curve,
    TokenCost,
    acceptance_figure,
    chart_height,
    latency_figure,
    progress_figure,
    speed_figure,
    token_cost_figure,
)
from viz.charts.run import accepted_length_figure
from viz.formats import byte_size, part_of
from viz.glossary import explain_term
from viz.theme import PHASE_WORDS

Cell = tuple[str, float | None]
"""What stands in a cell of the table, and the number by which the best one is found."""

NOTHING: Cell = ("–", None)
TABLE_STYLE = """
<style>
.ds-table-box { overflow-x: auto; }
.ds-table { border-collapse: collapse; width: 100%; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
.ds-table th, .ds-table td { padding: 0.2rem 0.6rem; text-align: right; }
.ds-table th, .ds-table td { border: 0; border-bottom: 1px solid var(--st-border-color); }
.ds-table thead th { vertical-align: bottom; font-weight: 600; min-width: 6.5rem; max-width: 12rem; }
.ds-table tbody th { text-align: left; font-weight: 400; white-space: nowrap; }
.ds-table tbody th[title] { text-decoration: underline dotted; text-underline-offset: 3px; cursor: help; }
.ds-table tbody tr:hover { background: var(--st-secondary-background-color); }
</style>
"""


def table_html(scores: tuple[Score, ...], outcome: Outcome) -> str:
    """Figures as rows, contestants as columns; the best of a row is bold. Everything escaped."""
    heads = "".join(f"<th>{html.escape(label_of(entry))}</th>" for entry in scores)
    reference = outcome.comparison.contestants[outcome.comparison.reference].label
    body = []
    for title, meaning, best, cells in _rows(scores, reference):
        values = [value for _, value in cells if value is not None]
        top = (max(values) if best == "high" else min(values)) if best and len(values) > 1 else None
        written = "".join(
            f"<td>{'<b>' if value is not None and value == top else ''}{html.escape(shown)}</td>"
            for shown, value in cells
        )
        body.append(f'<tr><th title="{html.escape(meaning, quote=True)}">{html.escape(title)}</th>{written}</tr>')
    return (
        f'{TABLE_STYLE}<div class="ds-table-box"><table class="ds-table"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _rows(scores: tuple[Score, ...], reference: str) -> list[tuple[str, str, str, list[Cell]]]:
    """Title, meaning, which end is best, and a cell per contestant."""

    def row(title: str, meaning: str, best: str, cell: Callable[[Score], Cell]) -> tuple[str, str, str, list[Cell]]:
        return title, meaning, best, [cell(entry) if entry.measured else NOTHING for entry in scores]

    return [
        row("Tokens/s", "New tokens / wall time of the call, prefill included: median (quartiles) over the repeats.",
            "high", _spread("throughput")),
        row("Tokens/s without prefill", "The same with the prefill of the models left out.", "high",
            _spread("decode_throughput")),
        row("Against autoregressive", "Tokens/s over that of our autoregressive loop, per repeat.", "high",
            _ratio("over_autoregressive")),
        row("Against Hugging Face generate", "Tokens/s over that of Hugging Face generate, per repeat.", "high",
            _ratio("over_hf")),
        row("Iterations", "Verification passes of the target; for Hugging Face: how often tokens arrived.", "",
            _plain("iterations", ",")),
        row("Tokens per iteration", "Committed tokens / verification passes (block efficiency).", "high",
            _plain("tokens_per_iteration", ".2f")),
        row("Accepted length, mean", "Accepted drafted tokens per iteration; the bonus token is not counted.", "high",
            _plain("accepted_mean", ".2f")),
        row("Accepted / drafted", "Accepted drafted tokens over all drafted nodes.", "high",
            _share("acceptance_drafted", "drafted")),
        row("Accepted / verified", "Accepted drafted tokens over the nodes given to the target.", "high",
            _share("acceptance_verified", "verified")),
        row("Draft forwards", "Forward passes of the draft model.", "", _plain("draft_forwards", ",")),
        row("Target passes", "Verification passes, and the second passes of rollback + rebuild.", "",
            _plain("target_passes", ",")),
        row("TTFT (ms)", "From the call to the first committed tokens, prefill of both models included.", "low",
            _spread("ttft_s", 1e3)),
        row("TPOT (ms)", "(Time of the last token - TTFT) / tokens after those of the first iteration.", "low",
            _spread("tpot_s", 1e3, 2)),
        row("Peak memory", "See the line under the table.", "",
            _memory),
        row("Tokens measured", "Output tokens that the figures above are made of.", "", _plain("new_tokens", ",")),
        row("Tokens in loops", "Output tokens after 16 tokens in a row were seen for the second time.", "",
            lambda s: (f"{s.loop_tokens:,} of {s.new_tokens:,}", None)),
        row(f"Same output as {reference}", "Token for token; see Outputs for the first difference.", "",
            lambda s: (same_words(s), None)),
    ]  # fmt: skip


def _spread(name: str, factor: float = 1.0, digits: int = 1) -> Callable[[Score], Cell]:
    """Median and quartiles of a figure."""

    def cell(entry: Score) -> Cell:
        found = entry.spread_of(name)
        if found is None:
            return NOTHING
        middle, low, high = (f"{factor * value:.{digits}f}" for value in (found.median, found.low, found.high))
        return f"{middle} ({low}–{high})", found.median

    return cell


def _ratio(name: str) -> Callable[[Score], Cell]:
    """Median and quartiles of a speed-up."""

    def cell(entry: Score) -> Cell:
        found = getattr(entry, name)
        if found is None:
            return NOTHING
        return f"{found.median:.2f}× ({found.low:.2f}–{found.high:.2f})", found.median

    return cell


def _plain(name: str, form: str) -> Callable[[Score], Cell]:
    """A figure of the median repeat."""

    def cell(entry: Score) -> Cell:
        value = getattr(entry.typical, name)
        return NOTHING if value is None else (format(value, form), value)

    return cell


def _share(name: str, total: str) -> Callable[[Score], Cell]:
    """An acceptance with its denominator."""

    def cell(entry: Score) -> Cell:
        value = getattr(entry.typical, name)
        if value is None:
            return NOTHING
        return part_of(entry.typical.accepted, getattr(entry.typical, total)), value

    return cell


def _memory(entry: Score) -> Cell:
    count = entry.typical.peak_memory_bytes
    return "–" if count is None else byte_size(count), None


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
