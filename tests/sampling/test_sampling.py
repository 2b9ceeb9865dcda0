"""Temperature, nucleus, and draws that are recorded, replayed and enumerated."""

import re

import pytest
import torch

from benchmarks.enumeration import enumerate_draws
from decoding.common.errors import PairError, SettingsError
from decoding.common.settings import TEMPERATURES
from decoding.recorded import recorded_run
from decoding.sampling.draws import GeneratorDraws, Uniforms, _invert, _invert_on_host
from decoding.sampling.sampling import (
    BLOCK,
    LARGE_VOCABULARY,
    Sampling,
    TargetDistributions,
    argmax_rows,
    nucleus,
    target_distribution,
    topk_rows,
)
from tests.helpers.replayed_draws import ReplayDraws


def test_greedy_law_is_the_argmax():
    assert target_distribution(torch.tensor([[0.1, 2.0, -1.0]]), Sampling()).tolist() == [[0, 1, 0]]


def test_temperature_scales_before_softmax():
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    assert torch.allclose(target_distribution(logits, Sampling(temperature=0.5)), torch.softmax(logits * 2, -1))


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, 1), (0.51, 2), (0.8, 2), (0.81, 3), (1.0, 4)])
def test_nucleus_keeps_the_crossing_token(top_p, kept):
    logits = torch.log(torch.tensor([[0.05, 0.5, 0.3, 0.15]]).double()).float()
    probs = target_distribution(logits, Sampling(temperature=1.0, top_p=top_p))
    assert int((probs > 0).sum()) == kept and float(probs.sum()) == pytest.approx(1.0)


def test_nucleus_agrees_with_transformers():
    from transformers.generation.logits_process import TopPLogitsWarper

    logits = torch.randn(50, 200, generator=torch.Generator().manual_seed(3)) * 3
    for top_p in (0.3, 0.9, 0.99):
        warped = torch.softmax(TopPLogitsWarper(top_p)(None, logits.clone()), -1)
        ours = target_distribution(logits, Sampling(temperature=1.0, top_p=top_p))
        assert torch.allclose(ours, warped, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "bad", "rule"),
    [
        (
            "temperature",
            (-1, 1e-310, 1e-31, float("nan"), float("inf"), "hot", None, True),
            "0, which decodes greedily, or",
        ),
        ("draft_temperature", (0, -1, 1e-39, float("inf"), "1"), "from 1e-30 to 1e\\+30"),
        ("top_p", (0, 1.5, float("nan"), "all", None), "above 0 and at most 1"),
        ("seed", (-1, 1.5, "7", True, None, 2**63), "a whole number from 0 to 9,223,372,036,854,775,807"),
    ],
)
def test_out_of_range_is_refused_by_name_and_range(name, bad, rule):
    for value in bad:
        with pytest.raises(SettingsError, match=f"^{name} must be {rule}.*, not {re.escape(repr(value))}\\.$"):
            Sampling(**{name: value})


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_at_both_ends_of_the_range_a_law_is_a_law(temperature):
    logits = torch.tensor([[-3e4, 3e4, 2.9e4]])
    for dtype in (torch.float32, torch.float64):
        probs = target_distribution(logits.to(dtype), Sampling(temperature))
        assert probs.isfinite().all() and float(probs.sum()) == pytest.approx(1)


def test_logits_that_are_no_numbers_are_reported_before_anything_is_accepted():
    for bad in (float("nan"), float("inf")):
        with pytest.raises(PairError, match=r"nan or infinite logits .* in float32; load the pair in float32, or"):
            TargetDistributions(torch.tensor([[0.0, 1.0], [bad, 0.0]]), Sampling()).check()


def decide(draws):
    first = draws.choose(torch.tensor([0.2, 0.0, 0.8]))
    return first, draws.accept(0.25), draws.choose(torch.tensor([1.0, 3.0])) if first else None


def test_same_seed_same_draws_and_replay():
    a, b = GeneratorDraws(5), GeneratorDraws(5)
    outcome = decide(a)
    assert outcome == decide(b) and a.record == b.record
    assert decide(ReplayDraws(tuple(a.record))) == outcome
    with pytest.raises(ValueError, match="do not match"):
        ReplayDraws(()).accept(0.5)


def test_fork_continues_with_the_same_numbers():
    draws = GeneratorDraws(1)
    decide(draws)
    fork = draws.fork()
    assert fork.record == [] and decide(fork) == decide(draws)


def test_generator_draws_follow_their_weights():
    draws = GeneratorDraws(0)
    counts = torch.bincount(torch.tensor([draws.choose(torch.tensor([1.0, 2.0, 0.0, 1.0])) for _ in range(4000)]))
    assert counts[2] == 0 and abs(counts[1].item() / 4000 - 0.5) < 0.03
    assert abs(sum(draws.accept(0.3) for _ in range(4000)) / 4000 - 0.3) < 0.03


def test_enumeration_finds_every_outcome_with_its_probability():
    probs = {}
    for outcome, probability in enumerate_draws(decide):
        assert outcome not in probs
        probs[outcome] = probability
    assert sum(probs.values()) == pytest.approx(1.0)
    assert probs[0, True, None] == pytest.approx(0.2 * 0.25)
    assert probs[2, False, 1] == pytest.approx(0.8 * 0.75 * 0.75, rel=1e-6)
    assert len(probs) == 6


def test_certain_decisions_do_not_branch():
    assert len(list(enumerate_draws(lambda draws: (draws.accept(1.0), draws.accept(0.0))))) == 1


def test_the_law_after_a_node_is_checked():
    rows = TargetDistributions(torch.tensor([[0.0, 3.0], [float("nan"), 0.0]]), Sampling(temperature=1.0))
    assert (
        rows.argmax[0] == 1 and rows.probs(0).dtype == torch.float64 and float(rows.probs(0).sum()) == pytest.approx(1)
    )
    with pytest.raises(ValueError, match=r"target_logits\[1\] sums to nan"):
        rows.probs(1)
    given = TargetDistributions(None, Sampling(), probs=torch.tensor([[0.7, 0.7], [1.5, -0.5]]))
    with pytest.raises(ValueError, match=r"target_probs\[0\] sums to 1.4"):
        given.probs(0)
    with pytest.raises(ValueError, match=r"target_probs\[1\] contains the negative probability -0.5"):
        given.probs(1)


def test_the_nucleus_of_a_flat_law_over_a_large_vocabulary_is_exact():
    probs = torch.full((2, 5000), 1 / 5000, dtype=torch.float64)
    probs[1] = torch.softmax(torch.randn(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 0)
    for row, kept in zip(probs, nucleus(probs, 0.85003), strict=True):
        ordered = row.sort(descending=True).values
        count = int((ordered.cumsum(0) - ordered < 0.85003).sum())
        assert int((kept > 0).sum()) == count and float(kept.sum()) == pytest.approx(1)


def test_choosing_row_by_row_takes_the_same_numbers():
    weights = torch.rand(5, 7, generator=torch.Generator().manual_seed(1))
    together, single = GeneratorDraws(3), GeneratorDraws(3)
    assert together.choose_each(weights) == [single.choose(row) for row in weights]
    assert together.record == single.record and together.last_uniform == single.last_uniform


def test_choosing_on_a_device_and_on_the_host_agree():
    weights = torch.rand(6, 9, generator=torch.Generator().manual_seed(2)) * (torch.arange(9) % 3 > 0)
    uniforms = [0.0, 0.1, 0.5, 0.9, 0.999999, 1.0]  # 1 stands for a product that rounding lifts to the total
    host, device = _invert_on_host(weights, uniforms), _invert(weights, uniforms)
    assert host[0] == device[0] and host[1] == pytest.approx(device[1], abs=1e-7)
    assert all(weights[row, index] > 0 for row, index in enumerate(host[0]))


SEEDS = (0, 1, 5489, 2**31, 2**32 - 1, 2**32, 2**40 + 12345, 2**63 - 1)
COUNTS = (*range(1, 40), 63, 64, 65, 311, 312, 313, 624, 1, 4097, 2, 30000, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_they_are_those_of_one_generator_read_in_pieces(seed):
    generator, numbers, place = torch.Generator().manual_seed(seed), Uniforms(seed), 0
    for count in COUNTS:
        assert numbers.read(place, count) == torch.rand(count, generator=generator, dtype=torch.float64).tolist()
        place += count


def test_a_place_is_found_again():
    numbers = Uniforms(3)
    far = numbers.read(5000, 3)
    assert numbers.read(0, 5003)[5000:] == far == Uniforms(3).read(0, 6000)[5000:5003]


def test_a_recorded_run_was_drawn_with_them():
    run = recorded_run("sampled")
    recorded = [draw.uniform for iteration in run.iterations for draw in iteration.draws]
    draws = GeneratorDraws(run.sampling.seed)
    for _ in recorded:
        draws.accept(0.5)
    assert len(recorded) > 100
    assert [draw.uniform for draw in draws.record] == recorded


def test_a_copy_goes_on_further_on():
    draws = GeneratorDraws(7)
    draws.accept(0.5)
    copy = draws.fork(2)
    draws.choose_each(torch.ones(2, 1))
    draws.accept(0.5)
    copy.accept(0.5)
    assert [draw.uniform for draw in copy.record] == [draws.last_uniform], "its record begins empty"


SHAPES = [(1, LARGE_VOCABULARY), (40, LARGE_VOCABULARY), (40, LARGE_VOCABULARY + 1), (40, BLOCK), (40, 7)]


@pytest.mark.parametrize(("num_rows", "size"), SHAPES)
def test_same_as_the_plain_search(num_rows, size):
    rows = torch.rand((num_rows, size), generator=torch.Generator().manual_seed(size))
    assert torch.equal(argmax_rows(rows), rows.argmax(-1))
    for count in (1, 3, 7):
        values, indices = topk_rows(rows, count)
        plain = rows.topk(count, -1)
        assert torch.equal(values, plain.values) and torch.equal(indices, plain.indices)


def test_the_largest_may_all_stand_in_one_block():
    rows = torch.zeros((3, LARGE_VOCABULARY))
    rows[:, 5 * BLOCK : 5 * BLOCK + 4] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    values, indices = topk_rows(rows, 4)
    assert indices[0].tolist() == [5 * BLOCK + i for i in range(4)] and values[0].tolist() == [4, 3, 2, 1]


def test_the_first_of_equals_wins():
    rows = torch.zeros((3, LARGE_VOCABULARY))
    rows[:, [BLOCK + 3, BLOCK + 9, 20 * BLOCK]] = 1.0
    assert argmax_rows(rows).tolist() == [BLOCK + 3] * 3


def test_two_steps_are_taken_in_large_vocabularies(monkeypatch):
    searched, plain = [], torch.Tensor.topk
    monkeypatch.setattr(
        torch.Tensor, "topk", lambda rows, *how, **more: searched.append(rows.shape[1]) or plain(rows, *how, **more)
    )
    topk_rows(torch.rand(1, LARGE_VOCABULARY), 3)
    topk_rows(torch.rand(1, LARGE_VOCABULARY // 2), 3)
    assert searched == [LARGE_VOCABULARY // BLOCK, 3 * BLOCK, LARGE_VOCABULARY // 2]
