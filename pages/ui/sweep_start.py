"""Start a sweep from its grid, and look at it."""

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from decoding.errors import DraftscopeError, ExperimentError
from decoding.experiments.homes import GRIDS, experiments_home
from decoding.experiments.launch import launch, stand
from pages.ui.errors import show_error
from pages.ui.sweep_list import look_at

if TYPE_CHECKING:
    from decoding.experiments.grid import Grid


def start(grid: "Grid", stem: str | None) -> None:
    """Write the grid into the folder of its experiment, run it in a process of its own, look at it.

    Args:
        stem: of a grid that comes with the program: its rows go where they always go, so that what is kept of it is
            not run again. None for a grid of one's own, which gets a folder of its own.
    """
    from decoding.experiments.grid_writing import write_grid

    try:
        folder = free_folder(grid.name) if stem is None else experiments_home() / stem
        if stand(folder).running:
            raise ExperimentError(f"{folder.name} is at work: stop it before it is started again.")
        launch(write_grid(grid, folder), folder=folder)
    except DraftscopeError as error:
        show_error(error)
        return
    look_at(folder.name)
    st.rerun()


def free_folder(name: str) -> Path:
    """A folder for an experiment of that name that is not there yet.

    Raises:
        ExperimentError: the name is that of a grid that comes with the program: tables of papers are made of its rows.
    """
    if name in ready_names():
        raise ExperimentError(f"{name} is the name of a grid that comes with the program: give yours another one.")
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50] or "sweep"
    home, stems = experiments_home(), {file.stem for file in GRIDS.glob("*.toml")}
    numbered = (words if number == 1 else f"{words}-{number}" for number in range(1, 10_000))
    return next(home / each for each in numbered if not (home / each).exists() and each not in stems)


def ready_names() -> set[str]:
    """Names of the grids that come with the program."""
    return {tomllib.loads(file.read_text(encoding="utf-8"))["name"] for file in GRIDS.glob("*.toml")}
