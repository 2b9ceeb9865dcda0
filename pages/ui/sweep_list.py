"""The experiments of this machine as one browser session follows them, which one it looks at, and their list."""

from pathlib import Path

import streamlit as st

from decoding.experiments.followed import FollowedExperiment, experiments
from pages.ui.errors import escape_markdown
from pages.ui.sweep_words import STATE_ICONS, left_words

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
