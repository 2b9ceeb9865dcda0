"""Benchmarks that exhibits are made of, run from the app: each in a process of its own that outlives it. Torch-free.

    launch_benchmark("depth_divergence")      # python -m decoding.papers.measured.depth_divergence --json ...
    benchmark_stand("depth_divergence").state

The figures go to the user's own folder, beside what was printed, where `stored` finds them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from decoding.common.errors import ExperimentError
from decoding.common.processes import alive, kill_process
from decoding.experiments.launch import begin, error_sentence, last_launch
from decoding.papers.stored import own_records

CUT_SHORT = "It ended before its figures were written; run it again."


@dataclass(frozen=True)
class BenchmarkStand:
    """Where a benchmark stands.

    Attributes:
        state: `kept` where it was not started here, or has written its figures.
        started: seconds since 1970. message: for a person, why it failed.
    """

    state: Literal["kept", "running", "failed"]
    started: float = 0.0
    message: str = ""


def launch_benchmark(name: str) -> Path:
    """Run a benchmark; returns the folder that its figures will be in.

    Raises:
        ExperimentError: it is at work, the folder cannot be made, or no process can be started.
    """
    file = _figures(name)
    begin(file.parent, ("-m", f"decoding.papers.measured.{name}", "--json", str(file)))
    return file.parent


def benchmark_stand(name: str) -> BenchmarkStand:
    """Whether a benchmark that was started here is at work, and what became of it."""
    file = _figures(name)
    launched = last_launch(file.parent)
    if launched is None:
        return BenchmarkStand("kept")
    if alive(launched.pid, launched.started):
        return BenchmarkStand("running", launched.started)
    if file.exists() and file.stat().st_mtime >= launched.started:
        return BenchmarkStand("kept", launched.started)
    return BenchmarkStand("failed", launched.started, error_sentence(file.parent) or CUT_SHORT)


def stop_benchmark(name: str) -> None:
    """End a benchmark that is at work; what it measured so far is lost.

    Raises:
        ExperimentError: it is another user's process.
    """
    launched = last_launch(_figures(name).parent)
    if launched is not None and benchmark_stand(name).state == "running":
        kill_process(launched.pid, name, ExperimentError)


def _figures(name: str) -> Path:
    return own_records(name) / f"{name}-here.json"
