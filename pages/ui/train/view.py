"""The view of one training: its entry in the list, its curves, where its result can be used, and its trees.

The trees show that the draft learns: the same held-out prompt drafted at the start of a phase and later.
"""

import json
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.common.formats import plural
from decoding.models.presets import PairSettings
from decoding.trace.records import RunTrace
from decoding.trace.run_file import load_run
from decoding.training.folder import EXAMPLE, TREES, TrainingWatcher
from pages.ui import PAGES
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, guarded, show_error, torch_there, why_not
from pages.ui.common.models import manager
from pages.ui.common.worker import run_now
from pages.ui.jobs import JobPage
from pages.ui.scope.component import lone_tree
from pages.ui.widgets.contestants import COMPARE, add_slot
from pages.ui.widgets.controls import set_method
from viz.branches.diff import compare_trees
from viz.charts.training import HEIGHT, Moment, best, family_of, moments_figure, panels, training_figure, words_of
from viz.charts.training_tree import TrainingTree, training_tree_figure
from viz.scope.panels import text_html, text_spans

PAGE = JobPage(
    "train", "training", "run",
    none_yet="Nothing has been trained on this machine yet. Every training you start appears in this list.",
    stop="Writes a checkpoint at its next step and ends; Resume continues from there.",
    resume="Continues from its last checkpoint.",
    delete="Deletes checkpoint, curves, trees and result from this machine.",
)  # fmt: skip
STYLE = Path(__file__).with_suffix(".css")
CHARTS_S = 5.0  # redraw interval of charts while figures arrive
FIRST_ROW = 2
MOMENTS = "Tokens per target pass on this prompt"
EXAMPLE_ROOT = "One root of the training text, prepared once."
EXAMPLE_WORDS = (
    "EAGLE's loss compares head and target after the root alone. HASS's "
    "follows the text's own next tokens, TALF's (Algorithm 1) the tree that the target grows, with the head's own "
    "features fed back in both; a row of the mask sees the text, its ancestors and itself."
)
TREE_HEIGHT, TEXT_HEIGHT = 300, 118
PROMPT_TOKENS, WRITTEN_TOKENS = 16, 160


def entry_words(followed: TrainingWatcher) -> list[str]:
    """The best held-out figure so far, searched again only when new ones arrive."""
    kept = st.session_state.setdefault("train_best", {})
    count, said = kept.get(followed.folder, (-1, ""))
    if count == len(followed.records):
        return [said]
    said, found = "", best(followed.records)
    if found is not None:
        name, value = found
        family, words = family_of(name), words_of(name).removeprefix("held-out").strip() or "held-out loss"
        if family.percent:
            said = f"{words} {100 * value:.0f}%"
        elif family.title == "Modelled throughput":
            said = f"{value:.2f} times {family.axis.removeprefix('times ')}"
        else:
            said = f"{value:.2f} {words}" if family.least is not None else f"{words} {value:.2f}"
    kept[followed.folder] = len(followed.records), said
    return [said]


def draw_training(followed: TrainingWatcher) -> None:
    """Header, curves, trees of one training."""
    result, use = USES.get(followed.kind, ("", ""))
    has_result = bool(use) and (followed.folder / result).is_dir()
    PAGE.draw_header(followed, (lambda: _draw_use(followed)) if has_result else None)
    status = followed.stand.status
    if followed.stand.state == "finished" and has_result:
        pair = followed.settings.pair.get("name", "its pair") if followed.settings is not None else "its pair"
        words = use.format(pair=pair, name=followed.folder.name, out=followed.folder / "out")
        st.caption(f":material/check_circle: {escape_markdown(words)}")
    phases = list(dict.fromkeys(record["phase"] for record in followed.records))
    phase, by_time, planned = phases[-1] if phases else status.phase, status.total is None, None
    if len(phases) > 1:
        key = f"train_phase_{followed.folder.name}"
        _keep_latest(key, phases)
        phase = st.segmented_control("Phase", phases, key=key, required=True, label_visibility="collapsed")
    if phases and phase == status.phase:
        planned = status.planned_s / 60 if status.planned_s else status.total
    figures = _figures(followed, phase, by_time, planned)
    if not figures and followed.stand.running:
        st.caption("Curves appear as soon as the training has begun.")
    _draw_charts(figures[:FIRST_ROW])
    moments = _draw_trees(followed, phase, by_time, planned)
    if followed.kind == "head":
        _draw_example(followed.folder / EXAMPLE)
    _draw_charts([*([(MOMENTS, moments)] if moments is not None else []), *figures[FIRST_ROW:]])


def _draw_example(file: Path) -> None:
    """What the head is trained on at one root; nothing where the training has not written it yet."""
    if not file.exists():
        return
    with st.container(border=True, gap=None, key="train_tree_example"):
        st.markdown("**What a head is trained on**", help=f"{EXAMPLE_ROOT} {EXAMPLE_WORDS}")
        draw_training_tree(file)


def draw_training_tree(file: Path, advice: str = "start the training again") -> None:
    """Tree, chain and mask of an `EXAMPLE` file, or a sentence where it cannot be read."""
    try:
        example = TrainingTree.read(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        st.caption(escape_markdown(f"{file.name} cannot be read ({error}): {advice}."))
        return
    figure = training_tree_figure(example, is_dark())
    chart(figure, key="train_example_tree", height=int(figure.layout.height))


def _figures(
    followed: TrainingWatcher, phase: str, by_time: bool, planned: float | None
) -> list[tuple[str, go.Figure]]:
    """A figure per panel; while figures arrive, rebuilt only every few seconds."""
    same = (followed.folder, phase, by_time, planned, is_dark(), followed.stand.state)
    shown = (same, len(followed.records))
    kept, figures, made_s = st.session_state.get("train_figures", (None, [], 0.0))
    if kept == shown or (kept is not None and kept[0] == same and time.monotonic() - made_s < CHARTS_S):
        return figures
    records = [record for record in followed.records if record["phase"] == phase]
    figures = [(panel.title, training_figure(panel, records, by_time, planned, is_dark())) for panel in panels(records)]
    st.session_state["train_figures"] = shown, figures, time.monotonic()
    return figures


def _draw_charts(figures: list[tuple[str, go.Figure]]) -> None:
    for start in range(0, len(figures), 2):
        for place, (title, figure) in zip(st.columns(2, gap="small"), figures[start : start + 2], strict=False):
            with place.container(border=True, gap=None, key=f"train_panel_{title}"):
                st.markdown(f"**{escape_markdown(title)}**")
                chart(figure, key=f"train_chart_{title}", height=HEIGHT)


# Where the result of a finished training is in its folder, and how to use it.
USES = {
    "head": ("head", "The head can draft for every tree method with the target of {pair}: draft_head={name}."),
    "selector": ("selector", "The selector can shape delayed trees of {pair}: selector={name}."),
    "embedded": ("out/draft", "The pair is in {out}."),
}


def _draw_use(followed: TrainingWatcher) -> None:
    """A button that uses the result of a finished training.

    A pair is loaded; for others Compare is set up with plain decoding and a method with and without the result.
    """
    name = followed.folder.name
    if followed.kind == "embedded":
        if st.button(
            "Load this pair", key="train_load", type="primary", disabled=not torch_there(), icon=":material/memory:",
            help=why_not("Replaces the pair in memory; every page then uses it."),
        ):  # fmt: skip
            target, draft = (str(followed.folder / "out" / role) for role in ("target", "draft"))
            models, settings = manager(), PairSettings(target=target, draft=draft)
            try:
                run_now("Loading the trained pair", lambda job: models.load(settings), alone=True)
            except DraftscopeError as error:
                show_error(error)
                return
            st.switch_page(PAGES["Step through"])
    elif st.button(
        "Use in Compare", key="train_use", type="primary", disabled=not torch_there(), icon=":material/compare_arrows:",
        help=why_not("Sets up Compare with plain decoding and the method without and with this result."),
    ):  # fmt: skip
        from decoding.methods.methods import METHODS

        method, result = METHODS["eagle2"], {"draft_head": name}
        if followed.kind == "selector":  # it is for one verifier
            verifier = str(followed.settings.settings["verifier"])
            method, result = METHODS["delayed"].with_settings(verifier=verifier), {"selector": name}
            if not st.session_state.get("sampling_temperature"):
                st.session_state["sampling_temperature"] = 1.0  # under greedy decoding all verifiers agree
        st.session_state["compare_slots"] = []
        for each in (METHODS["autoregressive"], method, method.with_settings(**result)):
            set_method(add_slot(COMPARE, each.name), each)
        st.switch_page(PAGES["Compare"])


def _keep_latest(key: str, options: list) -> None:
    """Keep a choice at its newest option until the user moves it; call it before the widget."""
    last, chosen = st.session_state.get(f"{key}_last"), st.session_state.get(key)
    if chosen is None or chosen == last or chosen not in options:
        chosen = options[-1]
    st.session_state[key] = chosen  # set again, or a widget of the same key elsewhere would reset it
    st.session_state[f"{key}_last"] = options[-1]


def _draw_trees(followed: TrainingWatcher, phase: str, by_time: bool, planned: float | None) -> go.Figure | None:
    """First and chosen tree side by side with their texts; returns the chart of tokens per pass over all snapshots.

    None where nothing was drafted in this phase yet.
    """
    folder = followed.folder / TREES
    snapshots = [
        record for record in followed.trees if record["phase"] == phase and (folder / record["tree"]).is_file()
    ]
    if not snapshots:
        if followed.stand.running:
            st.caption("The same held-out prompt is drafted every few minutes, once there is a draft to run.")
        return None
    name, chosen, last = followed.folder.name, 0, len(snapshots) - 1
    with st.container(key="train_trees", gap="small"):
        heading, moment_place, place_place = st.columns([1.5, 2, 1.2], gap="medium", vertical_alignment="center")
        key = f"train_moment_{name}"
        _keep_latest(key, list(range(len(snapshots))))
        if last:
            chosen = moment_place.slider(
                "Snapshot of the training", 0, last, key=key, format=f"%d of {last}",
                help="The right tree is from this snapshot. Left at the end, it follows the training.",
            )  # fmt: skip
        else:
            moment_place.caption("Drafted for the first time: later trees appear next to it.")
        runs: list[RunTrace] = []
        with guarded():
            runs = [_recorded(folder / snapshots[number]["tree"]) for number in (0, chosen)]
        if not runs:
            return None
        with heading:
            st.markdown("**The same held-out prompt**", help=f"Drafted again every few minutes: {runs[1].label}.")
        with place_place:
            places = _choose_place(name, *runs)
        _draw_sides(f"{name}:{phase}", snapshots, chosen, runs, places)
    moments = []
    for record in snapshots:
        place = record["trained_s"] / 60 if by_time else record["step"]
        moments.append(Moment(place, _moment_words(record), record["tokens_per_pass"]))
    return moments_figure(moments, chosen, by_time, planned, is_dark())


def _choose_place(name: str, first: RunTrace, now: RunTrace) -> tuple[int, int]:
    """Iterations of both runs at the same place of the same text.

    Initially the place where the later draft has most tokens accepted; it stays there until moved.
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
        help="Both drafts continue exactly the same text. The page starts where the later one had most accepted.",
    )  # fmt: skip
    return common[number]


def common_places(first: RunTrace, second: RunTrace) -> list[tuple[int, int]]:
    """Iterations of two runs of one prompt that continue the same tokens; the first of both always do."""

    def by_text(run: RunTrace) -> dict[tuple[int, ...], int]:
        """Index of each iteration by what was committed before it."""
        found, text = {}, ()
        for number, iteration in enumerate(run.iterations):
            found[text] = number
            text += tuple(iteration.committed_ids)
        return found

    mine, theirs = by_text(first), by_text(second)
    return [(number, theirs[text]) for text, number in mine.items() if text in theirs]


def _draw_sides(
    scene: str, snapshots: list[dict[str, Any]], chosen: int, runs: list[RunTrace], places: tuple[int, int]
) -> None:
    """Both trees at one place with the same prefix, and the text each run wrote."""
    trees = [run.iterations[place] for run, place in zip(runs, places, strict=True)]
    marks = compare_trees(*trees).marks("the first tree", "this tree") if chosen else ({}, {})
    titles = (f"First · {_moment_words(snapshots[0])}", f"Snapshot {chosen} · {_moment_words(snapshots[chosen])}")
    records = (snapshots[0], snapshots[chosen])
    for side, column in enumerate(st.columns(2, gap="small")):
        run, tree, record = runs[side], trees[side], records[side]
        with column:
            name = f"{scene}:{record['tree']}:{places[side]}"
            lone_tree(tree, f"train_tree_{side}", TREE_HEIGHT, name, title=titles[side], marks=marks[side])
            st.caption(
                f"{tree.drafted} drafted, {len(tree.accepted)} accepted at this place · "
                f"{record['tokens_per_pass']:.2f} tokens per target pass over "
                f"{plural(len(run.iterations), 'pass', 'passes')}"
            )
            # The end of the prompt and the text of the run; the tokens of this iteration are bold.
            prompt = len(run.prompt_texts)
            spans = text_spans(run, current=tree.index)
            with st.container(height=TEXT_HEIGHT, border=False, key=f"train_text_{side}"):
                st.html(text_html(spans[max(prompt - PROMPT_TOKENS, 0) : prompt + WRITTEN_TOKENS]))


def _moment_words(record: dict[str, Any]) -> str:
    """When a tree was drafted."""
    if not record["step"]:
        return "before training"
    return f"step {record['step']:,}, minute {record['trained_s'] / 60:.1f}"


@lru_cache(maxsize=32)
def _recorded(file: Path) -> RunTrace:
    """A recorded run, read once.

    Raises:
        TraceFileError: the file is damaged.
    """
    run = load_run(file)
    if not run.iterations:
        raise DraftscopeError(f"{file} contains no iteration: choose another snapshot.")
    return run
