"""The trainings of this machine as one browser session follows them, which one it looks at, and their list."""

from pathlib import Path

import streamlit as st

from decoding.training.launch import Followed, trainings
from pages.ui.common.errors import escape_markdown
from pages.ui.train.sentences import KIND_WORDS, STATE_ICONS, age, best_words, started_s

CHOSEN, FORM = "train_run", "new"
MOST_LISTED = 12


def followed_trainings() -> list[Followed]:
    """Every training as it stands, newest first; of each only what has changed is read."""
    known: dict[Path, Followed] = st.session_state.setdefault("train_followed", {})
    folders = trainings()
    for path in set(known) - {folder.path for folder in folders}:
        del known[path]
    found = [known.setdefault(folder.path, Followed(folder)) for folder in folders]
    for followed in found:
        followed.look()
    return sorted(found, key=started_s, reverse=True)


def looked_at(found: list[Followed]) -> Followed | None:
    """The training that is looked at; None where a training is to be started.

    At first the one that the address names, else the newest that runs, else the newest.
    """
    chosen = st.session_state.get(CHOSEN) or st.query_params.get("run")
    by_name = {followed.folder.path.name: followed for followed in found}
    if chosen is None and found:
        chosen = next((each for each in found if each.stand.running), found[0]).folder.path.name
    if chosen not in by_name:
        chosen = FORM
    st.session_state[CHOSEN] = chosen
    if st.query_params.get("run") != chosen:
        st.query_params["run"] = chosen
    return by_name.get(chosen)


def look_at(name: str) -> None:
    """Look at a training, by the name of its folder, or at the form for another one."""
    st.session_state[CHOSEN] = name
    st.session_state["train_sure"] = None


def draw_list(found: list[Followed]) -> None:
    """A button per training: its name and state; below, its age and the best figure it has reached."""
    chosen = st.session_state.get(CHOSEN)
    if st.button(
        "New training", key="train_new", type="secondary", width="stretch",
        icon=":material/add:", on_click=look_at, args=(FORM,),
    ):  # fmt: skip
        st.rerun()
    if not found:
        st.caption("Nothing has been trained on this machine yet. Every training that is started stands here.")
    for followed in found[:MOST_LISTED] if not st.session_state.get("train_all") else found:
        _draw_entry(followed, chosen)
    if len(found) > MOST_LISTED:
        st.toggle(f"All {len(found)}", key="train_all", persist_state="session")


def _draw_entry(followed: Followed, chosen: str | None) -> None:
    name, state = followed.folder.path.name, followed.stand.state
    with st.container(key=f"train_entry_{name}", gap=None):
        if st.button(
            escape_markdown(followed.name), key=f"train_see_{name}", width="stretch", icon=STATE_ICONS[state],
            type="secondary" if name == chosen else "tertiary", on_click=look_at, args=(name,),
            help=KIND_WORDS.get(followed.kind, ""),
        ):  # fmt: skip
            st.rerun()
        status = followed.stand.status
        doing = f"{status.phase} {status.share or 0.0:.0%}" if state in ("training", "preparing") else state
        words = [doing.strip(), age(followed)]
        st.caption(escape_markdown(" · ".join(filter(None, [*words, _best(followed)]))))


def _best(followed: Followed) -> str:
    """The best figure of a training in words, searched for again only where there are new ones."""
    kept = st.session_state.setdefault("train_best", {})
    count, words = kept.get(followed.folder.path, (-1, ""))
    if count != len(followed.records):
        words = best_words(followed)
        kept[followed.folder.path] = len(followed.records), words
    return words
