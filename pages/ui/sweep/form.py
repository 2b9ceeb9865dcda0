"""The form that starts a sweep: a grid of one's own or one that is ready, what it comes to, how long it may take."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from decoding.common.errors import DraftscopeError, ExperimentError
from decoding.experiments.experiment import (
    GRIDS,
    FollowedExperiment,
    experiments_home,
    launch,
    seconds_per_token,
)
from decoding.jobs.job import free_folder
from decoding.models.presets import EMBEDDED, PairSettings
from pages.ui.common.downloads import download_button
from pages.ui.common.errors import escape_markdown, show_error, torch_there, why_not
from pages.ui.common.models import manager
from pages.ui.sweep.grid import draw_methods, methods_content, plan_content
from pages.ui.sweep.sentences import asked_words
from pages.ui.sweep.view import PAGE
from pages.ui.widgets.controls import say_again, seed
from pages.ui.widgets.trained import EMBEDDED_NAME
from viz.formats import long_duration, plural


def start(grid: "Grid", stem: str | None) -> None:
    """Write the grid into the folder of its experiment, run it in a process of its own, look at it.

    Args:
        stem: of a grid that comes with the program: its rows go where they always go, so that what is kept of it is
            not run again. None for a grid of one's own, which gets a folder of its own.
    """
    from decoding.experiments.grid import write_grid

    try:
        folder = folder_for(grid.name) if stem is None else experiments_home() / stem
        launch(write_grid(grid, folder), folder=folder)
    except DraftscopeError as error:
        show_error(error)
        return
    PAGE.look_at(folder.name)
    st.rerun()


def folder_for(name: str) -> Path:
    """A folder for an experiment of that name that is not there yet.

    Raises:
        ExperimentError: the name is that of a grid that comes with the program: tables of papers are made of its rows.
    """
    if name in ready_names():
        raise ExperimentError(f"{name} is the name of a grid that comes with the program: give yours another one.")
    return free_folder(experiments_home(), name, "sweep", {file.stem for file in GRIDS.glob("*.toml")})


def ready_names() -> set[str]:
    """Names of the grids that come with the program."""
    return {tomllib.loads(file.read_text(encoding="utf-8"))["name"] for file in GRIDS.glob("*.toml")}


if TYPE_CHECKING:
    from decoding.experiments.grid import Grid
    from decoding.experiments.plan import GridSize

KIND, READY, COUNT = "sweep_kind", "sweep_ready", "sweep_ready_count"
LONGEST_NAME = 60
OWN, FROM_PAPERS = "A sweep of my own", "A ready grid"
ABOUT = (
    "Every combination of values runs on every prompt and becomes a row; a reference runs beside them, so that a "
    "speed-up is a ratio on the same prompt."
)


def draw_form(found: Sequence[FollowedExperiment]) -> None:
    """What varies, on which prompts, what it comes to, and the button."""
    if not torch_there():
        st.caption("Rows that are there can be looked at: choose an experiment on the left.")
        return
    seed(KIND, OWN)
    say_again(KIND)
    kind = st.segmented_control(
        "What to run", [OWN, FROM_PAPERS], key=KIND, required=True, persist_state="session",
        label_visibility="collapsed",
    )  # fmt: skip
    try:
        grid, stem = _ready_grid() if kind == FROM_PAPERS else (_own_grid(), None)
        size = _size(grid)
    except DraftscopeError as error:
        show_error(error)
        grid = stem = size = None
    PAGE.tell_others(found, "Another one shares its processor, and both would measure times that neither has alone: "
                     "better wait.")  # fmt: skip
    nothing = size is None or size.runs == 0
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="sweep_go"):
        pressed = st.button(
            "Start sweep", key="sweep_start", type="primary", disabled=nothing, icon=":material/play_arrow:",
            help=why_not("It runs in a process of its own and goes on when this page or the whole app is closed."),
        )  # fmt: skip
        if size is not None:
            st.markdown(_size_words(size, found))
    if pressed:
        start(grid, stem)
    if size is not None and size.left_out:
        with st.expander(f"{plural(len(size.left_out), 'combination')} left out", key="sweep_left_out"):
            for said in size.left_out:
                st.caption(escape_markdown(said))
    if grid is not None:
        _draw_file(grid)


def _own_grid() -> "Grid":
    """Widgets for everything a grid has; what cannot be is told by the reader of grid files."""
    from decoding.experiments.grid import grid_from

    st.caption(ABOUT)
    varied = draw_methods()
    content = plan_content()
    name = content.pop("name")
    content["methods"] = methods_content(varied)
    names = dict.fromkeys(_short_name(each) for each in content["methods"])
    content["name"] = name or ", ".join(names)[:LONGEST_NAME]
    content["pair"] = _pair_content(manager().settings)
    _settle_folder(content["prompts"])
    return grid_from(content, content["name"])


def _ready_grid() -> "tuple[Grid, str]":
    """One of the grids that come with the program, with as many prompts as wanted; and its name on disk."""
    from decoding.experiments.grid import read_grid

    stems = [file.stem for file in sorted(GRIDS.glob("*.toml"))]
    about = {stem: _first_comment(GRIDS / f"{stem}.toml") for stem in stems}
    seed(READY, stems[0])
    say_again(READY)
    with st.container(border=True, key="sweep_part_ready"):
        left, right = st.columns([3, 1], vertical_alignment="bottom")
        stem = left.selectbox("Grid", stems, key=READY, format_func=about.get, persist_state="session")
        grid = read_grid(GRIDS / f"{stem}.toml")
        key = f"{COUNT}_{stem}"
        seed(key, grid.prompts.count)
        say_again(key)
        count = right.number_input(
            "Prompts", 1, 10_000, key=key, persist_state="session", placeholder="all",
            help="Fewer prompts take less time and make intervals wider. More can be added later: rows are kept.",
        )  # fmt: skip
        st.caption("  \n".join(map(escape_markdown, asked_words(asdict(grid)))))
    prompts = replace(grid.prompts, count=count and int(count))
    return replace(grid, prompts=prompts, pair={**grid.pair, **_pair_content(manager().settings)}), stem


def _size_words(size: "GridSize", found: Sequence[FollowedExperiment]) -> str:
    """Settings, runs and time."""
    parts = [plural(size.settings, "setting")]
    if size.runs is None:
        parts.append("as many runs as the data set has prompts")
    else:
        parts += [f"{plural(size.runs, 'run')} with the references", f"{size.tokens:,} tokens"]
        parts.append(_time_words(size.tokens, found))
    return f"**{escape_markdown(parts[0])}** · {escape_markdown(' · '.join(parts[1:]))}"


def _time_words(tokens: int, found: Sequence[FollowedExperiment]) -> str:
    """How long tokens take with the pair in memory, by what one has cost in the newest rows of it."""
    models = manager()
    first = EMBEDDED_NAME if models.settings.target == EMBEDDED else None
    name = models.info.name if models.info is not None else first
    for followed in found:  # those that came with the program are the last
        rows = followed.rows()
        if (cost := seconds_per_token(rows[rows["pair"] == name])) is not None:
            where = "in the rows that came with the program" if followed.shipped else "here so far"
            return f"{long_duration(cost * tokens)} at what a token has cost {where}"
    return "how long that takes is known once some have run"


def _draw_file(grid: "Grid") -> None:
    """The grid as the file that a terminal can run as well."""
    from decoding.experiments.grid import grid_toml

    with st.expander("The same as a file", icon=":material/terminal:", key="sweep_file"):
        text = grid_toml(grid)
        st.code("python -m benchmarks.sweep grid.toml", language=None)
        st.code(text, language="toml", height=260)
        download_button("Save grid.toml", text, "grid.toml", "application/toml", "sweep_save")


def _settle_folder(prompts: dict[str, Any]) -> None:
    """Name a folder so that the process, which runs elsewhere, finds it; none at all is refused."""
    if not prompts["set"]:
        raise ExperimentError("Give a folder of .txt files, one prompt in each, or choose the sample prompts.")
    folder = Path(prompts["set"]).expanduser()
    if folder.is_dir():
        prompts["set"] = str(folder.resolve())


def _short_name(entry: dict[str, Any]) -> str:
    return (
        entry["method"].partition(":")[0].replace("_", " ")
        + (" by " if entry["vary"] else "")
        + " x ".join(name.replace("_", " ") for name in entry["vary"])
    )


def _pair_content(settings: PairSettings) -> dict[str, Any]:
    """The pair in memory as a grid names it: what differs from the defaults."""
    plain = PairSettings()
    values = {each.name: getattr(settings, each.name) for each in fields(PairSettings)}
    return {name: value for name, value in values.items() if value != getattr(plain, name)}


def _first_comment(file: Path) -> str:
    """The first sentence of the comment that a grid file begins with, else its name."""
    line = file.read_text(encoding="utf-8").partition("\n")[0]
    if not line.startswith("#"):
        return file.stem.replace("_", " ")
    return re.split(r"\. (?=[A-Z])", line.lstrip("# ").rstrip(". "))[0]


def _size(grid: "Grid") -> "GridSize":
    """What a grid comes to, computed once for the same grid and the same files of prompts."""
    from decoding.experiments.grid import grid_toml

    folder = Path(grid.prompts.set).expanduser()
    stamp = folder.stat().st_mtime_ns if folder.is_dir() else 0
    return _size_of(grid_toml(grid), stamp)


@lru_cache(maxsize=8)
def _size_of(text: str, _stamp: int) -> "GridSize":
    import tomllib

    from decoding.experiments.grid import grid_from
    from decoding.experiments.plan import grid_size

    return grid_size(grid_from(tomllib.loads(text), "grid"))
