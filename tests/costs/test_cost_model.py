"""Costs of passes: the line through measured points, how they are measured, and that they are kept."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from decoding.common.cost_model import CostCurve, CostModel, CostPoint, read_curve
from decoding.common.errors import SettingsError
from decoding.costs import measured_pair, measuring
from decoding.costs.measured_pair import MeasuredPair
from decoding.costs.measuring import Probe, cost_model, doubt, machine_words, measure_costs, settle_doubts
from decoding.drafters import HardwareAwareDrafter
from decoding.engines.cuda_graph import BUCKETS
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, load_pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits, unrecorded


def curve(*points: tuple[int, float], padded: bool = False) -> CostCurve:
    return CostCurve(tuple(CostPoint(size, s, 0.9 * s, 1.2 * s) for size, s in points), padded)


COSTS = CostModel(
    target=curve((1, 2.0), (4, 3.5), (8, 7.5)),
    draft=curve((1, 0.5), (8, 1.0)),
    iteration_s=0.25,
    level_s=0.125,
    iterations=12,
    prefix_length=64,
    measured="2026-01-02T03:04:05Z",
    machine="a machine",
)
FLAT = replace(COSTS, iteration_s=0.0, level_s=0.0, iterations=0)  # beside whose passes nothing is measured


def passes(seconds: float, count: int = 5) -> list:
    """Iterations whose target pass over one row took so long."""
    times = SimpleNamespace(mask_s=0.0, verify_s=seconds)
    return [SimpleNamespace(times=times, verified=0, timed=True)] * count


def test_the_line_goes_through_the_points_and_on_past_the_last():
    assert COSTS.target.seconds(np.array([1, 2, 4, 6, 8, 9, 12])).tolist() == [2.0, 2.5, 3.5, 5.5, 7.5, 8.5, 11.5]
    assert float(COSTS.draft.seconds(1)) == 0.5 and float(COSTS.draft.seconds(15)) == 1.5
    assert curve((1, 3.0)).seconds(np.array([1, 50])).tolist() == [3.0, 3.0]


def test_no_pass_counts_longer_than_a_larger_one():
    noisy = curve((1, 2.0), (2, 5.0), (4, 3.0), (8, 4.0))
    assert noisy.seconds(np.array([1, 2, 3, 4, 8])).tolist() == [2.0, 3.0, 3.0, 3.0, 4.0]
    assert [point.seconds for point in noisy.points] == [2.0, 5.0, 3.0, 4.0]  # what was measured stays
    random = np.random.default_rng(0)
    for _ in range(50):
        sizes = np.sort(random.choice(np.arange(1, 200), 6, replace=False)).tolist()
        some = curve(*zip(sizes, random.uniform(0.1, 5, 6).tolist(), strict=True), padded=bool(random.integers(2)))
        assert (np.diff(some.seconds(np.arange(1, 300))) >= -1e-12).all()


def test_a_padded_pass_costs_what_the_next_size_does():
    steps = curve((1, 1.0), (4, 2.0), (8, 3.0), padded=True)
    assert steps.seconds(np.array([1, 2, 3, 4, 5, 8])).tolist() == [1.0, 2.0, 2.0, 2.0, 3.0, 3.0]
    written = read_curve(steps.written(), "x")
    assert written.seconds(np.arange(1, 9)).tolist() == pytest.approx((steps.seconds(np.arange(1, 9))).tolist())


def test_fixed_costs_stand_on_top():
    assert COSTS.verification.seconds(np.array([1, 8])).tolist() == [2.25, 7.75]
    assert float(COSTS.level.seconds(1)) == 0.625


def test_plain_decoding_has_no_draft_to_look_after():
    plain = replace(COSTS, plain_s=0.0625)
    assert (COSTS.plain_iteration_s, plain.plain_iteration_s) == (2.25, 2.0625)
    assert CostModel.from_json(plain.as_json()) == plain
    old = plain.as_json()
    del old["plain_s"]
    assert CostModel.from_json(old) == COSTS, "costs kept by an earlier version are read"


def test_a_curve_is_read_as_it_is_written():
    assert COSTS.draft.written() == "1:500 8:1000"
    assert read_curve("1:500 8:1000", "x").seconds(15) == pytest.approx(COSTS.draft.seconds(15))
    assert read_curve(" 2.5 ", "x").seconds(np.array([1, 9])).tolist() == [0.0025, 0.0025]
    assert float(read_curve("0", "x").seconds(3)) == 0.0


NO_CURVES = ["", "a", "1:", "1:a", "x:1", "4:1 2:2", "2:1 2:1", "0:1", "1:-1", "1:nan", "1:inf", "1 2"]


@pytest.mark.parametrize("text", NO_CURVES)
def test_what_is_no_curve_is_refused_by_name(text):
    with pytest.raises(SettingsError, match="verify_ms must be milliseconds by size"):
        read_curve(text, "verify_ms")


def test_a_model_survives_json():
    again = CostModel.from_json(json.loads(json.dumps(COSTS.as_json())))
    assert again == COSTS


def test_the_least_median_is_that_of_a_quiet_stretch():
    loaded, quiet = [9.0, 11.0, 10.0], [2.0, 2.5, 1.5]
    point = measuring._point(4, loaded + quiet + loaded + loaded)
    assert (point.size, point.seconds) == (4, 2.0) and point.low_s > 2.0 and point.high_s >= 10.0
    assert measuring._point(1, [3.0]) == CostPoint(1, 3.0, 3.0, 3.0)


def test_overheads_are_the_line_that_a_few_slow_iterations_do_not_move():
    levels = np.array([1, 2, 3, 1, 2, 3, 1, 2, 3])
    taken = 2.0 + 0.5 * levels
    taken[4] = 40.0
    assert measuring._line(levels, taken) == pytest.approx((2.0, 0.5))
    assert measuring._line(np.array([2, 2]), np.array([1.0, 1.0])) == pytest.approx((0.0, 0.5))
    assert measuring._line(np.array([1, 2]), np.array([-1.0, -2.0])) == (0.0, 0.0)


def test_the_forwards_of_an_iteration_are_the_roots_and_equal_shares_of_its_nodes():
    draft = curve((1, 2.0), (4, 3.5), (8, 7.5))
    taken = [measuring._forwards_s(draft, *each) for each in ((0, 0), (1, 0), (2, 8), (3, 8))]
    assert taken == pytest.approx([0.0, 2.0, 2.0 + 7.5, 2.0 + 2 * 3.5])


@pytest.mark.slow
def test_passes_of_the_embedded_pair_are_timed(pair):
    costs = measure_costs(pair, unrecorded, budget_s=0.1)
    for line in (costs.target, costs.draft):
        sizes = [point.size for point in line.points]
        assert sizes == list(measuring.SIZES[: len(sizes)]) and len(sizes) >= 2 and not line.padded
        assert all(0 < point.low_s <= point.high_s and point.seconds > 0 for point in line.points)
    # Whatever else the machine does: 16 times the work of a far larger model takes longer.
    assert costs.target.seconds(16) > costs.draft.seconds(1)
    assert costs.target.seconds(256) > costs.target.seconds(1)
    assert costs.iterations > 0 and costs.iteration_s >= 0 and costs.level_s >= 0
    assert costs.plain_s is not None and costs.plain_s >= 0
    assert costs.prefix_length == 256 and costs.machine == machine_words(pair)
    assert CostModel.from_json(costs.as_json()) == costs


@pytest.mark.slow
def test_a_tree_does_not_stand_behind_the_shortest_context(monkeypatch):
    monkeypatch.setattr(measuring, "MOST_RATIO", math.inf)  # however passes are delayed by what else runs
    monkeypatch.setattr(measuring, "SLOW_PASS_S", math.inf)
    pair = load_pair(PairSettings(device="cpu", context_length=16))
    assert pair.info.target.engine == "packed"  # positions stand in a table of 16 entries
    costs = measure_costs(pair, unrecorded, budget_s=0.05)
    assert costs.prefix_length == 8 and costs.target.points[-1].size > 16


def test_a_pass_leaves_the_prefix_as_it_was(pair):
    probe = Probe(pair, pair.target, level=False)
    rows = [keys.clone() for keys, _ in probe._cache.rows()]
    assert probe.pass_s(8) > 0 and probe._cache.length == probe.prefix_length == 256
    assert all((keys == before).all() for (keys, _), before in zip(probe._cache.rows(), rows, strict=True))


def test_the_timed_tree_and_level(pair):
    seen, depths = measuring.binary_tree(7)
    assert depths.tolist() == [0, 1, 1, 2, 2, 2, 2]
    assert np.flatnonzero(seen[5]).tolist() == [0, 2, 5] and seen[0].sum() == 1
    seen, depths = measuring.siblings(3)
    assert (seen == np.eye(3)).all() and not depths.any()


def test_a_slow_model_is_measured_at_few_sizes_and_not_decoded(pair, monkeypatch):
    monkeypatch.setattr(measuring, "SLOW_PASS_S", 0.0)
    costs = measure_costs(pair, unrecorded, budget_s=0.0)
    assert [point.size for point in costs.target.points] == [1, 16, 64] and costs.prefix_length == 16
    assert (costs.iteration_s, costs.level_s, costs.iterations) == (0.0, 0.0, 0)


def test_sizes_end_where_passes_take_too_long_or_memory_ends(pair, monkeypatch):
    monkeypatch.setattr(Probe, "pass_s", lambda _, size: 0.001 * size)
    assert Probe(pair, pair.target, level=False).sizes == (1, 2, 4, 8, 16)

    def full(_, size):
        if size > 4:
            raise RuntimeError("CUDA out of memory")
        return 0.001

    monkeypatch.setattr(Probe, "pass_s", full)
    assert Probe(pair, pair.target, level=False).sizes == (1, 2, 4)
    monkeypatch.setattr(Probe, "pass_s", lambda _, size: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Probe(pair, pair.target, level=False)


def test_an_engine_that_pads_is_measured_at_its_sizes(pair, monkeypatch):
    monkeypatch.setattr(measuring, "SIZES", (1, 2, 4, 8, 16, 32))
    for limit in ("SLOW_PASS_S", "MOST_RATIO"):  # how fast this machine is at the moment is not asked
        monkeypatch.setattr(measuring, limit, float("inf"))
    probe = Probe(pair.with_engine("cuda_graph"), pair.with_engine("cuda_graph").draft, level=True)
    assert probe.padded and probe.pass_s(3) > 0
    assert probe.sizes[:5] == BUCKETS[:5] and set(probe.sizes) <= {1, 2, 4, 8, 16, 24, 32}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "_known", {})
    for name in ("_trusted_until", "_said_until", "_doubts"):
        monkeypatch.setattr(measuring, name, {})
    return tmp_path / "draftscope" / "calibration"


@pytest.fixture
def measured(monkeypatch):
    """Replaces the measurement; the list tells for which pairs it was asked."""
    asked: list = []
    monkeypatch.setattr(measuring, "measure_costs", lambda pair, _: asked.append(pair) or COSTS)
    return asked


def test_costs_belong_to_engine_threads_and_pair(pair, cache, measured, monkeypatch):
    assert measuring.COSTS.known(pair, machine_words(pair)) is None
    assert cost_model(pair, unrecorded) == cost_model(pair, unrecorded) == COSTS
    assert len(measured) == 1
    cost_model(pair.with_engine("transformers"), unrecorded)
    monkeypatch.setattr(measuring.torch, "get_num_threads", lambda: 93)
    cost_model(pair, unrecorded)
    assert len(measured) == 3 and "93 threads" in machine_words(pair)
    (file,) = cache.iterdir()
    assert file.name.endswith("-costs.json") and len(json.loads(file.read_text())["entries"]) == 3
    cost_model(replace(pair, info=replace(pair.info, name="Other pair")), unrecorded)
    assert len(measured) == 4 and len(list(cache.iterdir())) == 2


def test_kept_costs_that_do_not_hold_are_measured_again_and_say_why(pair, cache, measured, monkeypatch):
    assert cost_model(pair, unrecorded).corrected == ""
    monkeypatch.setattr(measuring, "_known", {})
    monkeypatch.setattr(measuring, "_trusted_until", {})  # as in another process
    found = cost_model(pair, unrecorded)  # passes that are kept as taking seconds
    assert len(measured) == 2 and "other work disturbed the machine then" in found.corrected
    assert measuring.COSTS.known(pair, machine_words(pair)) == found == replace(COSTS, corrected=found.corrected)
    assert cost_model(pair, unrecorded) == found and len(measured) == 2, "checked a moment ago"
    doubt(pair, passes(0.001))
    assert settle_doubts(unrecorded) == [(pair, cost_model(pair, unrecorded))] and len(measured) == 3
    assert settle_doubts(unrecorded) == []


def test_costs_measured_beside_other_work_are_checked_before_they_are_used_again(pair, cache, monkeypatch):
    asked = []
    busy = replace(COSTS, others=0.5)
    monkeypatch.setattr(measuring, "measure_costs", lambda pair, _: busy)
    monkeypatch.setattr(measuring, "disagreement", lambda pair, costs, _: asked.append(costs) or "")
    assert [cost_model(pair, unrecorded) for _ in range(3)] == [busy] * 3
    assert asked == [busy]


@pytest.mark.parametrize(
    ("seconds", "share", "why"),
    [(0.9, 0.0, ""), (1.2, 0.0, ""), (0.5, 0.9, "other work"), (1.5, 0.0, "machine has changed"), (1.5, 0.9, "")],
)
def test_a_third_apart_is_a_disagreement_unless_other_work_explains_it(pair, monkeypatch, seconds, share, why):
    monkeypatch.setattr(Probe, "pass_s", lambda self, size: seconds)
    monkeypatch.setattr(measuring.OtherWork, "share", lambda self: share)
    even = curve((1, 1.0), (16, 1.0))
    said = measuring.disagreement(pair, replace(FLAT, target=even, draft=even), unrecorded)
    assert why in said if why else said == ""


@pytest.mark.parametrize(
    ("iteration_s", "level_s", "plain_s", "why"),
    [
        (0.5, 0.1, 0.5, ""),
        (0.5, 1.0, 0.5, "iterations kept"),
        (9.0, 0.1, 0.5, "iterations kept"),
        (0.5, 0.1, 4, "kept"),
    ],
)
def test_what_iterations_take_beside_their_passes_is_checked_too(pair, monkeypatch, iteration_s, level_s, plain_s, why):
    monkeypatch.setattr(Probe, "pass_s", lambda self, size: 1.0)
    monkeypatch.setattr(measuring, "_overheads", lambda *_: (0.5, 0.1, 12))
    monkeypatch.setattr(measuring, "_plain_overhead", lambda *_: 0.5)
    even = curve((1, 1.0), (16, 1.0))
    kept = replace(COSTS, target=even, draft=even, iteration_s=iteration_s, level_s=level_s, plain_s=plain_s)
    said = measuring.disagreement(pair, kept, unrecorded)
    assert why in said if why else said == ""


@pytest.mark.parametrize(("seconds", "doubted"), [(2.5, 0), (1.6, 0), (3.0, 1), (1.4, 1)])
def test_a_run_a_third_apart_gives_cause_to_doubt(pair, cache, measured, monkeypatch, seconds, doubted):
    doubt(pair, passes(9.0))
    assert not measuring._doubts, "nothing is kept yet"
    cost_model(pair, unrecorded)
    doubt(pair, passes(seconds, 3))
    assert not measuring._doubts, "too few"
    doubt(pair, passes(seconds))
    assert len(measuring._doubts) == doubted


def test_where_other_work_explains_a_run_the_kept_times_stay_and_it_is_said(pair, cache, measured, monkeypatch, capsys):
    cost_model(pair, unrecorded)
    monkeypatch.setattr(measuring, "disagreement", lambda *_: "")
    for share in (0.0, 0.6):
        monkeypatch.setattr(measuring.OtherWork, "share", lambda self, share=share: share)
        doubt(pair, passes(3.0))
        assert settle_doubts(unrecorded) == [(pair, COSTS)]
    measured, said = capsys.readouterr().err.splitlines()  # the second run says nothing new within the next minutes
    assert (
        measured.startswith("measuring")
        and "took 1.5 times as long" in said
        and "60% of the processors: the stored times were not replaced." in said
    )


def test_a_session_that_ends_doubts_the_costs_of_what_it_ran(pair, cache, measured, monkeypatch):
    asked = []
    monkeypatch.setattr("decoding.session.session.doubt", lambda pair, found: asked.append((pair, len(found))))
    ids = pair.vocabulary.encode("One day")
    for record in ("full", "summary", "none"):
        session = DecodeSession(pair, METHODS["linear"], ids, limits=Limits(6, True, record))
        count = len(list(session))
    assert asked == [(pair, count)] * 2, "once each, and not of what measures"


def test_draft_levels_are_checked_too(pair, monkeypatch):
    monkeypatch.setattr(Probe, "pass_s", lambda self, size: 1.0)
    even, slow = curve((1, 1.0), (16, 1.0)), curve((1, 2.0), (16, 2.0))
    assert measuring.disagreement(pair, replace(FLAT, target=even, draft=even), unrecorded) == ""
    said = measuring.disagreement(pair, replace(FLAT, target=even, draft=slow), unrecorded)
    assert said.startswith("draft levels kept from") and "took 2 times as long" in said


@pytest.mark.parametrize(
    ("points", "others", "disturbed"),
    [
        (((1, 2.0), (2, 3.5), (16, 9.0)), 0.9, False),  # 1 and 2 nodes: another kernel
        (((1, 2.0), (2, 1.4)), 0.0, False),
        (((1, 2.0), (2, 1.4)), 0.5, True),
        (((1, 2.0), (2, 6.5)), 0.5, True),
        (((1, 2.0), (16, 30.0)), 0.5, False),
    ],
)
def test_times_that_contradict_each_other_beside_other_work_are_disturbed(points, others, disturbed):
    assert bool(replace(COSTS, target=curve(*points), others=others).disturbed) is disturbed


def test_disturbed_costs_are_measured_again_even_where_other_work_goes_on(pair, cache, monkeypatch, capsys):
    wide = CostCurve((CostPoint(1, 1.0, 1.0, 9.0), CostPoint(2, 1.0, 1.0, 9.0)))
    made = [replace(COSTS, target=wide, draft=wide, others=0.9), COSTS]
    monkeypatch.setattr(measuring, "measure_costs", lambda *_: made.pop(0))
    assert cost_model(pair, unrecorded).disturbed == "repeats of the same pass differed by 9.0×"
    again = cost_model(pair, unrecorded)
    assert again == replace(COSTS, corrected=again.corrected) and "differed by 9.0× on 2026-01-02" in again.corrected
    _, first, _, second = capsys.readouterr().err.splitlines()
    assert "measured beside other work: repeats of the same pass differed by 9.0×." in first
    assert second.startswith("Times of Embedded pair were measured again: repeats")


def test_one_disturbed_pass_does_not_end_a_curve(pair, monkeypatch):
    taken = iter([1.0, 1.0, 1.0, 90.0, 1.5, *[1.0] * 50])
    monkeypatch.setattr(Probe, "pass_s", lambda self, size: next(taken) / 1000)
    assert Probe(pair, pair.target, level=False, sizes=(1, 2, 4)).sizes == (1, 2, 4)


def test_work_of_other_processes_is_seen():
    other_work = measuring.OtherWork()
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
    assert other_work.share() > 0.3 / os.cpu_count()


def test_a_damaged_model_is_noticed():
    for change in (
        {"iteration_s": -1.0},
        {"level_s": float("nan")},
        {"target": {"padded": False, "points": []}},
        {"target": {"padded": False, "points": [[4, 1, 1, 1], [2, 1, 1, 1]]}},
        {"draft": {"padded": False, "points": [[1, 1.0]]}},
        {"draft": {"padded": False, "points": [[1, float("inf"), 1, 1]]}},
    ):
        with pytest.raises((ValueError, TypeError)):
            CostModel.from_json(COSTS.as_json() | change)


def test_a_drafter_is_prepared_with_the_costs_and_odds_of_a_pair(pair, cache, measured, monkeypatch):
    odds: list = []
    monkeypatch.setattr(measured_pair, "acceptance_odds", lambda _, sampling, __: odds.append(sampling) or (2.5, 1.25))
    ready = HardwareAwareDrafter(node_budget=9).prepared(MeasuredPair(pair, Sampling(), unrecorded))
    assert ready.verify_ms == "1:2250 4:3750 8:7750" and ready.level_ms == "1:625 8:1125"
    assert ready.odds == "2.5 1.25" and ready.node_budget == 9
    assert ready.prepared(MeasuredPair(pair, Sampling(temperature=1.0), unrecorded)) == ready
    assert len(measured) == len(odds) == 1
    HardwareAwareDrafter().prepared(MeasuredPair(pair, Sampling(temperature=1.0), unrecorded))
    assert len(measured) == 1 and len(odds) == 2  # costs do not depend on the sampling, the odds do
    given = HardwareAwareDrafter(verify_ms="1:3", odds="1 1").prepared(MeasuredPair(pair, Sampling(), unrecorded))
    assert given.verify_ms == "1:3" and given.level_ms == ready.level_ms and given.odds == "1 1"
