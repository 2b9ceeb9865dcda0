"""A server's own K by hand: gain, break-even, where it flips, its log beside the model; published gains."""

import json
import math

import pytest

from decoding.analysis.batch import Rates
from decoding.analysis.known_models import known_shape
from decoding.analysis.model_shape import eagle_head
from decoding.analysis.own_server import OwnPoint, log_check, other_vocabulary, own_point
from decoding.analysis.roofline import (
    NEAREST,
    STORED,
    caution,
    gain_band,
    least_first,
    published_gains,
    published_lengths,
)
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.trace.engine_metrics import read_metrics

LINE = (
    "SpecDecoding metrics: Mean acceptance length: 1.60, Accepted throughput: 6.00 tokens/s, Drafted throughput: 20.00 "
    "tokens/s, Accepted: 120 tokens, Drafted: 400 tokens, Per-position acceptance rate: 0.400, 0.200, Avg Draft "
    "acceptance rate: 30.0%"
)


def test_the_gain_and_where_it_flips_by_hand():
    """A plain step of 10 ms, three tokens verified in 12 ms, two draft passes of 1 ms, 1 ms of the engine: 15 ms."""
    points = tuple(CostPoint(size, s, s, s) for size, s in ((1, 0.010), (2, 0.012), (3, 0.013)))
    costs = CostModel(
        CostCurve(points), CostCurve((CostPoint(1, 0.001, 0.001, 0.001),)), 0.0, 0.0, 1, 1, "", "", batch=8
    )
    own = own_point(costs, Rates((0.4, 0.5)), 2, engine_s=0.001)
    assert (own.batch, own.length, own.tokens) == (8, 2, pytest.approx(1.6))
    assert own.round_s == pytest.approx(0.015) and own.break_even == pytest.approx(1.5)
    assert own.gain == pytest.approx(1.6 / 1.5)
    assert own.engine_flip_s == pytest.approx(0.002), "16 ms for 1.6 tokens, less 14 ms of passes"
    assert own.with_engine(0.002) == pytest.approx(1) and own.with_engine(0.006) == pytest.approx(0.8)
    assert own_point(costs, Rates((0.4,), deepest=1), 2).length == 1, "beyond what was seen nothing is drafted"


def at(batch: int, round_s: float = 0.5) -> OwnPoint:
    return OwnPoint(batch, 2, 1.6, 0.4, round_s, 0.1)


def test_the_log_beside_the_model():
    metrics = read_metrics(LINE.encode())  # 200 passes in 20 s
    found = log_check(metrics, at(8), at(32), at)
    assert found.rounds == pytest.approx(10) and found.tokens == pytest.approx(16)
    assert found.modelled == pytest.approx((16, 64)) and not found.agrees
    assert found.sequences == 5 and found.engine_s(at(8)) == pytest.approx(0.4), "rounds of 0.8 s, not of 0.5"
    assert log_check(metrics, at(4), at(8), at).agrees
    assert log_check(read_metrics(LINE.split("Accepted")[0].encode()), at(8), at(8), at) is None
    generated = "Avg generation throughput: 32.0 tokens/s, Running: 8 reqs\nMean acceptance length: 1.60"
    alone = log_check(read_metrics(generated.encode()), at(8), at(8), at)
    assert alone.rounds == pytest.approx(20) and alone.tokens == 32
    assert log_check(metrics, at(8), at(8), lambda batch: at(batch, 0.2 * batch)).sequences is None


def test_a_draft_of_another_tokenizer_is_told():
    llama, qwen, small = known_shape("Llama-3.1-70B"), known_shape("Qwen2.5-0.5B"), known_shape("Qwen2.5-7B")
    assert "this pair cannot run" in other_vocabulary(llama, qwen)
    assert "wants them equal" in other_vocabulary(small, qwen)
    fine = (known_shape("Llama-3.2-1B"), eagle_head(llama, 32_000), None)
    assert [other_vocabulary(llama, draft) for draft in fine] == ["", "", ""]


def test_the_band_is_of_all_stored_figures_that_were_not_fitted():
    stored = [each for each in json.loads(STORED.read_text(encoding="utf-8"))["figures"] if each["unit"] == "x"]
    assert len(published_gains()) == len(stored)
    over = sorted(1 / (1 + each["error"]) for each in stored if not each["fitted"])
    band = gain_band()
    assert (band.low, band.high, band.count) == (pytest.approx(over[0]), pytest.approx(over[-1]), len(over))
    assert sum(each < band.middle for each in over) == len(over) // 2
    assert f"{len(over)} published gains" in caution() and f"{1 - band.middle:.0%} below it in the median" in caution()


def test_the_band_of_a_batch_is_of_the_gains_published_for_batches_near_it():
    known = [each for each in published_gains() if not each.fitted]
    for batch, most in ((1, 4), (64, 128), (4096, 64)):
        band = gain_band(batch)
        nearest = sorted(known, key=lambda each: abs(math.log(each.batch / batch)))
        far = abs(math.log(nearest[NEAREST - 1].batch / batch))
        within = [1 / (1 + each.error) for each in known if abs(math.log(each.batch / batch)) < far + 1e-6]
        assert band.count == len(within) >= NEAREST and all(each.batch <= most for each in nearest[:NEAREST])
        assert (band.low, band.high) == (pytest.approx(min(within)), pytest.approx(max(within)))
    assert gain_band(64).middle < gain_band(8).middle < gain_band(1).middle, "the error grows with the batch"


def test_published_acceptance_is_of_the_same_k_with_its_source():
    assert sorted(published_lengths(5).values()) == [2.43, 3.32] and published_lengths(99) == {}
    assert all("thread" in name for name in (*published_lengths(2), *published_lengths(3)))
    assert least_first() == pytest.approx(0.55), "of (2.10 - 1) two positions share"
