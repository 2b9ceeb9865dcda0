"""Roots along a text: distributions, features and labels are those that decoding itself would meet there."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.common.errors import SettingsError, TrainingError
from decoding.jobs.process import StoppedError
from decoding.sampling.sampling import Sampling, target_distribution
from decoding.training.selector_roots import PARTS, RootPlan, make_roots, open_data, roots_of, target_distributions
from decoding.training.text import Texts

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
    {"stories": ("Once upon a time there was a cat", "One day the dog")}, {"stories": ("The sea was",)}, prompts=True
)


def test_laws_of_several_samplings_are_those_of_each():
    logits = torch.randn(6, 40, dtype=torch.float64) * 3
    samplings = (Sampling(0.0), Sampling(0.7), Sampling(1.0, 0.9), Sampling(1.0, 0.5), Sampling(0.0, 0.5))
    for probs, sampling in zip(target_distributions(logits, samplings), samplings, strict=True):
        assert torch.allclose(probs, target_distribution(logits, sampling), atol=1e-14)


@pytest.mark.slow
def test_the_roots_of_a_text_are_a_function_of_its_number(pair):
    first, again = (roots_of(pair, TEXTS, SMALL, "trained", 0) for _ in range(2))
    other = roots_of(pair, TEXTS, replace(SMALL, verifiers=("specinfer",)), "trained", 1)
    assert len(first) == 2 and first.length[1] - first.length[0] == SMALL.spacing
    for name, array in first.arrays().items():
        assert np.array_equal(array, again.arrays()[name], equal_nan=True), name
    assert not np.array_equal(first.target, other.target)
    tokens = first.expected["specinfer"]
    assert tokens.shape == (2, 2, 324) and tokens.min() >= 1 - 1e-6 and tokens.max() <= 17
    assert np.isnan(first.expected["khisti"]).all((1, 2)).tolist() == [False, True]
    assert len(first.labelled("khisti")) == 1 and len(first.labelled("specinfer")) == 2


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
    assert done == [(0, 3), (0, 1), (1, 3)]
    make_roots(data, pair, TEXTS, lambda *_: pytest.fail("made twice"))
    assert [len(data.read(part)) for part in PARTS] == [1, 2]
    assert set(data.read("trained").text) == {0, 1}
    more = open_data(tmp_path / "data", pair, replace(plan, texts=1), "words")
    assert len(more.read("trained")) == 1


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


def test_samplings_share_a_draft_temperature():
    with pytest.raises(SettingsError, match="have the same draft temperature"):
        RootPlan(samplings=(Sampling(1.0), Sampling(0.5, draft_temperature=0.5)))
