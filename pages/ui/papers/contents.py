"""The tables and figures of the papers by number, each with a mark that shows whether its orderings hold; those that
explain a thing lead to the page that shows it.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import groupby

import streamlit as st

from decoding.experiments.estimates import FEWEST
from decoding.papers import CONTENTS, PAPER_RESULTS, not_shown
from decoding.papers.explained import EXPLAINED, Explained
from decoding.papers.judge import Reproduction
from decoding.papers.paper_result import PaperResult, place_of
from pages.ui import PAGES
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import keep_parameter
from pages.ui.papers.run import work_of

CHOSEN, OPENED, ENTERED = "papers_exhibit", "papers_paper", "address_obeyed"
ICONS = {
    "all": ":material/check_circle:",
    "some": ":material/rule:",
    "none": ":material/cancel:",
    "equal": ":material/equal:",
    "open": ":material/help:",
    "shown": ":material/show_chart:",
    "not run": ":material/radio_button_unchecked:",
    "explained": ":material/menu_book:",
    "running": ":material/hourglass_top:",
    "judging": ":material/more_horiz:",
}
LEGEND = {
    "all": "all orderings hold", "some": "some", "none": "none", "equal": "equal", "open": "not decided",
    "shown": "none claimed", "not run": "not run", "explained": "an explanation", "judging": "being judged",
}  # fmt: skip
ORDERING = (
    "An ordering is a paper's claim that one method is ahead of another. Both are equal if the whole 95% interval of "
    "our difference over prompts lies within 3%; else it holds if all of it agrees, does not hold if all of it says "
    f"the opposite, and is not decided otherwise or with fewer than {FEWEST} prompts. Tables and charts have "
    "intervals by resampling prompts, claims by Student's t."
)
UNDECIDED = (
    "Many are not decided: few prompts ({prompts} each) give wide intervals, and a small pair's methods often lie "
    "closer together. Each has its reason under Claims of the paper."
)
# All of them, paper by paper, tables before figures, by number.
IN_ORDER: tuple[PaperResult | Explained, ...] = tuple(
    sorted((*PAPER_RESULTS, *EXPLAINED), key=lambda each: (list(CONTENTS).index(each.paper), place_of(each.title)))
)


def looked_at() -> str:
    """The selected table or figure: on entry the one that the address names, else the one chosen."""
    known = {each.key for part in (PAPER_RESULTS, EXPLAINED) for each in part}
    asked = None if st.session_state.get(ENTERED) else st.query_params.get("exhibit")
    st.session_state[ENTERED] = True
    if asked is not None and asked not in known:
        st.warning(escape_markdown(f"The address names {asked!r}, which is not a known table or figure: choose one."))
    chosen = asked if asked in known else st.session_state.get(CHOSEN)
    chosen = chosen if chosen in known else PAPER_RESULTS[0].key
    st.session_state[CHOSEN] = chosen
    return chosen


def draw_list(outcomes: Mapping[str, Reproduction], running: frozenset[str], chosen: str) -> None:
    """The results of each paper, each a button with the mark of its orderings; the paper of the selected one is open.

    Args:
        outcomes: by key, of the paper results already judged. running: the running work.
    """
    run = [outcome for outcome in outcomes.values() if outcome.run]
    judged = [each for outcome in run for each in outcome.judged]
    waiting = len(outcomes) < len(PAPER_RESULTS)
    words = f"{len(run)} of {len(PAPER_RESULTS)} tables and figures have been re-run"
    if waiting:
        words = f"Reading the stored results: {len(outcomes)} of {len(PAPER_RESULTS)} tables and figures so far"
    elif judged:
        counts = Counter(each.verdict for each in judged)
        words += f"; of {len(judged)} orderings {counts['holds']} hold, {counts['equal within 3%']} are equal, "
        words += f"{counts['does not hold']} do not hold, {counts['not decided']} are not decided"
    st.caption(escape_markdown(f"{words}."))
    st.caption(" · ".join(f"{ICONS[name]} {words}" for name, words in LEGEND.items()))
    if prompts := [each.gain.prompts for each in judged if each.gain is not None]:
        fewest, most = min(prompts), max(prompts)
        undecided = UNDECIDED.format(prompts=f"{fewest} to {most}" if fewest < most else most)
        st.caption(escape_markdown(f"{ORDERING} {undecided}"))
    opened = st.session_state.setdefault(OPENED, next(each.paper for each in IN_ORDER if each.key == chosen))
    for paper, found in groupby(IN_ORDER, key=lambda each: each.paper):
        entries = list(found)
        exhibits = [each for each in entries if isinstance(each, PaperResult)]
        known = [outcomes[each.key] for each in exhibits if each.key in outcomes]
        so_far = f"{sum(each.run for each in known)}/{len(exhibits)} run"
        if len(known) < len(exhibits):
            so_far = f"{len(known)}/{len(exhibits)} …"
        label = f"**{escape_markdown(paper)}** · {so_far}"
        with st.expander(label, key=f"papers_of_{paper}", expanded=paper == opened):
            for each in entries:
                mark, words = "explained", "An explanation, and the page that shows the thing."
                if isinstance(each, PaperResult):
                    mark, words = summary(outcomes.get(each.key))
                    if work_of(each) in running:
                        mark, words = "running", f"Running. {words}"
                key = each.key
                with st.container(key=f"papers_entry_{key.replace('/', '_').replace('.', '_')}", gap=None):
                    st.button(
                        escape_markdown(each.title), key=f"papers_see_{key}", width="stretch", icon=ICONS[mark],
                        on_click=st.session_state.update, args=({CHOSEN: key},),
                        type="secondary" if key == chosen else "tertiary", help=escape_markdown(words),
                    )  # fmt: skip
            if missing := not_shown(paper):
                st.caption(f"Not shown: {', '.join(missing)}.")


def summary(outcome: Reproduction | None) -> tuple[str, str]:
    """Whether the orderings are reproduced: a mark, and a sentence.

    The mark is `all`, `some` or `none` of them; where none is, `open` if some are undecided and `equal` if all are;
    `shown` where the paper claims no order, `not run` without results, `judging` before they are judged.

    Args:
        outcome: None while it is being judged.
    """
    if outcome is None:
        return "judging", "Its results are being judged."
    if not outcome.run:
        return "not run", "Not run yet."
    verdicts = [each.verdict for each in outcome.judged]
    if not verdicts:
        return "shown", "Re-run; the paper claims no order."
    held = verdicts.count("holds")
    words = f"{held} of {len(verdicts)} orderings of the paper hold."
    if held:
        return "all" if held == len(verdicts) else "some", words
    if "not decided" in verdicts:
        return "open", words
    return "none" if "does not hold" in verdicts else "equal", words


def draw_explained(explained: Explained) -> None:
    """An explanation of a paper, and the page that shows the thing itself."""
    with st.container(key="papers_header", gap=None):
        st.markdown(f"**{escape_markdown(explained.paper)}** · {escape_markdown(explained.title)}")
        st.caption(escape_markdown(explained.words))
    label, page = f"See it on {explained.page}", PAGES[explained.page]
    if explained.page == "Papers":
        chosen = explained.query["exhibit"]
        st.button(label, key="papers_explained", on_click=st.session_state.update, args=({CHOSEN: chosen},),
                  icon=":material/arrow_forward:")  # fmt: skip
    else:
        st.page_link(page, label=label, icon=":material/arrow_forward:", query_params=dict(explained.query))
    keep_parameter("exhibit", explained.key)
    keep_parameter("figure", None)
