"""Race: two to four methods replay their recorded times side by side, slowed down so that one can watch."""

import streamlit as st

from decoding.errors import DraftscopeError
from pages.ui.compare import MOST_REPEATS, MOST_WARMUP, Outcome, Plan, run_comparison
from pages.ui.controls import length_control, picked_prompt_words, prompt_picker
from pages.ui.errors import escape_markdown, show_error
from pages.ui.race import Race, race_of, recorded_race
from pages.ui.race_component import race as race_component
from pages.ui.race_contestants import race_bar, racers
from pages.ui.race_runs import runs_menu
from pages.ui.setting_widgets import DEFAULT_NEW_TOKENS, picked_sampling, sampling_controls, sampling_words, seed
from pages.ui.setup import setup
from pages.ui.torch_there import need_torch, torch_there
from pages.ui.worker import is_busy, job_error, job_in, job_progress, start_job, take_result
from viz.race_data import race_data
from viz.tokens import plural

SLOT = "race"


def main() -> None:
    """Toolbar, methods, the race."""
    setup("Race")
    trouble = take_race()
    race = st.session_state.get("race") or recorded_race()
    toolbar = st.container(key="toolbar", horizontal=True, vertical_alignment="center", gap="small")
    methods, messages = st.container(key="race_methods"), st.container(key="messages")
    # The race is drawn first: what chooses methods loads torch, which takes seconds on the first visit.
    if race is not None:
        race_component(race_data(race.lanes, race.key, race.explained, hold=is_busy(SLOT)))
        st.caption(escape_markdown(race.about))
    elif not is_busy(SLOT):
        st.info(
            "Choose two to four methods and press Record a race: each runs alone, then all replay side by side.",
            icon=":material/flag:",
        )
    if not torch_there():
        with messages:
            need_torch()
        return
    with toolbar:
        plan = choices()
        start = st.button(
            "Record a race", type="primary", key="race_start", disabled=is_busy(SLOT), icon=":material/flag:"
        )
        with st.container(key="status"):
            if not job_progress(SLOT) and race is not None:
                st.caption(escape_markdown(race.title))
        runs_menu()
    with methods:
        race_bar()
    with messages:
        begin(plan, start)
        job_error(SLOT)
        if trouble is not None:
            show_error(trouble)
        for sentence in race.missing if race is not None else ():
            st.warning(escape_markdown(sentence), icon=":material/info:")


def choices() -> Plan:
    """Prompt, length and repeats, sampling, in popovers that say what is chosen."""
    with st.popover(escape_markdown(picked_prompt_words()), key="race_prompt_open", icon=":material/edit_note:"):
        prompt = prompt_picker("prompt", bind=False)
    seed("race_repeats", 3)
    seed("race_warmup", 1)
    tokens = st.session_state.get("max_new_tokens", DEFAULT_NEW_TOKENS)
    words = f"{tokens} tokens × {plural(st.session_state['race_repeats'], 'repeat')}"
    with st.popover(words, key="race_plan_open", icon=":material/repeat:"):
        tokens = length_control()
        repeats = st.number_input(
            "Measured repeats", 1, MOST_REPEATS, key="race_repeats", persist_state="session",
            help="Every method runs once per repeat, one after the other; the median repeat of each is replayed.",
        )  # fmt: skip
        warmup = st.number_input(
            "Warm-up rounds", 0, MOST_WARMUP, key="race_warmup", persist_state="session",
            help="Rounds before the measured ones; their times are thrown away.",
        )  # fmt: skip
    with (
        st.popover(sampling_words(picked_sampling()), key="race_sampling_open", icon=":material/casino:"),
        st.container(width=520),
    ):
        sampling = sampling_controls()
        st.caption("For all methods alike. Sampled texts differ by chance: each method makes its own draws.")
    return Plan(prompt, tokens, int(repeats), int(warmup), sampling)


def begin(plan: Plan, start: bool) -> None:
    """Say what stands against a race; record it when asked."""
    try:
        contestants = racers()
    except DraftscopeError as error:
        show_error(error)
        return
    if start:
        start_job(SLOT, "Recording", lambda job: run_comparison(job, plan, contestants), grace_s=0.0)
        st.rerun()


def take_race() -> DraftscopeError | None:
    """Put a recording that has ended on screen; what kept it from there, if anything did."""
    outcome: Outcome | None = take_result(SLOT)
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
    return None


main()
