"""Training a selector: it learns what there is to learn, resumes to the bit, and is stored so that it can be used."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.common.errors import TrainingError
from decoding.jobs.process import StoppedError
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, Action, same_chain
from decoding.selector.store import all_selectors, find_selector, fits
from decoding.session.session import DecodeSession, Limits
from decoding.training import selector
from decoding.training.folder import Training
from decoding.training.loop import PhasePlan, train
from decoding.training.selector_learner import (
    SelectorLearner,
    SelectorSettings,
    best_static,
    examples,
    objective,
    policy_rate,
    shared_labels,
)
from decoding.training.selector_roots import Roots
from tests.helpers.selectors import LATENCY

SAMPLINGS = (Sampling(0.6), Sampling(1.0, 0.9))
SETTINGS = SelectorSettings("nss", batch=32, dropout=0.1, look_every=5)
SMALL = ("--texts=2", "--held-out=1", "--roots=1", "--trees=1", "--samplings=0,1:0.9", "--steps=6", "--device=cpu")


def roots_of(count: int, seed: int) -> Roots:
    """Made-up roots at which deep chains pay where the first number of the target's feature is positive."""
    draws = np.random.default_rng(seed)
    target = draws.normal(size=(count, 6)).astype(np.float32)
    target[:, 0] = np.where(draws.random(count) < 0.5, -4, 4)
    depth = np.array([action.trunk + action.branch for action in ACTIONS])
    grows = np.where(target[:, :1, None] > 0, 0.6, 0.02)
    expected = np.repeat(1 + grows * np.minimum(depth, 6), len(SAMPLINGS), 1).astype(np.float32)
    hidden = draws.normal(size=(2, count, 4)).astype(np.float32)
    return Roots(
        text=np.arange(count),
        length=draws.integers(20, 200, count),
        in_loop=np.arange(count) % 10 == 0,
        target=target,
        draft_previous=hidden[0],
        draft_root=hidden[1],
        divergences=draws.random((count, len(SAMPLINGS), 6)).astype(np.float32),
        expected={"nss": expected},
    )


def learner(settings: SelectorSettings = SETTINGS) -> SelectorLearner:
    trained, held_out = (examples(roots_of(n, n), "nss", SAMPLINGS, LATENCY, "rows") for n in (150, 60))
    return SelectorLearner(settings, trained, held_out, SAMPLINGS)


def test_examples_stand_in_the_order_of_roots_and_samplings():
    roots = roots_of(20, 1)
    made = examples(roots, "nss", SAMPLINGS, LATENCY, "rows")
    assert len(made) == 18 * 2  # two of the roots stand in a loop
    assert made.sampling.tolist()[:4] == [0, 1, 0, 1]
    assert np.allclose(made.features.target[2], roots.target[2]) and np.allclose(
        made.features.target[1], roots.target[1]
    )
    scalars = made.features.scalars[3]
    assert scalars[:6].tolist() == pytest.approx(roots.divergences[2, 1].tolist())
    assert scalars[6:9].tolist() == pytest.approx([roots.length[2], 1.0, 0.9])
    assert scalars[10] == pytest.approx(float(LATENCY.target_pass_s(roots.length[2])))
    assert (made.seconds > made.static_s).all()


def test_a_verifier_without_labels_is_refused():
    roots = roots_of(20, 1)
    bare = replace(roots, expected={"khisti": np.full_like(roots.expected["nss"], np.nan)})
    with pytest.raises(TrainingError, match="No root outside loops is labelled for khisti"):
        examples(bare, "khisti", SAMPLINGS, LATENCY, "rows")


def test_it_learns_to_draft_deep_where_that_pays(tmp_path):
    trained = learner(replace(SETTINGS, learning_rate=3e-3))
    train(trained, Training(tmp_path), PhasePlan(steps=120), phase="p", belongs_to={})
    figures = trained.finished_figures()
    assert figures["held_out_rate_over_static"] > 1.1
    assert figures["roots"] == 135 and figures["held_out_roots"] == 54
    network, scaler = trained.finished_network(), trained.scaler
    chosen = network(scaler.scaled(trained._held_out.features)).argmax(-1)
    depth = torch.tensor([action.trunk + action.branch for action in ACTIONS])[chosen]
    pays = trained._held_out.features.target[:, 0] > 0
    assert depth[pays].float().mean() > 4 > 2 > depth[~pays].float().mean()


def test_gradients_stay_in_the_network():
    trained = learner()
    trained.step(0, 0.0)
    assert all(weight.grad is not None for weight in trained.network.parameters())
    for part in (trained._trained, trained._held_out):
        assert not any(tensor.requires_grad for tensor in (*part.features, part.expected, part.seconds, part.static_s))


def test_a_training_that_stopped_ends_with_the_same_weights(tmp_path, monkeypatch):
    whole = learner()
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    train(whole, Training(tmp_path / "whole"), PhasePlan(steps=12), phase="p", belongs_to={})
    folder, parts = Training(tmp_path / "parts"), learner()
    step = parts.step
    monkeypatch.setattr(
        parts, "step", lambda number, share: (number == 6 and folder.ask_to_stop(), step(number, share))[1]
    )
    with pytest.raises(StoppedError):
        train(parts, folder, PhasePlan(steps=12), phase="p", belongs_to={})
    resumed = learner()
    train(resumed, folder, PhasePlan(steps=12), phase="p", belongs_to={}, resume=True)
    for mine, theirs in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert resumed.finished_figures() == whole.finished_figures()
    for mine, theirs in zip(
        whole.finished_network().parameters(), resumed.finished_network().parameters(), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_statics_come_from_the_roots_trained_on():
    statics = learner().statics
    assert [(s.temperature, s.top_p) for s in statics] == [(0.6, 1.0), (1.0, 0.9)]
    assert all(isinstance(s.action, Action) and s.most_tokens.trunk + s.most_tokens.branch >= 6 for s in statics)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path / "home"))
    for module in ("costs.calibration", "training.selector"):
        monkeypatch.setattr(f"decoding.{module}.latency_model", lambda *_: LATENCY)
    return tmp_path / "home"


@pytest.mark.slow
def test_the_command_makes_a_selector_that_decodes(home, capsys, monkeypatch):
    assert selector.main(["--verifier", "specinfer", *SMALL, "--out", str(home / "mine")]) == 0
    folder = Training(home / "mine")
    assert folder.status().state == "finished" and folder.settings().kind == "selector"
    assert folder.settings().name.startswith("Selector for specinfer, Embedded pair, 20")
    assert any("held_out_rate_over_static" in record for record in folder.log())
    assert len(folder.trees()) == 2
    assert "selector=mine" in capsys.readouterr().out
    card, pair = find_selector("mine"), embedded_pair()
    assert card.verifier == "specinfer" and len(card.statics) == 2 and card.figures["roots"] >= 1
    method = METHODS["delayed"].with_settings(selector="mine")
    session = DecodeSession(pair, method, [300, 301, 302], Sampling(1.0), Limits(8))
    list(session)
    from decoding.models.pair import pair_identity

    assert all_selectors()[-1].name == "mine" and fits(all_selectors()[-1], pair_identity(pair))
    # A second verifier finds its labels there, and the resumed one has nothing left to do.
    assert selector.main(["--verifier", "traversal", *SMALL, "--out", str(home / "other")]) == 0
    assert "0 of 3 texts" not in capsys.readouterr().err
    # On a machine that has become slower it goes on with the costs that it began with.
    slower = replace(LATENCY, draft_s=tuple(2 * s for s in LATENCY.draft_s))
    monkeypatch.setattr(selector, "latency_model", lambda *_: slower)
    assert selector.main(["--verifier", "specinfer", *SMALL, "--out", str(home / "mine"), "--resume"]) == 0
    assert find_selector("mine").latency == LATENCY.as_json()


def test_what_cannot_be_done_is_one_sentence(home, capsys):
    assert selector.main(["--resume"]) == 2
    assert "Name the training run to resume" in capsys.readouterr().err
    assert selector.main(["--corpus", str(home / "none"), *SMALL, "--out", str(home / "x")]) == 2
    assert "There is no folder" in capsys.readouterr().err and not (home / "x").exists()
    with pytest.raises(SystemExit):
        selector.main(["--samplings", "warm"])
    assert "not a list of samplings" in capsys.readouterr().err


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    folder = Training(tmp_path)
    train(learner(), folder, PhasePlan(steps=2), phase="p", belongs_to={"verifier": "nss"})
    before = folder.checkpoint.read_bytes()
    for other, said in (
        ("spectr", r"\(verifier 'nss' instead of 'spectr'\)"),
        ("x" * 999, r"\(different verifier\): resume"),
    ):
        with pytest.raises(TrainingError, match=f"belongs to another training {said}"):
            train(learner(), folder, PhasePlan(steps=4), phase="p", belongs_to={"verifier": other}, resume=True)
    assert folder.checkpoint.read_bytes() == before


def test_the_words_of_one_among_all():
    assert selector._with_verifier(["--verifier", "all", "--steps", "3"], "nss") == [
        "--verifier",
        "nss",
        "--steps",
        "3",
    ]
    assert selector._with_verifier(["--verifier=all"], "nss") == ["--verifier=nss"]


def test_rate_of_a_policy_is_a_ratio_of_means():
    """Eq. 4: pi = (1/4, 3/4), E = (1, 3) tokens, T = (1, 2) s: 2.5 tokens in 1.75 s."""
    logits = torch.tensor([[0.0, math.log(3)]])
    rate = policy_rate(logits, torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 2.0]]))
    assert rate.tolist() == pytest.approx([2.5 / 1.75])


def test_objective_by_hand():
    """Eq. 12: ratios 2, 1/2, 9/10, 1; of four roots the worst half loses 1/4 and 1/100."""
    rate, base = torch.tensor([2.0, 1.0, 1.8, 3.0]), torch.tensor([1.0, 2.0, 2.0, 3.0])
    loss, gain, regressions = objective(rate, base, penalty=10.0, worst=0.5)
    assert float(gain) == pytest.approx(-math.log(0.9) / 4)
    assert float(regressions) == pytest.approx((0.25 + 0.01) / 2)
    assert float(loss) == pytest.approx(-math.log(0.9) / 4 + 1.3)


def test_the_worst_share_has_at_least_one_root():
    rate, base = torch.tensor([0.5, 1.0]), torch.tensor([1.0, 1.0])
    assert float(objective(rate, base, 1.0, 0.01)[2]) == pytest.approx(0.25)


def test_the_objective_only_moves_the_policy():
    logits = torch.zeros(1, 3, requires_grad=True)
    expected, seconds = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 1.0, 1.0]])
    loss, _, _ = objective(policy_rate(logits, expected, seconds), torch.tensor([2.0]), 1.0, 0.5)
    loss.backward()
    assert logits.grad[0, 0] > 0 > logits.grad[0, 2] and not expected.requires_grad


def test_trees_of_one_law_share_their_labels():
    labels = np.arange(len(ACTIONS), dtype=float)[None] ** 1.5
    shared = shared_labels(labels)[0]
    chain = [place for place, a in enumerate(ACTIONS) if (a.paths == 1 or not a.branch) and a.trunk + a.branch == 3]
    assert len(chain) == 4 + 3 and np.allclose(shared[chain], labels[0, chain].mean())
    alone = ACTIONS.index(Action(2, 1, 3))
    assert shared[alone] == labels[0, alone]
    assert len(set(same_chain().tolist())) == 17 + 3 * 9 * 8


def test_the_best_static_action_has_the_most_tokens_for_its_time():
    expected, seconds = np.ones((2, len(ACTIONS))), np.full((2, len(ACTIONS)), 2.0)
    quick, deep = ACTIONS.index(Action(1, 3, 0)), ACTIONS.index(Action(4, 8, 8))
    expected[:, quick], seconds[:, quick] = (1.0, 3.0), 1.0
    expected[:, deep], seconds[:, deep] = (3.0, 4.0), 9.0
    static = best_static(expected, seconds, Sampling(0.6))
    assert static.action == Action(1, 3, 0) and static.most_tokens == Action(4, 8, 8) and static.temperature == 0.6
    assert static.root_action == static.root_most_tokens == Action(1, 0, 0)
