"""Race: two to four methods replay their recorded times side by side, slowed down enough to watch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.common.formats import listed
from pages.ui.app.setup import setup
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, need_torch, show_error, torch_there
from pages.ui.common.worker import is_busy, job_error, job_in, job_progress, so_far, start_job, take_result
from pages.ui.compare.plan import (
    ComparisonPlan,
    ComparisonResult,
    draw_status,
    note_costs,
    plan_controls,
    run_comparison,
    so_far_words,
)
from pages.ui.race import Race, race_of, recorded_race, runs_menu
from pages.ui.race import race as race_component
from pages.ui.widgets.contestants import RACE, chosen_contestants, contestant_bar
from viz.charts.run import DEPTH_SHARE, acceptance_by_depth
from viz.race.data import race_data

if TYPE_CHECKING:
    from decoding.compare.contestants import Contestant
    from decoding.trace.records import RunTrace

SLOT, ASKED = "race", "race_asked"


def main() -> None:
    """Toolbar, methods, the race."""
    setup("Race")
    trouble = take_race()
    race = st.session_state.get("race") or recorded_race()
    toolbar = st.container(key="toolbar", horizontal=True, vertical_alignment="center", gap="small")
    methods, messages = st.container(key="race_methods"), st.container(key="messages")
    # The race is drawn first: the method picker loads torch, which takes seconds on the first visit.
    race_component(race_data(race.lanes, race.key, race.explained, race.where, hold=is_busy(SLOT)))
    st.caption(escape_markdown(race.about))
    draw_depths(race.runs)
    if not torch_there():
        with messages:
            need_torch()
        return
    with toolbar:
        plan = plan_controls(
            SLOT,
            "The median repeat of each method is replayed.",
            "Sampled texts differ by chance: each method draws its own random numbers.",
            bind_prompt=False,
        )
        start = st.button(
            "Record a race", type="primary", key="race_start", disabled=is_busy(SLOT), icon=":material/flag:"
        )
        status = st.container(key="status")
        runs_menu()
    with methods:
        contestant_bar(RACE)
    with messages:
        contestants = begin(plan, start, race)
        if partial := so_far(SLOT):
            st.caption(escape_markdown(so_far_words(partial)))
            job_in(SLOT).drawn()
        job_error(SLOT)
        if trouble is not None:
            show_error(trouble)
        for sentence in race.missing:
            st.warning(escape_markdown(sentence), icon=":material/info:")
    with status:
        if not job_progress(SLOT):
            draw_status(plan, contestants, race.title)


def draw_depths(runs: "Sequence[RunTrace]") -> None:
    """Acceptance by depth of the lanes that draft and have recorded nodes."""
    if drafting := [run for run in runs if any(each.drafted for each in run.iterations)]:
        st.markdown(f"**Acceptance by depth** · {DEPTH_SHARE}")
        chart(acceptance_by_depth(drafting, is_dark()), key="race_depths", height=300)


def asked_for(plan: ComparisonPlan, contestants: "Sequence[Contestant]") -> tuple:
    """What decides which race is recorded."""
    from decoding.compare.contestants import format_contestant

    return plan.prompts, plan.max_new_tokens, plan.sampling, tuple(map(format_contestant, contestants))


def begin(plan: ComparisonPlan, start: bool, race: Race) -> "list[Contestant] | None":
    """Say what prevents a race, and what is not recorded yet; record one when requested.

    Returns the contestants, None if there is an error.
    """
    try:
        contestants = chosen_contestants(RACE)
    except DraftscopeError as error:
        show_error(error)
        return None
    asked = race.key, asked_for(plan, contestants)
    if not is_busy(SLOT) and asked != st.session_state.get(ASKED):
        lanes = listed([lane.label for lane in race.lanes])
        said = f"On screen: {lanes}, {race.title}. The choices above are not recorded yet: press Record a race."
        st.caption(f":material/pending: {escape_markdown(said)}")
    if start:
        start_job(SLOT, "Recording", lambda job: run_comparison(job, plan, contestants), 0.0, ("race",))
        st.rerun()
    return contestants


def take_race() -> DraftscopeError | None:
    """Put a finished recording on screen; returns the error that prevented it, if any."""
    outcome: ComparisonResult | None = take_result(SLOT)
    if outcome is None:
        return None
    job = job_in(SLOT)
    if job is not None and job.state == "cancelled" and not outcome.comparison.results:
        return None
    try:
        made: Race = race_of(outcome)
    except DraftscopeError as error:
        return error
    st.session_state["race"] = made
    st.session_state[ASKED] = made.key, asked_for(outcome.plan, outcome.comparison.contestants)
    note_costs(outcome)
    return None


main()
