"""The film of the run on screen: which iterations the browser has at hand, and where it was last told to go."""

from dataclasses import dataclass, field

import streamlit as st

from pages.ui.common.state import Run, asked_view, selected_iteration, selected_node
from viz.scope.film import Frame, film_data, make_frame, near_edge, window_around

# Frames of iterations far away are let go of, the oldest made first.
FRAMES_KEPT = 200


@dataclass
class FilmState:
    """One scope's film in one browser session.

    Attributes:
        run: key of the run that it shows.
        frames: frames made so far by index.
        unfolded: nodes of each iteration whose folded children were asked for.
        window, count: iterations sent, and how many the run had then.
        serial, ask: what the browser was told last; it obeys each serial once.
        asked: serial of the view that a page asked for last (`pages.ui.common.state.ask_view`).
        known: iteration that Python believes the browser to show.
    """

    run: str
    frames: dict[int, Frame] = field(default_factory=dict)
    unfolded: dict[int, tuple[int, ...]] = field(default_factory=dict)
    window: range = range(0)
    count: int = 0
    serial: int = 0
    ask: dict = field(default_factory=dict)
    asked: int = 0
    known: int | None = None


def film_state(key: str, run: Run) -> FilmState:
    """The film of the scope with this key, empty for a run that it has not shown."""
    state = st.session_state.get(f"{key}_film")
    if state is None or state.run != run.key:
        serial = 0 if state is None else state.serial
        state = st.session_state[f"{key}_film"] = FilmState(run.key, serial=serial)
    return state


def film(run: Run, key: str) -> dict:
    """Data of the scope with this key: frames around the selected iteration, and where the browser is to go."""
    state, index = film_state(key, run), selected_iteration()
    iterations = run.trace.iterations
    _place(state, index, mounted=key in st.session_state)
    if state.count != len(iterations) or near_edge(state.window, index, len(iterations)):
        state.window = window_around([len(iteration.nodes) for iteration in iterations], index)
        state.count = len(iterations)
    frames = [_frame(state, run, place) for place in state.window]
    for place in list(state.frames)[: max(len(state.frames) - FRAMES_KEPT, 0)]:
        if place not in state.window:
            del state.frames[place]
    return film_data(run.trace, run.key, state.window, frames, state.ask)


def reported(state: FilmState, index: int) -> None:
    """The browser has gone to an iteration by itself: nothing to tell it."""
    state.known = index


def unfold(state: FilmState, index: int, node: int) -> None:
    """Show the folded children of a node from then on."""
    opened = state.unfolded.get(index, ())
    if node not in opened:
        state.unfolded[index] = (*opened, node)


def _place(state: FilmState, index: int, mounted: bool) -> None:
    """Tell the browser where to go if Python wants it elsewhere, or if it has just come to the page."""
    asked = asked_view()
    wanted = asked.serial != state.asked
    if mounted and not wanted and index == state.known:
        return
    state.serial += 1
    state.asked, state.known = asked.serial, index
    node = asked.node if wanted else selected_node()
    phase = asked.phase if wanted else None
    state.ask = {"serial": state.serial, "iteration": index, "node": node, "phase": phase}


def _frame(state: FilmState, run: Run, index: int) -> Frame:
    """The frame of an iteration, made once; a node that was asked for is never folded."""
    iteration, trace = run.trace.iterations[index], run.trace
    node = state.ask["node"]
    if state.ask["iteration"] == index and node is not None and 0 < node < len(iteration.nodes):
        unfold(state, index, iteration.nodes[node].parent_id)
    unfolded = state.unfolded.get(index, ())
    frame = state.frames.get(index)
    if frame is None or frame.iteration is not iteration or frame.unfolded != unfolded:
        frame = state.frames[index] = make_frame(iteration, run.key, index, trace.label, unfolded)
    return frame
