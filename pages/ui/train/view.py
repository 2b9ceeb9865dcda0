"""One training as it is watched: its place in the list, its curves and trees, and where its result can be used."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import plotly.graph_objects as go
import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.models.presets import PairSettings
from decoding.training.folder import FollowedTraining, trainings
from pages.ui import PAGES
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, show_error, torch_there, why_not
from pages.ui.common.models import manager
from pages.ui.common.worker import run_now
from pages.ui.jobs.page import JobPage
from pages.ui.train.trees import draw_trees, keep_latest
from viz.charts.training import HEIGHT, best, family_of, panels, training_figure, words_of

if TYPE_CHECKING:
    from decoding.methods.method import Method

PAGE = JobPage(
    "train", "training", "run",
    none_yet="Nothing has been trained on this machine yet. Every training that is started stands here.",
    stop="It writes a checkpoint at its next step and ends; Resume goes on from there.",
    resume="Goes on from its last checkpoint.",
    delete="Checkpoint, curves, trees and result leave this machine.",
)  # fmt: skip
STYLE = PAGE.style("""
/* A chart that is drawn anew stands there twice for a frame: nothing below it may move. */
[class*=st-key-train_panel_] { overflow: hidden; height: 17.2rem; padding: 0.5rem 0.8rem 0.3rem !important; }
[class*=st-key-train_panel_] p { margin: 0; font-size: 0.92rem; }
.st-key-train_trees [data-testid=stCaptionContainer] p { font-size: 0.8rem; margin: 0; }
.st-key-train_trees [data-testid=stSlider] { margin-top: -0.3rem; }
.st-key-train_trees [data-testid=stSliderTickBar] { display: none; }
""")
CHARTS_S = 5.0  # charts are drawn anew this often while figures come in
FIRST_ROW = 2
MOMENTS = "Tokens per target pass on this prompt"


def followed_trainings() -> list[FollowedTraining]:
    """Every training as it stands, the one begun last first."""
    return PAGE.followed(trainings(), FollowedTraining)


def entry_words(followed: FollowedTraining) -> list[str]:
    """The best held-out figure so far, searched for again only where there are new ones."""
    kept = st.session_state.setdefault("train_best", {})
    count, words = kept.get(followed.folder, (-1, ""))
    if count != len(followed.records):
        words = best_words(followed)
        kept[followed.folder] = len(followed.records), words
    return [words]


def best_words(followed: FollowedTraining) -> str:
    """The best held-out figure so far, empty before the first."""
    found = best(followed.records)
    if found is None:
        return ""
    name, value = found
    family, words = family_of(name), words_of(name).removeprefix("held-out").strip() or "held-out loss"
    if family.percent:
        return f"{words} {100 * value:.0f}%"
    if family.title == "Modelled throughput":
        return f"{value:.2f} times {family.axis.removeprefix('times ')}"
    return f"{value:.2f} {words}" if family.least is not None else f"{words} {value:.2f}"


def draw_training(followed: FollowedTraining) -> None:
    """Header, curves, trees of one training."""
    PAGE.draw_header(followed, lambda: use_button(followed))
    if followed.stand.state == "finished" and (words := use_words(followed)):
        st.caption(f":material/check_circle: {escape_markdown(words)}")
    phase, by_time, planned = _choose_phase(followed)
    figures = _figures(followed, phase, by_time, planned)
    if not figures and followed.stand.running:
        st.caption("Curves appear here as soon as the training has begun.")
    _draw_charts(figures[:FIRST_ROW])
    moments = draw_trees(followed, phase, by_time, planned)
    _draw_charts([*([(MOMENTS, moments)] if moments is not None else []), *figures[FIRST_ROW:]])


def _choose_phase(followed: FollowedTraining) -> tuple[str, bool, float | None]:
    """The phase that is looked at, whether it is planned by time, and its planned minutes or steps."""
    status = followed.stand.status
    phases = list(dict.fromkeys(record["phase"] for record in followed.records))
    by_time = status.total is None
    if not phases:
        return status.phase, by_time, None
    chosen = phases[-1]
    if len(phases) > 1:
        key = f"train_phase_{followed.folder.name}"
        keep_latest(key, phases)
        chosen = st.segmented_control("Phase", phases, key=key, required=True, label_visibility="collapsed")
    planned = status.planned_s / 60 if status.planned_s else status.total
    return chosen, by_time, planned if chosen == status.phase else None


def _figures(
    followed: FollowedTraining, phase: str, by_time: bool, planned: float | None
) -> list[tuple[str, go.Figure]]:
    """A figure per panel; while figures come in they are made anew every few seconds only."""
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


RESULTS = {"head": "head", "selector": "selector", "embedded": "out/draft"}


def use_words(followed: FollowedTraining) -> str:
    """Where the result of a finished training is found, empty where there is none."""
    if not _result(followed):
        return ""
    name = followed.folder.name
    if followed.kind == "head":
        return f"The head drafts for every tree method with the target of {_pair_name(followed)}: draft_head={name}."
    if followed.kind == "selector":
        return f"The selector shapes delayed trees of {_pair_name(followed)}: selector={name}."
    return f"The pair is ready in {followed.folder / 'out'}."


def use_button(followed: FollowedTraining) -> None:
    """A button that goes where the result of a finished training is used; nothing where there is none."""
    if not _result(followed):
        return
    name = followed.folder.name
    if followed.kind == "head":
        _compare_button("eagle2", draft_head=name)
    elif followed.kind == "selector":
        _compare_button("delayed", verifier=str(followed.settings.settings["verifier"]), selector=name)
    elif st.button(
        "Load this pair", key="train_load", type="primary", disabled=not torch_there(), icon=":material/memory:",
        help=why_not("It takes the place of the pair in memory, and every page uses it."),
    ):  # fmt: skip
        _load(*(followed.folder / "out" / role for role in ("target", "draft")))


def _result(followed: FollowedTraining) -> bool:
    place = RESULTS.get(followed.kind)
    return place is not None and (followed.folder / place).is_dir()


def _load(target: Path, draft: Path) -> None:
    models, settings = manager(), PairSettings(target=str(target), draft=str(draft))
    try:
        run_now("Loading the trained pair", lambda job: models.load(settings), alone=True)
    except DraftscopeError as error:
        show_error(error)
        return
    st.switch_page(PAGES["Step through"])


def _compare_button(method_name: str, verifier: str = "", **result: str) -> None:
    """A button that puts a method with and without the result, and plain decoding, on the page Compare.

    Args:
        verifier: of both, where the result serves one alone.
        result: the setting that names it.
    """
    if not st.button(
        "Use in Compare", key="train_use", type="primary", disabled=not torch_there(), icon=":material/compare_arrows:",
        help=why_not("Plain decoding, the method as it is and with this result stand ready there."),
    ):  # fmt: skip
        return
    from decoding.methods.methods import METHODS

    method = METHODS[method_name]
    if verifier:
        method = method.with_settings(verifier=verifier)
        if not st.session_state.get("sampling_temperature"):
            st.session_state["sampling_temperature"] = 1.0  # under greedy decoding all verifiers do the same
    place_contestants([METHODS["autoregressive"], method, method.with_settings(**result)])
    st.switch_page(PAGES["Compare"])


def place_contestants(methods: "Sequence[Method]") -> None:
    """Have these methods, with their settings, stand ready on Compare."""
    from pages.ui.widgets.contestants import COMPARE, add_slot
    from pages.ui.widgets.controls import set_method

    st.session_state["compare_slots"] = []
    for method in methods:
        set_method(add_slot(COMPARE, method.name), method)


def _pair_name(followed: FollowedTraining) -> str:
    return str(followed.settings.pair.get("name", "its pair")) if followed.settings is not None else "its pair"
