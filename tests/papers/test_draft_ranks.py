"""Draft tokens by rank: shares, accuracy and calibration against values found by hand, and the records of them."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.fakes import make_pair
from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.heads.store import find_head, load_network, save_head
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, load_pair, pair_identity
from decoding.papers.judge import judge
from decoding.papers.measured import draft_ranks
from decoding.papers.measured.draft_ranks import (
    BINS,
    RANKS,
    Conditioned,
    accuracy,
    calibration_error,
    conditioned,
    distribution_calibration_error,
    rank_shares,
    records_behind_ranks,
    records_of_shares,
)
from decoding.training.head_data import text_features
from tests.helpers.papers import BY_KEY


def one(right, confidence, top, target_top) -> Conditioned:
    parts = [np.repeat(np.array(part)[:, None], RANKS, 1) for part in (right, confidence, top, target_top)]
    return Conditioned(parts[0], parts[1], parts[2], parts[3], np.ones(len(right), bool))


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


def test_a_head_that_is_the_target_is_calibrated_to_its_distribution_alone():
    probs = np.full(30, 0.4)
    same = one(np.ones(30, bool), probs, probs, probs)
    assert distribution_calibration_error([same], 0, np.array([0])) == 0.0
    assert calibration_error([same], 0, np.array([0])) == pytest.approx(0.6), "right each time, and 40% sure"


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
    ids = pair.vocabulary.encode("Once upon a time")
    made = records_of_shares(pair, method, "talf", {"sample": "p"}, ids, 6)
    shares = [each["share"] for each in made]
    assert [each["rank"] for each in made] == list(range(1, RANKS + 1)) and sum(shares) == pytest.approx(1.0)
    assert shares[0] >= shares[1] >= shares[2] > 0
    assert all(each["loop_free_share"] == each["share"] and each["sample"] == "p" for each in made)


def test_shares_are_of_all_tokens_together():
    counts = [np.array([3, 1, 0, 0, 0]), np.array([1, 0, 0, 0, 3])]
    assert rank_shares(counts).tolist() == [0.5, 0.125, 0, 0, 0.375]
    assert np.isnan(rank_shares([])).all() and np.isnan(rank_shares([np.zeros(RANKS)])).all()


def test_roots_in_loops_count_in_whole_texts_alone():
    sure = np.full(4, 0.5)
    looping = replace(one([True, True, False, False], sure, sure, sure), outside=np.array([True, True, False, False]))
    lost = replace(looping, outside=np.zeros(4, bool))
    first, second = (each for each in records_behind_ranks([looping, lost], "talf", [{}, {}]) if each["rank"] == 1)
    assert (first["accuracy"], first["counted"]) == (0.5, 4)
    assert (first["loop_free_accuracy"], first["loop_free_counted"]) == (1.0, 2)
    assert not any(name.startswith("loop_free") for name in second)


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


@pytest.mark.slow
def test_pseudo_values_have_less_bias_than_the_error_of_few_roots():
    """A head that is right as often as it says has error 0; few roots in a bin give more, and the mean hardly does."""
    draws = np.random.default_rng(3)

    def prompt() -> Conditioned:
        sure = draws.uniform(0.05, 0.95, 12)
        return one(draws.random(12) < sure, sure, sure, sure)

    plain, jackknifed = [], []
    for _ in range(40):
        parts = [prompt() for _ in range(12)]
        plain.append(calibration_error(parts, 0, np.arange(12)))
        records = records_behind_ranks(parts, "talf", [{"sample": str(n)} for n in range(12)])
        jackknifed.append(np.mean([each["ece"] for each in records if each["rank"] == 1]))
    assert abs(np.mean(jackknifed)) < 0.5 * np.mean(plain)


def test_one_prompt_has_no_pseudo_value():
    sure = np.full(20, 0.5)
    records = records_behind_ranks([one(np.arange(20) % 2 == 0, sure, sure, sure)], "talf", [{"sample": "p"}])
    assert len(records) == RANKS and all("ece" not in each and each["accuracy"] == 0.5 for each in records)


@pytest.mark.slow
def test_what_is_stored_fills_the_figures(tmp_path, monkeypatch):
    words = ["x", "--quick", "--count", "3", "--device", "cpu", "--json", str(tmp_path / "draft_ranks-cpu.json")]
    monkeypatch.setattr(sys, "argv", words)
    assert draft_ranks.main() == 0
    monkeypatch.setattr("decoding.papers.stored.RESULTS", tmp_path)
    for key in ("figure-2a", "figure-2b", "appendix-a"):
        outcome = judge(BY_KEY[f"salf/{key}"], pd.DataFrame())
        assert outcome.run and outcome.values == (1, 2, 3, 4, 5), key
