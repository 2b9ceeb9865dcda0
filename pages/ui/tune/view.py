"""The view of Tune live: two trees, their differences, the points tried, gains by batch size, a whole generation."""

import html
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

import streamlit as st

import decoding
from decoding.analysis.batch import iterations_speedup
from decoding.common.formats import difference, duration, plural, relative_change
from decoding.trace.records import IterationTrace
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown
from pages.ui.common.models import manager
from pages.ui.common.worker import is_busy, job_error, job_in, job_progress, start_job
from pages.ui.scope.component import lone_tree
from pages.ui.tune.work import DRAFT_SLOT, MEASURE_SLOT, WHOLE_SLOT, Bench, Trial
from pages.ui.widgets.costs import (
    ASK,
    busy_words,
    draw_disturbed_batches,
    draw_warning,
    measure_batches_button,
    measured_on,
    slow_words,
)
from viz.branches.diff import MeasureChange, TreeDiff, compare_trees, what_changed
from viz.charts.engines import speedup_by_batch_figure
from viz.charts.methods import tuning_figure
from viz.explain.iteration import why_final, why_verdict
from viz.scope.panels import iteration_spans, tokens_html
from viz.scope.phases import FINAL_ID
from viz.tokens import visible

if TYPE_CHECKING:
    from decoding.methods.method import Method

PREFIX_CHARACTERS = 64
OWN = "The pinned tree is the run's own. "
NOT_OWN = "The pinned tree is not the run's: it is drafted anew here. "
NONE_HERE = "No iteration of the run began here: both trees are drafted anew. "
SAMPLED = "Both trees are drawn with the same random numbers."
TIMED = "After every change both trees are timed again, in turn, so the pinned tree's time changes a little too."
HERE = "Tokens committed by this one iteration / its time; a whole generation averages over good and bad places."
ABOUT = {"s": TIMED, "1/s": HERE}
NOTHING_CHANGED = (
    "Nothing changed here: both settings draft and verify the same tree, so both have one time. At another prefix they "
    "may differ."
)
TREE_HEIGHT, CHART_HEIGHT = 380, 178
TRIED, BY_BATCH = "Settings tried", "By batch size"
STYLE = Path(__file__).with_suffix(".css")


def draw_trees(bench: Bench, fits: bool) -> None:
    """The pinned and the current tree side by side; nodes that only one of them has are framed.

    Where the settings contradict one another (not `fits`), the title says that the tree has the last valid settings.
    """
    if bench.shown is None:
        st.caption("The trees appear once the models are loaded and the prefix is decoded.")
        return
    pinned, now = bench.shown
    marks = compare_trees(pinned.iteration, now.iteration).marks("the pinned tree", "this tree")
    sides = (
        (pinned, "Pinned", "tune_tree_pinned", marks[0]),
        (now, "Now" if fits else "Last valid settings", "tune_tree_now", marks[1]),
    )
    for place, (trial, word, key, framed) in zip(st.columns(2, gap="small"), sides, strict=True):
        with place:
            word += ", the run's own" if trial is pinned and bench.own_pinned else ""
            scene, title = f"tune:{id(bench)}:{trial.number}", f"{word} · {decoding.method_label(trial.method)}"

            def choose(node: int, number: int = trial.number) -> None:
                st.session_state["tune_node"] = number, node

            lone_tree(trial.iteration, key, TREE_HEIGHT, scene, title=title, marks=framed, on_select=choose)


def draw_chart(bench: Bench) -> None:
    """A point per setting tried on this prefix and per whole generation of this text; or both trees by batch size."""
    with st.container(key="tune_view_bar", horizontal=True, vertical_alignment="center"):
        view = st.segmented_control(
            "Chart", [TRIED, BY_BATCH], key="tune_view", required=True, default=TRIED, persist_state="session",
            label_visibility="collapsed",
        )  # fmt: skip
        batch = pick_batch(bench) if view == BY_BATCH else None
    if view == BY_BATCH:
        draw_batches(bench, batch)
        return
    points = [*bench.iteration_points.values(), *bench.whole_points]
    pinned, now = [decoding.method_label(trial.method) for trial in bench.shown or ()] or ["", ""]
    chart(tuning_figure(points, current=now, pinned=pinned, dark=is_dark()), key="tune_chart", height=CHART_HEIGHT)


def pick_batch(bench: Bench) -> int | None:
    """The batch size looked at, None where batches are not measured."""
    if bench.shown is None or _missing(bench):
        return None
    sizes = list(manager().batch_costs[bench.shown[1].method.draft_head])
    return st.select_slider(
        "Batch size", sizes, key="tune_batch", persist_state="session", width=200,
        format_func=lambda size: f"batch of {size}", label_visibility="collapsed",
    )  # fmt: skip


def draw_batches(bench: Bench, batch: int | None) -> None:
    """What both trees gain over plain decoding by batch size; a button where batches are not measured.

    Seconds are modelled from measured passes over batches, tokens are those that both iterations committed here.
    """
    if bench.shown is None:
        return
    if batch is None:
        st.caption(ASK)
        measure_batches_button(_missing(bench))
        return
    figure = speedup_by_batch_figure(_series(bench, batch), (), "modelled", dark=is_dark())
    figure.update_yaxes(title_text="× plain")
    chart(figure, key="tune_batches", height=CHART_HEIGHT)
    head = bench.shown[1].method.draft_head
    measured = manager().batch_costs[head]
    draw_disturbed_batches(measured, head)
    costs = measured[batch]
    said = f"Modelled from {measured_on(costs)}, for the tokens of this one iteration. Plain decoding of "
    said += f"{plural(batch, 'sequence')} at once: {batch / costs.plain_iteration_s:,.0f} tokens/s in all."
    st.caption(escape_markdown(said))


def _series(bench: Bench, batch: int) -> dict[str, list[tuple[int, float, str]]]:
    """Batch size, speed-up and its words of both trees, which are named with what they gain at one."""
    found = {}
    for word, trial in zip(("pinned", "now"), bench.shown, strict=True):
        costs, nodes = manager().batch_costs[trial.method.draft_head], plural(trial.iteration.verified, "node")
        gains = ((size, iterations_speedup([trial.iteration], each)) for size, each in costs.items())
        points = [(size, gain, f"{nodes} verified in each sequence") for size, gain in gains if gain is not None]
        found[f"{word}{''.join(f' {gain:.2f}×' for size, gain, _ in points if size == batch)}"] = points
    return found


def _missing(bench: Bench) -> list[str]:
    """Draft heads ("" for none) of the two trees whose batches are not measured."""
    return sorted({trial.method.draft_head for trial in bench.shown} - manager().batch_costs.keys())


def draw_changes(bench: Bench) -> None:
    """The differences between the two trees, both times, and the tokens they add to the text."""
    pinned, now = (trial.iteration for trial in bench.shown)
    times = bench.measured.get(tuple(trial.number for trial in bench.shown))
    if times is None:
        st.html(changes_html(what_changed(pinned, now)))
        draw_waiting(MEASURE_SLOT)
        return
    medians = [median(seconds) for seconds in times]
    alike = bench.shown[0].worked_like(bench.shown[1])
    changes = changes_html(what_changed(pinned, now, *medians), len(times[0]), alike, not alike and overlap(*times))
    st.html(changes + text_html(bench.tail(), pinned, now, _why(bench), alike, run_words(bench)))


def run_words(bench: Bench) -> str:
    """Whether the pinned tree is that of the run whose text this is; empty if the text is a prompt's."""
    if bench.text.key[0] != "run":
        return ""
    return NONE_HERE if bench.made_here is None else OWN if bench.own_pinned else NOT_OWN


def draw_disturbance(bench: Bench) -> None:
    """The warning where other work disturbed the times on screen, once they are measured."""
    if bench.shown is not None and tuple(trial.number for trial in bench.shown) in bench.measured:
        for said in disturbance_words(bench.shown):
            draw_warning(said, "tune")


def disturbance_words(shown: tuple[Trial, Trial]) -> list[str]:
    """The warning where other work disturbed the repeats: their quartiles lie apart, or their passes took too long."""
    timed = [quantiles(trial.seconds, n=4, method="inclusive") for trial in shown if len(trial.seconds) > 1]
    spread = max((high / low for low, _, high in timed if low > 0), default=1.0)
    slow = slow_words([each for trial in dict.fromkeys(shown) for each in trial.repeats], manager().costs)
    return [said] if (said := slow or busy_words(spread)) else []


def _why(bench: Bench) -> str:
    """The sentence on the node clicked last, empty if neither tree has it."""
    number, node = st.session_state.get("tune_node", (None, None))
    for trial, word in zip(bench.shown, ("Pinned", "Now"), strict=True):
        if trial.number == number and node == FINAL_ID:
            return f"{word}, final token: {why_final(trial.iteration)}"
        if trial.number == number and node < len(trial.iteration.nodes):
            return f"{word}, node {node}: {why_verdict(trial.iteration, node)}"
    return ""


def draw_waiting(slot: str = DRAFT_SLOT) -> None:
    """In place of figures: the work in progress, the error, or why nothing is drawn."""
    if job_progress(slot):
        return
    job = job_in(slot)
    if job is not None and job.error is not None:
        job_error(slot)
    elif is_busy(WHOLE_SLOT):
        st.caption("Trees and times follow once the whole generation has ended.")
    else:
        st.caption("Cancelled: change a setting to draft again.")


def draw_whole(bench: Bench, method: "Method | None") -> None:
    """A whole generation with the current settings: its length, button, progress and figures."""
    st.caption("Whole generation from the prompt with these settings, maximum new tokens:")
    left, right = st.columns([1, 1.2], gap="small")
    limit = left.number_input(
        "Maximum new tokens", 1, 4096, 96, 16, key="tune_tokens", label_visibility="collapsed", persist_state="session"
    )
    ready = method is not None and bench.text is not None and not is_busy(WHOLE_SLOT)
    if right.button("Run it", key="tune_whole_run", disabled=not ready, width="stretch", icon=":material/play_arrow:"):
        start_job(WHOLE_SLOT, "Whole generation", partial(bench.generate, method, int(limit)), 0.1, ("tune_bench",))
        st.rerun()
    if job_progress(WHOLE_SLOT):
        return
    job = job_in(WHOLE_SLOT)
    if job is not None and job.error is not None:
        job_error(WHOLE_SLOT)
    elif job is not None and job.state == "cancelled":
        st.caption("Cancelled: an incomplete generation adds no point.")
    else:
        st.caption(escape_markdown(bench.whole_words or "It adds a point that stays when the prefix changes."))


def overlap(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether the middle halves of two sets of repeats overlap, so that their medians may differ by chance."""
    if min(len(first), len(second)) < 2:
        return True
    (low, _, high), (other_low, _, other_high) = (quantiles(each, n=4, method="inclusive") for each in (first, second))
    return low <= other_high and other_low <= high


def changes_html(changes: Sequence[MeasureChange], repeats: int = 0, alike: bool = False, noise: bool = False) -> str:
    """The changes, one cell per measure: pinned → now, and the difference.

    Args:
        alike: both did the same work, so that the `repeats` are of both. noise: their times overlap.
    """
    cells = []
    for change in changes:
        first, second, delta = f"{change.first:,.0f}", f"{change.second:,.0f}", difference(change.difference)
        words = change.words
        if change.unit == "s":
            first, second = duration(change.first), duration(change.second)
            words = f"{words}, {'same work' if alike else 'both re-timed'} · median of {repeats}"
        if change.unit:
            delta = relative_change(change.first, change.second)
            delta += ", may be noise" if noise else ""
        value = second if first == second else f"<small>{first} →</small> {second}"
        about = html.escape(ABOUT.get(change.unit, ""), quote=True)
        hint = f' title="{about}"' if about else ""
        cells.append(
            f'<div{hint}><div class="name">{html.escape(words)}</div><div class="value">{value}</div>'
            f'<div class="delta">{html.escape(delta)}</div></div>'
        )
    return f'<div class="tune-changes">{"".join(cells)}</div>'


def text_html(
    tail: str, pinned: IterationTrace, now: IterationTrace, why: str = "", alike: bool = False, run: str = ""
) -> str:
    """The end of the prefix and the tokens both iterations commit after it; the text is data and is escaped.

    Below it is `why`, the sentence on a clicked node, or else a comparison of the trees; `alike` is as above; `run`
    says whether the pinned tree is that of a run.
    """
    greedy = now.sampling is None or now.sampling.temperature == 0
    if not why and pinned is now:
        why = f"{run}Pinned and current settings are the same: move a slider to redraft the right tree. "
        why += "Greedy output never depends on these settings." if greedy else SAMPLED
    elif not why:
        diff = compare_trees(pinned, now)
        work = "Same text as far as both go, different work: greedy output never depends on these settings."
        other = "The texts differ: Compare shows by what margin."
        if not greedy:
            work = "Same text as far as both go, with the same random numbers."
            other = "Other text, though the random numbers are the same."
        why = f"{nodes_words(diff, pinned.verified, now.verified)} {work if diff.same_text else other}"
        why = run + (NOTHING_CHANGED if alike else why)
    shown = "".join(visible(character) if character != " " else " " for character in tail)
    if len(shown) > PREFIX_CHARACTERS:
        shown = "…" + shown[-PREFIX_CHARACTERS:]
    said, adds = '<span class="said">', [tokens_html(iteration_spans(each)) for each in (pinned, now)]
    return (
        f'<div class="tune-line">{said}Prefix</span> <span class="tail">{html.escape(shown)}</span>▏'
        f"{said}pinned adds</span> {adds[0]} {said}· now adds</span> {adds[1]}</div>"
        f'<div class="tune-line">{html.escape(why)}</div>'
    )


def nodes_words(diff: TreeDiff, pinned: int, now: int) -> str:
    """Which nodes both trees have.

    Args:
        pinned, now: how many of them are verified.
    """
    if not diff.only_first and not diff.only_second:
        same = f"Both trees have the same {len(diff.both)} nodes"
        if pinned != now:
            return f"{same}; {pinned} are verified in the pinned one, {now} in this one."
        return f"{same}."
    return (
        f"{plural(len(diff.both), 'node')} in both trees, {len(diff.only_first)} only in the pinned one, "
        f"{len(diff.only_second)} only in this one (framed)."
    )
