"""Records that benchmarks keep in `benchmarks/results` for an exhibit, as `judge` takes them. Torch-free.

A benchmark that feeds one writes `pair` into its `.json` and its records into a `.csv` beside that: each names its way
in `line` and what was measured in `sample`, has a value on the axis where there is one, and one number per figure.
"""

import json
from pathlib import Path

import pandas as pd

from decoding.errors import ExperimentError
from decoding.experiments.homes import ROOT

RESULTS = ROOT / "results"


def stored_records(benchmark: str, folder: Path | None = None) -> pd.DataFrame:
    """The records of all files that a benchmark has kept, one file per kind of device; without any an empty frame.

    Raises:
        ExperimentError: a file is damaged.
    """
    found = [_read(file) for file in sorted((folder or RESULTS).glob(f"{benchmark}-*.json"))]
    found = [frame for frame in found if len(frame)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _read(file: Path) -> pd.DataFrame:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not file.with_suffix(".csv").exists():  # of a version that kept none
            return pd.DataFrame()
        hardware = content["hardware"]
        names = (hardware.get("gpu") or hardware["processor"], hardware["device"], f"torch {hardware['torch']}")
        texts = {"line": str, "sample": str}
        frame = pd.read_csv(file.with_suffix(".csv"), dtype=texts).rename(columns={"sample": "prompt"})
        return frame.assign(
            prompt_set=content["benchmark"], kind="", pair=content["pair"], machine=", ".join(names),
            started=content["created"], prompt=frame["prompt"], line=frame["line"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise ExperimentError(f"{file} is damaged ({said}): delete it and run its benchmark with --save.") from None
