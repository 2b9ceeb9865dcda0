"""The exhibits of the page Papers: judged from all rows that are kept, and the list to choose one from."""

from itertools import groupby
from pathlib import Path

import pandas as pd
import streamlit as st

from decoding.errors import ExperimentError
from decoding.experiments.homes import all_experiments
from decoding.experiments.rows import FOLDER, all_rows
from decoding.papers.judge import Outcome, judge
from decoding.papers.registry import EXHIBITS
from pages.ui.errors import escape_markdown, show_error

CHOSEN = "papers_exhibit"
ICONS = {"holds": ":material/check_circle:", "mixed": ":material/rule:", "none": ":material/radio_button_unchecked:"}


def kept_rows() -> pd.DataFrame:
    """The rows of all experiments, read again where a file has come or gone."""
    folders = all_experiments()
    stamps = tuple((str(file), file.stat().st_mtime_ns) for folder in folders for file in (folder / FOLDER).iterdir())
    return _read(tuple(map(str, folders)), stamps)


def judged_exhibits() -> dict[str, Outcome]:
    """Every exhibit with what our rows say of it, by key."""
    try:
        rows = kept_rows()
    except ExperimentError as error:
        show_error(error)
        rows = all_rows([])
    known = st.session_state.get("papers_judged")
    if known is None or known[0] is not rows:
        st.session_state["papers_judged"] = known = rows, {each.key: judge(each, rows) for each in EXHIBITS}
    return known[1]


def rows_in_use() -> pd.DataFrame:
    """The rows that `judged_exhibits` has judged."""
    return st.session_state["papers_judged"][0]


def looked_at() -> str:
    """The exhibit that is looked at: the one chosen, the one that the address names, or the first."""
    chosen = st.session_state.get(CHOSEN) or st.query_params.get("exhibit")
    if chosen not in {exhibit.key for exhibit in EXHIBITS}:
        chosen = EXHIBITS[0].key
    st.session_state[CHOSEN] = chosen
    if st.query_params.get("exhibit") != chosen:
        st.query_params["exhibit"] = chosen
    return chosen


def draw_list(outcomes: dict[str, Outcome]) -> None:
    """A button per exhibit under the name of its paper, with a mark that tells whether its orderings hold here."""
    chosen = looked_at()
    for paper, exhibits in groupby(EXHIBITS, key=lambda exhibit: exhibit.paper):
        st.markdown(f"#### {escape_markdown(paper)}")
        for exhibit in exhibits:
            outcome = outcomes[exhibit.key]
            with st.container(key=f"papers_entry_{exhibit.key.replace('/', '_').replace('.', '_')}", gap=None):
                st.button(
                    escape_markdown(exhibit.title), key=f"papers_see_{exhibit.key}", width="stretch",
                    icon=ICONS[summary(outcome)], type="secondary" if exhibit.key == chosen else "tertiary",
                    on_click=_look_at, args=(exhibit.key,), help=summary_words(outcome),
                )  # fmt: skip


def summary(outcome: Outcome) -> str:
    """Whether all orderings hold, some do not, or nothing was run."""
    if not outcome.run:
        return "none"
    return "holds" if all(each.verdict == "holds" for each in outcome.judged) else "mixed"


def summary_words(outcome: Outcome) -> str:
    """The same in words."""
    if not outcome.run:
        return "Not run here."
    held = sum(each.verdict == "holds" for each in outcome.judged)
    return f"{held} of {len(outcome.judged)} orderings of the paper hold here."


def _look_at(key: str) -> None:
    st.session_state[CHOSEN] = key


@st.cache_resource(max_entries=2, show_spinner=False)
def _read(folders: tuple[str, ...], stamps: tuple) -> pd.DataFrame:
    rows = all_rows([Path(folder) for folder in folders])
    return rows.drop_duplicates("key") if len(rows) else rows
