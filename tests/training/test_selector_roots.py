"""Roots along a text: distributions, features and labels are those that decoding itself would meet there."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.common.errors import TrainingError
from decoding.jobs.process import StoppedError
from decoding.sampling.sampling import Sampling, target_distribution
from decoding.training import selector_roots
from decoding.training.selector_roots import (
    PARTS,
    RootPlan,
    half_of,
    make_roots,
    open_data,
    roots_of,
    target_distributions,
)
from decoding.training.text import Texts, sample_texts

SMALL = RootPlan(
    texts=2,
    held_out=1,
    roots=2,
    spacing=8,
    trees=2,
    khisti_every=2,
    samplings=(Sampling(0.0), Sampling(1.0, 0.9)),
    verifiers=("specinfer", "khisti"),
)
TEXTS = Texts(
    {"stories": ("Once upon a time there was a cat", "One day the dog")},
    {"stories": ("The sea was blue that day",)},
    prompts=True,
)


def test_distributions_of_several_samplings_are_those_of_each():
    logits = torch.randn(6, 40, dtype=torch.float64) * 3
    samplings = (Sampling(0.0), Sampling(0.7), Sampling(1.0, 0.9), Sampling(1.0, 0.5), Sampling(0.0, 0.5))
    for probs, sampling in zip(target_distributions(logits, samplings), samplings, strict=True):
        assert torch.allclose(probs, target_distribution(logits, sampling), atol=1e-14)


@pytest.mark.slow
def test_the_roots_of_a_text_are_a_function_of_its_number(pair):
    first, again = (roots_of(pair, TEXTS, SMALL, "trained", 0) for _ in range(2))
    other = roots_of(pair, TEXTS, replace(SMALL, verifiers=("specinfer",)), "trained", 1)
    # Two roots, the later one first, each under both samplings; the text was written greedily.
    assert first.sampling.tolist() == [0, 1, 0, 1] and other.sampling.tolist() == [1, 0, 1, 0]
    assert first.length[0] == first.length[1] == first.length[2] + SMALL.spacing
    for name, array in first.arrays().items():
        assert np.array_equal(array, again.arrays()[name], equal_nan=True), name
    assert not np.array_equal(first.target, other.target)
    tokens = first.expected["specinfer"]
    assert tokens.shape == (4, 233) and tokens.min() >= 1 - 1e-6 and tokens.max() <= 17
    assert np.isnan(first.expected["khisti"]).all(1).tolist() == [True, True, False, True]
    assert len(first.labelled("khisti")) == 1 and len(first.labelled("specinfer")) == 4


def test_shards_are_made_once_and_go_on_where_they_stopped(pair, tmp_path):
    plan = replace(SMALL, roots=1, trees=1, verifiers=("specinfer",))
    data = open_data(tmp_path / "data", pair, plan, "words")
    done = []

    def stopping(number, total):
        if done:
            raise StoppedError("Stopped.")
        done.append((number, total))

    with pytest.raises(StoppedError):
        make_roots(data, pair, TEXTS, stopping)
    make_roots(data, pair, TEXTS, lambda number, total: done.append((number, total)), share=(1, 2))
    make_roots(data, pair, TEXTS, lambda number, total: done.append((number, total)))
    assert done == [(0, 4), (0, 1), (1, 4), (2, 4)]
    make_roots(data, pair, TEXTS, lambda *_: pytest.fail("made twice"))
    assert [len(data.read(part)) for part in PARTS] == [2, 2, 4]
    assert set(data.read("trained").text) == {0, 1}
    more = open_data(tmp_path / "data", pair, replace(plan, texts=1), "words")
    assert len(more.read("trained")) == 2


def test_data_of_something_else_is_refused(pair, tmp_path, monkeypatch):
    open_data(tmp_path / "data", pair, SMALL, "words")
    with pytest.raises(TrainingError, match=r"prepared for a different text \(words instead of other words\)"):
        open_data(tmp_path / "data", pair, SMALL, "other words")
    with pytest.raises(TrainingError, match=r"prepared for a different spacing \(8 instead of 4\)"):
        open_data(tmp_path / "data", pair, replace(SMALL, spacing=4), "words")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(TrainingError, match="contains other files"):
        open_data(tmp_path / "full", pair, SMALL, "words")
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path / "home"))
    more = replace(SMALL, texts=9)  # of the same roots there may be more
    assert len({open_data(None, pair, plan, "words").folder for plan in (SMALL, more, RootPlan())}) == 2


def test_a_damaged_or_missing_shard_is_reported(pair, tmp_path):
    data = open_data(tmp_path / "data", pair, SMALL, "words")
    with pytest.raises(TrainingError, match=r"held_out-00000\.npz is missing"):
        data.read("held_out")
    data.shards("held_out")[0].write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(TrainingError, match="is damaged"):
        data.read("held_out")


def test_a_root_is_labelled_under_samplings_whose_draft_is_as_warm():
    plan = RootPlan(samplings=(Sampling(1.0), Sampling(0.5, 1.0, 0.5), Sampling(0.7), Sampling(0.2)), per_root=3)
    for seed in range(9):
        first, *others = plan.labelled_under(4, seed)
        assert first == 0 and sorted(others) == [2, 3]
        assert plan.labelled_under(5, seed) == [1]
    assert {tuple(replace(plan, per_root=2).labelled_under(2, seed)) for seed in range(20)} == {(2, 0), (2, 3)}


NUMBERS = " ".join(str(number) for number in range(10_000, 15_000))  # no word twice
SAMPLES = sample_texts()  # a prompt for editing says its text twice
SAMPLES = replace(SAMPLES, held_out={kind: held for kind, held in SAMPLES.held_out.items() if kind != "editing"})


@pytest.mark.parametrize("texts", [SAMPLES, Texts({}, {"numbers": (NUMBERS,)})], ids=["samples", "corpus"])
def test_what_weights_are_chosen_by_does_not_judge_them(pair, monkeypatch, texts):
    """Beginnings of both parts share no four words in a row, and what follows them is drawn by other seeds."""
    begun, seeds = {part: [] for part in PARTS}, set()

    def label_text(pair, tokens, first, plan, number, seed):
        return pair.vocabulary.decode(tokens[:first]).split()

    def written(pair, tokens, plan, number, seed):
        seeds.add(seed)
        return tokens

    monkeypatch.setattr(selector_roots, "label_text", label_text)
    monkeypatch.setattr(selector_roots, "written", written)
    for part in ("held_out", "judged"):
        for number in range(16):
            words = roots_of(pair, texts, RootPlan(), part, number)
            begun[part] += zip(words, words[1:], words[2:], words[3:], strict=False)
    assert begun["held_out"] and begun["judged"] and set(begun["held_out"]).isdisjoint(begun["judged"])
    assert len(seeds) == 32


def test_the_halves_of_a_document_are_all_of_it():
    texts = Texts({}, {"stories": ("One day the dog", "Donaudampfschiff")})
    halves = [half_of(texts, part).held_out["stories"] for part in ("held_out", "judged")]
    assert halves == [("One", "Donaudam"), ("day the dog", "pfschiff")]
