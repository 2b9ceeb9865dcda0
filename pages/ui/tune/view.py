"""How Tune live looks: two trees, what changed between them, the points tried, a whole generation."""

import html
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import streamlit as st

from decoding.trace.records import IterationTrace
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown
from pages.ui.common.worker import is_busy, job_error, job_in, job_progress, start_job
from pages.ui.scope.component import lone_tree
from pages.ui.tune.work import DRAFT_SLOT, MEASURE_SLOT, WHOLE_SLOT, Bench, label_of
from viz.branches.diff import Change, TreeDiff, compare_trees, what_changed
from viz.charts.methods import tuning_figure
from viz.explain.iteration import why_final, why_verdict
from viz.formats import difference, duration, relative_change
from viz.scope.phases import FINAL_ID
from viz.theme import MARKS
from viz.tokens import visible

if TYPE_CHECKING:
    from decoding.methods.method import Method

PREFIX_CHARACTERS = 64
GREEDY = "Greedy output never depends on these settings."
LAST = "The last settings that fit"
TIMED = "After every change both trees are timed again, in turn, so the pinned one's time moves a little too."
HERE = "Tokens that this one iteration commits, over its time; a whole generation averages over good and bad places."
ABOUT = {"s": TIMED, "1/s": HERE}
TREE_HEIGHT, CHART_HEIGHT = 380, 205
# Streamlit knows no heights but pixels: settings and trees fill the window, within reason.
STYLE = """
<style>
[data-testid=stLayoutWrapper]:has(> .st-key-tune_settings) {
  height: clamp(560px, calc(100vh - 7.2rem), 1040px) !important;
}
.st-key-tune_settings { height: 100% !important; max-height: none !important; gap: 0.2rem; padding: 0.6rem 0.8rem; }
.st-key-toolbar [data-testid=stSelectbox] [role=group] { min-height: 2.1rem; height: 2.1rem; }
.st-key-tune_trees [class*=st-key-tune_tree_], .st-key-tune_trees [class*=stBidiComponent] {
  flex: none !important; height: clamp(320px, calc(100vh - 28.4rem), 640px) !important;
}
.st-key-tune_settings [data-testid=stSliderTickBar] { display: none; }
.st-key-tune_settings [data-testid=stCaptionContainer] p { font-size: 0.76rem; line-height: 1.25; }
.st-key-tune_whole { gap: 0.5rem; padding-top: 0.3rem; }
.st-key-tune_whole [data-testid=stCaptionContainer] p { font-size: 0.8rem; line-height: 1.35; }
[class*=st-key-default_] {
  gap: 0.4rem !important; margin: -0.5rem 0 0.3rem; flex-wrap: nowrap !important;
  align-items: flex-start !important;
}
[class*=st-key-default_] > :first-child { flex: 1 1 0 !important; min-width: 0; }
[class*=st-key-default_] > :last-child { flex: none; }
[class*=st-key-default_switch_] { margin-top: -0.15rem; }
[class*=st-key-default_text_] { margin-top: 0.25rem; }
[class*=st-key-default_] p { font-size: 0.76rem; line-height: 1.25; }
[class*=st-key-default_] button { min-height: 1rem; height: 1rem; padding: 0 0.1rem; white-space: nowrap; }
[class*=st-key-default_] [data-testid=stButton] { display: flex; height: 1rem; margin-top: -0.2rem; }
[class*=st-key-default_] button:disabled { color: inherit !important; opacity: 0.7; }
.st-key-tune_prefix button { max-width: 13.5rem; }
.st-key-tune_told { min-height: 7.15rem; justify-content: center; }
.tune-told { display: grid; grid-template-columns: repeat(8, auto); justify-content: space-between; }
.tune-told > div { padding: 0 0.6rem; border-left: 1px solid var(--st-border-color); }
.tune-told > div:first-child { border-left: none; padding-left: 0.1rem; }
.tune-told .name { font-size: 0.74rem; opacity: 0.75; white-space: nowrap; }
.tune-told .value { font-size: 1.02rem; font-weight: 600; white-space: nowrap; }
.tune-told .value small { font-weight: 400; opacity: 0.7; font-size: 0.8rem; }
.tune-told .delta { font-size: 0.76rem; white-space: nowrap; }
.tune-line { font-size: 0.85rem; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; padding: 0.1rem; }
.tune-line .said { opacity: 0.65; }
.tune-line b { border-bottom: 2.5px solid; white-space: pre; }
.tune-line .tail { white-space: pre; }
</style>
"""


def draw_trees(bench: Bench, fits: bool = True) -> None:
    """The pinned tree and the present one, side by side; nodes that only one of them has are framed.

    Args:
        fits: the settings do not contradict one another; otherwise the tree of the last ones that fit is said to be it.
    """
    if bench.shown is None:
        st.caption("The trees appear here once the models are loaded and the prefix is decoded.")
        return
    pinned, now = bench.shown
    marks = compare_trees(pinned.iteration, now.iteration).marks("the pinned tree", "this tree")
    sides = (
        (pinned, "Pinned", "tune_tree_pinned", marks[0]),
        (now, "Now" if fits else LAST, "tune_tree_now", marks[1]),
    )
    for place, (trial, word, key, framed) in zip(st.columns(2, gap="small"), sides, strict=True):
        with place:
            scene, title = f"tune:{id(bench)}:{trial.number}", f"{word} · {label_of(trial.method)}"
            choose = partial(_choose, trial.number)
            lone_tree(trial.iteration, key, TREE_HEIGHT, scene, title=title, marks=framed, on_select=choose)


def _choose(number: int, node: int) -> None:
    st.session_state["tune_node"] = number, node


def draw_told(bench: Bench) -> None:
    """What changed between the two trees, how long both took, and what they add to the text."""
    pinned, now = (trial.iteration for trial in bench.shown)
    times = bench.measured.get(tuple(trial.number for trial in bench.shown))
    if times is None:
        st.html(told_html(what_changed(pinned, now)))
        draw_waiting((MEASURE_SLOT,))
        return
    medians = [median(seconds) for seconds in times]
    told = told_html(what_changed(pinned, now, *medians), len(times[0]))
    st.html(told + text_html(bench.tail(), pinned, now, _why(bench)))


def _why(bench: Bench) -> str:
    """The sentence on the node clicked last, empty if it stands in neither tree."""
    number, node = st.session_state.get("tune_node", (None, None))
    for trial, word in zip(bench.shown, ("Pinned", "Now"), strict=True):
        if trial.number == number and node == FINAL_ID:
            return f"{word}, final token: {why_final(trial.iteration)}"
        if trial.number == number and node < len(trial.iteration.nodes):
            return f"{word}, node {node}: {why_verdict(trial.iteration, node)}"
    return ""


def draw_waiting(slots: Sequence[str] = (DRAFT_SLOT,)) -> None:
    """In place of figures: the work in progress, what went wrong, or why nothing is drawn."""
    for slot in slots:
        if job_progress(slot):
            return
        job = job_in(slot)
        if job is not None and job.error is not None:
            job_error(slot)
            return
    if is_busy(WHOLE_SLOT):
        st.caption("Trees and times follow when the whole generation has ended.")
    else:
        st.caption("Cancelled: change a setting and it is drafted again.")


def draw_chart(bench: Bench) -> None:
    """A point for every setting tried on this prefix and every whole generation of this text."""
    points = [*bench.iteration_points.values(), *bench.whole_points]
    labels = [label_of(trial.method) for trial in bench.shown] if bench.shown else ["", ""]
    figure = tuning_figure(points, current=labels[1], pinned=labels[0], dark=is_dark())
    chart(figure, key="tune_chart", height=CHART_HEIGHT)


def contradiction_html() -> str:
    """What the trees show while the settings contradict one another."""
    return f'<div class="tune-line">The right tree is still that of the {LAST.removeprefix("The ")}.</div>'


def draw_whole(bench: Bench, method: "Method | None") -> None:
    """A whole generation with the present settings: its length, its button, its progress, its figures."""
    st.caption("A whole generation from the prompt with these settings, new tokens at most:")
    left, right = st.columns([1, 1.2], gap="small")
    limit = left.number_input(
        "New tokens at most", 1, 4096, 96, 16, key="tune_tokens", label_visibility="collapsed", persist_state="session"
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
        st.caption("Cancelled: a cut generation leaves no point.")
    else:
        st.caption(escape_markdown(bench.whole_words or "It leaves a point that stays when the prefix moves."))


def told_html(changes: Sequence[Change], repeats: int = 0) -> str:
    """What changed, one cell per measure: pinned → now, and by how much."""
    cells = []
    for change in changes:
        first, second, delta = f"{change.first:,.0f}", f"{change.second:,.0f}", difference(change.difference)
        words = change.words
        if change.unit == "s":
            first, second = duration(change.first), duration(change.second)
            words = f"{words}, both timed again · median of {repeats}"
        if change.unit:
            delta = relative_change(change.first, change.second)
        cells.append(_cell(words, first, second, delta, ABOUT.get(change.unit, "")))
    return f'<div class="tune-told">{"".join(cells)}</div>'


def _cell(name: str, first: str, second: str, delta: str, about: str = "") -> str:
    value = f"{second}" if first == second else f"<small>{first} →</small> {second}"
    hint = f' title="{html.escape(about, quote=True)}"' if about else ""
    return (
        f'<div{hint}><div class="name">{html.escape(name)}</div><div class="value">{value}</div>'
        f'<div class="delta">{html.escape(delta)}</div></div>'
    )


def text_html(tail: str, pinned: IterationTrace, now: IterationTrace, why: str = "") -> str:
    """The end of the prefix and what both iterations commit after it; the text is data and is escaped.

    Args:
        why: sentence on a node that was clicked, in place of the comparison of the trees.
    """
    shown = "".join(visible(character) if character != " " else " " for character in tail)
    if len(shown) > PREFIX_CHARACTERS:
        shown = "…" + shown[-PREFIX_CHARACTERS:]
    said = '<span class="said">'
    return (
        f'<div class="tune-line">{said}Prefix</span> <span class="tail">{html.escape(shown)}</span>▏'
        f"{said}pinned adds</span> {_tokens(pinned)} {said}· now adds</span> {_tokens(now)}</div>"
        f'<div class="tune-line">{html.escape(why or _compared(pinned, now))}</div>'
    )


def _compared(pinned: IterationTrace, now: IterationTrace) -> str:
    """Both trees in words."""
    if pinned is now:
        return "Pinned and present setting are one: move a slider and the right tree is drafted anew. " + GREEDY
    diff = compare_trees(pinned, now)
    if not diff.same_text:
        return f"{_nodes(diff)} The texts differ: Compare shows by what margin."
    return f"{_nodes(diff)} Same text, different work: greedy output never depends on these settings."


def _nodes(diff: TreeDiff) -> str:
    if not diff.only_first and not diff.only_second:
        return f"The same {len(diff.both)} nodes in both."
    return (
        f"{len(diff.both)} nodes in both trees, {len(diff.only_first)} only in the pinned one, "
        f"{len(diff.only_second)} only in this one (framed)."
    )


def _tokens(iteration: IterationTrace) -> str:
    """Committed tokens, underlined in the colour of where they come from."""
    parts = []
    for place, text in enumerate(iteration.committed_texts):
        kind = "accepted" if place < len(iteration.accepted) else iteration.final_kind
        color = MARKS[kind].color if kind in MARKS else "currentColor"
        parts.append(f'<b style="border-color:{color}" title="{kind}">{html.escape(visible(text))}</b>')
    return "&#8203;".join(parts)
