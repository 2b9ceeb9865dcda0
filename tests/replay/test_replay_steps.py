"""Replaying a recorded tree: quick draws are the same draws, distributions and steps agree with the exact
probabilities.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.analysis.luck import token_distribution
from decoding.common.errors import SettingsError
from decoding.methods.methods import METHODS
from decoding.replay.replay import (
    LONG_DISTRIBUTION,
    Replayed,
    outcome_of,
    replay,
    replayed_iteration,
    reroll,
    stored_tree,
)
from decoding.replay.theory import BINS, MOST_STAGES, node_steps, run_theory
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.verifiers import VERIFIERS
from decoding.verifiers.theory import SOLVERS, acceptance_rate, best_acceptance, l1_distance

SAMPLED = Sampling(temperature=1.0)
PROMPT = "Once upon a time there was a little girl who lived in a"


def decode(pair, method, tokens: int = 12, sampling: Sampling = SAMPLED):
    """Iterations with all rows."""
    limits = Limits(tokens, rows="full", ignore_end_of_text=True)
    return tuple(DecodeSession(pair, method, pair.vocabulary.encode(PROMPT), sampling, limits))


@pytest.fixture(scope="module")
def iterations(pair):
    """A run of i.i.d. trees."""
    return decode(pair, METHODS["iid_paths"].with_settings(paths=4, length=3))


@pytest.fixture(scope="module")
def iteration(iterations):
    """The iteration whose tree is largest."""
    return max(iterations[:-2], key=lambda each: each.drafted)


@pytest.fixture(scope="module")
def reported(iteration) -> dict[str, Replayed]:
    """Every verifier that fits, on that tree."""
    return {each.verifier.name: each for each in replay(iteration, SAMPLED, rerolls=0) if each.refusal is None}


def test_a_walk_ends_where_the_text_does(pair):
    """After a token that ends the text nothing counts, and no final token comes; what was accepted below is marked."""
    greedy = Sampling()
    method = METHODS["fixed_tree"].with_settings(max_depth=4, branching=2)
    iteration = max(decode(pair, method, 24, greedy)[:-1], key=lambda each: len(each.accepted))
    first, *others = iteration.accepted
    stops = (iteration.nodes[first].token_id,)
    (whole,) = replay(iteration, greedy, [VERIFIERS["greedy"]()], rerolls=4)
    (cut,) = replay(iteration, greedy, [VERIFIERS["greedy"]()], rerolls=4, stops=stops)
    assert others and whole.expected_tokens == whole.outcome.tokens == len(iteration.accepted) + 1
    assert cut.expected_tokens == cut.outcome.tokens == 1 and cut.tokens == {1: 4}
    assert (cut.outcome.accepted, cut.outcome.final_kind, cut.outcome.stop_node) == ((first,), "none", first)
    assert cut.outcome.beyond == tuple(others)
    shown = replayed_iteration(iteration, cut)
    assert shown.committed_ids == stops and shown.final_text is None
    assert [shown.nodes[node].reason for node in others] == ["text_ended"] * len(others)
    probs = token_distribution(iteration, cut.acceptance_probability, stops)
    assert sum(tokens * p for tokens, p in probs.items()) == pytest.approx(cut.expected_tokens)


def steps_of(iteration, replayed, node: int = 0, sampling: Sampling = SAMPLED):
    return node_steps(iteration, sampling, replayed, node, str)


def test_all_but_greedy_fit_independent_draws(reported):
    assert set(reported) == set(VERIFIERS) - {"greedy"}


def test_rows_that_lack_what_the_tree_was_drawn_from_are_reported(iteration):
    """As a file may have it: a verifier asks for the distribution that a node's children were drawn from."""
    rows = iteration.draft_logits.copy()
    rows[0] = np.nan
    with pytest.raises(SettingsError, match="do not match its tree: re-run it"):
        stored_tree(replace(iteration, draft_logits=rows), SAMPLED)


def test_quick_draws_are_the_draws_of_the_generator(iteration):
    tree = stored_tree(iteration, replace(SAMPLED, temperature=0.8, top_p=0.95))
    assert len(tree.target_distribution(0)) >= LONG_DISTRIBUTION, "a short distribution would not go the quick way"
    for kind in VERIFIERS.values():
        if kind.greedy_only:
            continue
        decision = kind().decide(tree)
        slow = [decision.walk(GeneratorDraws(seed)) for seed in range(40)]
        quick = reroll(decision, range(40))
        assert [(walk.accepted, walk.steps) for walk in quick] == [(walk.accepted, walk.steps) for walk in slow]


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1.0])
def test_quick_draws_agree_where_a_number_meets_an_edge(monkeypatch, uniform):
    """Tokens of probability 0 at either end of a distribution are never drawn, whatever rounding does."""
    probs = torch.zeros(LONG_DISTRIBUTION, dtype=torch.float64)
    probs[[2, 3, 5]] = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    monkeypatch.setattr(GeneratorDraws, "_uniforms", lambda self, count: [uniform] * count)
    (quick,) = reroll(Chooses(probs), [0])
    assert quick == GeneratorDraws(0).choose(probs) == {0.0: 2, 0.5: 3, 1.0: 5}[uniform]


class Chooses:
    """A decision that is one draw."""

    def __init__(self, probs):
        self.probs = probs

    def walk(self, draws):
        return draws.choose(self.probs)


def test_the_law_of_the_token_count_has_the_exact_mean(iteration, reported):
    for replayed in reported.values():
        probs = token_distribution(iteration, replayed.acceptance_probability)
        assert sum(probs.values()) == pytest.approx(1, abs=1e-9)
        mean = sum(tokens * chance for tokens, chance in probs.items())
        assert mean == pytest.approx(replayed.expected_tokens, abs=1e-9)


def test_rerolled_counts_follow_the_exact_law(iteration, reported):
    rolled = replay(iteration, SAMPLED, [reported["specinfer"].verifier], rerolls=2000)[0]
    probs = token_distribution(iteration, rolled.acceptance_probability)
    assert sum(rolled.tokens.values()) == 2000
    for tokens, chance in probs.items():
        assert rolled.tokens.get(tokens, 0) / 2000 == pytest.approx(chance, abs=0.06)


@pytest.mark.parametrize("method", ["iid_paths", "dyspec"])
def test_a_replayed_record_reads_like_a_recorded_one(pair, method):
    """Of the seeds that walk as the run did, the record made here has the run's verdicts."""
    compared = 0
    for each in decode(pair, METHODS[method], 24)[:-1]:
        replayed = replay(each, SAMPLED, [METHODS[method].verifier], rerolls=0)[0]
        for walk in reroll(replayed.verifier.decide(stored_tree(each, SAMPLED)), range(60)):
            replayed = replace(replayed, outcome=outcome_of(walk))
            made = replayed_iteration(each, replayed, pair.vocabulary.text)
            if (made.accepted, made.committed_ids) == (each.accepted, each.committed_ids):
                tested = [(step.kind, step.child_id) for step in each.steps]
                if tested == [(step.kind, step.child_id) for step in made.steps]:
                    assert [node.verdict for node in made.nodes] == [node.verdict for node in each.nodes]
                    assert (made.final_kind, made.committed_texts) == (each.final_kind, each.committed_texts)
                    compared += 1
                    break
    assert compared >= 2


def test_taken_follows_from_the_tests_one_by_one(iteration, reported):
    """What passes and what is left over at the end give the exact chance of each child; random order has its own."""
    compared = 0
    for name in ("nss", "naive_tree", "spectr", "specinfer_wor"):
        for node in iteration.flatten_order:
            steps = steps_of(iteration, reported[name], node)
            if steps is None or steps.reached == 0 or steps.hidden_stages:
                continue
            picked, left = dict.fromkeys((entry.child for entry in steps.entries), 0.0), 1.0
            for entry in steps.entries:
                if entry.passes is not None:
                    picked[entry.child] += left * entry.passes
                    left *= 1 - entry.passes
            last = steps.stages[-1]
            assert (last.draft is None) == (left > 0 or name == "spectr"), "nothing comes after a certain pass"
            assert_passes_follow_from_the_distributions(steps)
            for place, entry in enumerate(steps.entries):
                expected = picked[entry.child] + left * last.target[steps.rows[place]]
                assert entry.taken == pytest.approx(expected, abs=1e-9), (name, node)
                compared += 1
    assert compared >= 20


def assert_passes_follow_from_the_distributions(steps):
    """A test passes with min(1, target / draft) of the distributions that it sees."""
    for stage in steps.stages:
        for place in stage.tested:
            row = steps.rows[place]
            seen = min(1.0, stage.target[row] / stage.draft[row]) if stage.draft[row] else 0.0
            assert steps.entries[place].passes == pytest.approx(seen, abs=1e-9)


def test_a_tournament_has_one_winner_and_tests_it(iteration, reported):
    steps = steps_of(iteration, reported["khisti"])
    by_token = {entry.text: entry for entry in steps.entries}
    assert sum(entry.wins for entry in by_token.values()) == pytest.approx(1)
    failed = sum(entry.wins * (1 - entry.passes) for entry in by_token.values())
    for place, entry in enumerate(steps.entries):
        beside = failed * steps.stages[-1].target[steps.rows[place]]
        assert entry.taken == pytest.approx(entry.wins * entry.passes + beside, abs=1e-9)


@pytest.mark.parametrize("name", ["traversal", "traversal_wor"])
def test_leaves_are_tested_in_draw_order_from_below(pair, name):
    """On a tree of depth 1 the chain of tests is the list of entries."""
    (each, *_) = decode(pair, METHODS["iid_paths"].with_settings(paths=8, length=1), 4)
    replayed = replay(each, SAMPLED, [VERIFIERS[name]()], rerolls=0)[0]
    steps, left, picked = steps_of(each, replayed), 1.0, {}
    assert len(steps.entries) == 8
    # The root's weight stays 1, so its children pass as in one test after another.
    assert_passes_follow_from_the_distributions(steps)
    for entry in steps.entries:
        if entry.passes is not None:
            picked[entry.child] = picked.get(entry.child, 0.0) + left * entry.passes
            left *= 1 - entry.passes
    for entry in steps.entries:
        assert entry.taken == pytest.approx(picked.get(entry.child, 0.0), abs=1e-9)


def test_this_seed_is_reported_entry_by_entry(iteration, reported):
    for replayed in reported.values():
        tested = {step.node_id for step in replayed.outcome.steps if step.kind == "test"}
        for node in {0, *replayed.outcome.accepted}:
            steps = steps_of(iteration, replayed, node)
            if steps is None:
                continue
            went_on = {entry.child for entry in steps.entries if entry.result in ("passed", "picked", "below")}
            assert went_on == {child for child in replayed.outcome.accepted if iteration.nodes[child].parent_id == node}
            drawn = [entry for entry in steps.entries if entry.drawn is not None]
            assert all((entry.drawn < entry.tested_at) == (entry.result != "failed") for entry in drawn
                       if entry.result != "picked")  # fmt: skip
            assert node not in tested or drawn


def test_a_child_drawn_twice_has_a_result_per_test(pair):
    (each, *_) = decode(pair, METHODS["iid_paths"].with_settings(paths=12, length=1), 4)
    replayed = replay(each, SAMPLED, [VERIFIERS["spectr"]()], rerolls=0)[0]
    repeated = 0
    for walk in reroll(replayed.verifier.decide(stored_tree(each, SAMPLED)), range(200)):
        tested = [step.child_id for step in walk.steps if step.kind == "test"]
        if walk.accepted and len(set(tested)) < len(tested):
            steps = steps_of(each, replace(replayed, outcome=outcome_of(walk)))
            assert [entry.child for entry in steps.entries if entry.result] == tested
            repeated += 1
    assert repeated


def test_rates_are_reported_only_where_they_hold(pair, iteration, reported):
    tree = stored_tree(iteration, SAMPLED)
    target, draft = tree.target_distribution(0), tree.draft_distribution(0)
    for name, replayed in reported.items():
        steps = steps_of(iteration, replayed)
        if name in SOLVERS:
            assert steps.rate == acceptance_rate(name, target, draft, 4)
            assert steps.rate <= steps.best_rate + 1e-9
            assert steps.best_rate == best_acceptance(target, draft, 4)
        else:
            assert steps.rate is steps.best_rate is None
    other = decode(pair, METHODS["dyspec"], 3)[0]
    replayed = replay(other, SAMPLED, [VERIFIERS["naive_tree"]()], rerolls=0)[0]
    assert steps_of(other, replayed).rate is None


def test_many_entries_are_cut_to_what_can_be_shown(pair):
    (each, *_) = decode(pair, METHODS["iid_paths"].with_settings(paths=16, length=1), 4)
    replayed = replay(each, SAMPLED, [VERIFIERS["specinfer"]()], rerolls=0)[0]
    steps = steps_of(each, replayed)
    assert len(steps.entries) == 16
    assert len(steps.stages) == MOST_STAGES and steps.stages[-1].draft is None
    assert steps.hidden_stages == 17 - MOST_STAGES
    assert len(steps.texts) >= len({entry.text for entry in steps.entries})
    assert all(steps.texts[row] == entry.text for row, entry in zip(steps.rows, steps.entries, strict=True))
    for stage in steps.stages:
        assert sum(stage.target) + stage.target_rest == pytest.approx(1)


def test_the_token_that_was_drawn_has_a_bar_however_unlikely(iteration, reported):
    replayed = reported["nss"]
    unlikely = int(iteration.target_logits[0].argmin())
    outcome = replace(replayed.outcome, accepted=(), stop_node=0, final_token=unlikely, final_kind="fallback", steps=())
    steps = node_steps(iteration, SAMPLED, replace(replayed, outcome=outcome), 0, str)
    assert str(unlikely) in steps.texts and {entry.text for entry in steps.entries} <= set(steps.texts)


def test_a_leaf_has_no_steps_and_lost_rows_are_a_sentence(iteration, reported):
    leaf = next(node for node in iteration.flatten_order if not iteration.children(node))
    assert steps_of(iteration, reported["nss"], leaf) is None
    with pytest.raises(SettingsError, match="logits of this iteration were not saved"):
        steps_of(replace(iteration, target_logits=None), reported["nss"])


def test_greedy_compares_with_the_favourite(pair):
    each = decode(pair, METHODS["fixed_tree"], 6, Sampling())[0]
    replayed = replay(each, Sampling(), [VERIFIERS["greedy"]()], rerolls=0)[0]
    steps = steps_of(each, replayed, sampling=Sampling())
    assert len(steps.texts) <= len(steps.entries) + 1, "tokens that no distribution gives anything are left out"
    assert [entry.passes for entry in steps.entries] == [
        float(each.nodes[0].target_argmax == each.nodes[entry.child].token_id) for entry in steps.entries
    ]


def test_a_run_is_averaged_node_by_node(iterations):
    theory = run_theory(iterations[:3], SAMPLED)
    drafted = [each for each in iterations[:3] if each.drafted]
    assert (theory.trees, theory.without_logits) == (len(drafted), 0)
    roots = [
        (tree.target_distribution(0), tree.draft_distribution(0))
        for tree in (stored_tree(each, SAMPLED) for each in drafted)
    ]
    first = theory.depths[0]
    assert first.depth == 0 and first.l1.count == len(drafted)
    assert first.l1.value == pytest.approx(np.mean([l1_distance(*distributions) for distributions in roots]))
    for name in SOLVERS:
        rates = [acceptance_rate(name, *distributions, 2) for distributions in roots]
        assert first.rates[name, 2].value == pytest.approx(np.mean(rates))
        assert first.rates[name, 2].error == pytest.approx(np.std(rates, ddof=1) / len(rates) ** 0.5)
        assert all(row.rates[name, 4].value <= row.best[4].value + 1e-9 for row in theory.depths)
    # With one draw every solver but NSS accepts 1 - L1 / 2.
    assert first.rates["naive_tree", 1].value == pytest.approx(1 - first.l1.value / 2)
    expected = [replay(each, SAMPLED, [VERIFIERS["block"]()], rerolls=0)[0].expected_tokens for each in drafted]
    assert theory.expected["block"].value == pytest.approx(np.mean(expected))
    assert "greedy" not in theory.expected


def test_bins_hold_every_verified_token_once(iterations):
    theory = run_theory(iterations[:3], SAMPLED)
    assert sum(each.accepted.count for each in theory.bins) == theory.tokens == sum(i.verified for i in iterations[:3])
    tokens = []
    for each in iterations[:3]:
        tree = stored_tree(each, SAMPLED)
        for node in each.nodes[1:]:
            draft, target = tree.draft_distribution(node.parent_id), tree.target_distribution(node.parent_id)
            tokens.append((float(draft[node.token_id]), float(target[node.token_id])))
    for each in theory.bins:
        inside = [(q, p) for q, p in tokens if each.low <= q < each.high or (q == 1 and each.high == 1)]
        assert each.accepted.count == len(inside)
        assert each.accepted.value == pytest.approx(np.mean([min(1, p / q) for q, p in inside]))
        assert each.target.value == pytest.approx(np.mean([p for _, p in inside]))
    assert len(theory.bins) <= BINS


def test_lost_rows_are_counted_and_a_cancelled_run_is_none(iterations):
    lost = [replace(iterations[0], target_logits=None, draft_logits=None), *iterations[1:3]]
    seen = []
    theory = run_theory(lost, SAMPLED, lambda done, total: seen.append((done, total)) or True)
    assert (theory.trees, theory.without_logits) == (2, 1)
    assert seen == [(1, 2), (2, 2)]
    assert run_theory(iterations[:3], SAMPLED, lambda done, total: False) is None
    nothing = run_theory(lost[:1], SAMPLED)
    assert (nothing.trees, nothing.nodes, nothing.depths, nothing.bins) == (0, 0, (), ())


def test_another_temperature_leaves_the_drafts_law_alone(iteration):
    hot = run_theory([iteration], replace(SAMPLED, temperature=1.5))
    cold = run_theory([iteration], SAMPLED)
    assert [each.low for each in hot.bins] == [each.low for each in cold.bins]
    assert hot.depths[0].l1.value != pytest.approx(cold.depths[0].l1.value)
    assert torch.allclose(stored_tree(iteration, SAMPLED).draft_distribution(0),
                          stored_tree(iteration, replace(SAMPLED, temperature=1.5)).draft_distribution(0))  # fmt: skip


def test_the_next_token_summed_over_all_draws_is_held_against_the_target(pair, iteration, reported):
    assert steps_of(iteration, reported["nss"]).off_target == pytest.approx(0, abs=1e-12)
    assert steps_of(iteration, reported["traversal"]).off_target is None, "tests below the node decide, too"
    for name in ("naive_tree", "spectr", "specinfer"):
        steps = steps_of(iteration, reported[name])
        shown = {entry.text: abs(entry.taken - entry.target) for entry in steps.entries}
        assert 1 >= steps.off_target >= max(shown.values()) - 1e-9 and steps.off_target > 1e-3, (
            "one tree, not all of them"
        )
    each = decode(pair, METHODS["fixed_tree"], 6, Sampling())[0]
    replayed = replay(each, Sampling(), [VERIFIERS["greedy"]()], rerolls=0)[0]
    assert steps_of(each, replayed, sampling=Sampling()).off_target == 0
