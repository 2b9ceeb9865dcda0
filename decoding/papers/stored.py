"""Records that benchmarks keep for an exhibit, as `judge` takes them, and benchmarks run from the app. Torch-free.

A benchmark that feeds one writes `pair` into its `.json` and its records into a `.csv.gz` beside that: each names its
way in `line` and what was measured in `sample`, has a value on the axis where there is one, and one number per figure.
They lie in `decoding/experiments/results`, and what was measured from the app in the user's own folder.
"""

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pandas as pd

from decoding.common.errors import ExperimentError
from decoding.experiments.experiment import RESULTS, experiments_home, records_beside
from decoding.jobs.job import Job, JobState


def own_records(benchmark: str) -> Path:
    """Where figures go that the user has measured from the app."""
    return experiments_home() / "records" / benchmark


def record_files(benchmark: str) -> list[Path]:
    """All files that a benchmark has kept, those that came with the program and the user's own."""
    return [file for folder in (RESULTS, own_records(benchmark)) for file in sorted(folder.glob(f"{benchmark}-*.json"))]


def stored_records(benchmark: str) -> pd.DataFrame:
    """The records that a benchmark has kept, the newest of every pair on every machine; without any an empty frame.

    Raises:
        ExperimentError: a file is damaged.
    """
    found = {}
    for frame in filter(len, map(_read, record_files(benchmark))):
        first = frame.iloc[0]
        place = first["pair"], first["machine"]
        if place not in found or found[place].iloc[0]["started"] <= first["started"]:
            found[place] = frame
    return pd.concat(found.values(), ignore_index=True) if found else pd.DataFrame()


def took(benchmark: str) -> tuple[float, str] | None:
    """Seconds that the newest run of a benchmark took, and on what; None where no run tells."""
    found = []
    for file in record_files(benchmark):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            hardware = content["hardware"]
            found.append((content["created"], float(content["took_s"]), hardware.get("gpu") or hardware["processor"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # older, or damaged: the exhibit itself says so
    return max(found)[1:] if found else None


def _read(file: Path) -> pd.DataFrame:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not records_beside(file).exists():  # of a version that kept none
            return pd.DataFrame()
        hardware = content["hardware"]
        names = (hardware.get("gpu") or hardware["processor"], hardware["device"], f"torch {hardware['torch']}")
        texts = {"line": str, "sample": str}
        frame = pd.read_csv(records_beside(file), dtype=texts).rename(columns={"sample": "prompt"})
        return frame.assign(
            prompt_set=content["benchmark"], kind="", pair=content["pair"], machine=", ".join(names),
            started=content["created"], prompt=frame["prompt"], line=frame["line"],
        )  # fmt: skip
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise ExperimentError(f"{file} is damaged ({said}): delete it and run its benchmark with --save.") from None


class Benchmark(Job):
    """A benchmark run from the app: its folder is that of its figures, and its state is `kept` once they are there."""

    NOUN = "benchmark"
    ENDED = "Ended before its figures were written: run it again."

    @staticmethod
    def of(name: str) -> "Benchmark":
        """The benchmark of a name: `depth_divergence`."""
        return Benchmark(own_records(name))

    def stand(self) -> JobState:
        """Where it stands; its process says nothing but what it prints."""
        found, launched = super().stand(), self.launched()
        if launched is None or found.state not in ("starting", "failed"):
            return found
        if found.running:
            return replace(found, state="running")
        figures = self._figures
        if figures.exists() and figures.stat().st_mtime >= launched.started:
            return replace(found, state="kept", message="")
        return replace(found, message=self.last_words() or self.ENDED)

    def run(self) -> None:
        """Start it.

        Raises:
            JobError: it is at work, or no process can be started.
            DiskError: the folder cannot be made.
        """
        name = self.path.name
        self.start(("-m", f"{__package__}.measured.{name}", "--json", str(self._figures)))

    def ask_to_stop(self) -> None:
        """End it: it hears nothing, and what it measured so far is lost."""
        self.end()

    @property
    def _figures(self) -> Path:
        return self.path / f"{self.path.name}-here.json"
