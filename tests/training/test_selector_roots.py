"""Roots along a text: distributions, features and labels are those that decoding itself would meet there."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.common.errors import TrainingError
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


def test_what_weights_are_chosen_by_does_not_judge_them(pair):
    texts = replace(TEXTS, held_out={"stories": ("The sea was blue", "A bird sang all")})
    plan = replace(SMALL, roots=1, trees=1, verifiers=("nss",))
    chosen, judged = (roots_of(pair, texts, plan, part, 0) for part in ("held_out", "judged"))
    assert not np.array_equal(chosen.target, judged.target)
