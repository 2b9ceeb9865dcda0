"""Orders of a tree's rows: tokens, verdicts and files are the same in all of them, only the mask looks another."""

import numpy as np
import pytest

from decoding.common.errors import SettingsError
from decoding.compare.contestants import format_contestant, parse_contestant
from decoding.methods.methods import METHODS
from decoding.replay.forks import ForkChange, fork
from decoding.replay.stored_state import method_of
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.run_file import load_run, save_run
from decoding.trace.tree_mask import NODE_ORDERS, breadth_first, depth_first
from decoding.verifiers import VERIFIERS
from tests.helpers.families import MEASURED, family

TEXT = "Once upon a time there was a cat who had two friends, a dog and"
TREE = METHODS["eagle2"].with_settings(node_budget=12, beam_width=4, max_depth=4)
#        0
#      1   2       breadth-first: 0 1 2 3 4 5 6
#     3   4 5
#           6
PARENTS = {0: -1, 1: 0, 2: 0, 3: 1, 4: 2, 5: 2, 6: 5}


def decoded(pair, method, sampling=None, tokens=20):
    limits = Limits(tokens, ignore_end_of_text=True, record="full", rows="full")
    session = DecodeSession(pair, method, pair.vocabulary.encode(TEXT), sampling, limits)
    for _ in session:
        pass
    return session.trace()


def test_orders_by_hand():
    assert breadth_first(PARENTS) == (0, 1, 2, 3, 4, 5, 6)
    assert depth_first(PARENTS) == (0, 1, 3, 2, 4, 5, 6)
    assert depth_first(PARENTS, heavy=True) == (0, 2, 5, 6, 4, 1, 3)


@pytest.mark.parametrize("order", family(("depth", "heavy"), "heavy"))
@pytest.mark.parametrize("name", ["dynatree", "specinfer", "salf", "hardware_aware"])
def test_greedy_text_is_the_same(pair, order, name):
    method = METHODS[name].with_settings(verifier="greedy", **MEASURED.get(name, {}))
    usual, other = decoded(pair, method), decoded(pair, method.with_settings(node_order=order))
    assert usual.output_ids == other.output_ids
    assert [i.verified for i in usual.iterations] == [i.verified for i in other.iterations]


def test_the_rows_of_the_pass_stand_in_the_order_that_was_asked_for(pair):
    for order in NODE_ORDERS:
        run = decoded(pair, TREE.with_settings(node_order=order, verifier="greedy"))
        orders = {"breadth": breadth_first, "depth": depth_first, "heavy": lambda p: depth_first(p, heavy=True)}
        for iteration in run.iterations:
            parents = {node: iteration.nodes[node].parent_id for node in iteration.flatten_order}
            assert tuple(iteration.flatten_order) == orders[order](parents)
        assert any(len(i.flatten_order) > 6 for i in run.iterations)


@pytest.mark.parametrize(
    "verifier", family([name for name, kind in VERIFIERS.items() if not kind.greedy_only], "specinfer", "traversal")
)
def test_every_verifier_draws_the_same(pair, verifier):
    name = {"specinfer_wor": "dyspec", "traversal_wor": "dyspec", "block": "linear"}.get(verifier, "iid_paths")
    method = METHODS[name].with_settings(verifier=verifier)
    if name == "linear":
        method = method.with_settings(sampled=True)
    sampling = Sampling(temperature=0.8, seed=4)
    usual = decoded(pair, method, sampling, 12)
    other = decoded(pair, method.with_settings(node_order="heavy"), sampling, 12)
    assert usual.output_ids == other.output_ids
    for one, two in zip(usual.iterations, other.iterations, strict=True):
        assert one.accepted == two.accepted and [s.drawn for s in one.steps] == [s.drawn for s in two.steps]


def test_a_record_keeps_the_order_and_replays_in_it(pair, tmp_path):
    run = decoded(pair, TREE.with_settings(node_order="depth", verifier="greedy"))
    save_run(run, tmp_path / "run.dscope")
    opened = load_run(tmp_path / "run.dscope")
    assert opened.settings["node_order"] == "depth" and method_of(opened).node_order == "depth"
    made = fork(opened, None, 1, ForkChange(method_of(opened).with_settings(node_budget=6)))
    again = made.trace.iterations[1]
    parents = {node: again.nodes[node].parent_id for node in again.flatten_order}
    assert made.kind == "replayed" and tuple(again.flatten_order) == depth_first(parents)
    assert np.array_equal(made.trace.iterations[0].flatten_order, opened.iterations[0].flatten_order)


def test_it_is_a_setting_like_others():
    line = "dynatree:node_order=heavy"
    assert format_contestant(parse_contestant(line)) == line
    assert "node_order" not in METHODS["dynatree"].settings()
    with pytest.raises(SettingsError, match="node_order must be one of breadth, depth, heavy, not 'wide'"):
        METHODS["dynatree"].with_settings(node_order="wide")
    with pytest.raises(SettingsError, match="has no setting 'node_order'"):
        parse_contestant("autoregressive:node_order=depth")
