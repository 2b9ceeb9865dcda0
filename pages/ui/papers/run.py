"""The runs and benchmarks behind a paper result: progress, time estimates, buttons that start and stop them."""

import time
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import pandas as pd
import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.common.formats import about, long_duration, plural
from decoding.common.prompts import load_prompts
from decoding.experiments.experiment import (
    GRIDS,
    Experiment,
    ExperimentWatcher,
    experiments_home,
    launch,
    seconds_per_token,
)
from decoding.jobs.job import JobWatcher, jobs_below
from decoding.papers import PAPER_RESULTS
from decoding.papers.measured import Benchmark
from decoding.papers.paper_result import OWN_SETS, PaperResult
from decoding.papers.stored import took
from pages.ui.common.errors import escape_markdown, torch_there
from pages.ui.jobs import attempt, draw_end, draw_progress, progress_words, stop_buttons
from pages.ui.papers.rows import StoredResults, stamps_now
from pages.ui.widgets.trained import EMBEDDED_NAME

RUNNING_S = 2.0  # refresh interval of running work
REDRAW_S = 12.0  # redraw interval of the whole page while results arrive
NAME, DRAWN = "papers", "papers_drawn"
PROMPTS = "--prompts"  # of the command: texts other than the grid's
TEXTS = (
    "Texts instead of the grid's: a folder of .txt files, samples, long, or where a network is there wikitext-2, "
    "pg-19, c4, openwebtext, cnn-dailymail, gsm8k, humaneval or mt-bench."
)
UNKNOWN = "its time is unknown until it has run once"


@dataclass(frozen=True)
class Size:
    """The maximum size of a grid: contradicting settings are left out when it runs.

    Attributes:
        runs, tokens: of the whole grid; None where the number of prompts depends on the data set.
        words: lengths and prompts.
    """

    runs: int | None
    tokens: int | None
    words: str


@lru_cache(maxsize=32)
def size_of(grid: str) -> Size:
    """The size of a grid, read without torch."""
    content = tomllib.loads((GRIDS / f"{grid}.toml").read_text(encoding="utf-8"))
    asked = content.get("prompts", {})
    where, kinds, count = asked.get("set", "samples"), asked.get("kinds"), asked.get("count")
    if where == "samples":
        there = sum(not kinds or prompt.kind in kinds for prompt in load_prompts())
        count = min(count or there, there)
    ways = sum(prod(len(values) for values in each.get("vary", {}).values()) for each in content["methods"])
    ways += bool(content.get("reference", "autoregressive"))
    samplings = sum(len(each.get("seeds", [0])) for each in content.get("sampling", [{}]))
    lengths, cuts = content.get("new_tokens", [64]), asked.get("max_tokens", [0])
    words = f"{_listed(lengths)} tokens after at most {_listed(cuts)}" if any(cuts) else f"{_listed(lengths)} tokens"
    prompts = "every prompt" if count is None else plural(count, "prompt")
    words += f", {prompts}{'' if where == 'samples' else f' of {OWN_SETS.get(where, where)}'}"
    if count is None:
        return Size(None, None, words)
    each = ways * samplings * content.get("repeats", 1) * len(cuts) * count
    return Size(each * len(lengths), each * sum(lengths), words)


def at_work() -> frozenset[str]:
    """Running work: the user's experiments by folder name, and benchmarks of paper results."""
    benchmarks = {paper_result.stored for paper_result in PAPER_RESULTS if paper_result.stored}
    return frozenset(job.path.name for job in jobs_below(experiments_home(), Experiment) if job.stand().running) | {
        f"benchmarks.{name}" for name in benchmarks if Benchmark.of(name).stand().running
    }


def work_of(paper_result: PaperResult) -> str:
    """The name of a paper result's runs in `at_work`."""
    return f"benchmarks.{paper_result.stored}" if paper_result.stored else paper_result.grid


def draw_work(paper_result: PaperResult, has_rows: bool, kept: list[StoredResults], running: frozenset[str]) -> None:
    """The progress of a paper result's runs, or a button that starts the missing ones with a time estimate.

    Args:
        has_rows: whether there are results already. running: the running work.
    """
    followed = _followed(paper_result)
    if followed.stand.running:
        draw_end(NAME, followed.stand)
        st.session_state[DRAWN] = time.monotonic(), stamps_now()
        st.fragment(_watch, run_every=RUNNING_S)(paper_result)
        return
    if not torch_there():
        st.info(escape_markdown(f"{NEEDS_TORCH} Stored results are shown without it."), icon=":material/info:")
        return
    with st.container(key="papers_offer", horizontal=True, vertical_alignment="center", gap="small"):
        _draw_offer(paper_result, followed, has_rows, kept, running)
    draw_end(NAME, followed.stand)


def _followed(paper_result: PaperResult) -> JobWatcher:
    """The current state of a paper result's experiment or benchmark."""
    if paper_result.stored:
        followed = JobWatcher(Benchmark.of(paper_result.stored))
    else:
        followed = ExperimentWatcher(Experiment(experiments_home() / paper_result.grid))
    followed.look()
    return followed


def _watch(paper_result: PaperResult) -> None:
    """The progress, refreshed by a timer; the page is redrawn when it ends or results have arrived."""
    followed = _followed(paper_result)
    drawn_s, stamps = st.session_state[DRAWN]
    if not followed.stand.running or (time.monotonic() - drawn_s > REDRAW_S and stamps != stamps_now()):
        st.rerun(scope="app")
    words, lost = "", "Ends within an iteration; stored results stay, and Resume runs the rest."
    if paper_result.stored:
        since = f"Running for {max(0, round(time.time() - followed.started_s))} s"
        has_steps = followed.stand.state == "running"
        words = f"{since} · {progress_words(followed) if has_steps else _took_words(paper_result.stored)}"
        lost = "Its measurements so far are lost."
    with st.container(key="papers_progress", horizontal=True, vertical_alignment="center", gap="small"):
        draw_progress(followed, words)
        stop_buttons(NAME, followed, lost)


def _draw_offer(
    paper_result: PaperResult, followed: JobWatcher, has_rows: bool, kept: list[StoredResults], running: frozenset[str]
) -> None:
    """The button that runs what is missing, with its size, and a field for texts where it needs some."""
    whole = has_rows if paper_result.stored else followed.stand.state == "finished"
    label, act = "Run again" if whole else "Run on this machine", (launch, paper_result.grid)
    hint, words = (
        f"In a terminal: {paper_result.command}",
        f"{', '.join(sorted(running))} is running: " if running else "",
    )
    words += "two at once would slow each other down. " if running else ""
    if paper_result.stored:
        act = (followed.job.run,)
        words += f"A separate benchmark; {_took_words(paper_result.stored)}."
    else:
        if whole:
            hint = f"Stored runs are not repeated unless the pair or the grid has changed. {hint}"
        texts = st.text_input(
            "Texts", key=f"papers_texts_{paper_result.grid}", placeholder="other texts: wikitext-2", width=220,
            label_visibility="collapsed", persist_state="session", help=TEXTS,
        )  # fmt: skip
        act = (*act, PROMPTS, texts.strip()) if texts.strip() else act
        if followed.stand.status.done and not whole and PROMPTS not in act:
            label, act = "Resume", (followed.job.resume,)
        words += _offer_words(paper_result.grid, followed, kept)
    st.button(
        label, key="papers_run", type="secondary" if has_rows else "primary", disabled=bool(running),
        icon=":material/play_arrow:", on_click=attempt, args=(NAME, *act), help=escape_markdown(hint), width="content",
    )  # fmt: skip
    st.caption(escape_markdown(words), width="stretch")


def _took_words(name: str) -> str:
    """The time of the newest timed run of a benchmark, and its machine."""
    found = took(name)
    return UNKNOWN if found is None else f"it took {long_duration(found[0])} on {found[1]}"


def _offer_words(grid: str, followed: JobWatcher, kept: list[StoredResults]) -> str:
    """What is stored, what is missing, and a time estimate from the measured time per token.

    Measured in the user's own runs of the embedded pair, which grids use, else in all of them.
    """
    size, status = size_of(grid), followed.stand.status
    if followed.stand.state == "finished":
        return f"All {status.total:,} runs of the last request are stored."
    if size.runs is None:
        return f"{size.words}; the time is unknown until some have run."
    runs = status.total or size.runs
    left = runs - status.done
    words = f"{status.done:,} of {runs:,} runs are stored, {left:,} remain" if status.done else f"At most {left:,} runs"
    for own in (True, False):
        costs = [each.rows.loc[each.rows["pair"] == EMBEDDED_NAME, ["failure", "new_tokens", "wall_s"]]
                 for each in kept if each.own or not own]  # fmt: skip
        if costs and (token_s := seconds_per_token(pd.concat(costs))) is not None:
            whose = "so far on this machine" if own else "in the results shipped with Draftscope"
            return f"{words}, {about(token_s * size.tokens * left / runs)} at the time per token {whose}."
    return f"{words}; the time is unknown until some have run."


def _listed(numbers: list[int]) -> str:
    return " / ".join(f"{number:,}" for number in numbers)
