"""The measurements of a comparison in sentences, charts and a table."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from decoding.analysis.bottom_line import BottomLine, Interval, paired
from decoding.analysis.luck import RunLuck
from decoding.common.formats import byte_size, listed, part_of, plural
from decoding.compare.comparison import Comparison, Score
from decoding.compare.contestants import Contestant
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, torch_there, why_not
from pages.ui.common.models import manager
from pages.ui.common.state import PromptChoice, RunRequest
from pages.ui.compare.findings import (
    best_chain,
    decided,
    draw_partings,
    findings,
    is_plain,
    needs_by_kind,
    over_plain,
    same_words,
    times_words,
)
from pages.ui.compare.plan import ComparisonPlan, ComparisonResult, hardware_words
from pages.ui.engine.config import engine_button
from pages.ui.widgets.controls import sampling_words
from pages.ui.widgets.prompts import prompt_title
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
from viz.charts.run import DEPTH_SHARE, acceptance_by_depth, accepted_length_figure
from viz.explain.bottom_line import bottom_line_words, settings_words
from viz.glossary import explain_term
from viz.tables import Cell, Markup, html_table
from viz.theme import PHASE_WORDS

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.sampling.sampling import Sampling

# Opens the form of a sweep filled with a method, prompts, a sampling and a number of tokens
Fill = Callable[["Method", Sequence[PromptChoice], "Sampling", int], None]
# Text of a table cell, the number that decides the best, and its interval where each repeat measured it
Value = tuple[str, float | None, Interval | None]
NOTHING: Value = ("–", None, None)
WINNER = "winner"  # rows whose best is that of the bottom line
THINNEST = 0.015
BOLD = (
    "Bold: the best of its row. A speed is bold only where the bottom line names its method the fastest, a time only "
    "where its interval over the repeats stands apart."
)
MEDIAN_REPEAT = "For each method, the call with the median tokens per second of its repeats, the lower one of two."
SURE = (
    "All ratios are taken within each repeat, to plain decoding and of two methods to each other: drift of the machine "
    "cancels. The interval is Student's t on their logarithms: where that of one method over another holds 1, or fewer "
    "than three repeats were measured, none is named the faster. Over several prompts, methods are compared on the "
    "same prompt."
)
PAIRED = (
    "× is the median over repeats of this method's tokens/s divided by those of plain decoding in the same repeat, so "
    "that drift of the machine cancels. It may differ from the ratio of the two medians drawn as bars."
)


def changed_words(outcome: ComparisonResult, plan: ComparisonPlan, contestants: Sequence[Contestant]) -> str:
    """The settings of the figures that differ from the current ones; empty if none do."""
    old, methods = outcome.plan, outcome.comparison.contestants
    said = []
    if list(map(_way, methods)) != list(map(_way, contestants)):
        said.append(", ".join(contestant.label for contestant in methods))
    if old.prompts != plan.prompts:
        said.append(listed([prompt_title(each) for each in old.prompts]))
    if (old.max_new_tokens, old.repeats, old.warmup) != (plan.max_new_tokens, plan.repeats, plan.warmup):
        said.append(f"{old.max_new_tokens} tokens × {plural(old.repeats, 'repeat')} after {old.warmup} warm-up")
    if old.sampling != plan.sampling:
        said.append(f"{sampling_words(old.sampling)}, seed {old.sampling.seed}")
    if not said:
        return ""
    return f"These figures are of another comparison ({'; '.join(said)})."


def _way(contestant: Contestant) -> tuple:
    """What a contestant runs, whatever its label."""
    method = contestant.method
    return contestant.baseline, contestant.engine, method and (method.name, method.settings())


STYLE = Path(__file__).with_suffix(".css")


def table_html(scores: tuple[Score, ...], outcome: ComparisonResult, line: BottomLine | None = None) -> str:
    """Figures as table rows, contestants as columns; the best of a row is bold where there is one."""
    winner = None if line is None else line.plain if line.verdict == "plain" else line.winner and line.winner.label
    rows = []
    for title, meaning, best, cells in _rows(scores, outcome.comparison, outcome.expected):
        bold = _best_cells(best, cells)
        if best == WINNER:
            bold = {place for place, entry in enumerate(scores) if entry.contestant.label == winner}
        shown = (_bold(text) if place in bold else text for place, (text, _, _) in enumerate(cells))
        rows.append((Cell(title, about=meaning), *shown))
    return html_table(("", *_labels(scores)), rows, "ruled compared", label="Figures of each method")


def _labels(scores: tuple[Score, ...]) -> list[str]:
    return [entry.contestant.label for entry in scores]


def _bold(text: str) -> Markup:
    return Markup(f"<b>{html.escape(text)}</b>")


def _best_cells(best: str, cells: list[Value]) -> set[int]:
    """Places of the best cells of a row; none where too few repeats, or intervals that overlap, do not tell."""
    known = [(place, value, interval) for place, (_, value, interval) in enumerate(cells) if value is not None]
    if best not in ("high", "low") or len(known) < 2:
        return set()
    top = (max if best == "high" else min)(value for _, value, _ in known)
    mine = next(interval for _, value, interval in known if value == top)
    for _, value, other in known:
        if value != top and mine is not None and other is not None and not mine.apart(other):
            return set()
    return {place for place, value, _ in known if value == top}


def _rows(
    scores: tuple[Score, ...], comparison: Comparison, expected: Mapping[int, RunLuck]
) -> list[tuple[str, str, str, list[Value]]]:
    """Title, meaning, which end is best, and a cell per contestant."""
    reference = comparison.contestants[comparison.reference].label
    title, meaning = f"Same output as {reference}", "Token for token; see Outputs for the first difference."
    if not comparison.sampling.greedy:
        title = f"Output beside {reference}"
        meaning = "Sampled texts follow the same distribution: neither equal nor different ones prove anything."

    def expectation(entry: Score) -> Value:
        luck = expected.get(comparison.contestants.index(entry.contestant))
        return NOTHING if luck is None else (f"{luck.mean / len(luck.tokens):.2f}", None, None)

    def row(title: str, meaning: str, best: str, cell: Callable[[Score], Value]) -> tuple[str, str, str, list[Value]]:
        return title, meaning, best, [cell(entry) if entry.measured else NOTHING for entry in scores]

    return [
        row("Tokens/s", "New tokens / wall time of the call, prefill included: median (quartiles) over the repeats.",
            WINNER, _spread("throughput")),
        row("Tokens/s without prefill", "The same without the prefill of the models; where the first pass "
            "reads the prompt, also without its tokens.", "high",
            _spread("decode_throughput")),
        row("Speed-up over autoregressive", "Tokens/s / those of our autoregressive loop in the same repeat.", WINNER,
            _spread("over_autoregressive", 1, 2, "×")),
        row("Speed-up over Hugging Face generate", "Tokens/s / those of Hugging Face generate in the same repeat.",
            WINNER, _spread("over_hf", 1, 2, "×")),
        row("Iterations", "Verification passes of the target; for Hugging Face: how often tokens arrived.", "",
            _typical("iterations")),
        row("Block efficiency", "Committed tokens / verification passes: tokens per iteration.", "high",
            _typical("tokens_per_iteration", "{:.2f}".format)),
        *([row("Expected block efficiency", "Exact mean over all draws of the verifier, given the trees of a call with "
               "the same seed: what block efficiency scatters around.", "", expectation)]
          if expected else []),
        row("Accepted length, mean", "Accepted drafted tokens per iteration; the bonus token is not counted.", "high",
            _typical("accepted_mean", "{:.2f}".format)),
        row("Accepted / drafted", "Accepted drafted tokens / all drafted nodes.", "high",
            _typical("acceptance_drafted", total="drafted")),
        row("Accepted / verified", "Accepted drafted tokens / nodes verified by the target.", "high",
            _typical("acceptance_verified", total="verified")),
        row("Node agreement", "Drafted nodes whose token is the target's likeliest after their parent / those whose "
            "parent the target saw: of the whole tree, not of the accepted path alone.", "high", _agreement),
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
            lambda s: (f"{s.loop_tokens:,} of {s.new_tokens:,}", None, None)),
        row(title, meaning, "", lambda s: (same_words(s, comparison), None, None)),
    ]  # fmt: skip


def _spread(name: str, factor: float = 1.0, digits: int = 1, sign: str = "") -> Callable[[Score], Value]:
    """Median and quartiles of a figure or, with a `sign`, of a speed-up."""

    def cell(entry: Score) -> Value:
        found = getattr(entry, name) if sign else entry.spread_of(name)
        if found is None:
            return NOTHING
        middle, low, high = (f"{factor * value:.{digits}f}" for value in (found.median, found.low, found.high))
        around = f" ({low}–{high})" if found.count > 1 else ""
        # A ratio is judged by the bottom line.
        interval = None if sign else paired({(0, at): getattr(call, name) for at, call in entry.calls.items()})
        return f"{middle}{sign}{around}", found.median, interval

    return cell


def _typical(name: str, words: Callable[[float], str] = "{:,}".format, total: str = "") -> Callable[[Score], Value]:
    """A figure of the median repeat; an acceptance with its `total` as the denominator."""

    def cell(entry: Score) -> Value:
        call, value = entry.typical, getattr(entry.typical, name)
        if value is None:
            return NOTHING
        return part_of(call.accepted, getattr(call, total)) if total else words(value), value, None

    return cell


def _agreement(entry: Score) -> Value:
    """Node agreement of the median repeat; of recordings made before it was counted none is known."""
    call = entry.typical
    return (part_of(call.agreeing, call.compared), call.agreeing / call.compared, None) if call.compared else NOTHING


def speed_bars(scores: tuple[Score, ...]) -> list[Bar]:
    """Tokens per second of each contestant with its speed-up."""
    bars = []
    for entry in (entry for entry in scores if entry.measured):
        speed, over = entry.spread_of("throughput"), over_plain(entry)
        shown = f"{speed.median:.1f}" + (f" · {times_words(over)}" if over and not is_plain(entry) else "")
        bars.append(
            Bar(entry.contestant.label, speed.median, speed.low, speed.high, shown, is_plain(entry), speed.count)
        )
    return bars


def draw_overview(
    scores: tuple[Score, ...], outcome: ComparisonResult, go_to: Callable[[RunRequest, int], None], fill: Fill
) -> None:
    """The bottom line, speed with its spread, the reasons, where tree and chain part, and the table.

    Args:
        go_to: has Step through decode a request up to an iteration; a callback.
        fill: opens the form of a sweep filled.
    """
    where = "for this text on " + ("the machine that recorded it" if outcome.recorded else "this machine")
    line = _draw_bottom_line([scores], where, outcome, fill)
    left, right = st.columns([11, 9], gap="medium")
    with left:
        st.markdown(
            "**Tokens per second** · dotted: baselines · ×: median of paired ratios",
            help=f"{explain_term('throughput')}\n\n{PAIRED}",
        )
        bars = speed_bars(scores)
        chart(speed_figure(bars, is_dark()), key="compare_speed", height=chart_height(len(bars)))
    with right:
        st.markdown("**Findings**")
        _draw_bullets(findings(scores))
    draw_partings(scores, outcome, go_to)
    st.html(STYLE)
    st.html(table_html(scores, outcome, line))
    words = "Peak memory: the most GPU memory allocated during the call, weights of both models included."
    if not outcome.pair.target.device.startswith("cuda"):
        words = (
            "Peak memory on this device counts weights and key/value caches of the models that the method uses; "
            "allocations inside Hugging Face's own calls are unknown."
        )
    around = "quartiles over the repeats" if outcome.repeats > 3 else "the lowest and the highest repeat"
    st.caption(f"{BOLD} In brackets: {around}; the bottom line has 95% intervals. {words}")


def _draw_bullets(sentences: Sequence[str]) -> None:
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    st.html(f'<ul style="margin:0;padding-left:1.1rem;font-size:0.92rem;line-height:1.45">{items}</ul>')


def measured_words(outcome: ComparisonResult) -> str:
    """What a comparison measured, with what, and where; for one that came with the program, how to measure it here."""
    plan = outcome.plan
    texts, repeats = listed([prompt_title(each) for each in plan.prompts]), plural(outcome.repeats, "repeat")
    said = (
        f"Measured: {repeats} in turn of at most {plural(plan.max_new_tokens, 'token')} after {texts}, "
        f"{sampling_words(plan.sampling).replace('Greedy', 'greedy')}; {outcome.pair.name}, "
        f"{hardware_words(outcome.hardware)}."
    )
    return f"{said} Press Compare to measure on this machine." if outcome.recorded else said


def _draw_bottom_line(
    prompts: Sequence[tuple[Score, ...]], where: str, outcome: ComparisonResult, fill: Fill
) -> BottomLine | None:
    here = not outcome.recorded and outcome.generation == manager().generation
    line = decided(prompts, manager().batch_costs if here else {})
    best = "" if line is None or line.verdict == "plain" else line.best.label
    run = next((entry.run for entry in prompts[0] if entry.contestant.label == best), None)
    with st.container(border=True, key="compare_bottom_line", gap="small"):
        st.markdown(f"**Bottom line** · {escape_markdown(bottom_line_words(line, where))}", help=SURE)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(escape_markdown(f"{settings_words(line)}{measured_words(outcome)}"), width="stretch")
            winner = next((each.contestant.method for each in prompts[0] if each.run is run), None)
            plan = outcome.plan
            if winner is not None and st.button(
                "Would other settings be faster?", key="compare_sweep", icon=":material/grid_on:", type="tertiary",
                disabled=not torch_there(),
                help=why_not("Opens a sweep of this method on these prompts, with this sampling and verifier, ready to "
                             "start"),
            ):  # fmt: skip
                fill(winner, plan.prompts, plan.sampling, plan.max_new_tokens)
            if run is not None:
                engine_button(run, "engine_of_best", lambda: best_chain(prompts, best))
    return line


def draw_prompts(prompts: Sequence[tuple[Score, ...]], outcome: ComparisonResult, fill: Fill) -> None:
    """The bottom line over several prompts, whether each kind needs a draft model, and the speed-ups of each prompt."""
    names = outcome.comparison.prompts
    _draw_bottom_line(prompts, f"for these {len(names)} prompts on this machine", outcome, fill)
    if said := needs_by_kind(prompts, [each.name for each in outcome.plan.prompts]):
        st.markdown("**Do you need a draft model?** · by kind of text", help=SURE)
        _draw_bullets(said)
    rows = []
    for name, scores in zip(names, prompts, strict=True):
        own, cells = decided([scores]), []
        for entry in scores:
            ratio = over_plain(entry) or entry.spread_of("throughput")
            shown = f"{ratio.median:.2f}{'×' if over_plain(entry) else ' tokens/s'}" if ratio else "–"
            first = own is not None and own.winner is not None and own.winner.label == entry.contestant.label
            cells.append(_bold(shown) if first else shown)
        rows.append((name, *cells))
    st.html(STYLE)
    title = "Speed-up by prompt"
    st.html(html_table((title, *_labels(prompts[0])), rows, "ruled compared", label=title))
    st.caption(
        "Medians of the ratios to plain decoding within each repeat. Bold: faster than all others on that prompt, as "
        "far as its repeats tell. Choose a prompt above for everything measured on it."
    )


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
        f"**Latency** · median and {'quartiles' if outcome.repeats > 3 else 'range'} over the repeats",
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
    st.markdown(f"**Acceptance by depth** · {DEPTH_SHARE}", help=MEDIAN_REPEAT)
    chart(acceptance_by_depth(runs, is_dark()), key="compare_depths", height=300)
