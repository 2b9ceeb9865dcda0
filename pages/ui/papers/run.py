"""The runs and benchmarks behind an exhibit: how far they are, how long they may take, buttons that begin and stop."""

import time
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.common.prompts import load_prompts
from decoding.experiments.experiment import STATUS, Experiment, Status
from decoding.experiments.homes import GRIDS, experiments_home
from decoding.experiments.launch import LAUNCH, Stand, asked_to_stop, go_on, last_words, launch, stand
from decoding.papers.exhibit import Exhibit
from decoding.papers.measured.launch import benchmark_stand, launch_benchmark, stop_benchmark
from decoding.papers.registry import EXHIBITS
from decoding.papers.stored import own_records, took
from pages.ui.common.errors import escape_markdown
from pages.ui.common.sentences import on_page
from pages.ui.common.torch_there import torch_there
from pages.ui.papers.rows import Kept, cost_of_a_token, stamps_now
from pages.ui.widgets.watching import attempt, show_attempt
from viz.formats import about, long_duration, plural

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
    return UNKNOWN if found is None else f"it took {long_duration(found[0])} on {found[1]}"


RUNNING_S = 2.0  # between two looks at a grid that runs
REDRAW_S = 12.0  # between two drawings of the whole page while rows come in
ERROR, DRAWN = "papers_error", "papers_drawn"
PROMPTS = "--prompts"  # of the command: other texts than the samples


@dataclass(frozen=True)
class Size:
    """What a grid comes to, at most: settings that contradict one another are left out when it runs.

    Attributes:
        runs, tokens: of the whole grid; None where only the data set knows how many prompts there are.
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
    words = f"{_listed(lengths)} tokens behind at most {_listed(cuts)}" if any(cuts) else f"{_listed(lengths)} tokens"
    prompts = "every prompt" if count is None else plural(count, "prompt")
    words += f", {prompts}{'' if where == 'samples' else f' of {where}'}"
    if count is None:
        return Size(None, None, words)
    each = ways * samplings * content.get("repeats", 1) * len(cuts) * count
    return Size(each * len(lengths), each * sum(lengths), words)


def at_work() -> frozenset[str]:
    """What runs: the user's experiments by the names of their folders, and benchmarks of exhibits."""
    folders = {file.parent for kind in (STATUS, LAUNCH) for file in experiments_home().glob(f"*/{kind}")}
    benchmarks = {exhibit.stored for exhibit in EXHIBITS if exhibit.stored}
    return frozenset(folder.name for folder in folders if stand(folder).running) | {
        f"benchmarks.{name}" for name in benchmarks if benchmark_stand(name).state == "running"
    }


def work_of(exhibit: Exhibit) -> str:
    """What an exhibit's runs are called in `at_work`."""
    return f"benchmarks.{exhibit.stored}" if exhibit.stored else exhibit.grid


def draw_runs(exhibit: Exhibit, has_rows: bool, kept: list[Kept], running: frozenset[str]) -> None:
    """How far the grid of an exhibit is that is running, or a button that runs it with how long that may take.

    Args:
        has_rows: whether there is something to see already. running: experiments at work.
    """
    grid = exhibit.grid
    show_attempt(ERROR)
    found = stand(experiments_home() / grid)
    if found.running:
        st.session_state[DRAWN] = time.monotonic(), stamps_now()
        st.fragment(_watch, run_every=RUNNING_S)(grid)
        return
    if not torch_there():
        st.info(escape_markdown(f"{NEEDS_TORCH} Rows that are kept are shown without it."), icon=":material/info:")
        return
    _draw_offer(exhibit, found, has_rows, _offer_words(grid, found, kept), running)
    if found.state == "failed":
        said = on_page(found.message or last_words(experiments_home() / grid))
        st.error(escape_markdown(said), icon=":material/error:")


def _watch(grid: str) -> None:
    """The progress of a grid, looked at again and again; the page is drawn anew where it ends or rows have come."""
    folder = experiments_home() / grid
    found = stand(folder)
    drawn_s, stamps = st.session_state[DRAWN]
    if not found.running or (time.monotonic() - drawn_s > REDRAW_S and stamps != stamps_now()):
        st.rerun(scope="app")
    status, asked = found.status, asked_to_stop(folder)
    with st.container(key="papers_progress", horizontal=True, vertical_alignment="center", gap="small"):
        if found.state == "starting":
            st.progress(0.0, text="Starting its process: loading torch and the pair takes a few seconds")
            return
        share = status.done / status.runs if status.runs else 0.0
        st.progress(share, text=escape_markdown(_progress_words(status)))
        st.button(
            "Stopping" if asked else "Stop it", key="papers_stop", icon=":material/stop_circle:", disabled=asked,
            on_click=attempt, args=(ERROR, Experiment(folder).ask_to_stop), width="content",
            help="It ends within an iteration; what is kept stays, and it can go on later.",
        )  # fmt: skip


def _progress_words(status: Status) -> str:
    parts = [f"{status.done:,} of {status.runs:,} runs"]
    if status.left_s is not None:
        parts.append(f"{about(status.left_s)} left")
    if status.failed:
        parts.append(f"{status.failed:,} could not be made")
    return " · ".join([*parts, *([status.now] if status.now else [])])


def _draw_offer(exhibit: Exhibit, found: Stand, has_rows: bool, words: str, running: frozenset[str]) -> None:
    """The button that runs what is missing, with what that comes to, and which texts where it needs some."""
    whole, more = found.state == "finished", ()
    told = f"In a terminal: {exhibit.command}"
    if whole:
        told = f"What is kept is not run again, unless the pair or the grid has changed since. {told}"
    if running:
        words = f"{', '.join(sorted(running))} is running: two at once would slow each other down. {words}"
    with st.container(key="papers_offer", horizontal=True, vertical_alignment="center", gap="small"):
        if PROMPTS in exhibit.needs:
            texts = st.text_input(
                "Texts", key=f"papers_texts_{exhibit.grid}", placeholder="folder of .txt files, or pg-19", width=260,
                label_visibility="collapsed", persist_state="session",
            )  # fmt: skip
            more = (PROMPTS, texts.strip()) if texts.strip() else ()
        unfinished = bool(found.status.done) and not whole
        act = (go_on, experiments_home() / exhibit.grid) if unfinished and not more else (launch, exhibit.grid, *more)
        st.button(
            "Run it again" if whole else "Go on" if unfinished else "Run it here", key="papers_run",
            type="secondary" if has_rows else "primary", disabled=bool(running), icon=":material/play_arrow:",
            on_click=attempt, args=(ERROR, *act), help=escape_markdown(told), width="content",
        )  # fmt: skip
        st.caption(escape_markdown(words), width="stretch")


def _offer_words(grid: str, found: Stand, kept: list[Kept]) -> str:
    """What is kept, what is missing, and how long that takes going by what a token has cost so far."""
    size, done = size_of(grid), found.status.done
    if found.state == "finished":
        return f"All {found.status.runs:,} runs that were asked for last are kept."
    if size.runs is None:
        return f"{size.words}; how long they take is known once some have run."
    runs = found.status.runs or size.runs
    left = runs - done
    words = f"{done:,} of {runs:,} runs are kept, {left:,} are left" if done else f"At most {left:,} runs"
    if found.state == "stopped" and found.message:
        words = f"{on_page(found.message)} {words}"
    cost = cost_of_a_token(kept)
    if cost is None:
        return f"{words}; how long they take is known once some have run."
    seconds, own = cost
    whose = "so far on this machine" if own else "in the rows that came with the program"
    return f"{words}, {about(seconds * size.tokens * left / runs)} at what a token has cost {whose}."


def _listed(numbers: list[int]) -> str:
    return " / ".join(f"{number:,}" for number in numbers)
