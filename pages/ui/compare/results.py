"""The measurements of a comparison in sentences, charts and a table."""

import html
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import streamlit as st

from decoding.compare.comparison import Contestant, Score, without_prefill
from decoding.trace.metrics import Spread
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown
from pages.ui.compare.plan import ComparisonPlan, ComparisonResult
from pages.ui.widgets.controls import prompt_words, sampling_words
from viz.charts.methods import (
    Acceptance,
    Bar,
    ProgressCurve,
    TokenCost,
    acceptance_figure,
    chart_height,
    latency_figure,
    progress_figure,
    speed_figure,
    token_cost_figure,
)
from viz.charts.run import accepted_length_figure
from viz.explain.iteration import why_not_faster
from viz.formats import byte_size, duration, part_of, plural
from viz.glossary import explain_term
from viz.theme import PHASE_WORDS

Cell = tuple[str, float | None]  # text of a table cell, and the number that decides the best
NOTHING: Cell = ("–", None)
UNREST = 1.5
EVEN = 0.005  # a speed-up this close to 1 is none
THINNEST = 0.015
MEDIAN_REPEAT = "For each method, the call with the median tokens per second of its repeats, the lower one of two."
PAIRED = (
    "× is the median over repeats of this method's tokens/s divided by those of plain decoding in the same repeat, so "
    "that drift of the machine cancels. It may differ from the ratio of the two medians drawn as bars."
)


def is_plain(entry: Score) -> bool:
    """Whether a contestant is plain decoding, the baseline of the others."""
    return entry.contestant.baseline == "hf_generate" or (
        entry.contestant.method is not None and entry.contestant.method.name == "autoregressive"
    )


def times_words(ratio: Spread) -> str:
    """A speed-up; if there is none, it says so, with one more digit."""
    even = abs(ratio.median - 1) < EVEN
    return f"about even ({ratio.median:.3f}×)" if even else f"{ratio.median:.2f}×"


def changed_words(outcome: ComparisonResult, plan: ComparisonPlan, contestants: Sequence[Contestant]) -> str:
    """The settings of the figures that differ from the current ones; empty if none do."""
    old, methods = outcome.plan, outcome.comparison.contestants
    said = []
    if list(map(_way, methods)) != list(map(_way, contestants)):
        said.append(", ".join(contestant.label for contestant in methods))
    if old.prompt != plan.prompt:
        said.append(prompt_words(old.prompt.name))
    if (old.max_new_tokens, old.repeats, old.warmup) != (plan.max_new_tokens, plan.repeats, plan.warmup):
        said.append(f"{old.max_new_tokens} tokens × {plural(old.repeats, 'repeat')} after {old.warmup} warm-up")
    if old.sampling != plan.sampling:
        said.append(f"{sampling_words(old.sampling)}, seed {old.sampling.seed}")
    if not said:
        return ""
    return f"These figures were measured with other settings ({'; '.join(said)}): press Compare to measure again."


def _way(contestant: Contestant) -> tuple:
    """What a contestant runs, whatever its label."""
    method = contestant.method
    return contestant.baseline, contestant.engine, method and (method.name, method.settings())


def findings(scores: tuple[Score, ...]) -> list[str]:
    """Sentences: the fastest method, why others are no faster than plain decoding, what could not be measured."""
    plain = next((s for s in scores if s.measured and s.run and is_plain(s)), None)
    plain = plain or next((s for s in scores if s.measured and is_plain(s)), None)
    ours = [s for s in scores if s.measured]
    said = unrest_words(ours)
    if len(ours) > 1:
        best = max(ours, key=lambda s: s.spread_of("throughput").median)
        ratios = [
            f"{times_words(ratio)} {name}"
            for ratio, name in ((best.over_autoregressive, "autoregressive"), (best.over_hf, "Hugging Face generate"))
            if ratio
        ]
        against = f": {' and '.join(ratios)}" if ratios and not is_plain(best) else ""
        fastest = f"{best.contestant.label} is fastest at {best.spread_of('throughput').median:.1f} tokens/s{against}."
        said.append(f"{fastest}{doubt_words(best, ours)}")
    for entry in scores:
        if entry.failure:
            said.append(entry.failure)
        elif not entry.measured:
            loops = "its output repeats itself from the first iteration" if entry.output_ids else "it was not measured"
            said.append(f"{entry.contestant.label} has no figures: {loops}.")
        elif plain is not None and not is_plain(entry):
            said += slower_words(entry, plain)
    return said


def doubt_words(best: Score, measured: list[Score]) -> str:
    """The contestants that may be as fast as the fastest one, as their repeats overlap; empty for none."""
    slowest = min(call.throughput for call in best.calls.values())
    rivals = [
        entry.contestant.label
        for entry in measured
        if entry is not best and max(call.throughput for call in entry.calls.values()) >= slowest
    ]
    if not rivals or len(best.calls) < 2:
        return ""
    named = " and ".join([", ".join(rivals[:-1]), rivals[-1]] if rivals[1:] else rivals)
    return f" Its repeats overlap with those of {named}, so their order is uncertain."


def unrest_words(measured: list[Score]) -> list[str]:
    """A warning where repeats of the same call differ so much that the machine is too busy to measure."""
    spreads = [entry.spread_of("throughput") for entry in measured]
    widest = max((found.high / found.low for found in spreads), default=1.0)
    if widest < UNREST:
        return []
    return [
        f"Repeats of the same call differ by up to {widest:.1f}×: this machine is busy. Stop other work or use more "
        "repeats before trusting small differences."
    ]


def slower_words(entry: Score, plain: Score) -> list[str]:
    """Why a contestant is not faster than plain decoding, from its measured phases; nothing if it is."""
    ratio = entry.over_autoregressive if plain.run else entry.over_hf
    if ratio is None or ratio.median > 1:
        return []
    if abs(ratio.median - 1) < EVEN:
        said = f"{entry.contestant.label} is about even with {plain.contestant.label} ({ratio.median:.3f}×)"
    else:
        said = f"{entry.contestant.label} is not faster ({ratio.median:.2f}× {plain.contestant.label})"
    if ratio.high > 1:
        said += ", though the quartiles of the repeats lie on both sides of 1"
    if entry.run is None:
        return [f"{said}; an outside baseline does not report its phases."]
    said += f". {why_not_faster(entry.run)}"
    later = without_prefill(entry, plain) or ratio.median
    if later > 1:
        prefill = duration(entry.typical.prefill_s)
        return [f"{said} Without prefill it is faster ({later:.2f}×): prefilling both models takes {prefill}."]
    reached = entry.typical.tokens_per_iteration
    if 1 - later < EVEN:
        return [f"{said} Without prefill it is also about even ({later:.3f}×)."]
    digits = 2 if 1 - later > 0.01 else 3  # enough of them to tell both numbers apart
    needed = f"{reached / later:.{digits}f} tokens; it commits {reached:.{digits}f}"
    return [f"{said} To break even, an iteration must commit {needed}."]


def same_words(entry: Score) -> str:
    """The result of the identity check."""
    if entry.same_output is None:
        return "reference" if entry.measured else "–"
    if entry.same_output:
        return "✓ identical"
    kind = "≈ near tie" if entry.difference.near_tie else "✗ differs"
    return f"{kind} at token {entry.difference.position + 1}"


STYLE = Path(__file__).with_suffix(".css")


def table_html(scores: tuple[Score, ...], outcome: ComparisonResult) -> str:
    """Figures as table rows, contestants as columns; the best of a row is bold. Everything is escaped."""
    heads = "".join(f"<th>{html.escape(entry.contestant.label)}</th>" for entry in scores)
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
        f'<div class="ds-table-box"><table class="ds-table"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _rows(scores: tuple[Score, ...], reference: str) -> list[tuple[str, str, str, list[Cell]]]:
    """Title, meaning, which end is best, and a cell per contestant."""

    def row(title: str, meaning: str, best: str, cell: Callable[[Score], Cell]) -> tuple[str, str, str, list[Cell]]:
        return title, meaning, best, [cell(entry) if entry.measured else NOTHING for entry in scores]

    return [
        row("Tokens/s", "New tokens / wall time of the call, prefill included: median (quartiles) over the repeats.",
            "high", _spread("throughput")),
        row("Tokens/s without prefill", "The same without the prefill of the models.", "high",
            _spread("decode_throughput")),
        row("Speed-up over autoregressive", "Tokens/s / those of our autoregressive loop in the same repeat.", "high",
            _spread("over_autoregressive", 1, 2, "×")),
        row("Speed-up over Hugging Face generate", "Tokens/s / those of Hugging Face generate in the same repeat.",
            "high", _spread("over_hf", 1, 2, "×")),
        row("Iterations", "Verification passes of the target; for Hugging Face: how often tokens arrived.", "",
            _typical("iterations")),
        row("Tokens per iteration", "Committed tokens / verification passes (block efficiency).", "high",
            _typical("tokens_per_iteration", "{:.2f}".format)),
        row("Accepted length, mean", "Accepted drafted tokens per iteration; the bonus token is not counted.", "high",
            _typical("accepted_mean", "{:.2f}".format)),
        row("Accepted / drafted", "Accepted drafted tokens / all drafted nodes.", "high",
            _typical("acceptance_drafted", total="drafted")),
        row("Accepted / verified", "Accepted drafted tokens / nodes verified by the target.", "high",
            _typical("acceptance_verified", total="verified")),
        row("Draft forwards", "Forward passes of the draft model.", "", _typical("draft_forwards")),
        row("Target passes", "Verification passes plus the second passes of rollback + rebuild.", "",
            _typical("target_passes")),
        row("TTFT (ms)",
            "Time to first token: from the call to the first committed tokens, prefill of both models included.",
            "low", _spread("ttft_s", 1e3)),
        row("TPOT (ms)",
            "Time per output token: (time of the last token - TTFT) / tokens after those of the first iteration.",
            "low", _spread("tpot_s", 1e3, 2)),
        row("Peak memory", "See the note below the table.", "", _typical("peak_memory_bytes", byte_size)),
        row("Tokens measured", "Output tokens behind the figures above.", "", _typical("new_tokens")),
        row("Tokens in loops", "Output tokens after a sequence of 16 tokens has occurred for the second time.", "",
            lambda s: (f"{s.loop_tokens:,} of {s.new_tokens:,}", None)),
        row(f"Same output as {reference}", "Token for token; see Outputs for the first difference.", "",
            lambda s: (same_words(s), None)),
    ]  # fmt: skip


def _spread(name: str, factor: float = 1.0, digits: int = 1, sign: str = "") -> Callable[[Score], Cell]:
    """Median and quartiles of a figure or, with a `sign`, of a speed-up."""

    def cell(entry: Score) -> Cell:
        found = getattr(entry, name) if sign else entry.spread_of(name)
        if found is None:
            return NOTHING
        middle, low, high = (f"{factor * value:.{digits}f}" for value in (found.median, found.low, found.high))
        return f"{middle}{sign} ({low}–{high})", found.median

    return cell


def _typical(name: str, words: Callable[[float], str] = "{:,}".format, total: str = "") -> Callable[[Score], Cell]:
    """A figure of the median repeat; an acceptance with its `total` as the denominator."""

    def cell(entry: Score) -> Cell:
        call, value = entry.typical, getattr(entry.typical, name)
        if value is None:
            return NOTHING
        return part_of(call.accepted, getattr(call, total)) if total else words(value), value

    return cell


def speed_bars(scores: tuple[Score, ...]) -> list[Bar]:
    """Tokens per second of each contestant with its speed-up."""
    bars = []
    for entry in (entry for entry in scores if entry.measured):
        speed, over = entry.spread_of("throughput"), entry.over_autoregressive or entry.over_hf
        shown = f"{speed.median:.1f}" + (f" · {times_words(over)}" if over and not is_plain(entry) else "")
        bars.append(Bar(entry.contestant.label, speed.median, speed.low, speed.high, shown, is_plain(entry)))
    return bars


def draw_overview(scores: tuple[Score, ...], outcome: ComparisonResult) -> None:
    """Speed with its spread, the reasons, and the table."""
    left, right = st.columns([11, 9], gap="medium")
    with left:
        st.markdown(
            "**Tokens per second** · dotted: plain decoding · ×: median of paired ratios",
            help=f"{explain_term('throughput')}\n\n{PAIRED}",
        )
        bars = speed_bars(scores)
        chart(speed_figure(bars, is_dark()), key="compare_speed", height=chart_height(len(bars)))
    with right:
        st.markdown("**Findings**")
        told = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in findings(scores))
        st.html(f'<ul style="margin:0;padding-left:1.1rem;font-size:0.92rem;line-height:1.45">{told}</ul>')
    st.html(STYLE)
    st.html(table_html(scores, outcome))
    words = "Peak memory: the most GPU memory allocated during the call, weights of both models included."
    if not outcome.pair.target.device.startswith("cuda"):
        words = (
            "Peak memory on this device counts weights and key/value caches of the models that the method uses; "
            "allocations inside Hugging Face's own calls are unknown."
        )
    st.caption(words)


def draw_time(scores: tuple[Score, ...], outcome: ComparisonResult) -> None:
    """Tokens over time, time per token by phase, latency."""
    measured = [entry for entry in scores if entry.measured]
    dark = is_dark()
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Tokens over time** · median repeat of each method", help=MEDIAN_REPEAT)
        curves = [
            ProgressCurve(e.contestant.label, e.typical.timeline.seconds, e.typical.timeline.tokens) for e in measured
        ]
        chart(progress_figure(curves, dark), key="compare_progress", height=400)
    with right:
        phases = [f"**{words}**: {explain_term(words)}" for words in ("prefill", *PHASE_WORDS.values())]
        st.markdown("**Where the time goes** · per committed token, median repeat", help="\n\n".join(phases))
        costs = []
        for entry in measured:
            call, parts = entry.typical, {"whole": entry.typical.wall_s}
            if call.phase_s is not None:
                parts = {"prefill": call.prefill_s or 0.0, **call.phase_s}
                # Phases too thin to see join the rest, or the legend would be taller than the chart.
                parts = {name: seconds for name, seconds in parts.items() if seconds >= THINNEST * call.wall_s}
                parts["other"] = max(0.0, call.wall_s - sum(parts.values()))
            parts = {name: seconds / call.new_tokens for name, seconds in parts.items()}
            costs.append(TokenCost(entry.contestant.label, parts))
        chart(token_cost_figure(costs, dark), key="compare_cost", height=max(400, chart_height(len(costs)) + 60))
    st.markdown(
        "**Latency** · median and quartiles over the repeats",
        help="\n\n".join(f"**{word}**: {explain_term(word)}" for word in ("TTFT", "TPOT", "quartiles")),
    )
    timed = [entry for entry in measured if entry.spread_of("tpot_s")]
    if not timed:
        st.caption("Every method ended within its first iteration, so there is no time per later token.")
        return
    bars: dict[str, list[Bar]] = {"ttft_s": [], "tpot_s": []}
    for name, entry in product(bars, timed):
        found = entry.spread_of(name)
        bars[name].append(Bar(entry.contestant.label, found.median, found.low, found.high, "", is_plain(entry)))
    chart(latency_figure(*bars.values(), dark), key="compare_latency", height=chart_height(len(timed)))


def draw_acceptance(scores: tuple[Score, ...], outcome: ComparisonResult) -> None:
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
        runs = [replace(entry.run, label=entry.contestant.label) for entry in drafted]
        chart(accepted_length_figure(runs, is_dark()), key="compare_lengths", height=400)
        means = ", ".join(f"{e.contestant.label} {e.typical.accepted_mean:.2f}" for e in drafted)
        st.caption(escape_markdown(f"Mean: {means}."))
    with right:
        st.markdown("**Acceptance** · of drafted and of verified nodes, without the final token", help=MEDIAN_REPEAT)
        calls = [(entry.contestant.label, entry.typical) for entry in drafted]
        rows = [Acceptance(label, call.accepted, call.drafted, call.verified) for label, call in calls]
        chart(acceptance_figure(rows, is_dark()), key="compare_acceptance", height=400)
        st.caption("Nodes pruned before verification count as drafted but not as verified.")
