"""The film of the run on screen: the iterations that the browser has, and where it was last sent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from decoding.analysis.bottom_line import Option, bottom_line, paired
from decoding.common.formats import duration, part_of
from decoding.trace.metrics import measure_run, node_agreement
from decoding.trace.records import RunTrace
from pages.ui import PAGES
from pages.ui.common.charts import STYLE, chart, is_dark
from pages.ui.common.downloads import download_button
from pages.ui.common.errors import escape_markdown, torch_there, why_not
from pages.ui.common.state import Run, asked_view, select_iteration, selected_iteration, selected_node
from pages.ui.engine.config import engine_button
from pages.ui.scope.component import scope
from pages.ui.widgets.controls import FASTEST
from viz.charts.run import accepted_length_figure, adaptation_figure, phase_times_over_run, tokens_over_time
from viz.explain.bottom_line import bottom_line_words
from viz.explain.iteration import history_changes, iteration_summary
from viz.scope.data import Frame, film_data, make_frame, near_edge, window_around
from viz.scope.outline import NOT_RECORDED, Table, outline_html, outline_text, table_html, tables, tree_outline

# Frames of distant iterations are dropped, the oldest first.
FRAMES_KEPT = 200


@dataclass
class FilmState:
    """One scope's film in one browser session.

    Attributes:
        run: key of the run that it shows.
        frames: frames made so far by index.
        unfolded: nodes of each iteration whose children have been unfolded.
        window, count: iterations sent, and how many the run had then.
        serial, ask: the last request to the browser; it obeys each serial once.
        asked: serial of the view that a page last requested (`pages.ui.common.state.ask_view`).
        known: iteration that Python believes the browser shows.
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


def film_state(run: Run) -> FilmState:
    """The film of the scope, empty for a run that it has not shown."""
    state = st.session_state.get("scope_film")
    if state is None or state.run != run.key:
        serial = 0 if state is None else state.serial
        state = st.session_state["scope_film"] = FilmState(run.key, serial=serial)
    return state


def film(run: Run) -> dict:
    """Data of the scope: frames around the selected iteration, and where the browser should go."""
    state, index = film_state(run), selected_iteration()
    iterations = run.trace.iterations
    # Send the browser somewhere if Python wants it elsewhere, or if it has just opened the page.
    asked = asked_view()
    wanted = asked.serial != state.asked
    if wanted or index != state.known or "scope" not in st.session_state:
        state.serial += 1
        state.asked, state.known = asked.serial, index
        node, phase = (asked.node, asked.phase) if wanted else (selected_node(), None)
        state.ask = {"serial": state.serial, "iteration": index, "node": node, "phase": phase}
    if state.count != len(iterations) or near_edge(state.window, index, len(iterations)):
        state.window = window_around([len(iteration.nodes) for iteration in iterations], index)
        state.count = len(iterations)
    frames = [_frame(state, run, place) for place in state.window]
    for place in list(state.frames)[: max(len(state.frames) - FRAMES_KEPT, 0)]:
        if place not in state.window:
            del state.frames[place]
    return film_data(run.trace, run.key, state.window, frames, state.ask)


def unfold(state: FilmState, index: int, node: int) -> None:
    """Keep the children of a node unfolded from now on."""
    opened = state.unfolded.get(index, ())
    if node not in opened:
        state.unfolded[index] = (*opened, node)


def _frame(state: FilmState, run: Run, index: int) -> Frame:
    """The frame of an iteration, made once; a requested node is never folded."""
    iteration, trace = run.trace.iterations[index], run.trace
    node = state.ask["node"]
    if state.ask["iteration"] == index and node is not None and 0 < node < len(iteration.nodes):
        unfold(state, index, iteration.nodes[node].parent_id)
    unfolded = state.unfolded.get(index, ())
    frame = state.frames.get(index)
    if frame is None or frame.iteration is not iteration or frame.unfolded != unfolded:
        frame = state.frames[index] = make_frame(iteration, run.key, index, trace.label, unfolded)
    return frame


SCOPE_HEIGHT = 640


def draw_scope(run: Run) -> None:
    """The linked views of the run; the browser steps through its iterations and reports where it stops."""
    state = film_state(run)

    def see(index: int) -> None:
        if index != selected_iteration():
            st.session_state["absent"] = None
        select_iteration(index)
        state.known = index  # the browser went there by itself: no request needed

    def choose(node: int) -> None:
        st.session_state["absent"] = None
        st.session_state["node"] = node

    def ask(clicked: dict) -> None:
        st.session_state["absent"] = (run.key, clicked["iteration"], clicked["parent"], clicked["token_id"])

    with st.container(key="scope_area"):
        st.html(Path(__file__).with_suffix(".css"))
        scope(
            film(run),
            key="scope",
            height=SCOPE_HEIGHT,
            on_iteration=see,
            on_unfold=lambda node: unfold(state, selected_iteration(), node),
            on_select=choose,
            on_absent=ask,
        )


def draw_charts(run: Run, to_sweep: Callable[[Run], None]) -> None:
    """The bottom line of the run, and charts of it: thresholds, accepted lengths, tokens and time.

    Args:
        to_sweep: opens the form of a sweep filled with what the run was decoded with.
    """
    measured = measure_run(run.trace)
    if measured is not None and measured.throughput and measured.drafted:
        alone = bottom_line([Option(run.trace.label, paired({(0, 0): measured.throughput}))])
        with st.container(key="run_bottom_line", horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**Bottom line** · {escape_markdown(bottom_line_words(alone))}", width="stretch")
            st.page_link(PAGES["Compare"], label=FASTEST, icon=":material/speed:")
            if st.button(
                "Which settings are fastest here?", key="run_sweep", icon=":material/grid_on:", type="tertiary",
                disabled=not torch_there(), help=why_not(SETTINGS_HELP),
            ):  # fmt: skip
                to_sweep(run)
            engine_button(run.trace, "engine_of_run")
    shown = (run.key, len(run.trace.iterations), is_dark())
    # Figures depend only on the run: stepping through its iterations must not rebuild them.
    if st.session_state.get("charts_of") != shown:
        trace, dark = run.trace, is_dark()
        figures = [
            ("Accepted tokens per iteration", accepted_length_figure([trace], dark)),
            ("Tokens over time", tokens_over_time([trace], dark)),
            ("Time of each iteration by phase", phase_times_over_run(trace, dark)),
        ]
        if any(iteration.history is not None for iteration in trace.iterations):
            figures.insert(0, ("History adaptation: what it saw and what it changed", adaptation_figure(trace, dark)))
        st.session_state["charts_of"], st.session_state["charts"] = shown, figures
    figures = st.session_state["charts"]
    for row in range(0, len(figures), 2):
        for place, (title, figure) in zip(st.columns(2), figures[row : row + 2], strict=False):
            with place.container(border=True):
                st.markdown(f"**{title}**")
                chart(figure, key=f"chart_{title}")


SETTINGS_HELP = "Opens a sweep of this method on this prompt, with this sampling and verifier, ready to start"
PARTS = ("Tree", "Panels", "Run")


def as_text(run: Run) -> None:
    """The selected iteration and the run as text and tables."""
    box = st.expander("As text", key="as_text", icon=":material/notes:", on_change="rerun")
    if not box.open:
        return
    iteration = run.trace.iterations[selected_iteration()]
    with box:
        st.html(STYLE)
        part = st.segmented_control(
            "Part", PARTS, default=PARTS[0], key="as_text_part", required=True, label_visibility="collapsed"
        )
        if part == "Run":
            parts = (run_table(run.trace), iterations_table(run.trace))
        elif part == "Panels":
            parts = tables(iteration)
        else:
            st.text(iteration_summary(iteration))
            lines = tree_outline(iteration)
            if not lines:
                st.caption(NOT_RECORDED)
                return
            st.html(f'<div class="as-text">{outline_html(lines)}</div>')
            name = f"iteration-{iteration.index + 1}.txt"
            download_button("Save as a text file", outline_text(iteration), name, "text/plain", "as_text_save")
            return
        st.html(f'<div class="as-text-tables">{"".join(map(table_html, parts))}</div>')


def run_table(run: RunTrace) -> Table:
    """The figures of a whole run, with their denominators."""
    measured = measure_run(run)
    totals = run.totals
    rows = [
        ("Method", run.label),
        ("Pair", f"{run.pair.name}, {run.pair.target.device}, {run.pair.target.dtype}"),
        ("Prompt", f"{len(run.prompt_ids):,} tokens"),
        ("New tokens", f"{totals.new_tokens:,} of at most {run.max_new_tokens:,}"),
    ]
    if measured is not None:
        rows += [
            ("Iterations", f"{measured.iterations:,}"),
            ("Block efficiency", f"{measured.tokens_per_iteration:.2f}"),
            ("Accepted / drafted", part_of(measured.accepted, measured.drafted)),
            ("Accepted / verified", part_of(measured.accepted, measured.verified)),
            ("Node agreement", part_of(*(node_agreement(run.iterations) or (None, None)))),
            ("Draft forwards, target passes", f"{measured.draft_forwards:,}, {measured.target_passes:,}"),
        ]
    if run.bias:
        rows.append(("Distribution of the text", run.bias))
    if not run.timed:
        rows.append(("Times", "not measured: an iteration was replayed from stored logits"))
    elif totals.wall_s > 0:
        rows += [
            ("Wall time of the call", duration(totals.wall_s)),
            ("Prefill", duration(totals.prefill_s)),
            ("Tokens/s, prefill included", f"{totals.new_tokens / totals.wall_s:.1f}"),
        ]
    hardware = ", ".join(f"{name} {value}" for name, value in run.hardware.items() if value)
    return Table("The run", ("Figure", "Value"), tuple(rows), f"Times are measured on: {hardware}.")


def iterations_table(run: RunTrace) -> Table:
    """One table row per iteration of a run."""
    adapts = any(each.history for each in run.iterations)
    rows = [
        (
            str(each.index + 1), str(each.drafted), str(each.verified), str(len(each.accepted)), each.final_kind,
            str(len(each.committed_ids)), duration(each.times.total_s) if each.timed else "–",
            *((history_changes(each.history) or "–",) if adapts else ()),
        )
        for each in run.iterations
    ]  # fmt: skip
    heads = ("Iteration", "Drafted", "Verified", "Accepted", "Final token", "Committed", "Time")
    heads += ("History changed after it",) if adapts else ()
    return Table("Iterations", heads, tuple(rows))
