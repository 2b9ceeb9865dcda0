"""Runs that are there already - on screen, in the last comparison, in files - and the choice of those that race."""

import streamlit as st

from decoding.common.errors import DraftscopeError, SettingsError
from decoding.trace.archive import load_run
from decoding.trace.records import RunTrace
from pages.ui.common.errors import show_error
from pages.ui.common.state import current_run
from pages.ui.race.view import race_of_runs
from viz.race.lanes import MOST

ERROR = "race_runs_error"


def runs_menu() -> None:
    """A popover with what can race without being recorded again."""
    place = st.popover("Runs", key="race_runs_open", icon=":material/folder_open:", on_change="rerun")
    if not place.open:
        return
    with place, st.container(width=440):
        st.file_uploader(
            "Open saved runs", type=["dscope"], key="race_files", accept_multiple_files=True, on_change=_forget_error
        )
        with st.container(key="race_runs_error"):
            runs = available()
        st.multiselect(
            f"Runs of one prompt, at most {MOST}", list(runs), key="race_chosen", max_selections=MOST,
            placeholder="Choose two to four" if len(runs) > 1 else "None yet: decode, compare, or open files",
        )  # fmt: skip
        st.button(
            "Race these", key="race_these", on_click=_race, args=(runs,), disabled=not runs, icon=":material/flag:"
        )
        if error := st.session_state.get(ERROR):
            show_error(error)


def available() -> dict[str, RunTrace]:
    """Runs by what to call them; files that cannot be read are told in a sentence."""
    found: list[tuple[str, RunTrace]] = []
    run = current_run()
    if run is not None and run.source != "recorded" and run.trace.iterations:
        found.append((f"{run.trace.label} (Step through)", run.trace))
    outcome = st.session_state.get("comparison")
    if outcome is not None:
        from decoding.compare.scoreboard import score

        scores = score(outcome.comparison, loop_free=False)
        found += [(f"{entry.contestant.label} (Compare)", entry.run) for entry in scores if entry.run is not None]
    for file in st.session_state.get("race_files") or ():
        try:
            trace = load_run(file)
        except DraftscopeError as error:
            show_error(error)
            continue
        found.append((f"{trace.label} ({file.name})", trace))
    named: dict[str, RunTrace] = {}
    for label, trace in found:
        number = sum(name == label or name.startswith(f"{label} #") for name in named)
        named[f"{label} #{number + 1}" if number else label] = trace
    return named


def _race(runs: dict[str, RunTrace]) -> None:
    """Put the chosen runs on screen as the race; what stands against it is kept to be shown."""
    chosen = st.session_state["race_chosen"]
    try:
        st.session_state["race"] = race_of_runs([(label, runs[label]) for label in chosen if label in runs])
    except SettingsError as error:
        st.session_state[ERROR] = error
        return
    st.session_state[ERROR] = None
    st.session_state["race_runs_open"] = False


def _forget_error() -> None:
    st.session_state[ERROR] = None
