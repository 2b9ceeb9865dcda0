"""Costs of batches: measured once, kept, the next larger batch for one in between; a method that asks for a batch."""

from dataclasses import replace

import pytest

from benchmarks.fakes import make_pair
from decoding.common.errors import SettingsError
from decoding.costs import batches, measuring
from decoding.costs.batches import batch_costs, known_batch_costs, measure_batches
from decoding.costs.measured_pair import MeasuredPair
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, load_pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import unrecorded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    target, draft = make_pair(tmp_path_factory.mktemp("pair"), "gpt_neox")
    return load_pair(PairSettings(str(target), str(draft), device="cpu", dtype="float32", context_length=128))


@pytest.fixture(autouse=True)
def few(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "_known", {})
    monkeypatch.setattr(batches, "BATCHES", (1, 2, 4))
    monkeypatch.setattr(batches, "SIZES", (1, 2, 4))
    monkeypatch.setattr(measuring, "disagreement", lambda *_: "")  # tests beside this one keep the machine busy


def test_every_batch_is_measured_once_and_read_from_its_file_later(pair, monkeypatch):
    monkeypatch.setattr(batches, "disagreement", lambda *_: "")
    reported: list[int] = []
    costs = batch_costs(pair, unrecorded, report=reported.append)
    assert reported == list(costs) == [1, 2, 4] and [each.batch for each in costs.values()] == [1, 2, 4]
    for each in costs.values():
        assert [point.size for point in each.target.points] == [point.size for point in each.draft.points] == [1, 2, 4]
        assert all(0 < point.seconds <= point.low_s <= point.high_s for point in each.target.points)
    assert batch_costs(pair, unrecorded, report=reported.append) == costs and len(reported) == 3
    monkeypatch.setattr(measuring, "_known", {})
    assert known_batch_costs(pair) == costs


def test_a_batch_in_between_costs_what_the_next_larger_one_does(pair, monkeypatch):
    monkeypatch.setattr(batches, "disagreement", lambda *_: "")
    assert known_batch_costs(pair) is None
    measured = MeasuredPair(pair, Sampling(), unrecorded)
    assert measured.costs(3) == batch_costs(pair, unrecorded)[4]
    with pytest.raises(SettingsError, match="At most 4 sequences fit"):
        measured.costs(5)


def test_kept_costs_of_batches_that_do_not_hold_are_measured_again_and_say_why(pair, monkeypatch, capsys):
    costs = batch_costs(pair, unrecorded)
    (key,) = [key for key in measuring._known if key[0].name.endswith("-batches.json")]
    slow = {
        batch: replace(each, target=each.target.raised(1.0), others=0.9 * (batch == 4)) for batch, each in costs.items()
    }
    assert "passes over 4 sequences kept from" in batches.disagreement(pair, slow)
    measuring._known[key] = slow
    monkeypatch.setattr(measuring, "_trusted_until", {})
    again = batch_costs(pair, unrecorded)
    assert all("passes over 4 sequences kept" in each.corrected for each in again.values())
    assert all(each.target.seconds(1) < 1 for each in again.values())
    assert "were measured again: passes over 4 sequences" in capsys.readouterr().err


def test_batches_that_no_memory_holds_are_left_out(pair, monkeypatch):
    real = batches.BatchProbe

    def probe(pair, model, batch, *rest):
        if batch == 4:
            raise MemoryError
        return real(pair, model, batch, *rest)

    monkeypatch.setattr(batches, "BatchProbe", probe)
    assert list(batch_costs(pair, unrecorded)) == [1, 2]


def test_passes_that_take_too_long_are_not_repeated_nor_followed_by_larger_ones(pair, monkeypatch):
    monkeypatch.setattr(batches.BatchProbe, "pass_s", lambda probe, size: 1.0 * size)
    costs = measure_batches(pair, measuring.cost_model(pair, unrecorded), (1,), (1, 2, 4, 8))
    assert costs[1].target.written() == "1:1000 2:2000 4:4000"


def test_one_sequence_costs_what_it_does_with_the_kernels_that_are_for_one(pair):
    captured = pair.with_engine("cuda_graph")
    alone = measuring.cost_model(captured, unrecorded)
    one, two = measure_batches(captured, alone, (1, 2), (1, 2, 4)).values()
    assert (one.batch, two.batch) == (1, 2) and set(one.target.points) < set(alone.target.points)
    assert [point.size for point in one.draft.points] == [point.size for point in two.draft.points] == [1, 2, 4]


def test_the_hardware_aware_tree_of_a_batch_uses_the_costs_of_that_batch(pair, monkeypatch):
    monkeypatch.setattr(batches, "disagreement", lambda *_: "")
    method = METHODS["hardware_aware"]
    alone, four = (
        method.with_settings(batch_size=size).prepared(MeasuredPair(pair, Sampling(), unrecorded)) for size in (1, 4)
    )
    costs = batch_costs(pair, unrecorded)[4]
    assert four.drafter.verify_ms == costs.verification.written() != alone.drafter.verify_ms
    assert "batch_size" not in alone.settings() and four.settings()["batch_size"] == 4
    assert alone.all_settings()["batch_size"] == 1
