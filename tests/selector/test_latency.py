"""Modelled time of every action against sums worked out by hand, and a measurement that is kept."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from decoding.costs import latency as measuring
from decoding.selector.actions import ACTIONS, SHAPE, Action, LatencyModel, VerifierTimes
from decoding.selector.chooser import Chooser
from decoding.session.session import Limits, unrecorded
from tests.helpers.selectors import COSTS, LATENCY


def seconds(way: str, length: float, selecting: bool = False) -> dict[Action, float]:
    return dict(zip(ACTIONS, LATENCY.action_s(np.array([length]), way, selecting)[0], strict=True))


def t_q(length: float) -> float:
    return float(np.interp(length, (16, 1024), (0.001, 0.0015)))


def t_p(length: float) -> float:
    return float(np.interp(length, (16, 1024), (0.005, 0.008)))


def test_actions_are_those_of_the_paper():
    assert len(ACTIONS) == 4 * 9 * 9 and np.reshape(range(len(ACTIONS)), SHAPE)[2, 1, 5] == ACTIONS.index(
        Action(3, 1, 5)
    )
    assert Action(3, 2, 3).level_widths == (1, 1, 1, 3, 3) and Action(3, 2, 0).level_widths == (1, 1)
    assert Action(4, 0, 1).level_widths == (1,) and Action(2, 0, 0).level_widths == ()
    assert Action(3, 2, 3).nodes == 11


def test_eq_11_as_printed():
    """T = sum t_q(l + j) + sum t_q(l + L1 + j K) + t_p(l + L1 + K L2)."""
    found = seconds("paper", 100)
    assert found[Action(1, 0, 0)] == pytest.approx(t_p(100))
    expected = t_q(100) + t_q(101) + t_q(102) + t_q(105) + t_p(108)
    assert found[Action(3, 2, 2)] == pytest.approx(expected)


def test_passes_priced_by_their_rows():
    """Level curve 1:1 8:2 ms plus 0.5 ms, target 1:5 64:20 ms plus 2 ms, behind 256 tokens."""
    found = seconds("rows", 256)
    assert found[Action(1, 0, 0)] == pytest.approx(0.005 + 0.002)
    level = {width: 0.001 + (width - 1) / 7 * 0.001 + 0.0005 for width in (1, 3)}
    verification = 0.005 + 8 / 63 * 0.015 + 0.002
    assert found[Action(3, 2, 2)] == pytest.approx(3 * level[1] + level[3] + verification)
    longer = seconds("rows", 1024)[Action(3, 2, 2)] - found[Action(3, 2, 2)]
    assert longer == pytest.approx(4 * (t_q(1024) - t_q(256)) + t_p(1024) - t_p(256))


@pytest.mark.parametrize("way", ["rows", "paper"])
def test_a_selector_takes_its_time_and_always_reads_the_root(way):
    plain, selecting = seconds(way, 256), seconds(way, 256, selecting=True)
    assert selecting[Action(2, 1, 3)] == pytest.approx(plain[Action(2, 1, 3)] + 0.0003)
    root = 0.0015 if way == "rows" else t_q(256)
    assert selecting[Action(2, 0, 0)] == pytest.approx(plain[Action(2, 0, 0)] + 0.0003 + root)


def test_trees_of_one_law_take_the_same_time():
    for way in ("rows", "paper"):
        found = seconds(way, 100)
        assert found[Action(1, 2, 3)] == pytest.approx(found[Action(1, 5, 0)])
        assert found[Action(4, 5, 0)] == pytest.approx(found[Action(1, 0, 5)])


def test_what_is_beside_the_passes_is_that_of_the_verifier_by_k():
    """4 ms with two paths, 1 ms a level and 0.1 ms a node, in the place of 2 ms and 0.5 ms a level."""
    times = VerifierTimes("khisti", (0.001, 0.004, 0.009, 0.016), 0.001, 0.0001)
    timed = replace(LATENCY, beside=times)
    with_khisti = dict(zip(ACTIONS, timed.action_s(np.array([256]))[0], strict=True))
    plain = seconds("rows", 256)
    expected = {
        Action(2, 1, 2): 0.004 + 3 * 0.001 + 5 * 0.0001,
        Action(4, 0, 0): 0.001,
        Action(4, 3, 0): 0.001 + 3 * 0.001 + 3 * 0.0001,
        Action(3, 0, 1): 0.009 + 0.001 + 3 * 0.0001,
    }
    for action, beside_s in expected.items():
        levels = len(action.level_widths)
        passes_s = plain[action] - 0.002 - levels * 0.0005
        assert with_khisti[action] == pytest.approx(passes_s + beside_s), action
    assert LatencyModel.from_json(json.loads(json.dumps(timed.as_json()))) == timed
    printed = timed.action_s(np.array([256]), "paper")
    assert np.array_equal(printed, LATENCY.action_s(np.array([256]), "paper")), "Eq. 11 as printed knows passes alone"


def test_times_of_a_verifier_are_found_again():
    times = VerifierTimes("nss", (0.001, 0.002, 0.004, 0.008), 0.0005, 0.0001)
    sizes = [(np.array([a.paths if a.branch else 1]), len(a.level_widths), a.nodes) for a in measuring.TIMED]
    measured = [float(times.seconds(*size)[0]) for size in sizes]
    found = VerifierTimes.fitted("nss", measuring.TIMED, measured)
    assert found.paths_s == pytest.approx(times.paths_s) and found.node_s == pytest.approx(times.node_s)
    assert found.level_s == pytest.approx(times.level_s)
    quick = VerifierTimes.fitted("nss", measuring.TIMED, [-1e-4] * len(measured))
    assert min(*quick.paths_s, quick.level_s, quick.node_s) == 0


class TimedSession:
    """A session whose iterations take 11 ms, of which 6 ms are the target's pass and 2 ms the draft's."""

    limits, new_tokens, clock = Limits(1000), 0, 0.0

    def step(self):
        TimedSession.clock += 0.011
        return SimpleNamespace(times=SimpleNamespace(verify_s=0.006, draft_levels_s=(0.001, 0.001)))


def test_what_is_beside_the_passes_is_taken_from_the_same_iterations(monkeypatch, embedded):
    """`LATENCY` has passes that take longer than these iterations do."""
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: TimedSession.clock)
    times = measuring.verifier_times(embedded, LATENCY, lambda *_: TimedSession(), "nss")
    found = [float(times.seconds(np.array([k]), np.array([4]), np.array([2 + 4 * k]))[0]) for k in (2, 3, 4)]
    assert found == pytest.approx([0.003] * 3, rel=0.05) and times.verifier == "nss"


def test_where_passes_are_slow_nothing_beside_them_is_timed():
    slow = replace(LATENCY, target_s=(0.2, 0.3))
    times = measuring.verifier_times(None, slow, None, "nss")
    assert times == VerifierTimes("nss", (0.002,) * 4, 0.0005, 0.0, COSTS.measured)


def test_parts_add_up_and_are_what_they_say():
    parts = LATENCY.parts(np.array([256, 700]))
    assert np.allclose(parts.sum(0), LATENCY.action_s(np.array([256, 700])))
    drafting, one, rows, beside = parts[:, 0, ACTIONS.index(Action(2, 1, 2))]
    assert drafting == pytest.approx(0.001 + 0.001 + 0.001 + 1 / 7000) and one == pytest.approx(0.005)
    assert rows == pytest.approx(5 / 63 * 0.015) and beside == pytest.approx(0.002 + 3 * 0.0005)


def test_json_comes_back_and_damage_is_noticed():
    content = json.loads(json.dumps(LATENCY.as_json()))
    assert LatencyModel.from_json(content) == LATENCY
    for change in ({"lengths": [5, 4]}, {"draft_s": [0.1]}, {"selector_s": -1.0}, {"costs": {}}):
        with pytest.raises((ValueError, KeyError, TypeError)):
            LatencyModel.from_json({**content, **change})


def test_asking_takes_no_less_than_the_answers_whatever_else_slows_the_iterations(pair, monkeypatch):
    def decoder(pair, method, *_):
        chooser = method.drafter.chooser
        answer = (lambda: chooser.choose(None)) if chooser else (lambda: time.sleep(0.003))  # something else is slow
        return SimpleNamespace(step=answer, finished=False)

    def choose(chooser, past):
        time.sleep(0.001)
        return SimpleNamespace(scalars=None, outputs=None)

    monkeypatch.setattr(Chooser, "choose", choose)
    assert measuring.asking_s(pair, LATENCY, decoder) >= 0.001


@pytest.mark.slow
def test_what_is_measured_is_kept(pair, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "LENGTHS", (4, 24))
    monkeypatch.setattr(measuring, "ROUNDS", 3)
    monkeypatch.setattr(measuring, "cost_model", lambda pair, decoder, again: COSTS)
    found = measuring.latency_model(pair, unrecorded)
    assert found.spread >= 1 and 0 <= found.others <= 1
    wrong = replace(found, target_s=tuple(1000 * seconds for seconds in found.target_s), spread=1.0)
    assert "target passes of one row kept from" in measuring.disagreement(pair, wrong)
    assert "differed by 9.0×" in measuring.disagreement(pair, replace(wrong, spread=9.0))
    monkeypatch.setattr(measuring, "disagreement", lambda *_: "")  # tests beside this one keep the machine busy
    monkeypatch.setattr(measuring, "LEAST_ROUNDS", 1)
    monkeypatch.setattr(measuring, "BUDGET_S", 0.0)
    timed = measuring.latency_model(pair, unrecorded, "khisti")
    assert timed == replace(found, beside=timed.beside) and timed.beside.verifier == "khisti"
    assert max(timed.beside.paths_s) > 0 and timed.beside.measured_with == COSTS.measured
    assert found.lengths == (4, 24) and found.draft_s[0] < found.target_s[0] and found.selector_s > 0
    assert list(found.target_s) == sorted(found.target_s)
    later = replace(COSTS, measured="2027-01-01T00:00:00Z")
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "measure_latency", lambda *_: pytest.fail("measured twice"))
        patch.setattr(measuring, "verifier_times", lambda *_: pytest.fail("measured twice"))
        assert measuring.latency_model(pair, unrecorded) == found
        assert measuring.latency_model(pair, unrecorded, "khisti") == timed
    monkeypatch.setattr(measuring, "cost_model", lambda pair, decoder, again: later)
    assert measuring.latency_model(pair, unrecorded).costs == later, "they go with the costs"
