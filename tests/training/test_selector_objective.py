"""The selector's objective against values worked out by hand, and labels that are shared by trees of one law."""

import math

import numpy as np
import pytest
import torch

from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, Action, same_chain
from decoding.training.selector_learner import best_static, objective, policy_rate, shared_labels


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
