"""The benchmark of draft heads: intervals, verdicts, ranks and calibration against values found by hand."""

import numpy as np
import pytest
import torch

from benchmarks.fakes import make_pair
from benchmarks.talf import (
    LOSSES,
    PAPER_2,
    PAPER_3,
    SEARCHES,
    THRESHOLDS,
    WIDTHS,
    Claims,
    HeadMeasured,
    method_of,
    search_of,
    table_2,
    table_3,
    table_4,
    ways,
)
from benchmarks.talf_ranks import (
    BINS,
    RANKS,
    Conditioned,
    accuracy,
    calibration_error,
    conditioned,
    distribution_calibration_error,
    rank_names,
    rank_shares,
)
from decoding.experiments.estimates import Estimate, difference, estimate, middle, verdict
from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.heads.store import find_head, load_network, save_head
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, load_pair, pair_identity
from decoding.training.head_data import text_features


def test_an_interval_holds_the_mean_and_narrows_with_prompts():
    numbers = np.random.default_rng(0).normal(3.0, 1.0, 400)
    few, many = estimate(numbers[:20]), estimate(numbers)
    assert few.low < few.value < few.high and few.value == pytest.approx(numbers[:20].mean())
    assert many.high - many.low == pytest.approx(2 * 1.96 / 400**0.5, rel=0.15)
    assert many.high - many.low < few.high - few.low and few.prompts == 20


def test_pairs_decide_what_two_intervals_cannot():
    of_prompt = np.random.default_rng(1).normal(3.0, 1.0, 30)
    better, worse = of_prompt + 0.1, of_prompt
    assert estimate(better).low < estimate(worse).high, "alone they cannot be told apart"
    assert verdict(difference(better, worse)) == "holds" and verdict(difference(worse, better)) == "does not hold"
    assert verdict(Estimate(0.1, -0.1, 0.3, 5)) == "not decided here"


def test_a_median_is_not_moved_by_one_slow_call():
    speeds = [2.0, 2.1, 1.9, 2.0, 40.0]
    found = middle(speeds)
    assert found.value == 2.0 and found.low >= 1.9 and estimate(speeds).value > 9
    assert difference(speeds, [1.0, 1.1, 0.9, 1.0, 1.0], middle).value == 1.0


def test_a_figure_is_drawn_over_prompts():
    found = estimate(range(4), lambda chosen: float(np.mean(chosen)), draws=200)
    assert found.value == 1.5 and 0.0 <= found.low < 1.5 < found.high <= 3.0


def one(right, confidence, top, target_top) -> Conditioned:
    return Conditioned(*(np.repeat(np.array(part)[:, None], RANKS, 1) for part in (right, confidence, top, target_top)))


def test_accuracy_and_calibration_by_hand():
    roots = 2 * BINS  # two to a bin, in order of confidence
    confidence = np.linspace(0.05, 0.95, roots)
    right = np.arange(roots) % 2 == 0
    parts = [one(right[part], confidence[part], confidence[part], confidence[part] - 0.04)
             for part in (slice(7), slice(7, None))]  # fmt: skip
    both = np.array([0, 1])
    assert accuracy(parts, 0, both) == 0.5 and accuracy(parts, 2, np.array([0])) == pytest.approx(4 / 7)
    gaps = [abs(0.5 - confidence[2 * b : 2 * b + 2].mean()) for b in range(BINS)]
    assert calibration_error(parts, 1, both) == pytest.approx(np.mean(gaps))
    assert distribution_calibration_error(parts, 1, both) == pytest.approx(0.04)


def test_a_head_that_is_the_target_is_calibrated_to_its_law_alone():
    probs = np.full(30, 0.4)
    same = one(np.ones(30, bool), probs, probs, probs)
    assert distribution_calibration_error([same], 0, np.array([0])) == 0.0
    assert calibration_error([same], 0, np.array([0])) == pytest.approx(0.6), "right each time, and 40% sure"


def test_an_ordering_needs_the_whole_interval():
    claims = Claims()
    claims.add("a", "+1", Estimate(0.2, 0.1, 0.3, 9))
    for low, high in ((-0.05, 0.05), (0.15, 0.3), (-0.05, 0.2)):
        claims.add_same("b", "0", Estimate((low + high) / 2, low, high, 9), 0.1)
    assert [claim.verdict for claim in claims.made] == ["holds", "holds", "does not hold", "not decided here"]


@pytest.mark.slow
def test_tables_judge_what_the_paper_says(capsys):
    def measured(tokens, speed):
        values = np.linspace(-0.01, 0.01, 8)
        return HeadMeasured(tokens + values, tokens - values, speed + values, np.full(8, 7.0), np.full(8, 60.0))

    claims = Claims()
    figures = table_2({key: measured(tokens, speed) for key, (speed, tokens) in PAPER_2.items()}, claims)
    assert {claim.verdict for claim in claims.made} == {"holds"}, "the paper agrees with itself"
    assert len(claims.made) == len(SEARCHES) * 3 * 3 + len(LOSSES) * 7
    assert figures["salf talf"]["paper"] == (2.47, 3.73) and figures["salf talf"]["tokens"]["value"] == pytest.approx(
        3.73
    )
    claims = Claims()
    table_4({threshold: measured(tokens, speed) for threshold, (speed, tokens) in THRESHOLDS.items()}, claims)
    assert [claim.verdict for claim in claims.made] == ["holds"] * 4
    said = capsys.readouterr().out
    assert "Beam search, TALF" in said and "fastest here: threshold 0.5; in the paper: 0.5" in said


def test_table_3_does_without_heads_that_are_not_there(capsys):
    values = np.linspace(4.0, 4.1, 8)
    one_way = HeadMeasured(values, values, values, values, values)
    claims = Claims()
    assert set(table_3({("optimal", head): one_way for head in ("hass", "talf")}, claims)) == {"hass", "talf"}
    assert "not there: talf_top1, talf_top2; train them with" in capsys.readouterr().out and not claims.made
    table_3({("optimal", head): one_way for head in WIDTHS}, claims)
    assert [claim.verdict for claim in claims.made] == ["not decided here"] * 4 + ["holds"] * 2
    assert ("optimal", "talf_top1") not in ways(quick=False, heads={"hass", "talf"})


def test_the_ways_are_those_of_the_paper():
    asked = ways(quick=False)
    assert len(asked) == len(set(asked)) == 9 + 2 + 8
    assert {("optimal", head) for head in WIDTHS} <= set(asked) and PAPER_3.keys() == WIDTHS.keys()
    beam, salf, half = (method_of(search, "talf", 60) for search in ("beam", "salf", search_of(0.5)))
    assert beam.settings()["beam_width"] == 10 and beam.settings()["max_depth"] == 7
    assert (salf.settings()["gain_threshold"], half.settings()["gain_threshold"]) == (0.6, 0.5)
    assert method_of("optimal", "talf", 60).settings()["gain_threshold"] == 0.0
    assert all(way.draft_head == "talf" and way.verifier.name == "greedy" for way in (beam, salf, half))
    assert ways(quick=True) == [(search, loss) for search in SEARCHES for loss in LOSSES]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    target, draft = make_pair(tmp_path_factory.mktemp("pair"), "gpt_neox", sharpness=2.0)
    return load_pair(PairSettings(str(target), str(draft), device="cpu", dtype="float32", context_length=256))


@pytest.fixture
def head(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    network = HeadNetwork(HeadConfig.of(64, pair.logits_size, 64), torch.Generator().manual_seed(1))
    save_head(tmp_path / "fresh" / "head", network, "talf", pair_identity(pair), "2030-01-02T03:04:05", {})
    return "fresh"


def test_shares_of_ranks_are_those_of_the_trees(pair, head):
    method = METHODS["eagle2"].with_settings(node_budget=8, beam_width=6, max_depth=2, draft_head=head)
    shares = rank_shares(pair, method, pair.vocabulary.encode("Once upon a time"), 6)
    assert tuple(shares) == rank_names() and sum(shares.values()) == pytest.approx(1.0)
    assert shares["1"] >= shares["2"] >= shares["3"] > 0


@torch.inference_mode()
def test_what_a_head_says_behind_its_own_choices(pair, head):
    """Compared with plain passes: one text per child through the target, one row after another through the head."""
    tokens, root, rank = np.random.default_rng(0).integers(3, 4000, 9), 7, 3
    found = conditioned(pair, head, tokens, first_root=6)
    assert found.right.shape == found.confidence.shape == found.top.shape == (3, RANKS)
    network, embed = load_network(find_head(head)), pair.target.network.get_input_embeddings()
    features = text_features(pair.target, tokens)

    def out_of(ids: list[int], before: torch.Tensor) -> torch.Tensor:
        mask, positions = torch.ones(1, len(ids), len(ids), dtype=torch.bool).tril(), torch.arange(1, len(ids) + 1)
        return network(embed(torch.tensor([ids])), before[None], positions[None], mask)[0][0, -1:]

    ids = tokens[1 : root + 1].tolist()
    out = out_of(ids, features[:root])
    child = int(pair.target.engine.project(out).topk(RANKS).indices[0, rank])
    behind = out_of([*ids, child], torch.cat([features[:root], out]))
    probs = torch.softmax(pair.target.engine.project(behind), -1)[0]
    wanted = int(pair.target.network(torch.tensor([[*tokens[: root + 1].tolist(), child]])).logits[0, -1].argmax())
    assert found.confidence[root - 6, rank] == pytest.approx(float(probs[wanted]), rel=1e-4)
    assert found.top[root - 6, rank] == pytest.approx(float(probs.max()), rel=1e-4)
    assert found.right[root - 6, rank] == (int(probs.argmax()) == wanted)
    theirs = pair.target.network(torch.tensor([[*tokens[: root + 1].tolist(), child]])).logits[0, -1].softmax(-1)
    assert found.target_top[root - 6, rank] == pytest.approx(float(theirs[probs.argmax()]), rel=1e-4)
