"""The benchmark behind an exhibit that no grid is behind: a button that runs it, how long that takes, and its end."""

import time

import streamlit as st

from decoding.errors import NEEDS_TORCH
from decoding.experiments.launch import last_words
from decoding.papers.benchmark_runs import benchmark_stand, launch_benchmark, stop_benchmark
from decoding.papers.exhibit import Exhibit
from decoding.papers.stored import own_records, took
from pages.ui.errors import escape_markdown
from pages.ui.page_words import on_page
from pages.ui.papers_run import ERROR, RUNNING_S
from pages.ui.torch_there import torch_there
from pages.ui.train_words import duration
from pages.ui.watching import attempt, show_attempt

UNKNOWN = "how long it takes is known once it has run"


def draw_benchmark(exhibit: Exhibit, has_figures: bool, running: frozenset[str]) -> None:
    """A button that runs the benchmark of an exhibit with how long that may take, or how long it has been at work.

    Args:
        has_figures: whether there is something to see already. running: what is at work.
    """
    name = exhibit.stored
    show_attempt(ERROR)
    found = benchmark_stand(name)
    if found.state == "running":
        st.fragment(_watch_benchmark, run_every=RUNNING_S)(name)
        return
    if not torch_there():
        st.info(escape_markdown(f"{NEEDS_TORCH} Figures that are kept are shown without it."), icon=":material/info:")
        return
    words = f"{', '.join(sorted(running))} is running: two at once would slow each other down. " if running else ""
    with st.container(key="papers_offer", horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "Run it again" if has_figures else "Run it here", key="papers_run", icon=":material/play_arrow:",
            type="secondary" if has_figures else "primary", disabled=bool(running), on_click=attempt,
            args=(ERROR, launch_benchmark, name), help=escape_markdown(f"In a terminal: {exhibit.command}"),
            width="content",
        )  # fmt: skip
        st.caption(escape_markdown(f"{words}A benchmark of its own; {_took_words(name)}."), width="stretch")
    if found.state == "failed":
        st.error(escape_markdown(on_page(found.message)), icon=":material/error:")


def _watch_benchmark(name: str) -> None:
    """How long a benchmark has been at work, told again and again; the page is drawn anew where it ends."""
    found = benchmark_stand(name)
    if found.state != "running":
        st.rerun(scope="app")
    said = last_words(own_records(name))
    parts = [f"At work for {max(0, round(time.time() - found.started))} s", _took_words(name), said]
    with st.container(key="papers_progress", horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(escape_markdown(" · ".join(filter(None, parts))), width="stretch")
        st.button(
            "Stop it", key="papers_stop", icon=":material/stop_circle:", on_click=attempt,
            args=(ERROR, stop_benchmark, name), width="content", help="What it measured so far is lost.",
        )  # fmt: skip


def _took_words(name: str) -> str:
    """How long the newest run that tells took, and on what."""
    found = took(name)
    return UNKNOWN if found is None else f"it took {duration(found[0])} on {found[1]}"
