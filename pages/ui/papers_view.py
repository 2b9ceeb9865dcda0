"""One table or figure of a paper: how it was measured there and here, a chart, the numbers, and the verdicts."""

import html

import streamlit as st

from decoding.errors import DraftscopeError
from decoding.experiments.experiment import Experiment, Status
from decoding.experiments.homes import experiments_home
from decoding.experiments.launch import last_words, launch, seconds_per_token
from decoding.papers.exhibit import Figure
from decoding.papers.judge import Judged, Outcome, words_of
from pages.ui.compare_table import TABLE_STYLE
from pages.ui.errors import escape_markdown, show_error
from pages.ui.papers_list import rows_in_use
from pages.ui.run_view import chart, is_dark
from pages.ui.torch_there import torch_there, why_not
from viz.paper_charts import exhibit_figure
from viz.theme import MARKS, outline

RUNNING_S = 3.0
VERDICT_MARKS = {"holds": ("✓", "accepted"), "does not hold": ("✗", "rejected")}


def draw_exhibit(outcome: Outcome) -> None:
    """Everything about one exhibit."""
    exhibit = outcome.exhibit
    with st.container(key="papers_header"):
        st.markdown(f"**{escape_markdown(exhibit.paper)}** · {escape_markdown(exhibit.title)}")
    where = "; ".join(outcome.where) if outcome.run else "not run on this machine"
    st.caption(escape_markdown(f"Paper: {exhibit.protocol}.  \nHere: {where}."))
    draw_running(outcome)
    figure = _chosen_figure(outcome)
    if outcome.run or any(way.paper for way in outcome.exhibit.ways):
        with st.container(border=True, key="papers_chart"):
            drawn = exhibit_figure(outcome, figure, is_dark())
            chart(drawn, key=f"papers_figure_{figure.column}", height=drawn.layout.height)
    if outcome.values:
        st.html(table_html(outcome))
    if outcome.run and outcome.judged:
        st.markdown("**What the paper says, judged on the same prompts**")
        st.html(orderings_html(outcome.judged, is_dark()))


def draw_running(outcome: Outcome) -> None:
    """How far the grid is that is running, or a button that runs it."""
    grid = outcome.exhibit.grid
    experiment = Experiment(experiments_home() / grid)
    try:
        status = experiment.status()
    except DraftscopeError as error:
        show_error(error)
        return
    if status is not None and status.state == "running":
        st.fragment(_watch, run_every=RUNNING_S)(experiment)
        return
    told = f"python -m benchmarks.sweep benchmarks/grids/{grid}.toml"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        words = "Run again what is missing" if outcome.run else "Run it here"
        if st.button(words, key="papers_run", icon=":material/play_arrow:", disabled=not torch_there(),
                     type="secondary" if outcome.run else "primary",
                     help=why_not(f"Runs every setting of the grid in a process of its own: {told}")):  # fmt: skip
            try:
                launch(grid)
            except DraftscopeError as error:
                show_error(error)
            else:
                st.rerun()
        st.caption(escape_markdown(_estimate_words(grid)))
    if status is not None and status.state == "failed":
        st.error(escape_markdown(status.message or last_words(experiment.folder)), icon=":material/error:")


def _watch(experiment: Experiment) -> None:
    status: Status | None = experiment.status()
    if status is None or status.state != "running":
        st.rerun(scope="app")
    left = "" if status.left_s is None else f" · about {_time_words(status.left_s)} left"
    share = status.done / status.runs if status.runs else 0.0
    st.progress(share, text=escape_markdown(f"{status.done:,} of {status.runs:,} runs{left} · {status.now}"))
    if st.button("Stop", key="papers_stop", icon=":material/stop_circle:", help="What is kept stays; it can go on."):
        experiment.ask_to_stop()


def _estimate_words(grid: str) -> str:
    """How long a grid may take, from what a token has cost here so far."""
    if not torch_there():
        return ""
    from decoding.experiments.grid import contestants
    from decoding.experiments.grid_file import read_grid
    from decoding.experiments.homes import GRIDS

    found = read_grid(GRIDS / f"{grid}.toml")
    ways = sum(len(contestants(found, sampling)[0]) for sampling in found.samplings)
    runs = ways * len(found.prompts.max_tokens) * found.repeats * (found.prompts.count or 1)
    cost = seconds_per_token(rows_in_use())
    tokens = runs * sum(found.new_tokens)
    count = f"{runs * len(found.new_tokens):,} runs"
    if cost is None:
        return f"{count}; how long they take is known once some have run."
    return f"{count}, about {_time_words(cost * tokens)} at what a token has cost here so far."


def _time_words(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _chosen_figure(outcome: Outcome) -> Figure:
    figures = outcome.exhibit.figures
    if len(figures) == 1:
        return figures[0]
    key = f"papers_column_{outcome.exhibit.key}"
    words = {figure.column: figure.words for figure in figures}
    chosen = st.segmented_control(
        "Figure", list(words), format_func=words.get, default=figures[0].column, key=key, label_visibility="collapsed"
    )
    return next(figure for figure in figures if figure.column == (chosen or figures[0].column))


def table_html(outcome: Outcome) -> str:
    """Ours beside theirs, a row per way and value of the axis. Everything escaped."""
    exhibit = outcome.exhibit
    heads = ["", *(["at"] if exhibit.by else []), "runs"]
    for figure in exhibit.figures:
        heads += [f"{figure.words}: here (95% interval)", "paper"]
    body = []
    for way in exhibit.ways:
        for value in outcome.values:
            key = (way.words, value)
            cells = [*([value] if exhibit.by else []), outcome.runs.get(key, 0)]
            for figure in exhibit.figures:
                paper = way.paper.get(figure.column if value is None else (figure.column, value))
                ours = words_of(figure, outcome.ours.get((key, figure.column)))
                cells += [ours, "" if paper is None else f"{paper:g}"]
            row = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
            body.append(f"<tr><th>{html.escape(way.words)}</th>{row}</tr>")
    head = "".join(f"<th>{html.escape(word)}</th>" for word in heads)
    return (
        f'{TABLE_STYLE}<div class="ds-table-box"><table class="ds-table"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def orderings_html(judged: tuple[Judged, ...], dark: bool) -> str:
    """A line per ordering: the verdict, the difference here and in the paper, and why not where it does not hold."""
    lines = []
    for each in judged:
        sign, mark = VERDICT_MARKS.get(each.verdict, ("○", "not_reached"))
        at = "" if each.value is None else f" at {each.value}"
        direction = "over" if each.ordering.higher else "below"
        words = f"{each.ordering.better} {direction} {each.ordering.worse}{at}: {each.ordering.figure.words}"
        gain = each.gain
        here = "" if gain is None else f"{gain.value:+.1%} ({gain.low:+.1%} to {gain.high:+.1%}) here"
        paper = "" if each.paper is None else f"{each.paper:+.1%} in the paper"
        told = ", ".join(filter(None, (here, paper)))
        why = f'<div class="why">{html.escape(each.reason)}</div>' if each.reason else ""
        color = outline(MARKS[mark].color, dark)
        lines.append(
            f'<div class="verdict" style="color:{color}">{sign} {each.verdict}</div>'
            f"<div>{html.escape(words)}{': ' if told else ''}{html.escape(told)}{why}</div>"
        )
    return f'<div class="ds-orderings">{"".join(lines)}</div>'
