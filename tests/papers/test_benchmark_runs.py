"""Benchmarks run from the app: where they stand, what becomes of them, and which figures count."""

import argparse
import json

import pandas as pd
import pytest

from decoding.common.errors import ENDED, JobError, PromptError
from decoding.experiments.command import LOST, as_job, in_steps
from decoding.jobs.process import FINISHED, StoppedError
from decoding.papers import stored
from decoding.papers.measured import Benchmark
from decoding.papers.stored import own_records, stored_records, took
from tests.helpers.process import ended

NAME = "depth_divergence"
HARDWARE = {"processor": "a test", "device": "cpu", "torch": "0"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("DRAFTSCOPE_EXPERIMENTS", str(tmp_path / "home"))
    return tmp_path


def keep(folder, name: str, value: float, created: str = "2030-01-02T00:00:00Z", **more) -> None:
    """A file of figures with one record."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"benchmark": NAME, "pair": "Embedded pair", "created": created, "hardware": HARDWARE, **more}
    (folder / f"{name}.json").write_text(json.dumps(content))
    pd.DataFrame([{"line": "laws", "sample": "s", "depth": 0, "l1_distance": value}]).to_csv(folder / f"{name}.csv.gz")


def test_figures_of_a_run_are_kept_where_paper_results_find_them(python):
    benchmark = Benchmark.of(NAME)
    assert benchmark.stand().state == "kept"
    python(
        'while [ "$1" != --json ]; do shift; done\nsleep 0.2\necho "{}" > "$2"\n'
        """printf '{"state": "finished", "written": %s}' "$(date +%s.%N)" > "$4/status.json\""""
    )
    benchmark.run()
    assert benchmark.path == own_records(NAME) and benchmark.stand().running
    with pytest.raises(JobError, match="depth_divergence is running: stop it before it is restarted"):
        benchmark.run()
    assert ended(benchmark).stand().state == "finished"
    kept = {file.name for file in benchmark.path.glob("*.json")}
    assert kept == {"depth_divergence-here.json", "launch.json", "status.json"}


def test_why_a_run_wrote_nothing_is_reported(python):
    benchmark = Benchmark.of(NAME)
    python("echo 'error: No prompts to measure on.'")
    benchmark.run()
    found = ended(benchmark).stand()
    assert (found.state, found.message) == ("failed", "No prompts to measure on.")
    python("exec sleep 60")
    benchmark.run()
    assert benchmark.stand().running
    benchmark.end()
    assert (benchmark.stand().state, benchmark.stand().message) == ("stopped", Benchmark.ENDED)


def test_a_run_tells_its_steps_and_stops_between_two(home, capsys):
    benchmark = Benchmark.of(NAME)
    benchmark.path.mkdir(parents=True)
    args = argparse.Namespace(job=benchmark.path)
    steps = in_steps(args, "abc", 3)
    assert next(steps) == "a" and (benchmark.status().done, benchmark.status().total) == (0, 3)
    assert next(steps) == "b" and benchmark.status().done == 1 and benchmark.status().left_s is not None
    assert benchmark.stand().state == "running"
    benchmark.ask_to_stop()
    with pytest.raises(StoppedError, match="what it had measured is lost"):
        next(steps)
    assert list(in_steps(argparse.Namespace(job=None), "ab", 2)) == ["a", "b"]
    assert "2 of 2" in capsys.readouterr().err


def test_the_job_of_a_run_says_how_it_ended(home, capsys):
    benchmark = Benchmark.of(NAME)
    benchmark.path.mkdir(parents=True)
    args = argparse.Namespace(job=benchmark.path)

    def ended_by(measure) -> tuple[int, str, str]:
        code, stand = as_job(args, measure), benchmark.stand()
        return code, stand.state, stand.message

    def stopped(args):
        for _ in in_steps(args, "abc", 3):
            benchmark.ask_to_stop()

    def refused(args):
        raise PromptError("There is no prompt.")

    assert ended_by(lambda args: None) == (FINISHED, "finished", "")
    assert ended_by(stopped) == (ENDED, "stopped", LOST) and not benchmark.stop_asked
    assert ended_by(refused) == (ENDED, "failed", "There is no prompt.")
    assert "error: There is no prompt." in capsys.readouterr().err
    with pytest.raises(PromptError):
        as_job(argparse.Namespace(job=None), refused)


def test_of_the_same_pair_and_machine_the_newest_figures_count(home):
    keep(home / "results", f"{NAME}-cpu", 0.5)
    assert stored_records(NAME)["l1_distance"].tolist() == [0.5]
    keep(own_records(NAME), f"{NAME}-here", 0.7, "2030-02-02T00:00:00Z")
    assert stored_records(NAME)["l1_distance"].tolist() == [0.7]
    keep(home / "results", f"{NAME}-cuda", 0.9, hardware={**HARDWARE, "gpu": "a GPU"})
    assert sorted(stored_records(NAME)["l1_distance"]) == [0.7, 0.9]


def test_how_long_it_takes_is_what_the_newest_run_that_tells_took(home):
    assert took(NAME) is None
    keep(home / "results", f"{NAME}-cpu", 0.5)
    assert took(NAME) is None, "a run that does not tell"
    keep(home / "results", f"{NAME}-cpu", 0.5, took_s=90.0)
    assert took(NAME) == (90.0, "a test")
    keep(own_records(NAME), f"{NAME}-here", 0.5, "2031-01-02T00:00:00Z", took_s=30.0)
    assert took(NAME) == (30.0, "a test")
    (home / "results" / f"{NAME}-cuda.json").write_text("{")
    assert took(NAME) == (30.0, "a test")
