"""Start a grid in a process of its own that outlives the app, and estimate how long it takes. Torch-free.

folder = launch("dynatree_main")          # python -m benchmarks.sweep benchmarks/grids/dynatree_main.toml
Experiment(folder).status()
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd

from decoding.errors import ExperimentError
from decoding.experiments.homes import GRIDS, ROOT, experiments_home
from decoding.training.run_folder import disk_errors

OUTPUT = "output.log"
TAIL_BYTES = 8_000


def launch(grid: str | Path, *more: str) -> Path:
    """Run a grid, by its name in `benchmarks/grids` or its file; returns the folder of the experiment.

    Raises:
        ExperimentError: the folder cannot be made, or no process can be started.
    """
    file = Path(grid) if str(grid).endswith(".toml") else GRIDS / f"{grid}.toml"
    folder = experiments_home() / file.stem
    with disk_errors(folder, ExperimentError):
        folder.mkdir(parents=True, exist_ok=True)
        log = (folder / OUTPUT).open("wb")
    command = [sys.executable, "-m", "benchmarks.sweep", str(file), "--out", str(folder), *more]
    with log:
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT.parent,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            said = error.strerror or error
            raise ExperimentError(f"No process could be started ({said}): end other programs and try again.") from None
    # Somebody must take note of its end, or it stays in the list of processes for as long as this one lives.
    threading.Thread(target=process.wait, daemon=True).start()
    return folder


def last_words(folder: Path) -> str:
    """The last line that the process of an experiment printed."""
    try:
        text = (folder / OUTPUT).read_bytes()[-TAIL_BYTES:].decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = [line.rsplit("\r", 1)[-1].strip() for line in text.split("\n")]
    return next((line for line in reversed(lines) if line), "")


def seconds_per_token(rows: pd.DataFrame) -> float | None:
    """What a token has cost so far in runs that are kept, a mean over them; None without any."""
    kept = rows[rows["failure"].isna() & (rows["new_tokens"] > 0)] if len(rows) else rows
    return float(kept["wall_s"].sum() / kept["new_tokens"].sum()) if len(kept) else None
