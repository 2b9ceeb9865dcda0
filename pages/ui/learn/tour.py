"""The guided tour: it operates the real app, stop by stop, and restores the previous screen afterwards."""

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import streamlit as st

from decoding.recorded import best_rescue, recorded_run, rivals
from pages.ui import PAGES, ROOT
from pages.ui.common.errors import torch_there
from pages.ui.common.state import Run, ask_view, current_run, set_aside
from pages.ui.learn.recorded_runs import PLACED, place_comparison
from pages.ui.widgets.prompts import prompt_of
from viz.learn.tour import ADAPTING, COMPARE, COMPARED, STEP_THROUGH, STORY, WHAT_IF, Story, TourStep, tour_steps

KEY = "tour"
RUN_KEYS = ("run", "iteration", "node", "what_if")
PROMPT_KEYS = ("prompt", "prompt_text")


@dataclass(eq=False)
class Tour:
    """A tour in progress.

    Attributes:
        steps, at: the stops, and which one is shown.
        runs: the recordings it has put on screen, by name.
        before: the user's session state by key; missing keys are left out.
        placed: the values that the tour has put in its place.
    """

    steps: tuple[TourStep, ...]
    at: int = 0
    runs: dict[str, Run] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    placed: dict[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> TourStep:
        """The stop shown."""
        return self.steps[self.at]


def current_tour() -> Tour | None:
    """The tour of this browser session, None without one."""
    return st.session_state.get(KEY)


def all_steps() -> tuple[TourStep, ...]:
    """Every stop that can be shown, with the numbers of the recordings."""
    run = recorded_run(STORY)
    rescue = best_rescue(run)
    story = Story(run.iterations[rescue.iteration], rescue.rejected, rescue.accepted)
    runs = {name: recorded_run(name) for name in (STORY, ADAPTING, COMPARED)}
    there = {label for label, page in PAGES.items() if (ROOT / page).is_file()}
    # Without torch the pages that compute have nothing to show.
    return tour_steps(runs, story, rivals(COMPARED), there if torch_there() else there - {WHAT_IF, COMPARE})


def start_tour() -> NoReturn:
    """Remember what is on screen and show the first stop."""
    tour = st.session_state[KEY] = Tour(all_steps())
    tour.before = {key: st.session_state[key] for key in (*RUN_KEYS, *PROMPT_KEYS, *PLACED) if key in st.session_state}
    show_step()


def show_step(title: str = "") -> NoReturn:
    """Put the stop's run on screen and go to its page; `title` is the current page."""
    tour, step = current_tour(), current_tour().step
    _mind_own_run(tour)
    run = tour.runs.setdefault(step.recording, Run(recorded_run(step.recording), "recorded"))
    st.session_state["run"], st.session_state["absent"] = run, None
    _place_prompt(tour, run)
    ask_view(step.iteration, step.node, step.phase)
    if step.page == WHAT_IF:
        from pages.ui.what_if import ask_what_if

        ask_what_if(step.iteration, step.node)
    if step.page == COMPARE and "comparison" not in tour.placed:
        tour.placed |= place_comparison(COMPARED)
    if step.page == title:
        st.rerun()
    _go_to(step.page)


def _place_prompt(tour: Tour, run: Run) -> None:
    """The prompt of the run on screen as the one chosen, unless another was chosen during the tour."""
    if all(st.session_state.get(key) == (tour.before | tour.placed).get(key) for key in PROMPT_KEYS):
        shown = prompt_of(run.trace)
        tour.placed |= dict(zip(PROMPT_KEYS, (shown.name, shown.text), strict=True))
        st.session_state.update({key: tour.placed[key] for key in PROMPT_KEYS})


def _go_to(title: str) -> NoReturn:
    """Switch to a page; without parameters, Streamlit refuses if a widget is bound to the address."""
    st.switch_page(PAGES[title], query_params={})


def end_tour() -> None:
    """Restore the previous screen; runs and changes of the user meanwhile stay."""
    tour = st.session_state.pop(KEY)
    _mind_own_run(tour)
    if current_run() in tour.runs.values():
        _give_back(tour, RUN_KEYS)
        if "run" in tour.before:
            ask_view(tour.before.get("iteration"), tour.before.get("node"))
    _give_back(tour, [key for key, value in tour.placed.items() if st.session_state.get(key) == value])


def _give_back(tour: Tour, keys) -> None:
    for key in keys:
        if key in tour.before:
            st.session_state[key] = tour.before[key]
        elif key in st.session_state:
            del st.session_state[key]


def _mind_own_run(tour: Tour) -> None:
    """A run decoded or opened during the tour is the one to restore; the previous one is set aside."""
    run, before = current_run(), tour.before.get("run")
    if run is None or run in tour.runs.values():
        return
    if run is not before:
        set_aside(before, tour.before.get("iteration", 0))
    tour.before |= {key: st.session_state[key] for key in RUN_KEYS if key in st.session_state}


def tour_bar(title: str) -> None:
    """The current stop, its two sentences, and navigation; on other pages also a button back to the tour."""
    tour = current_tour()
    if tour is None:
        return
    st.html(Path(__file__).with_suffix(".css"))
    last, here = tour.at == len(tour.steps) - 1, tour.step.page == title
    with st.container(key="tour_bar", horizontal=True, vertical_alignment="center", gap="small"):
        with st.container(key="tour_words"):
            st.html(
                f'<div class="tour-words" role="status" aria-live="polite" data-tour="{tour.step.key}"><span>'
                f'<b>{html.escape(tour.step.title)}</b><br><span class="place">Step {tour.at + 1} of {len(tour.steps)}'
                f"</span></span><span>{html.escape(tour.step.words)}</span></div>"
            )
        if not here and st.button("Back to the tour", key="tour_return", type="primary"):
            show_step(title)
        if st.button("Back", key="tour_back", disabled=tour.at == 0, icon=":material/arrow_back:"):
            tour.at -= 1
            show_step(title)
        if not last and st.button("Next", key="tour_next", type="primary" if here else "secondary"):
            tour.at += 1
            show_step(title)
        if last and st.button("Decode one yourself", key="tour_own", type="primary" if here else "secondary"):
            end_tour()
            _go_to(STEP_THROUGH)
        if last and st.button("To the puzzles", key="tour_next"):
            end_tour()
            st.session_state["learn_view"] = "Puzzles"
            _go_to("Learn")
        own = tour.before.get("run")
        comes_back = own is not None and own.source != "recorded"
        if st.button("End tour", key="tour_end", help="Your own run comes back on screen" if comes_back else None):
            end_tour()
            st.rerun()
