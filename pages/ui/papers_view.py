"""One table or figure of a paper: how it was measured there and here, a chart, the numbers, and the verdicts."""

import streamlit as st

from decoding.experiments.columns import LOOP_FREE
from decoding.papers.exhibit import Exhibit, Figure
from pages.ui.charts import chart, is_dark
from pages.ui.errors import escape_markdown, show_error
from pages.ui.papers_benchmark import draw_benchmark
from pages.ui.papers_rows import Judgement, Kept
from pages.ui.papers_run import draw_runs, size_of
from pages.ui.papers_table import axis_words, claims_of, marks_of, orderings_html, table_html
from viz.paper_charts import FACTOR, far_apart, lines_figure, table_figure
from viz.tokens import plural

MOST_FAILURES = 3
BEST_OF = "Where the best of several settings counts, it is chosen for every prompt by the other prompts."
APART = (
    f"The numbers here and in the paper are more than {FACTOR:g} times apart, so each has an axis of its own: compare "
    "the order and the proportions, not the lengths."
)


def draw_exhibit(shown: Judgement, kept: list[Kept], running: frozenset[str]) -> None:
    """Everything about one exhibit."""
    outcome, exhibit = shown.outcome, shown.outcome.exhibit
    if shown.error is not None:
        show_error(shown.error)
    _draw_header(shown)
    if exhibit.stored:
        draw_benchmark(exhibit, outcome.run, running)
    else:
        draw_runs(exhibit, outcome.run, kept, running)
    figure = _chosen_figure(exhibit)
    marks = marks_of(outcome, figure)
    if any(mark.ours is not None or mark.paper is not None for mark in marks):
        with st.container(border=True, key="papers_chart", gap=None):
            if exhibit.by:
                drawn = lines_figure(marks, figure.words, axis_words(outcome), is_dark())
            else:
                drawn = table_figure(marks, figure.words, is_dark())
            chart(drawn, key="papers_figure", height=int(drawn.layout.height))
        if any(way.best for way in exhibit.ways):
            st.caption(BEST_OF)
        if far_apart(marks):
            st.caption(APART)
    else:
        st.caption(f"No number of {escape_markdown(figure.words)} yet: the paper prints none, and none was run here.")
    sampled = "samples" if exhibit.stored else "prompts"
    if claims := claims_of(outcome):
        st.markdown(f"**What the paper claims, judged here on the same {sampled}**")
        st.html(orderings_html(claims))
    if marks:
        st.markdown(f"**Numbers**, ours with their 95% intervals over {sampled}" if outcome.ours else "**Numbers**")
        st.html(table_html(outcome))
    _draw_left_out(shown)


def source_key(exhibit: Exhibit) -> str:
    """Where the session keeps which pair on which machine is shown, the same for all exhibits of a grid."""
    return f"papers_source_{exhibit.grid}"


def _draw_header(shown: Judgement) -> None:
    """What it is, how the paper measured, and on what our rows were made."""
    outcome, exhibit = shown.outcome, shown.outcome.exhibit
    with st.container(key="papers_header", gap=None):
        st.markdown(f"**{escape_markdown(exhibit.paper)}** · {escape_markdown(exhibit.title)}")
        st.caption(f"**Paper** {escape_markdown(exhibit.protocol)}.")
        st.caption(f"**Here** {escape_markdown(_here_words(shown))}.")
        if outcome.elsewhere:
            st.caption(escape_markdown(f"Kept too, and not mixed in: {'; '.join(outcome.elsewhere)}."))
        if exhibit.needs:
            st.caption(escape_markdown(f"It needs {exhibit.needs}."))
    if len(shown.sources) > 1:
        key = source_key(exhibit)
        if st.session_state.get(key) not in shown.sources:
            st.session_state[key] = shown.source
        st.selectbox("Rows of", shown.sources, key=key, persist_state="session", width=760)


def _here_words(shown: Judgement) -> str:
    """Lengths, prompts, pair, machine and day of our rows, or what a run of them would be."""
    outcome, exhibit = shown.outcome, shown.outcome.exhibit
    if not outcome.run:
        if len(shown.rows):
            return f"{plural(len(shown.rows), 'run')} of its grid are kept, too few of them count for it yet"
        return f"not run; {size_of(exhibit.grid).words}" if exhibit.grid else "not run"
    where = "; ".join(outcome.where)
    if not len(shown.rows):
        return where
    rows = shown.rows
    for name in exhibit.only.keys() & set(rows):
        rows = rows[rows[name] == exhibit.only[name]]
    prompts = rows[["prompt_set", "kind", "prompt"]].drop_duplicates()
    sets = ", ".join(sorted(prompts["prompt_set"].unique()))
    tokens = " / ".join(f"{count:,}" for count in sorted(rows["asked_tokens"].dropna().astype(int).unique()))
    asked = f"{tokens} tokens behind " if tokens else ""
    return f"{asked}{plural(len(prompts), 'prompt')} of {sets}; {where}"


def _chosen_figure(exhibit: Exhibit) -> Figure:
    """The column that is drawn: the one that was clicked or that the address names, else the first."""
    columns = {figure.column: figure for figure in exhibit.figures}
    first, key = exhibit.figures[0].column, f"papers_column_{exhibit.key}"
    if st.session_state.get(key) not in columns:
        asked = st.query_params.get("figure")
        st.session_state[key] = asked if asked in columns else first
    chosen = st.session_state[key]
    if len(columns) > 1:
        chosen = st.segmented_control(
            "Figure", list(columns), format_func=lambda name: escape_markdown(columns[name].words), key=key,
            label_visibility="collapsed", required=True, persist_state="session",
        )  # fmt: skip
    _keep_address(exhibit=exhibit.key, figure=chosen if chosen != first else None)
    return columns[chosen]


def _keep_address(**wanted: str | None) -> None:
    """Make the address say what is shown; what is None leaves it."""
    for name, value in wanted.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != value:
            st.query_params[name] = value


def _draw_left_out(shown: Judgement) -> None:
    """Runs of the grid that are not in the numbers: those that could not be made, with why, and those that loop."""
    failed = shown.rows[shown.rows["failure"].notna()]
    for (label, why), rows in list(failed.groupby(["label", "failure"]))[:MOST_FAILURES]:
        st.warning(escape_markdown(f"{label}: {plural(len(rows), 'run')} could not be made: {why}"))
    kinds = failed.groupby(["label", "failure"]).ngroups
    if kinds > MOST_FAILURES:
        st.caption(f"{plural(kinds - MOST_FAILURES, 'more kind', 'more kinds')} of runs could not be made.")
    looping = shown.rows["failure"].isna() & shown.rows[f"{LOOP_FREE}throughput"].isna()
    if looping.any():
        words = plural(int(looping.sum()), "run repeats its text", "runs repeat their text")
        st.caption(f"{words} from the start and {'is' if looping.sum() == 1 else 'are'} left out.")
