"""A selector as it is asked: the network in numpy, its features, and what it chooses by."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.selector.actions import ACTIONS, DISTINCT, DISTINCT_OF, PLACES, Action, StaticShape
from decoding.selector.chooser import DRAFTS, Chooser, NetworkOutputs, expected_tokens, mean_logs
from decoding.selector.features import LATENCIES, SCALARS, Features, Scaler, features_of, scalars_of
from tests.helpers.selectors import LATENCY, past, random_network

PLAIN = Scaler((0.0,) * len(SCALARS), (1.0,) * len(SCALARS))


def chooser(rule: str = "tokens", seed: int = 0) -> Chooser:
    network = NetworkOutputs(random_network(6, 4, seed))
    tokens = tuple(1 + action.nodes / 20 for action in DISTINCT)
    statics = (StaticShape(0.8, 0.95, 1.0, *[Action(1, 0, 1)] * 4, tokens),)
    return Chooser(network, PLAIN, LATENCY, {}, "nss", SCALARS, rule, statics)


@pytest.mark.parametrize("seed", range(4))
def test_numpy_computes_what_torch_does(seed):
    network = random_network(6, 4, seed)
    given = past(seed)
    features = features_of(given, SCALARS, LATENCY)
    tensors = Features(*(torch.from_numpy(np.asarray(each, dtype=np.float32)) for each in features))
    with torch.no_grad():
        expected = network(tensors).numpy()
    assert np.allclose(NetworkOutputs(network)(features), expected, atol=1e-4)
    # A target that holds copies of the features is read in the first of them.
    wide = features_of(past(seed, copies=4), SCALARS, LATENCY)
    assert np.array_equal(NetworkOutputs(network)(wide), NetworkOutputs(network)(features))


def test_distinct_actions_are_one_for_each_distribution_of_trees():
    assert len(DISTINCT) == 17 + 3 * 9 * 8 == 233 and len(DISTINCT_OF) == len(ACTIONS)
    assert DISTINCT[DISTINCT_OF[ACTIONS.index(Action(3, 5, 0))]] == Action(1, 0, 5)
    assert DISTINCT[DISTINCT_OF[ACTIONS.index(Action(1, 7, 4))]] == Action(1, 3, 8)
    assert DISTINCT[DISTINCT_OF[ACTIONS.index(Action(2, 7, 4))]] == Action(2, 7, 4)


def test_scalars_by_hand():
    """Passes at 100 tokens, and a tree of 16 rows: 15 / 63 of 15 ms more."""
    names = ("l1_distance", "log_length", "temperature", "draft_temperature", *LATENCIES)
    context = {"length": 100, "temperature": 0.8, "top_p": 0.9, "draft_temperature": 0.5}
    found = scalars_of(names, [0, 0, 0, 0, 0, 0.25], context, LATENCY)
    draft_s, target_s = 0.001 + 84 / 1008 * 0.0005, 0.005 + 84 / 1008 * 0.003
    passes = [math.log(draft_s), math.log(target_s), math.log(target_s + 15 / 63 * 0.015)]
    assert found.tolist() == pytest.approx([0.25, math.log(100), 0.8, 0.5, *passes])
    columns = scalars_of(names, np.full((6, 2), 0.25), {**context, "length": np.array([100, 100])}, LATENCY)
    assert columns.shape == (2, len(names)) and np.allclose(columns[1, 1:], found[1:])


def test_costs_have_a_fixed_spread_so_that_another_machine_is_not_cut_off():
    scalars = np.random.default_rng(0).normal(size=(50, len(SCALARS))) * 1e-3
    scaler = Scaler.of(scalars, SCALARS)
    assert scaler.spread[-len(LATENCIES) :] == (1.0,) * len(LATENCIES) and scaler.spread[0] < 2e-3
    ten_times = scalars[0] + np.log(10) * np.array([name in LATENCIES for name in SCALARS])
    assert 2.2 < scaler.scaled(ten_times)[-1] < 2.4 and abs(scaler.scaled(1e9 * scalars[0])).max() == Scaler.MOST


def test_tokens_are_divided_by_local_costs():
    made, given = chooser(), past()
    choice = made.choose(given)
    means = np.array([1 + action.nodes / 20 for action in DISTINCT])
    tokens = expected_tokens(choice.outputs + mean_logs(means))
    assert np.allclose(expected_tokens(mean_logs(means)), means), "outputs of 0 are the means of the sampling"
    assert tokens[DISTINCT.index(Action(1, 0, 0))] == 1 and tokens.min() >= 1
    seconds = LATENCY.action_s(np.array([112]), "rows", True)[0][PLACES]  # the middle of tokens 96 to 127
    assert choice.action == DISTINCT[int((tokens / seconds).argmax())]
    # Where every row of a target pass costs twenty times as much, the tree is smaller.
    points = (replace(point, seconds=point.seconds * 20 ** (point.size > 1)) for point in LATENCY.costs.target.points)
    target = replace(LATENCY.costs.target, points=tuple(points))
    dear = replace(made, latency=replace(LATENCY, costs=replace(LATENCY.costs, target=target)), _known={})
    found = [dear.choose(past(seed)).action.nodes for seed in range(9)]
    assert sum(found) < sum(made.choose(past(seed)).action.nodes for seed in range(9))


def test_a_policy_takes_the_largest_logit():
    choice = chooser("policy").choose(past())
    assert choice.action == DISTINCT[int(choice.outputs.argmax())]
    record = choice.trace()
    once = np.array(record.worth)[PLACES]
    assert once.sum() == pytest.approx(1, abs=1e-4) and record.worth[record.chosen] == max(record.worth)


def test_the_record_holds_what_was_chosen_by():
    choice = chooser().choose(past())
    record = choice.trace()
    worth, seconds = np.array(record.worth), np.array(record.seconds)
    assert ACTIONS[record.chosen] == choice.action
    assert worth[record.chosen] / seconds[record.chosen] == pytest.approx((worth / seconds).max(), rel=1e-4)
    assert set(record.scalars) == {*SCALARS, "draft_s", "target_s", "asking_s"} and record.scalars["temperature"] == 0.8
    assert record.scalars["draft_s"] == pytest.approx(float(LATENCY.draft_pass_s(100)), abs=1e-6)
    # The static action is the best of the nearest sampling at the costs of this machine, where no selector is asked.
    unasked = choice.chooser.seconds(choice.past.length, selecting=False)
    asking = choice.chooser.seconds(choice.past.length) - unasked
    assert record.scalars["asking_s"] == pytest.approx(asking[DRAFTS].mean(), abs=1e-6)
    rates = np.array([1 + action.nodes / 20 for action in DISTINCT]) / unasked
    assert (unasked < seconds[PLACES]).all()
    assert ACTIONS[record.static] == DISTINCT[int(rates.argmax())]
