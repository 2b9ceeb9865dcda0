"""Scaling: trees of the size asked for, exponents that least squares gives, and a verdict that can say no."""

import json
import sys

import numpy as np
import pytest

from benchmarks import scaling
from benchmarks.scaling import (
    COLUMNS,
    PHASES,
    WATCHED,
    Point,
    begin,
    chains,
    long_prompt,
    measure,
    random_pair,
    stop_reason,
    verdicts,
)
from decoding.common.errors import SettingsError
from decoding.session.session import DecodeSession, Limits


@pytest.mark.parametrize(("nodes", "depth"), [(8, 1), (8, 8), (12, 4)])
def test_chains_have_the_nodes_and_depth_asked_for(embedded, nodes, depth):
    prompt = long_prompt(embedded, None, 20)
    trace = DecodeSession(embedded, chains(nodes, depth), prompt, limits=Limits(depth + 4)).step()
    assert (trace.verified, trace.tree_depth, trace.draft_forwards) == (nodes, depth, depth)
    assert len(trace.children(0)) == nodes // depth
    assert all(len(trace.children(node.node_id)) <= 1 for node in trace.nodes[1:])


def test_chains_of_unequal_depth_are_refused():
    with pytest.raises(SettingsError, match="no whole number of chains"):
        chains(10, 4)


def test_growth_is_the_slope_of_least_squares_with_its_error():
    sizes = np.array([8.0, 16, 32, 64, 128])
    slope, error = stop_reason(sizes, 3 * sizes**1.5)
    assert slope == pytest.approx(1.5) and error == pytest.approx(0, abs=1e-9)
    times = sizes**0.5 * np.array([1.1, 0.9, 1.2, 0.8, 1.0])
    slope, error = stop_reason(sizes, times)
    fit, covariance = np.polyfit(np.log(sizes), np.log(times), 1, cov=True)
    assert slope == pytest.approx(fit[0]) and error == pytest.approx(covariance[0, 0] ** 0.5)


def test_growth_needs_three_times_above_zero():
    assert stop_reason([1, 2], [1, 2]) is None
    assert stop_reason([1, 2, 4], [0.0, 1, 2]) is None


def test_a_point_measures_every_phase_and_both_kinds_of_record(embedded):
    session = begin(embedded, chains(8, 4), long_prompt(embedded, None, 40), scaling.room(3, 4))
    point = measure(8, session, 1)
    assert point.nodes == 8 and 1 <= point.tokens <= 5
    assert set(point.ms) == set(COLUMNS) and all(point.ms[column] > 0 for column in COLUMNS)
    # The median of two iterations, one of each record, is their mean: their phases add up exactly.
    assert point.ms["iteration"] == pytest.approx(sum(point.ms[phase] for phase in PHASES))
    assert set(point.shares) == set(WATCHED)
    assert session.new_tokens < scaling.room(3, 4) and not session.finished, "the session itself stays where it was"


@pytest.mark.slow
def test_prompts_are_as_long_as_asked_and_fit_the_context(embedded):
    assert len(long_prompt(embedded, None, 5000)) == 5000
    points = scaling.along_contexts(embedded, None, (30, 10**6), 1)
    assert [point.size for point in points] == [30, embedded.context - scaling.room(1)]


def test_the_random_pair_holds_long_texts_and_accepts_to_the_end(tmp_path):
    pair = random_pair(tmp_path, 3000, "cpu")
    assert pair.context == 3000 and pair.draft.info.layers < pair.target.info.layers
    session = begin(pair, chains(8, 4), long_prompt(pair, None, 30), 20)
    assert session.new_tokens == 5, "four drafted tokens and the bonus: the cache has most to do"


def point(size: int, **shares: float) -> Point:
    return Point(size, 1.0, 1.0, dict.fromkeys(COLUMNS, 1.0), {**dict.fromkeys(WATCHED, 0.01), **shares})


def test_the_verdicts_say_where_it_comes_nearest():
    axes = {"depth": [point(1), point(2, commit=0.05)], "context": [point(128, mask=0.10), point(256)]}
    mask, commit, *records = verdicts(axes)
    assert mask == "goal MISSED: mask building at most 10.0% of the iteration (context 128), goal below 10%"
    assert commit.startswith("goal reached: compaction at most 5.0% of the iteration (depth 2)")
    assert len(records) == 2 and all(line.startswith("goal reached: recording") for line in records)


@pytest.mark.slow
def test_a_whole_run_writes_every_axis(monkeypatch, tmp_path, capsys):
    for name, sizes in {
        "BUDGETS": (8, 16, 32), "DEPTHS": (1, 2, 4), "CONTEXTS": (16, 24, 32), "LENGTHS": (8, 16, 24, 32, 40),
        "LONG_CONTEXTS": (16, 24, 32),
    }.items():  # fmt: skip
        monkeypatch.setattr(scaling, name, sizes)
    path = tmp_path / "scaling.json"
    monkeypatch.setattr(sys, "argv", ["scaling", "--quick", "--device", "cpu", "--json", str(path)])
    assert scaling.main() == 0
    printed, written = capsys.readouterr().out, json.loads(path.read_text())
    assert len(written["axes"]) == 5 and all(len(axis["points"]) == 3 for axis in written["axes"].values())
    assert [p["nodes"] for p in written["axes"]["node budget"]["points"]] == [8, 16, 32]
    assert written["axes"]["node budget"]["exponents"]["verify"][1] >= 0
    assert len(written["goals"]) == len(WATCHED) and all(line in printed for line in written["goals"])
