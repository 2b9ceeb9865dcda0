"""One training as it is watched: where it stands, its curves and trees, and where its result can be used."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import plotly.graph_objects as go
import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.models.presets import PairSettings
from decoding.training.common.run_folder import STOP
from decoding.training.launch import Followed, delete, end, output, resume
from pages.ui import PAGES
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.models import manager
from pages.ui.common.torch_there import torch_there, why_not
from pages.ui.common.worker import run_now
from pages.ui.train.form import keep_latest
from pages.ui.train.runs import CHOSEN
from pages.ui.train.sentences import STATE_ICONS, machine_words, progress_words
from pages.ui.train.trees import draw_trees
from pages.ui.widgets.watching import attempt, draw_end, list_style, show_attempt
from viz.charts.training import HEIGHT, panels, training_figure

STYLE = (
    f"<style>{list_style('train')}"
    + """
/* A chart that is drawn anew stands there twice for a frame: nothing below it may move. */
[class*=st-key-train_panel_] { overflow: hidden; height: 17.2rem; padding: 0.5rem 0.8rem 0.3rem !important; }
[class*=st-key-train_panel_] p { margin: 0; font-size: 0.92rem; }
.st-key-train_trees [data-testid=stCaptionContainer] p { font-size: 0.8rem; margin: 0; }
.st-key-train_trees [data-testid=stSlider] { margin-top: -0.3rem; }
.st-key-train_trees [data-testid=stSliderTickBar] { display: none; }
</style>
"""
)


if TYPE_CHECKING:
    from decoding.methods.method import Method

RESULTS = {"head": "head", "selector": "selector", "embedded": "out/draft"}


def use_words(followed: Followed) -> str:
    """Where the result of a finished training is found, empty where there is none."""
    if not _result(followed):
        return ""
    name = followed.folder.path.name
    if followed.kind == "head":
        return f"The head drafts for every tree method with the target of {_pair_name(followed)}: draft_head={name}."
    if followed.kind == "selector":
        return f"The selector shapes delayed trees of {_pair_name(followed)}: selector={name}."
    return f"The pair is ready in {followed.folder.path / 'out'}."


def use_button(followed: Followed) -> None:
    """A button that goes where the result of a finished training is used; nothing where there is none."""
    if not _result(followed):
        return
    name = followed.folder.path.name
    if followed.kind == "head":
        _compare_button("eagle2", draft_head=name)
    elif followed.kind == "selector":
        _compare_button("delayed", verifier=str(followed.settings.settings["verifier"]), selector=name)
    elif st.button(
        "Load this pair", key="train_load", type="primary", disabled=not torch_there(), icon=":material/memory:",
        help=why_not("It takes the place of the pair in memory, and every page uses it."),
    ):  # fmt: skip
        _load(*(followed.folder.path / "out" / role for role in ("target", "draft")))


def _result(followed: Followed) -> bool:
    place = RESULTS.get(followed.kind)
    return place is not None and (followed.folder.path / place).is_dir()


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


def _pair_name(followed: Followed) -> str:
    return str(followed.settings.pair.get("name", "its pair")) if followed.settings is not None else "its pair"


ERROR, SURE = "train_error", "train_sure"
CHARTS_S = 5.0  # charts are drawn anew this often while figures come in
FIRST_ROW = 2
MOMENTS = "Tokens per target pass on this prompt"
LIVE = "train_live"
LIVE_HELP = "Off: this view stands still, so that one can zoom into curves and read trees at leisure."
STOP_HELP = "It writes a checkpoint at its next step and ends; Resume goes on from there."


def is_live() -> bool:
    """Whether the view follows a training that runs."""
    return st.session_state.get(LIVE, True)


def draw_training(followed: Followed) -> None:
    """Header, curves, trees of one training."""
    _draw_header(followed)
    _draw_message(followed)
    phase, by_time, planned = _choose_phase(followed)
    figures = _figures(followed, phase, by_time, planned)
    if not figures and followed.stand.running:
        st.caption("Curves appear here as soon as the training has begun.")
    _draw_charts(figures[:FIRST_ROW])
    moments = draw_trees(followed, phase, by_time, planned)
    _draw_charts([*([(MOMENTS, moments)] if moments is not None else []), *figures[FIRST_ROW:]])


def _draw_header(followed: Followed) -> None:
    state, status = followed.stand.state, followed.stand.status
    with st.container(key="train_header", horizontal=True, vertical_alignment="center", gap="small"):
        with st.container(key="train_title", width="content"):
            st.markdown(f"{STATE_ICONS[state]} **{escape_markdown(followed.name)}** · {state}", width="content")
        st.space("stretch")
        _draw_buttons(followed)
    if followed.stand.running or state == "stopped":
        words = " · ".join(filter(None, [progress_words(followed), machine_words(status)]))
        st.progress(status.share or 0.0, text=escape_markdown(words))


def _draw_buttons(followed: Followed) -> None:
    """What can be done with a training in its state."""
    name = followed.folder.path.name
    if followed.stand.running:
        st.toggle("Live", True, key=LIVE, persist_state="session", help=LIVE_HELP)
        asked = (followed.folder.path / STOP).exists()
        if asked:
            st.button(
                "End it now", key="train_end", icon=":material/power_settings_new:", on_click=attempt,
                args=(ERROR, end, followed.folder),
                help="Ends its process without waiting for the next step; what came since its last checkpoint is lost.",
            )  # fmt: skip
        st.button(
            "Stopping" if asked else "Stop training", key="train_stop", disabled=asked, icon=":material/stop_circle:",
            on_click=attempt, args=(ERROR, followed.folder.ask_to_stop,), help=STOP_HELP,
        )  # fmt: skip
    elif followed.stand.state in ("stopped", "failed"):
        st.button(
            "Resume", key="train_resume", type="primary", disabled=not torch_there(), icon=":material/play_arrow:",
            on_click=attempt, args=(ERROR, resume, followed.folder), help=why_not("Goes on from its last checkpoint."),
        )  # fmt: skip
    else:
        use_button(followed)
    with st.popover("Output", key="train_output", icon=":material/terminal:", on_change="rerun") as place:
        if place.open:
            _draw_output(followed)
    if followed.stand.running:
        return
    if st.session_state.get(SURE) != name:
        st.button("Delete", key="train_delete", icon=":material/delete:", on_click=_set_sure, args=(name,))
        return
    st.button("Keep it", key="train_keep", on_click=_set_sure, args=(None,))
    if st.button(
        "Delete for good", key="train_delete_sure", type="primary", icon=":material/delete_forever:",
        on_click=_delete, args=(followed,), help="Checkpoint, curves, trees and result leave this machine.",
    ):  # fmt: skip
        st.rerun()


def _draw_output(followed: Followed) -> None:
    """What the process printed, and the words that start it in a terminal."""
    known = followed.settings or followed.launched
    with st.container(width=640):
        st.markdown("**Folder**")
        st.code(str(followed.folder.path), language=None, wrap_lines=True)
        if known is not None:
            st.markdown("**Command**")
            st.code(" ".join(["python", *known.command]), language=None, wrap_lines=True)
        st.markdown("**What it printed last**")
        st.code(output(followed.folder) or "Nothing.", language=None, wrap_lines=True, height=260)


def _draw_message(followed: Followed) -> None:
    """What went wrong with a button, why it failed or stopped, or where its result is used."""
    show_attempt(ERROR)
    draw_end(followed.stand)
    if followed.stand.state == "finished" and (words := use_words(followed)):
        st.caption(f":material/check_circle: {escape_markdown(words)}")


def _choose_phase(followed: Followed) -> tuple[str, bool, float | None]:
    """The phase that is looked at, whether it is planned by time, and its planned minutes or steps."""
    status = followed.stand.status
    phases = list(dict.fromkeys(record["phase"] for record in followed.records))
    by_time = status.steps is None
    if not phases:
        return status.phase, by_time, None
    chosen = phases[-1]
    if len(phases) > 1:
        key = f"train_phase_{followed.folder.path.name}"
        keep_latest(key, phases)
        chosen = st.segmented_control("Phase", phases, key=key, required=True, label_visibility="collapsed")
    planned = status.planned_s / 60 if status.planned_s else status.steps
    return chosen, by_time, planned if chosen == status.phase else None


def _figures(followed: Followed, phase: str, by_time: bool, planned: float | None) -> list[tuple[str, go.Figure]]:
    """A figure per panel; while figures come in they are made anew every few seconds only."""
    same = (followed.folder.path, phase, by_time, planned, is_dark(), followed.stand.state)
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


def _set_sure(name: str | None) -> None:
    st.session_state[SURE] = name


def _delete(followed: Followed) -> None:
    attempt(ERROR, delete, followed.folder)
    _set_sure(None)
    if not followed.folder.path.exists():
        st.session_state.get("train_followed", {}).pop(followed.folder.path, None)
        st.session_state[CHOSEN] = None
        st.query_params.pop("run", None)
