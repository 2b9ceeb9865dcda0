"""Compare: two to six methods on one prompt, interleaved, all outputs checked in the same way."""

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.formats import plural
from decoding.recorded import COMPARED_REPEATS, COMPARED_WARMUP, recorded_comparison, recorded_trees
from decoding.trace.metrics import COUNTINGS, Counting
from pages.ui.app.address import go_to
from pages.ui.app.setup import setup
from pages.ui.common.charts import counted_words, counting_switch
from pages.ui.common.downloads import download_button
from pages.ui.common.errors import escape_markdown, guarded, load_torch, need_torch
from pages.ui.common.state import keep_parameter, kept
from pages.ui.common.worker import is_busy, job_error, job_in, job_progress, so_far, start_job, take_result
from pages.ui.compare.plan import (
    KEPT,
    ComparisonPlan,
    ComparisonResult,
    draw_status,
    keep_comparison,
    note_costs,
    pause_words,
    plan_controls,
    recorded_result,
    run_comparison,
    so_far_words,
)
from pages.ui.widgets.contestants import COMPARE, chosen_contestants, contestant_bar
from pages.ui.widgets.controls import seed
from pages.ui.widgets.prompts import prompt_title

if TYPE_CHECKING:
    from decoding.compare.comparison import Score

SLOT = "compare"
ALL = "All prompts"


def main() -> None:
    """Toolbar, contestants, results."""
    setup("Compare")
    if not need_torch():
        return
    load_torch()
    outcome = take_result(SLOT)
    if outcome is not None and outcome.comparison.results:  # one cancelled before its first result replaces nothing
        keep_comparison(outcome)
        note_costs(outcome)
    partial: ComparisonResult | None = so_far(SLOT)
    if "comparison" not in st.session_state and (named := KEPT.get(st.query_params.get("comparison", ""))) is not None:
        st.session_state["comparison"] = named
        st.session_state[f"{SLOT}_repeats"], st.session_state[f"{SLOT}_warmup"] = named.plan.repeats, named.plan.warmup
        note_costs(named)
    outcome: ComparisonResult = (
        partial
        or st.session_state.get("comparison")
        or kept(
            ("recorded comparison",),
            lambda: recorded_result(recorded_comparison(), COMPARED_REPEATS, COMPARED_WARMUP, recorded_trees()),
        )
    )
    if not partial and outcome.key in KEPT:
        keep_parameter("comparison", outcome.key)
    with st.container(key="toolbar", horizontal=True, vertical_alignment="center", gap="small"):
        plan = plan_controls(
            SLOT,
            "Speeds and latencies are medians over the repeats.",
            "Sampled outputs differ by chance, so they are not compared token by token; their distribution is the "
            "target's, which the tests prove by enumeration.",
            several=True,
        )
        start = st.button(
            "Compare", type="primary", key="compare_start", disabled=is_busy(SLOT), icon=":material/play_arrow:"
        )
        status = st.container(key="status")
        files(None if partial else outcome)
    contestant_bar(COMPARE)
    contestants = begin(plan, start)
    said = ""  # how the settings have changed since the figures were measured
    if contestants is not None and not partial:
        from pages.ui.compare.results import changed_words

        said = changed_words(outcome, plan, contestants)
    # Somebody came with a method to measure, and what is there is only the recorded comparison.
    hidden = bool(said) and outcome.recorded and st.session_state.get("compare_asked", False)
    with status:
        if not job_progress(SLOT):
            draw_status(plan, contestants, "" if hidden else summary(outcome))
    job_error(SLOT)
    with st.container(key="compare_changed"):  # always there, or the charts below would be remounted
        if contestants is not None and not partial:
            job = job_in(SLOT)
            if job is not None and job.state == "cancelled" and outcome.recorded:
                st.info("Cancelled before anything was measured: press Compare to start again.", icon=":material/info:")
            elif hidden:
                then = "After the first repeat" if is_busy(SLOT) else "Press Compare:"
                st.info(f"{then} the answer for this prompt and these methods comes here.", icon=":material/info:")
            elif said:
                then = "Those of the new comparison come after its first repeat." if is_busy(SLOT) else "Press Compare."
                st.warning(escape_markdown(f"{said} {then}"), icon=":material/history:")
    if partial:
        st.caption(escape_markdown(so_far_words(partial)))
    if not hidden:
        results(outcome)
    job = job_in(SLOT)
    if job is not None:
        job.drawn()  # the next repeat is not measured before


def begin(plan: ComparisonPlan, start: bool) -> tuple | None:
    """Say what prevents a comparison; start it when requested. Returns the contestants, None if there is an error."""
    contestants = None
    with guarded():
        contestants = tuple(chosen_contestants(COMPARE))
    if start and contestants is not None:
        start_job(SLOT, "Comparing", lambda job: run_comparison(job, plan, contestants), 0.2, ("comparison",))
        st.rerun()
    return contestants


def files(outcome: ComparisonResult) -> None:
    """Downloads and the command that repeats the comparison."""
    from pages.ui.compare.outputs import as_csv, as_json, command

    with st.popover("Export", key="compare_files", icon=":material/download:", on_change="rerun") as place:
        if not place.open:
            return
        for label, text, name, mime, key in (
            ("CSV, one row per call", as_csv(outcome), "comparison.csv", "text/csv", "compare_csv"),
            ("JSON, everything", as_json(outcome), "comparison.json", "application/json", "compare_json"),
        ):
            download_button(label, text, name, mime, key, icon=None, width="stretch")
        st.markdown("**Copy as command**")
        st.code(command(outcome), language=None, wrap_lines=True)


def results(outcome: ComparisonResult) -> None:
    """Figures of a comparison in five views, of one of its prompts or over all."""
    from decoding.compare.comparison import score
    from pages.ui.compare.outputs import draw_outputs, draw_trees
    from pages.ui.compare.results import draw_acceptance, draw_overview, draw_prompts, draw_time
    from pages.ui.sweep.filled import open_filled

    draw = {
        "Overview": partial(draw_overview, go_to=go_to, fill=open_filled),
        "Time": draw_time,
        "Acceptance": draw_acceptance,
        "Outputs": draw_outputs,
        "Trees": draw_trees,
    }
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        chosen = ALL
        if outcome.parts:
            names = [ALL, *outcome.comparison.prompts]
            if st.session_state.get("compare_prompt") not in names:
                st.session_state["compare_prompt"] = ALL
            chosen = st.selectbox(
                "Prompt", names, key="compare_prompt", label_visibility="collapsed", width=230, persist_state="session"
            )
        whole = bool(outcome.parts) and chosen == ALL
        view = ""
        if not whole:
            seed("compare_view", "Overview")
            view = st.segmented_control(
                "View", list(draw), key="compare_view", label_visibility="collapsed", required=True,
                persist_state="session",
            )  # fmt: skip
        counting = counting_switch("compare_counted", "loop_free", disabled=view in ("Outputs", "Trees"))
        said = st.empty()
    loop_free = counting == "loop_free"
    if whole:
        of_prompts = [score(part.comparison, loop_free) for part in outcome.parts]
        said.caption(escape_markdown(tokens_words([each for scores in of_prompts for each in scores], counting)))
        draw_prompts(of_prompts, outcome, open_filled)
        return
    if outcome.parts:
        outcome = outcome.parts[outcome.comparison.prompts.index(chosen)]
    if view == "Trees" and is_busy(SLOT):
        st.info("Trees can be drafted once the comparison has ended.", icon=":material/hourglass_top:")
        return
    scores = score(outcome.comparison, loop_free)
    said.caption(escape_markdown(tokens_words(scores, counting)))
    draw[view](scores, outcome)


def tokens_words(scores: "Sequence[Score]", counting: Counting) -> str:
    """How many tokens stand behind the figures of a call; they differ between methods that draw."""
    measured = [entry for entry in scores if entry.measured]
    if not measured:
        return "No call has tokens of this kind."
    counts = sorted(entry.typical.new_tokens for entry in measured)
    if counts[0] < counts[-1]:
        return f"{counts[0]} to {counts[-1]} tokens counted per run: {COUNTINGS[counting]}"
    return counted_words(counts[0], fmean(entry.new_tokens for entry in measured), counting)


def summary(outcome: ComparisonResult) -> str:
    """What was compared, and how many tokens are in loops."""
    plan, comparison = outcome.plan, outcome.comparison
    result = next((r for r in comparison.of(comparison.reference) if not r.failure), comparison.results[0])
    total = len(result.output_ids)
    looping = total - result.loop_free_tokens
    loops = f"{looping} of {plural(total, 'token')} in loops" if looping else f"{plural(total, 'token')}, none in loops"
    done = "cancelled early" if outcome.cancelled else plural(outcome.repeats, "repeat")
    paused = f" · {pause_words(outcome)}" if outcome.pauses else ""
    named = plural(len(plan.prompts), "prompt") if plan.more else prompt_title(plan.prompt)
    where = "Recorded elsewhere · " if outcome.recorded else ""
    return f"{where}{named} · {done} · {loops}{paused}"


main()
