"""Training a selector: it learns what there is to learn, resumes to the bit, and is stored so that it can be used."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.common.errors import TrainingError
from decoding.jobs.process import StoppedError, ending
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, DISTINCT, PLACES, Action, shared_labels
from decoding.selector.features import DIVERGENCES, SCALARS
from decoding.selector.store import all_selectors, find_selector, fits
from decoding.session.session import DecodeSession, Limits
from decoding.training import selector
from decoding.training.folder import Training
from decoding.training.loop import PhasePlan, train
from decoding.training.selector_learner import (
    SelectorLearner,
    SelectorSettings,
    deviance,
    examples,
    names_of,
    objective,
    policy_rate,
)
from decoding.training.selector_roots import Roots
from decoding.training.text import sample_texts
from tests.helpers.families import family
from tests.helpers.selectors import LATENCY

SAMPLINGS = (Sampling(0.6), Sampling(1.0, 0.9))
SETTINGS = SelectorSettings("nss", batch=32, dropout=0.1, look_every=5)
SMALL = ("--texts=2", "--held-out=1", "--roots=1", "--trees=1", "--samplings=0,1:0.9", "--steps=6", "--device=cpu")


def roots_of(count: int, seed: int) -> Roots:
    """Made-up roots at which deep chains pay where the first number of the target's feature is positive; two
    examples of each, one for each sampling.
    """
    draws = np.random.default_rng(seed)
    target = draws.normal(size=(count, 6)).astype(np.float32)
    target[:, 0] = np.where(draws.random(count) < 0.5, -4, 4)
    depth = np.array([action.trunk + action.branch for action in DISTINCT])
    grows = np.where(target[:, :1] > 0, 0.6, 0.02)
    expected = (1 + grows * np.minimum(depth, 6)).astype(np.float32)
    hidden = draws.normal(size=(2, count, 4)).astype(np.float32)
    each = np.arange(count).repeat(2)
    return Roots(
        text=each,
        length=draws.integers(20, 200, count)[each],
        in_loop=each % 10 == 0,
        sampling=np.arange(2 * count) % 2,
        target=target[each],
        draft_previous=hidden[0][each],
        draft_root=hidden[1][each],
        divergences=draws.random((2 * count, 6)).astype(np.float32),
        expected={"nss": expected[each]},
    )


def learner(settings: SelectorSettings = SETTINGS) -> SelectorLearner:
    parts = (
        examples(roots_of(n, n), "nss", SAMPLINGS, LATENCY, "rows", names_of(settings.rule)) for n in (150, 60, 70)
    )
    return SelectorLearner(settings, *parts, SAMPLINGS)


def test_examples_stand_in_the_order_of_roots_and_samplings():
    roots = roots_of(20, 1)
    made = examples(roots, "nss", SAMPLINGS, LATENCY, "rows")
    assert len(made) == 18 * 2  # two of the roots stand in a loop
    assert made.sampling.tolist()[:4] == [0, 1, 0, 1]
    assert np.allclose(made.features.target[2], roots.target[4])
    scalars = dict(zip(SCALARS, made.features.scalars[3].tolist(), strict=True))
    assert [scalars[name] for name in DIVERGENCES] == pytest.approx(roots.divergences[5].tolist())
    assert [scalars[name] for name in ("log_length", "temperature", "top_p", "draft_temperature")] == pytest.approx(
        [math.log(roots.length[5]), 1.0, 0.9, 1.0]
    )
    assert scalars["log_target_s"] == pytest.approx(math.log(LATENCY.target_pass_s(roots.length[5])))
    assert (made.seconds > made.static_s).all()
    by_length = LATENCY.action_s(roots.length[5:6], "rows")[0][PLACES]
    assert np.allclose(made.static_s[3], by_length) and np.allclose(made.expected[3], roots.expected["nss"][5])


def test_a_verifier_without_labels_is_refused():
    roots = roots_of(20, 1)
    bare = replace(roots, expected={"khisti": np.full_like(roots.expected["nss"], np.nan)})
    with pytest.raises(TrainingError, match="No root outside loops is labelled for khisti"):
        examples(bare, "khisti", SAMPLINGS, LATENCY, "rows")


@pytest.mark.parametrize("rule", family(("tokens", "policy"), "tokens"))
def test_it_learns_to_draft_deep_where_that_pays(tmp_path, rule):
    trained = learner(replace(SETTINGS, learning_rate=3e-3, rule=rule))
    train(trained, Training(tmp_path), PhasePlan(steps=120), phase="p", belongs_to={})
    figures = trained.finished_figures()
    assert figures["held_out_rate_over_static"] > 1.1 and figures["judged_rate_over_static"] > 1.1
    parts = ("", "held_out_", "judged_")
    assert [figures[f"{part}examples"] for part in parts] == [270, 108, 126]
    assert [figures[f"{part}roots"] for part in parts] == [135, 54, 63]  # each under two samplings
    outputs = trained.finished_network()(trained._scaled(trained._held_out.features))
    chosen = trained.policy(outputs, trained._held_out.sampling, trained._held_out.seconds).argmax(-1)
    depth = torch.tensor([action.trunk + action.branch for action in DISTINCT])[chosen]
    pays = trained._held_out.features.target[:, 0] > 0
    assert depth[pays].float().mean() > 4 > 2 > depth[~pays].float().mean()


def test_gradients_stay_in_the_network():
    trained = learner()
    trained.step(0, 0.0)
    assert all(weight.grad is not None for weight in trained.network.parameters())
    for part in (trained._trained, trained._held_out):
        assert not any(tensor.requires_grad for tensor in (*part.features, part.expected, part.parts, part.asking_s))


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
    with pytest.raises(StoppedError), ending(folder):
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


@pytest.mark.parametrize("rule", ["tokens", "policy"])
def test_random_machines_move_what_is_read_of_costs_and_what_is_paid(rule):
    """Factors 2 on drafting, 3 on a target pass, 1 on more rows, 5 beside: what a policy reads moves as they do."""
    made = learner(replace(SETTINGS, rule=rule))
    rows, factors = torch.tensor([3]), torch.tensor([[2.0, 3.0, 1.0, 5.0]])
    plain, moved = made._scaled(made._trained.features), made._scaled(made._trained.features, factors)
    apart = (moved.scalars - plain.scalars)[3]
    if rule == "tokens":
        assert len(apart) == len(SCALARS) - 3 and not apart.any()
    else:
        target_s, more_s = LATENCY.target_pass_s(float(roots_of(150, 150).labelled("nss").length[3])), 15 / 63 * 0.015
        tree = math.log((3 * target_s + more_s) / (target_s + more_s))
        assert apart[:-3].abs().max() == 0
        assert apart[-3:].tolist() == pytest.approx([math.log(2), math.log(3), tree], abs=1e-5)
    _, _, base, _ = made._rates(rows, factors)
    parts = made._trained.parts[3] * factors[0][:, None]
    static = (made._static_tokens[made._trained.sampling[3]] / parts.sum(0)).argmax()
    assert float(base) == pytest.approx(float(made._trained.expected[3][static] / parts.sum(0)[static]), rel=1e-5)


def test_the_deviance_is_least_at_the_mean_of_the_labels():
    """1 and 5 tokens are 0 and 4 accepted, 2 in the mean; at 1 accepted the slope of e^x - 2 x is -1."""
    expected, logs = torch.tensor([[1.0], [5.0]]), torch.zeros(1, requires_grad=True)
    (slope,) = torch.autograd.grad(deviance(logs.expand(2, 1), expected), logs)
    (none,) = torch.autograd.grad(deviance((logs + math.log(2)).expand(2, 1), expected), logs)
    assert float(slope) == pytest.approx(-1) and abs(float(none)) < 1e-6


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path / "home"))
    for module in ("costs.measured_pair", "training.selector"):
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
    assert card.data["text"] == sample_texts().identity and (card.data["texts"], card.data["roots"]) == (2, 1)
    assert card.settings["batch"] == 256 and card.settings["penalty"] == 1.0 and card.settings["seed"] == 0
    method = METHODS["delayed"].with_settings(selector="mine")
    session = DecodeSession(pair, method, [300, 301, 302], Sampling(1.0), Limits(8))
    list(session)
    from decoding.models.pair import pair_identity

    assert all_selectors()[-1].name == "mine" and fits(all_selectors()[-1], pair_identity(pair))
    # A second verifier finds its labels there, and the resumed one has nothing left to do.
    assert selector.main(["--verifier", "traversal", *SMALL, "--out", str(home / "other")]) == 0
    assert f"{selector.MAKING}: 0 of" not in capsys.readouterr().err
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
    assert len(chain) == 4 + 3 and shared[DISTINCT.index(Action(1, 0, 3))] == pytest.approx(labels[0, chain].mean())
    assert shared[DISTINCT.index(Action(2, 1, 3))] == labels[0, ACTIONS.index(Action(2, 1, 3))]
