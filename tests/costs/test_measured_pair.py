"""Acceptance rates of a pair: those of the verifier, means over a text, kept for each sampling."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch

from benchmarks.table_source import TableSource
from decoding.common.errors import SettingsError
from decoding.common.prompts import load_prompts
from decoding.costs import measured_pair, measuring
from decoding.costs.measured_pair import ODDS, RATES, MeasuredPair
from decoding.drafters.sequoia import SequoiaDrafter
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling
from decoding.session.session import unrecorded
from decoding.trace.records import DrawTrace
from decoding.verifiers.specinfer_wor import SpecInferWithoutReplacementVerifier
from tests.helpers.replayed_draws import ReplayDraws

ONCE = Sampling(temperature=1.0)


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]),
        ([0.0, 0.5, 0.5, 0.0], [0.7, 0.1, 0.1, 0.1]),
        ([0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]),
        ([0.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.0, 0.0]),
    ],
)
def test_rates_are_those_of_the_verifier(target, draft):
    """For every order of drawing, and for all of them as rows of one call."""
    target, draft = torch.tensor(target, dtype=torch.float64), torch.tensor(draft, dtype=torch.float64)
    support = [token for token, prob in enumerate(draft.tolist()) if prob > 0]
    orders = list(permutations(support))
    total = np.zeros(4)
    for order in orders:
        solver = SpecInferWithoutReplacementVerifier().solve(target, draft, order)
        passes = [solver.acceptance(rank, rank) for rank in range(len(order))]
        expected = [p * np.prod([1 - before for before in passes[:rank]]) for rank, p in enumerate(passes)]
        expected += [0.0] * (4 - len(order))
        draws = ReplayDraws(tuple(DrawTrace("choose", 1.0, token, 0.0) for token in order))
        assert measured_pair.accepted_by_rank(target[None], draft[None], 4, draws) == pytest.approx(expected, abs=1e-12)
        total += expected
    table = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    distributions = table / table.sum(-1, keepdim=True)
    one_by_one = [
        measured_pair.accepted_by_rank(target[None], row[None], 1, ReplayDraws((DrawTrace("choose", 1.0, 1, 0.0),)))
        for row in distributions
    ]
    together = measured_pair.accepted_by_rank(
        target.expand(3, 4), distributions, 1, ReplayDraws((DrawTrace("choose", 1.0, 1, 0.0),) * 3)
    )
    assert together == pytest.approx(sum(one_by_one))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "_known", {})
    return tmp_path / "draftscope" / "calibration"


def test_rates_of_the_embedded_pair(pair):
    rates = measured_pair.acceptance_by_rank(pair, ONCE, [prompt.text for prompt in load_prompts()[:6]])
    assert len(rates) == 16 and all(0 <= rate <= 1 for rate in rates) and sum(rates) <= 1
    assert rates[0] > 0.2 and rates[0] > 2 * rates[1] > 0
    same = replace(pair, draft=pair.target)
    assert measured_pair.acceptance_by_rank(same, ONCE, ["Once upon a time"]) == pytest.approx((1.0, *[0.0] * 15))
    assert measured_pair.acceptance_by_rank(pair, Sampling(), ["Once upon a time"], ranks=3) != rates[:3]
    with pytest.raises(SettingsError, match="text"):
        measured_pair.acceptance_by_rank(pair, ONCE, [])


def test_rates_are_means_over_places_of_the_text(pair, monkeypatch):
    """Greedy and from a draft that is sure, nothing is left to chance: the rate is how often the two agree."""
    text = "Once upon a time there was a little girl who lived in a house near the forest."
    tokens = pair.vocabulary.encode(text)
    with torch.no_grad():
        logits = [model.network(torch.tensor([tokens])).logits[0] for model in (pair.target, pair.draft)]
    agreed = (logits[0].argmax(-1) == logits[1].argmax(-1)).double()
    assert 0 < agreed.mean() < 1
    sure = Sampling(draft_temperature=1e-3)
    assert measured_pair.acceptance_by_rank(pair, sure, [text], ranks=1)[0] == pytest.approx(float(agreed.mean()))
    monkeypatch.setattr(measured_pair, "POSITIONS", 2)
    ends = float(agreed[[0, -1]].mean())
    assert measured_pair.acceptance_by_rank(pair, sure, [text], ranks=1)[0] == pytest.approx(ends)


def counted(monkeypatch, rates=(0.5, 0.25, *[0.0] * 14)) -> list[Sampling]:
    """Replaces the measurement; the list tells for which settings it was asked."""
    asked: list[Sampling] = []
    monkeypatch.setattr(measured_pair, "acceptance_by_rank", lambda _, sampling: asked.append(sampling) or rates)
    return asked


def test_rates_are_kept_for_each_sampling(pair, cache, monkeypatch):
    asked = counted(monkeypatch)
    others = (Sampling(), Sampling(temperature=1.0, top_p=0.9), Sampling(temperature=1.0, draft_temperature=0.5))
    for sampling in (ONCE, *others, ONCE):
        assert MeasuredPair(pair, sampling, None).acceptance() == (0.5, 0.25, *[0.0] * 14)
    assert asked == [ONCE, *others] and len(list(cache.iterdir())) == 1


def test_what_cannot_be_rates_or_odds_is_noticed():
    assert RATES.read([0.5, *[0.0] * 15])[0] == 0.5 and ODDS.read([0.5, 2.0]) == (0.5, 2.0)
    for wrong in ([0.5], [0.5] * 16, ["a"] * 16, [float("nan")] * 16, [-0.1, *[0.0] * 15], 0.5):
        with pytest.raises((ValueError, TypeError)):
            RATES.read(wrong)
    for wrong in ([0.5], [0.0, 1.0], [1.0, float("inf")], [1.0, 1.0, 1.0]):
        with pytest.raises((ValueError, TypeError)):
            ODDS.read(wrong)


def test_a_drafter_is_prepared_for_a_pair_once(pair, cache, monkeypatch):
    asked = counted(monkeypatch, (0.51234, 0.2, *[0.0] * 14))
    ready = SequoiaDrafter(node_budget=8).prepared(MeasuredPair(pair, ONCE, unrecorded))
    assert ready.rates == (0.5123, 0.2, *[0.0] * 14) and ready.node_budget == 8 and asked == [ONCE]
    assert ready.prepared(MeasuredPair(pair, Sampling(), unrecorded)) is ready and len(asked) == 1
    assert ready.draft(None, TableSource({}, [0.5, 0.5]), 9, GeneratorDraws(0)).tree.size > 1
