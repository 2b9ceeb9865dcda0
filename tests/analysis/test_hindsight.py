"""Hindsight: ranks along the text, the best tree by brute force, and what parts of a tree cost and commit."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from decoding.analysis.budgets import Budgets, RunBudgets, budgets, can_tell, needs_logits, run_budgets
from decoding.analysis.hindsight import LaterToken, _reach, hindsight, ranks_along
from decoding.analysis.luck import rerolled
from decoding.analysis.smallest_change import change_search
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.common.errors import SettingsError
from decoding.methods.methods import METHODS
from decoding.replay.replay import stored_tree
from decoding.replay.stored_state import as_made, sampling_of
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.verifiers import VERIFIERS, NSSVerifier
from tests.helpers import traces


def curve(*points):
    return CostCurve(tuple(CostPoint(size, s, s, s) for size, s in points))


# A pass of n nodes takes 4 + n ms, a level of w nodes 1 + w / 10 ms.
COSTS = CostModel(curve((1, 0.005), (101, 0.105)), curve((1, 0.0011), (101, 0.0111)), 0.0, 0.0, 9, 256, "then", "here")


def decoded(pair, name, temperature=0.0, tokens=20, **settings):
    """A short run with its rows."""
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    method = METHODS[name].with_settings(**settings)
    session = DecodeSession(pair, method, ids, Sampling(temperature, seed=3), Limits(tokens, rows="full"))
    list(session)
    return session.trace()


def token(rank, exact=True):
    return LaterToken(0, "", rank, exact, None, None, False)


def test_the_reach_is_the_best_of_all_trees_in_the_drafts_order():
    """A tree in that order has at each depth as many children as it likes; brute force over those numbers."""
    for ranks in product((1, 2, 3), repeat=4):
        for nodes in range(9):
            best = max(
                depth
                for depth in range(5)
                for widths in product(range(1, 4), repeat=depth)
                if sum(widths) <= nodes and all(w >= rank for w, rank in zip(widths, ranks, strict=False))
            )
            assert _reach([token(rank) for rank in ranks], nodes) == (best, True)


def test_what_is_unknown_is_said():
    assert _reach([token(1), token(None)], 5) == (1, False)
    assert _reach([token(1), token(None)], 1) == (1, True)
    assert _reach([token(1), token(21, exact=False)], 40) == (1, False)
    assert _reach([token(1), token(21, exact=False)], 10) == (1, True)


def test_hindsight_of_a_hand_written_iteration():
    run = traces.run_of([traces.dynatree_recovered()])
    reported = hindsight(run, 0)
    iteration = run.iterations[0]
    ranks = [[t for t, _, _ in iteration.draft_top(node)].index(token) + 1
             for node, token in zip((0, 1, 3), iteration.committed_ids, strict=True)]  # fmt: skip
    assert [each.rank for each in reported.followed] == ranks == [1, 1, 5]
    assert [each.drafted for each in reported.followed] == [True, True, False]
    assert (reported.nodes, reported.committed, reported.best, reported.ceiling, reported.ends) == (13, 3, 3, 3, True)
    assert hindsight(traces.run_autoregressive(), 0) is None


def test_other_iterations_tell_ranks_that_this_one_does_not_know(pair):
    run = decoded(pair, "dynatree")
    known = ranks_along(run)
    reported = [each for place in range(len(run.iterations)) if (each := hindsight(run, place, known)) is not None]
    seen = [(token.seen_in, place) for place, each in enumerate(reported) for token in each.followed]
    assert any(source is not None and source > place for source, place in seen)
    starts = {iteration.prefix_length for iteration in run.iterations if iteration.drafted}
    assert starts <= set(known)  # the root of every iteration knows what follows it
    for place in range(len(run.iterations)):
        each = hindsight(run, place, known)
        if each is not None:
            assert each.committed <= each.best or not each.complete
            assert each.best <= each.ceiling


def test_greedy_parts_commit_what_their_nodes_allow():
    run = traces.run_of([traces.dynatree_recovered()])
    reported = budgets(run, 0, COSTS)
    assert reported.nodes == 13 and reported.tokens[0] == 1 and reported.tokens[-1] == 3
    assert (np.diff(reported.tokens) >= 0).all()
    # By path probability: "," .50, "." .43, ' "' .42: the walk's second node is the third of the tree.
    assert reported.tokens[:4].tolist() == [1, 2, 2, 3]
    # One node: a pass over 2 and a level of one; three: a pass over 4, levels of 1 and 1 (only "," is inner).
    assert reported.seconds[[0, 1, 3]] == pytest.approx([0.005, 0.006 + 0.0011, 0.008 + 0.0011 * 2])
    assert reported.best == int(np.argmax(reported.tokens / reported.seconds))
    assert reported.lost == pytest.approx(reported.rates.max() - reported.rates[-1])


def test_a_run_is_the_sum_of_its_iterations():
    run = traces.run_of([traces.dynatree_recovered(), traces.bonus(), traces.autoregressive()])
    whole = run_budgets(run, COSTS)
    first, second = (budgets(run, place, COSTS) for place in (0, 1))
    assert whole.places == (0, 1, 2) and (whole.trees, whole.left_out) == (2, 0)
    assert whole.rate == pytest.approx(7 / (first.seconds[-1] + second.seconds[-1] + 0.005))  # without a tree: one pass
    assert whole.best_rate >= whole.capped_rate(whole.best_cap) >= whole.rate
    assert whole.capped_rate(0) == pytest.approx(1 / COSTS.plain_iteration_s), "no drafting in any is plain decoding"
    cheap = run_budgets(run, replace(COSTS, plain_s=-0.0045))
    assert cheap.best_cap == 0 and cheap.best_rate == cheap.capped_rate(0) == pytest.approx(1 / 0.0005)
    assert run_budgets(run, COSTS, proceed=lambda *_: False) is None


def test_the_best_rate_of_a_run_is_the_best_of_all_choices_of_parts():
    random = np.random.default_rng(4)
    for _ in range(40):
        each = tuple(Budgets(np.cumsum(random.random(4) + 0.05), np.cumsum(random.random(4) + 0.02)) for _ in range(3))
        whole = RunBudgets((0, 1, 2), each, 0, plain_s=np.inf)
        rates = [
            sum(b.tokens[n] for b, n in zip(each, nodes, strict=True))
            / sum(b.seconds[n] for b, n in zip(each, nodes, strict=True))
            for nodes in product(range(4), repeat=3)
        ]
        assert whole.best_rate == pytest.approx(max(rates)) and whole.best_rate >= whole.rate - 1e-12


def test_an_iteration_from_before_a_fork_is_reported_as_it_was_made_or_not_at_all(pair):
    """Its verifier and temperature are its parent's; a file does not say so, the recorded tests do."""

    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    method = METHODS["iid_paths"].with_settings(paths=3, length=2, verifier="specinfer")
    session = DecodeSession(pair, method, ids, Sampling(1.0, seed=3), Limits(20, rows="full"))
    for _ in range(2):
        session.step()
    parent = session.trace()
    other = METHODS["dynatree"].with_settings(verifier="greedy")
    nss = method.with_settings(verifier="nss")
    for changed, sampling in ((nss, None), (None, Sampling(0.3)), (other, Sampling())):
        fork = session.fork(changed, sampling=sampling)
        fork.step()
        run = fork.trace()
        assert budgets(run, 1, COSTS) is None and budgets(run, 2, COSTS) is not None
        assert run_budgets(run, COSTS).places == (2,) and run_budgets(run, COSTS).left_out == 2
        with pytest.raises(SettingsError, match="before a fork"):
            rerolled(run, 1, 20)
        made = [as_made(run, fork.standing(place)) for place in range(3)]
        assert budgets(made[1], 1, COSTS).tokens == pytest.approx(budgets(parent, 1, COSTS).tokens)
        assert rerolled(made[1], 1, 20) == rerolled(parent, 1, 20)
        whole = run_budgets(run, COSTS, made=made.__getitem__)
        assert whole.places == (0, 1, 2) and whole.left_out == 0


@pytest.mark.parametrize(("name", "verifier"), [("iid_paths", "specinfer"), ("dyspec", "traversal_wor")])
def test_sampled_parts_are_what_fewer_draws_would_have_made(pair, name, verifier):

    settings = {"iid_paths": {"paths": 3, "length": 2}, "dyspec": {"node_budget": 8}}[name]
    run = decoded(pair, name, 1.0, verifier=verifier, **settings)
    reported, iteration = budgets(run, 1, COSTS), run.iterations[1]
    verified = [node for node in iteration.nodes if node.flat_index is not None]
    assert needs_logits(run) and reported.tokens[0] == pytest.approx(1)
    assert reported.tokens[-1] == pytest.approx(sum(node.acceptance_probability for node in verified))
    assert VERIFIERS[verifier].name == run.settings["verifier"]
    if name == "dyspec":  # draws are made one by one: a smaller budget is the same tree with the last draws left out
        search = change_search(run, 1)
        for budget in (3, 5):
            draft, _ = search.draft(search.drafter.with_settings(node_budget=budget))
            assert draft.tree.tokens[1:].tolist() == [node.token_id for node in iteration.nodes[1 : budget + 1]]


def test_nss_needs_no_rows_and_agrees_with_them(pair):

    run = decoded(pair, "specexec", 1.0, node_budget=8, verifier="nss")
    reported = budgets(run.without_logits(), 0, COSTS)
    iteration = run.iterations[0]
    best = sorted(iteration.nodes[1:], key=lambda node: -node.path_probability)[:4]
    part = replace(
        iteration, flatten_order=tuple(i for i in iteration.flatten_order if i in {0, *(n.node_id for n in best)})
    )
    exact = NSSVerifier().decide(stored_tree(part, sampling_of(run))).expected_tokens
    assert reported.tokens[4] == pytest.approx(exact, abs=1e-6)


def test_without_the_rows_that_a_verifier_needs_nothing_is_reported(pair):
    run = decoded(pair, "iid_paths", 1.0, tokens=6).without_logits()
    assert not can_tell(run, run.iterations[0]) and budgets(run, 0, COSTS) is None
    drafted = sum(len(iteration.nodes) > 1 for iteration in run.iterations)  # the last token needs no draft
    assert run_budgets(run, COSTS).trees == 0 and run_budgets(run, COSTS).left_out == drafted > 2
