"""The papers' tables and figures to choose one from, each with a mark that tells whether its orderings hold here."""

from collections.abc import Mapping
from itertools import groupby

import streamlit as st

from decoding.papers import EXHIBITS
from decoding.papers.exhibit import Exhibit
from decoding.papers.judge import Outcome
from pages.ui.common.errors import escape_markdown
from pages.ui.papers.run import work_of

CHOSEN, OPENED, ENTERED = "papers_exhibit", "papers_paper", "address_obeyed"
ICONS = {
    "all": ":material/check_circle:",
    "some": ":material/rule:",
    "none": ":material/cancel:",
    "open": ":material/help:",
    "shown": ":material/show_chart:",
    "not run": ":material/radio_button_unchecked:",
    "running": ":material/hourglass_top:",
    "judging": ":material/more_horiz:",
}
LEGEND = {
    "all": "all orderings hold", "some": "some", "none": "none", "open": "undecided", "shown": "none claimed",
    "not run": "not run",
}  # fmt: skip


def looked_at() -> str:
    """The exhibit that is looked at: when the page is entered the one that the address names, else the one chosen."""
    known = {exhibit.key for exhibit in EXHIBITS}
    asked = None if st.session_state.get(ENTERED) else st.query_params.get("exhibit")
    st.session_state[ENTERED] = True
    if asked is not None and asked not in known:
        st.warning(escape_markdown(f"The address asks for {asked!r}, which is no table or figure here: choose one."))
    chosen = asked if asked in known else st.session_state.get(CHOSEN)
    chosen = chosen if chosen in known else EXHIBITS[0].key
    st.session_state[CHOSEN] = chosen
    return chosen


def draw_list(outcomes: Mapping[str, Outcome], running: frozenset[str], chosen: str) -> None:
    """The exhibits of each paper; that of the chosen one is open.

    Args:
        outcomes: by key, of the exhibits that are judged already. running: what is at work.
    """
    st.caption(escape_markdown(_count_words(outcomes)))
    opened = st.session_state.setdefault(OPENED, next(each.paper for each in EXHIBITS if each.key == chosen))
    for paper, found in groupby(EXHIBITS, key=lambda exhibit: exhibit.paper):
        exhibits = list(found)
        run = sum(each.key in outcomes and outcomes[each.key].run for each in exhibits)
        label = f"**{escape_markdown(paper)}** · {run}/{len(exhibits)}"
        with st.expander(label, key=f"papers_of_{paper}", expanded=paper == opened):
            for exhibit in exhibits:
                _draw_entry(exhibit, outcomes.get(exhibit.key), work_of(exhibit) in running, exhibit.key == chosen)


def _draw_entry(exhibit: Exhibit, outcome: Outcome | None, at_work: bool, chosen: bool) -> None:
    """A button that shows an exhibit, with the mark of its orderings."""
    words = summary_words(outcome)
    with st.container(key=f"papers_entry_{exhibit.key.replace('/', '_').replace('.', '_')}", gap=None):
        st.button(
            escape_markdown(exhibit.title), key=f"papers_see_{exhibit.key}", width="stretch",
            icon=ICONS["running" if at_work else summary(outcome)], on_click=_look_at, args=(exhibit.key,),
            type="secondary" if chosen else "tertiary", help=escape_markdown(f"Running. {words}" if at_work else words),
        )  # fmt: skip


def draw_legend() -> None:
    """What the marks of the list say."""
    st.caption(" · ".join(f"{ICONS[name]} {words}" for name, words in LEGEND.items()))


def summary(outcome: Outcome | None) -> str:
    """Whether `all`, `some` or `none` of the orderings hold; `open` where none does and not all of them are decided.

    `shown` where the paper claims no order, `not run` without rows, `judging` before they are judged.

    Args:
        outcome: None while it is being judged.
    """
    if outcome is None:
        return "judging"
    if not outcome.run:
        return "not run"
    verdicts = {each.verdict for each in outcome.judged}
    if not verdicts:
        return "shown"
    if "holds" in verdicts:
        return "some" if len(verdicts) > 1 else "all"
    return "none" if verdicts == {"does not hold"} else "open"


def summary_words(outcome: Outcome | None) -> str:
    """The same in a sentence."""
    if outcome is None:
        return "Its rows are being judged."
    if not outcome.run:
        return "Not run here."
    if not outcome.judged:
        return "Run here; the paper claims no order."
    held = sum(each.verdict == "holds" for each in outcome.judged)
    return f"{held} of {len(outcome.judged)} orderings of the paper hold here."


def _count_words(outcomes: Mapping[str, Outcome]) -> str:
    """How much of the papers is run, and how much of that holds."""
    run = [outcome for outcome in outcomes.values() if outcome.run]
    judged = [each for outcome in run for each in outcome.judged]
    words = f"{len(run)} of {len(EXHIBITS)} tables and figures are run here"
    if not judged:
        return f"{words}."
    words = f"{words}; {sum(each.verdict == 'holds' for each in judged)} of {len(judged)} orderings hold"
    return f"{words}." if len(outcomes) == len(EXHIBITS) else f"{words}; judging the others."


def _look_at(key: str) -> None:
    st.session_state[CHOSEN] = key
