"""One experiment as it is watched: its place in the list, what was asked for, what is best in it, its charts."""

import time

import pandas as pd
import streamlit as st

from decoding.experiments.estimates import source_of, sources_of, swept
from decoding.experiments.experiment import FollowedExperiment, experiments
from pages.ui.common.errors import escape_markdown
from pages.ui.jobs.page import JobPage
from pages.ui.sweep.charts import draw_best, draw_charts, draw_filter
from pages.ui.sweep.sentences import asked_words, figures_of, with_labels
from viz.formats import plural

PAGE = JobPage(
    "sweep", "sweep", "experiment",
    none_yet="Nothing has been swept on this machine yet. Every sweep that is started stands here.",
    stop="It ends after a moment; its rows stay, and Resume runs what is missing.",
    resume="Runs what is missing; no row is made twice.",
    delete="Its rows and its grid leave this machine.",
)  # fmt: skip
STYLE = PAGE.style("""
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
""")
SHOWN = "sweep_shown"
CHARTS_S = 5.0  # charts are drawn anew this often while rows come in
MOST_METHODS = 4


def followed_experiments() -> list[FollowedExperiment]:
    """Every experiment as it stands, the one begun last first, those that came with the program last."""
    return PAGE.followed(experiments(), FollowedExperiment)


def entry_words(followed: FollowedExperiment) -> list[str]:
    """How many rows there are."""
    status = followed.stand.status
    if not status.total:
        return []
    return [f"{status.done:,} rows" if status.done == status.total else f"{status.done:,} of {status.total:,} rows"]


def draw_experiment(followed: FollowedExperiment) -> None:
    """Header, the best way, charts."""
    PAGE.draw_header(followed)
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
    return "No row was kept: what it printed last stands behind Output; Resume starts it again."
