"""Where experiments are kept: those that come with the program, and the user's own."""

import os
from pathlib import Path

from decoding.common.files import user_folder
from decoding.experiments.rows import FOLDER

HERE = Path(__file__).parent
GRIDS, RESULTS = HERE / "grids", HERE / "results"
SHIPPED = RESULTS / "experiments"


def experiments_home() -> Path:
    """Where experiments go that name no other place: `DRAFTSCOPE_EXPERIMENTS`, else the user's cache folder."""
    asked = os.environ.get("DRAFTSCOPE_EXPERIMENTS")
    return Path(asked) if asked else user_folder("experiments")


def all_experiments() -> list[Path]:
    """Folders of all experiments with rows, the user's own first: of the same run theirs counts."""
    return [file.parent for home in (experiments_home(), SHIPPED) for file in sorted(home.glob(f"*/{FOLDER}"))]


def records_beside(file: Path) -> Path:
    """Where the records lie that belong to a `.json`."""
    return file.with_suffix(".csv.gz")
