"""The draft learns: the same held-out prompt drafted at the first moment of a phase and at any other, side by side."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.trace.archive import load_run
from decoding.trace.records import RunTrace
from decoding.training.folder import TREES, FollowedTraining
from pages.ui.common.charts import is_dark
from pages.ui.common.errors import guarded
from pages.ui.scope.component import lone_tree
from viz.branches.diff import compare_trees
from viz.charts.training import Moment, moments_figure
from viz.formats import plural
from viz.scope.panels import text_html, text_spans

TREE_HEIGHT, TEXT_HEIGHT = 300, 118
PROMPT_TOKENS, WRITTEN_TOKENS = 16, 160


def keep_latest(key: str, options: list) -> None:
    """Set a choice to its last option, which moves on, for as long as it is left there; call it before the widget."""
    last, chosen = st.session_state.get(f"{key}_last"), st.session_state.get(key)
    if chosen is None or chosen == last or chosen not in options:
        chosen = options[-1]
    st.session_state[key] = chosen  # said again, or a widget of the same key elsewhere would reset it
    st.session_state[f"{key}_last"] = options[-1]


def draw_trees(followed: FollowedTraining, phase: str, by_time: bool, planned: float | None) -> go.Figure | None:
    """First tree and chosen tree side by side and their texts; returns the chart of tokens per pass over all moments.

    None where nothing was drafted in this phase yet.
    """
    folder = followed.folder / TREES
    told = [record for record in followed.trees if record["phase"] == phase and (folder / record["tree"]).is_file()]
    if not told:
        if followed.stand.running:
            st.caption("The same held-out prompt is drafted every few minutes, once there is something to draft with.")
        return None
    name = followed.folder.name
    with st.container(key="train_trees", gap="small"):
        heading, moment_place, place_place = st.columns([1.5, 2, 1.2], gap="medium", vertical_alignment="center")
        with moment_place:
            chosen = _choose_moment(name, len(told))
        runs: list[RunTrace] = []
        with guarded():
            runs = [recorded(folder / told[number]["tree"]) for number in (0, chosen)]
        if not runs:
            return None
        with heading:
            st.markdown("**The same held-out prompt**", help=f"Drafted again every few minutes: {runs[1].label}.")
        with place_place:
            places = _choose_place(name, *runs)
        _draw_sides(f"{name}:{phase}", told, chosen, runs, places)
    moments = [Moment(_place(record, by_time), moment_words(record), record["tokens_per_pass"]) for record in told]
    return moments_figure(moments, chosen, by_time, planned, is_dark())


def _choose_moment(name: str, count: int) -> int:
    """The slider over the moments; left at its end it follows the training."""
    key, last = f"train_moment_{name}", count - 1
    keep_latest(key, list(range(count)))
    if not last:
        st.caption("Drafted for the first time: the next ones stand beside it.")
        return 0
    return st.slider(
        "Moment of the training", 0, last, key=key, format=f"%d of {last}",
        help="The right tree is that of this moment. Left at the end, it follows the training.",
    )  # fmt: skip


def _choose_place(name: str, first: RunTrace, now: RunTrace) -> tuple[int, int]:
    """Iterations of both runs that stand at the same place of the same text.

    At first the place where the later draft has the most accepted; it stays there until it is moved.
    """
    common = common_places(first, now)
    if len(common) == 1:
        return common[0]
    key = f"train_place_{name}"
    if key not in st.session_state:
        accepted = [len(now.iterations[there].accepted) for _, there in common]
        st.session_state[key] = accepted.index(max(accepted))
    st.session_state[key] = min(st.session_state[key], len(common) - 1)
    number = st.slider(
        "Place in the text", 0, len(common) - 1, key=key,
        help="Both drafts continue the very same text here. The page begins where the later one had the most accepted.",
    )  # fmt: skip
    return common[number]


def common_places(first: RunTrace, second: RunTrace) -> list[tuple[int, int]]:
    """Iterations of two runs of one prompt that continue the same tokens; the first of both always do."""
    mine, theirs = map(_by_text, (first, second))
    return [(number, theirs[text]) for text, number in mine.items() if text in theirs]


def _by_text(run: RunTrace) -> dict[tuple[int, ...], int]:
    """Index of each iteration by what was committed before it."""
    found, text = {}, ()
    for number, iteration in enumerate(run.iterations):
        found[text] = number
        text += tuple(iteration.committed_ids)
    return found


def _draw_sides(
    scene: str, told: list[dict[str, Any]], chosen: int, runs: list[RunTrace], places: tuple[int, int]
) -> None:
    """Both trees at one place, whose prefix is the same, and what each run wrote."""
    trees = [run.iterations[place] for run, place in zip(runs, places, strict=True)]
    marks = compare_trees(*trees).marks("the first tree", "this tree") if chosen else ({}, {})
    titles = (f"First · {moment_words(told[0])}", f"Moment {chosen} · {moment_words(told[chosen])}")
    records = (told[0], told[chosen])
    for side, column in enumerate(st.columns(2, gap="small")):
        with column:
            name = f"{scene}:{records[side]['tree']}:{places[side]}"
            lone_tree(trees[side], f"train_tree_{side}", TREE_HEIGHT, name, title=titles[side], marks=marks[side])
            st.caption(run_words(runs[side], places[side], records[side]))
            with st.container(height=TEXT_HEIGHT, border=False, key=f"train_text_{side}"):
                st.html(_text(runs[side], places[side]))


def _text(run: RunTrace, place: int) -> str:
    """The end of the prompt and what the run wrote; what this place added is bold."""
    spans = text_spans(run, current=run.iterations[place].index)
    prompt = len(run.prompt_texts)
    cut = max(prompt - PROMPT_TOKENS, 0)
    return text_html(spans[cut : prompt + WRITTEN_TOKENS])


def run_words(run: RunTrace, place: int, record: dict[str, Any]) -> str:
    """What the tree and the whole run reached."""
    iteration, passes = run.iterations[place], plural(len(run.iterations), "pass", "passes")
    return (
        f"{iteration.drafted} drafted, {len(iteration.accepted)} accepted here · "
        f"{record['tokens_per_pass']:.2f} tokens per target pass over {passes}"
    )


def moment_words(record: dict[str, Any]) -> str:
    """When a tree was drafted."""
    if not record["step"]:
        return "before training"
    return f"step {record['step']:,}, minute {record['trained_s'] / 60:.1f}"


@lru_cache(maxsize=32)
def recorded(file: Path) -> RunTrace:
    """A recorded run, read once.

    Raises:
        TraceFileError: the file is damaged.
    """
    run = load_run(file)
    if not run.iterations:
        raise DraftscopeError(f"{file} holds no iteration: choose another moment.")
    return run


def _place(record: dict[str, Any], by_time: bool) -> float:
    return record["trained_s"] / 60 if by_time else record["step"]
