"""Passes beside what a processor and its memory allow: limits by hand, and goals that can be missed."""

import json

import pytest

from benchmarks import roofline
from benchmarks.roofline import Ceilings, PassCost, goals


def test_a_limit_is_that_of_the_cache_that_holds_the_bytes():
    ceilings = Ceilings(10.0, 1e30, reads=((100, 50.0), (10_000, 10.0)))
    assert [ceilings.bytes_per_s(size) for size in (50, 100, 1000, 10_000, 10**6)] == pytest.approx(
        [50, 50, 30, 10, 10]
    )
    assert PassCost(1000, 0).limit_s(ceilings) == pytest.approx(1000 / 30)
    assert PassCost(1000, 0).limit_s(Ceilings(10.0, 1e30)) == 100, "on a GPU the copy is the ceiling"


def rows(target: float, draft: float, level_ms: float) -> tuple[list[dict], list[dict]]:
    """Passes of two engines over 1 and 64 rows, and runs with a draft and without."""
    shares = {("target", "packed"): target, ("draft", "packed"): draft}
    passes = [
        {
            "model": role,
            "engine": engine,
            "queries": queries,
            "ms": 2.0,
            "share_of_limit": shares.get((role, engine), 0),
        }
        for role in ("target", "draft")
        for engine in ("packed", "transformers")
        for queries in (1, 64)
    ]
    phases = [
        {"phase": phase, "levels": levels, "width": 3, "ms": levels * level_ms}
        for phase in ("draft", "verify")
        for levels in (0, 2)
    ]
    return passes, phases


@pytest.mark.parametrize(("target", "draft", "level_ms"), [(0.8, 0.6, 0.1), (0.7, 0.4, 0.3)])
def test_goals_are_judged_by_the_engine_that_runs(target, draft, level_ms):
    judged = goals("packed", *rows(target, draft, level_ms))
    reached = (target, draft, level_ms) == (0.8, 0.6, 0.1)
    assert all(line.startswith("goal reached" if reached else "goal MISSED") for line in judged) and len(judged) == 3
    assert f"{level_ms:.2f} ms 3 wide" in judged[2]
    assert f"one over 1 takes 2.00 ms, of which bytes and products need {2 * target:.2f}" in judged[0]


@pytest.mark.slow
def test_a_quick_run_stores_passes_of_both_engines(monkeypatch, tmp_path, capsys):
    for name, value in {"COPY_BYTES": {"cpu": 2**20}, "MATRIX_SIZE": {"cpu": 64}, "QUERIES": (1, 4),
                        "READ_BYTES": (2**16, 2**20)}.items():  # fmt: skip
        monkeypatch.setattr(roofline, name, value)
    path = tmp_path / "roofline.json"
    monkeypatch.setattr("sys.argv", ["roofline", "--quick", "--json", str(path)])
    assert roofline.main() == 0
    said, written = capsys.readouterr().out, json.loads(path.read_text())
    assert {row["engine"] for row in written["passes"]} == {"packed", "transformers"}
    assert [size for size, _ in written["ceilings"]["reads"]] == [2**16, 2**20]
    assert all(line in said for line in written["goals"])
