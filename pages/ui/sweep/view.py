"""One experiment as it is watched: where it stands, what can be done with it, what is best in it, its charts."""

import time
from pathlib import Path

import pandas as pd
import streamlit as st

from decoding.experiments.estimates import source_of, sources_of, swept
from decoding.experiments.experiment import Experiment
from decoding.experiments.launch import (
    FollowedExperiment,
    asked_to_stop,
    delete,
    end,
    experiments,
    go_on,
    last_launch,
    output,
)
from pages.ui.common.errors import escape_markdown
from pages.ui.common.torch_there import torch_there, why_not
from pages.ui.sweep.best import draw_best, draw_filter
from pages.ui.sweep.charts import draw_charts
from pages.ui.sweep.sentences import STATE_ICONS, asked_words, figures_of, left_words, with_labels
from pages.ui.widgets.watching import attempt, draw_end, list_style, show_attempt
from viz.formats import plural

CHOSEN, FORM = "sweep_experiment", "new"
MOST_LISTED = 14


def followed_experiments() -> list[FollowedExperiment]:
    """Every experiment as it stands, newest first, those that came with the program last."""
    known: dict[tuple[Path, bool], FollowedExperiment] = st.session_state.setdefault("sweep_followed", {})
    there = experiments()
    for place in set(known) - set(there):
        del known[place]
    for place in there:
        if place in known:
            known[place].look()
        else:
            known[place] = FollowedExperiment(*place)
    return [known[place] for place in there]


def looked_at(found: list[FollowedExperiment]) -> FollowedExperiment | None:
    """The experiment that is looked at; None where one is to be started.

    At first the one that the address names, else the newest that runs, else the newest.
    """
    chosen = st.session_state.get(CHOSEN) or st.query_params.get("experiment")
    by_key = {followed.key: followed for followed in found}
    if chosen is None and found:
        chosen = next((each for each in found if each.stand.running), found[0]).key
    if chosen not in by_key:
        chosen = FORM
    st.session_state[CHOSEN] = chosen
    if st.query_params.get("experiment") != chosen:
        st.query_params["experiment"] = chosen
    return by_key.get(chosen)


def look_at(key: str | None) -> None:
    """Look at an experiment, or at the form for another one; None looks at the newest."""
    st.session_state[CHOSEN] = key
    st.session_state["sweep_sure"] = None
    if key is None:
        st.query_params.pop("experiment", None)


def draw_list(found: list[FollowedExperiment]) -> None:
    """A button per experiment: its name and state; below, its rows and the time left."""
    chosen = st.session_state.get(CHOSEN)
    if st.button("New sweep", key="sweep_new", width="stretch", icon=":material/add:", on_click=look_at, args=(FORM,)):
        st.rerun()
    if not found:
        st.caption("Nothing has been swept on this machine yet. Every sweep that is started stands here.")
    for followed in found[:MOST_LISTED] if not st.session_state.get("sweep_all") else found:
        _draw_entry(followed, chosen)
    if len(found) > MOST_LISTED:
        st.toggle(f"All {len(found)}", key="sweep_all", persist_state="session")


def _draw_entry(followed: FollowedExperiment, chosen: str | None) -> None:
    key, stand = followed.key, followed.stand
    with st.container(key=f"sweep_entry_{key.replace('/', '_')}", gap=None):
        if st.button(
            escape_markdown(followed.name), key=f"sweep_see_{key}", width="stretch", icon=STATE_ICONS[stand.state],
            type="secondary" if key == chosen else "tertiary", on_click=look_at, args=(key,),
            help=escape_markdown(str(followed.folder)),
        ):  # fmt: skip
            st.rerun()
        status = stand.status
        of_all = "" if status.done == status.runs else f" of {status.runs:,}"
        rows = f"{status.done:,}{of_all} rows" if status.runs else ""
        left = left_words(status.left_s) if stand.state == "running" else ""
        came = "came with the program" if followed.shipped else ""
        words = filter(None, [came, "" if stand.state == "kept" else stand.state, rows, left])
        st.caption(escape_markdown(" · ".join(words) or "rows alone"))


STYLE = (
    f"<style>{list_style('sweep')}"
    + """
[class*=st-key-sweep_part_] { padding: 0.5rem 0.8rem 0.7rem !important; gap: 0.4rem !important; }
.st-key-sweep_asked [data-testid=stCaptionContainer] p { font-size: 0.82rem; margin: 0 0 0.4rem; }
/* A chart that is drawn anew stands there twice for a frame: nothing below it may move. */
.st-key-sweep_chart_panel { overflow: hidden; padding: 0.5rem 0.8rem 0.3rem !important; }
/* White words on the dark theme's primary colour would be hard to read. */
[class*=st-key-sweep_part_] [data-baseweb=tag], [class*=st-key-sweep_part_] [data-testid=stMultiSelect] [data-tag] {
  background-color: #00795A !important;
}
.st-key-sweep_go p { margin: 0; }
/* Plotly draws parallel axes in black with a white shadow behind their ticks, in the dark theme as well. */
.st-key-sweep_chart_panel .parcoords text { text-shadow: none !important; }
.st-key-sweep_chart_panel .parcoords .axis path, .st-key-sweep_chart_panel .parcoords .axis line {
  stroke: #8A93A6 !important; stroke-opacity: 0.8 !important;
}
.st-key-sweep_best_words p { font-size: 1rem; margin: 0; }
.st-key-sweep_best_words [data-testid=stMarkdownContainer] { margin-bottom: 0; }
.st-key-sweep_part_picked [data-testid=stMarkdownContainer], .st-key-sweep_go [data-testid=stMarkdownContainer] {
  margin-bottom: 0;
}
</style>
"""
)


ERROR, LIVE, SHOWN, SURE = "sweep_error", "sweep_live", "sweep_shown", "sweep_sure"
CHARTS_S = 5.0  # charts are drawn anew this often while rows come in
MOST_METHODS = 4
LIVE_HELP = "Off: this view stands still, so that one can point at charts and pick runs at leisure."
STOP_HELP = "It ends after a moment; its rows stay, and Go on runs what is missing."


def is_live() -> bool:
    """Whether the view follows a sweep that runs."""
    return st.session_state.get(LIVE, True)


def draw_experiment(followed: FollowedExperiment) -> None:
    """Header, the best way, charts."""
    _draw_header(followed)
    _draw_message(followed)
    rows, runs = _rows(followed, _source(followed))
    _draw_asked(followed, rows)
    if not len(runs):
        icon = ":material/hourglass_top:" if followed.stand.running else ":material/info:"
        st.info(_nothing_words(followed, rows), icon=icon)
        return
    figures = figures_of(runs)
    with st.container(horizontal=True, vertical_alignment="bottom", key="sweep_choice"):
        column = st.selectbox(
            "Figure", list(figures), key=f"sweep_figure_{followed.key}", width=230, label_visibility="collapsed",
            format_func=lambda name: figures[name].figure.words, persist_state="session",
        )  # fmt: skip
        chosen = draw_filter(followed, runs)
    told = figures[column]
    if not len(chosen):
        st.info("No run is left of this choice: show more of them.", icon=":material/filter_alt_off:")
        return
    draw_best(followed, chosen, told)
    draw_charts(followed, chosen, told)


def _source(followed: FollowedExperiment) -> str | None:
    """The pair on a machine whose rows are shown, the newest unless another is chosen: rows of two are never mixed."""
    sources = sources_of(followed.rows())
    if len(sources) < 2:
        return next(iter(sources), None)
    return st.selectbox("Rows of", sources, key=f"sweep_source_{followed.key}", persist_state="session", width=760)


def _rows(followed: FollowedExperiment, source: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of a source, and the runs that figures are made of; while rows come in, taken anew every few seconds."""
    kept_of, whole, rows, runs, made_s = st.session_state.get(SHOWN, (None, None, None, None, 0.0))
    same = kept_of == (followed.folder, source)
    if same and followed.stand.running and time.monotonic() - made_s < CHARTS_S:
        return rows, runs
    found = followed.rows()
    if not same or found is not whole:
        rows = found if source is None else found[source_of(found) == source]
        runs = with_labels(swept(rows))
        st.session_state[SHOWN] = (followed.folder, source), found, rows, runs, time.monotonic()
    return rows, runs


def _draw_header(followed: FollowedExperiment) -> None:
    stand, status = followed.stand, followed.stand.status
    with st.container(key="sweep_header", horizontal=True, vertical_alignment="center", gap="small"):
        with st.container(key="sweep_title", width="content"):
            state = "" if stand.state == "kept" else f" · {stand.state}"
            st.markdown(f"{STATE_ICONS[stand.state]} **{escape_markdown(followed.name)}**{state}", width="content")
        st.space("stretch")
        _draw_buttons(followed)
    if stand.running or stand.state in ("stopped", "failed"):
        share = status.done / status.runs if status.runs else 0.0
        st.progress(share, text=escape_markdown(_progress_words(followed)))


def _progress_words(followed: FollowedExperiment) -> str:
    stand, status = followed.stand, followed.stand.status
    if stand.state == "starting":
        return "Starting its process: loading the pair and encoding the prompts takes a few seconds"
    if not status.runs:
        return "No run was made"
    parts = [f"{status.done:,} of {status.runs:,} runs"]
    if status.failed:
        parts.append(f"{status.failed:,} could not be made")
    if stand.state == "running":
        parts += [left_words(status.left_s), status.now]
    return " · ".join(filter(None, parts))


def _draw_buttons(followed: FollowedExperiment) -> None:
    """What can be done with an experiment in its state."""
    stand, folder = followed.stand, followed.folder
    if stand.running:
        st.toggle("Live", True, key=LIVE, persist_state="session", help=LIVE_HELP)
        asked = asked_to_stop(folder)
        begun = stand.state == "running"  # before, it hears nothing
        st.button(
            "Stopping" if asked and begun else "Stop sweep", key="sweep_stop", disabled=asked and begun,
            icon=":material/stop_circle:", on_click=attempt, help=STOP_HELP,
            args=(ERROR, Experiment(folder).ask_to_stop) if begun else (ERROR, end, folder),
        )  # fmt: skip
    elif not followed.shipped and (followed.asked or last_launch(folder) is not None) and stand.state != "finished":
        st.button(
            "Go on", key="sweep_go_on", type="primary", disabled=not torch_there(), icon=":material/play_arrow:",
            on_click=attempt, args=(ERROR, go_on, folder), help=why_not("Runs what is missing; no row is made twice."),
        )  # fmt: skip
    with st.popover("Output", key="sweep_output", icon=":material/terminal:", on_change="rerun") as place:
        if place.open:
            _draw_output(followed)
    if not stand.running and not followed.shipped:
        _draw_delete(followed)


def _draw_delete(followed: FollowedExperiment) -> None:
    """Asked twice: rows that took hours cannot be brought back."""
    if st.session_state.get(SURE) != followed.key:
        st.button("Delete", key="sweep_delete", icon=":material/delete:", on_click=_set_sure, args=(followed.key,))
        return
    st.button("Keep it", key="sweep_keep", on_click=_set_sure, args=(None,))
    if st.button(
        "Delete for good", key="sweep_delete_sure", type="primary", icon=":material/delete_forever:",
        on_click=_delete, args=(followed,), help="Its rows and its grid leave this machine.",
    ):  # fmt: skip
        st.rerun()


def _set_sure(key: str | None) -> None:
    st.session_state[SURE] = key


def _delete(followed: FollowedExperiment) -> None:
    attempt(ERROR, delete, followed.folder)
    _set_sure(None)
    if not followed.folder.exists():
        look_at(None)


def _draw_output(followed: FollowedExperiment) -> None:
    """Where it lies, and what its process printed."""
    with st.container(width=640):
        st.markdown("**Folder**")
        st.code(str(followed.folder), language=None, wrap_lines=True)
        launched = last_launch(followed.folder)
        if launched is not None:
            st.markdown("**Command**")
            st.code(" ".join(["python", *launched.command]), language=None, wrap_lines=True)
        st.markdown("**What it printed last**")
        st.code(output(followed.folder) or "Nothing.", language=None, wrap_lines=True, height=220)


def _draw_message(followed: FollowedExperiment) -> None:
    """What went wrong with a button, with a file of rows or with the process; why it stopped."""
    show_attempt(ERROR)
    draw_end(followed.stand)


def _draw_asked(followed: FollowedExperiment, rows: pd.DataFrame) -> None:
    """What was asked for, on what it was measured, and what could not be."""
    for said in followed.troubles:
        st.error(escape_markdown(f"{said} All other rows are shown."), icon=":material/error:")
    lines = asked_words(followed.asked)
    methods, shown = lines[:-1], lines[-1:]
    if methods:
        more = [f"and {plural(len(methods) - MOST_METHODS, 'more method')}"] if len(methods) > MOST_METHODS else []
        shown.insert(0, "; ".join([*methods[:MOST_METHODS], *more]))
    if len(rows):
        shown.append("; ".join(sources_of(rows)))
    if shown:
        with st.container(key="sweep_asked"):
            st.caption("  \n".join(map(escape_markdown, shown)))
    failed = rows["failure"].dropna()
    if len(failed):
        said = failed.value_counts().index[0]
        words = f"{plural(len(failed), 'run')} could not be made and are left out, most often: {said}"
        st.warning(escape_markdown(words), icon=":material/report:")


def _nothing_words(followed: FollowedExperiment, rows: pd.DataFrame) -> str:
    if followed.stand.running:
        return "Charts appear here with the first rows: the first run warms each method up."
    if len(rows):
        return "No run has a figure outside a loop yet: run more prompts, or longer texts."
    return "No row was kept: what it printed last stands behind Output; Go on starts it again."
