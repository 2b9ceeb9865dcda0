"""What was possible: the best tree of this size along the text that followed, and the best budget at measured costs."""

import streamlit as st

from decoding.hindsight import Followed, Hindsight, hindsight, ranks_along
from pages.ui.charts import chart, is_dark
from pages.ui.errors import escape_markdown
from pages.ui.state import Run, selected_iteration
from pages.ui.why_budgets import SLOT, draw_budgets, draw_run_budgets, take_budgets, usable_costs
from pages.ui.why_state import kept
from pages.ui.worker import job_bar
from viz.hindsight_charts import RankBar, ranks_figure
from viz.tokens import plural

CHART_HEIGHT = 290


def draw_possible(run: Run) -> None:
    """The text that followed on the left, budgets on the right."""
    take_budgets()
    index, count = selected_iteration(), len(run.trace.iterations)
    known = kept(("ranks", run.key, count), lambda: ranks_along(run.trace))
    told = kept(("hindsight", run.key, count, index), lambda: hindsight(run.trace, index, known))
    if told is None:
        done = "verified" if run.trace.iterations[index].drafted else "drafted"
        st.caption(f"Nothing was {done} in this iteration, so there was no other tree of its size.")
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(hindsight_words(run, index, told))
        key = ("ranks_figure", run.key, count, index, is_dark())
        chart(kept(key, lambda: ranks_figure(rank_bars(told, index), is_dark())), "why_ranks", CHART_HEIGHT)
        st.caption(escape_markdown(definition(told)))
    with right:
        costs = usable_costs(run)
        if costs is not None:
            draw_budgets(run, index, costs)
    with left:
        if costs is not None:
            draw_run_budgets(run, index, costs)
    job_bar(SLOT)


def hindsight_words(run: Run, index: int, told: Hindsight) -> str:
    """This tree against the best of its size and the ceiling."""
    best = plural(told.best, "token")
    best = f"**{best}**" if told.complete else f"**at least {best}**"
    said = f"This tree of {plural(told.nodes, 'node')} committed **{plural(told.committed, 'token')}**. "
    said += f"The best one of this size in the draft's own order reaches {best}"
    if told.committed <= told.best:
        said += " of the text that followed. "
    elif run.trace.iterations[index].law != "deterministic":
        said += ": the draws did better. "
    else:  # a rank that is not known leaves it open
        said += ", but this tree is not in that order. " if told.complete else ". "
    said += f"Ceiling, a chain of the text itself: {plural(told.ceiling, 'token')}."
    return said + (f" {end_words(run)}" if told.ends else "")


def end_words(run: Run) -> str:
    """Why there is no more text to hold a tree against."""
    if run.can_continue:
        return "The run has no more text: decode on to see further."
    return {
        "end_of_text": "The text ends there.",
        "length": "The run ends there, at the length that was asked for.",
        "unfinished": "The record ends there.",
    }[run.trace.totals.stopped]


def definition(told: Hindsight) -> str:
    """What the best tree in hindsight is."""
    unknown = sum(token.rank is None for token in told.followed)
    said = (
        "In the draft's own order: a child only with all likelier ones beside it; how many may differ from place to "
        "place, so reaching depth d takes as many nodes as the ranks of the first d tokens sum to."
    )
    if unknown:
        said += f" Unknown for {plural(unknown, 'token')} (?): the draft was never asked there in this run."
    return said


def rank_bars(told: Hindsight, index: int) -> list[RankBar]:
    """The tokens that followed as the chart draws them."""
    return [
        RankBar(token.text, token.rank, token.exact, _kind(token, place, told), _seen(token, index))
        for place, token in enumerate(told.followed)
    ]


def _kind(token: Followed, place: int, told: Hindsight) -> str:
    if token.drafted:
        return "taken"
    return "possible" if place < told.best - 1 else "beyond"


def _seen(token: Followed, index: int) -> str:
    if token.seen_in is None:
        return "unknown"
    return "in this tree" if token.seen_in == index else f"seen in iteration {token.seen_in + 1}"
