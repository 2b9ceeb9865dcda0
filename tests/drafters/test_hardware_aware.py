"""The hardware-aware tree against brute force, at extreme costs, and what it learns."""

import itertools
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.enumeration import SAMPLED, Tables, bias, enumerate_draws
from benchmarks.table_source import TableSource, path_tokens, paths
from decoding.common.errors import SettingsError
from decoding.costs import measured_pair
from decoding.drafters import HardwareAwareDrafter
from decoding.drafters.base import IterationFeedback
from decoding.drafters.hardware_aware import MOST_CHILDREN, RETRY, RateSearch, tree_costs
from decoding.methods.methods import METHODS
from decoding.replay.forks import ForkChange, fork, go_on
from decoding.replay.stored_state import state_before
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions
from decoding.trace.records import STOP_REASONS, node_paths
from decoding.verifiers import NSSVerifier

CONVEX = "1:1 2:1.1 4:1.4 8:2.2 16:4.5"
FLAT, MILD, STEPS = "1", "1:1 9:1.5 16:2.1", "1:1 4:1 5:1.6 8:1.6 9:2.2 16:2.2"


def drafter(verify_ms=CONVEX, level_ms="0.1", odds="1 1", **settings) -> HardwareAwareDrafter:
    return HardwareAwareDrafter(verify_ms=verify_ms, level_ms=level_ms, odds=odds, **settings)


def draft(kind: HardwareAwareDrafter, source: TableSource, state=None):
    return kind.draft(state or kind.start([]), source, 9, None)


def random_table(seed: int, vocab: int = 3, depth: int = 3) -> TableSource:
    random = np.random.default_rng(seed)
    table = {
        path: random.dirichlet(np.full(vocab, random.uniform(0.2, 1.5))).tolist()
        for length in range(depth + 1)
        for path in itertools.product(range(vocab), repeat=length)
    }
    return TableSource(table, [])


def chance(probability: float, factor: float) -> float:
    odds = factor * probability / (1 - probability) if probability < 1 else np.inf
    return 1.0 if odds == np.inf else odds / (1 + odds)


def scored(drafted, factors=(1.0, 1.0)) -> dict[tuple, float]:
    """Value of every node that the draft was asked to score, from its rows alone."""
    values = {(): 1.0}
    for nodes, rows in drafted.rows:
        for node, row in zip(nodes.tolist(), rows.tolist(), strict=True):
            path = path_tokens(drafted.tree, node)
            for rank, token in enumerate(np.argsort(-np.array(row), kind="stable").tolist()):
                values[*path, token] = values[path] * chance(row[token], factors[min(rank, 1)])
    del values[()]
    return values


def rate(drafted, chosen, values, kind) -> float:
    costs = tree_costs(kind.verify_ms, kind.level_ms, kind.node_budget)
    spent = sum(costs.level_s[len(nodes)] for nodes, _ in drafted.rows)
    return (1 + sum(values[path] for path in chosen)) / (costs.verify_s[len(chosen)] + spent)


def connected_sets(values: dict) -> list[set]:
    """Every set of scored nodes that is closed under parents."""
    found: list[set] = [set()]
    for path in sorted(values, key=len):
        found += [chosen | {path} for chosen in found if len(path) == 1 or path[:-1] in chosen]
    return found


@pytest.mark.parametrize("odds", ["1 1", "3 0.7", "0.2 1.5"])
@pytest.mark.parametrize("verify_ms", [CONVEX, STEPS, FLAT, MILD])
@pytest.mark.parametrize("seed", range(6))
def test_no_connected_set_of_the_nodes_scored_has_a_better_rate(seed, verify_ms, odds):
    kind = drafter(verify_ms, level_ms="0.05 " if seed % 2 else "1:0.02 4:0.2", odds=odds, node_budget=12, max_depth=3)
    drafted = draft(kind, random_table(seed))
    values = scored(drafted, kind.factors)
    if len(values) > 12:  # every set of more would take long: the best of them for each size are enough
        sets = [set(sorted(values, key=lambda path: (-values[path], len(path)))[:n]) for n in range(13)]
    else:
        sets = [chosen for chosen in connected_sets(values) if len(chosen) <= kind.node_budget]
    kept = paths(drafted.tree, drafted.order[1:])
    best = max(rate(drafted, chosen, values, kind) for chosen in sets)
    assert rate(drafted, kept, values, kind) == pytest.approx(best, rel=1e-12)
    assert all(len(path) == 1 or path[:-1] in kept for path in kept)


def test_brute_force_is_not_trivial():
    """Over the same cases trees of several sizes are the best, and some have fewer nodes than were scored."""
    sizes = set()
    fewer = 0
    for seed, verify_ms in itertools.product(range(6), (CONVEX, STEPS, FLAT, MILD)):
        drafted = draft(drafter(verify_ms, "0.05", node_budget=12, max_depth=3), random_table(seed))
        sizes.add(len(drafted.order) - 1)
        fewer += len(drafted.order) - 1 < len(scored(drafted))
    assert len(sizes) >= 4 and fewer >= 6


def reference(kind: HardwareAwareDrafter, table: TableSource) -> tuple[list[list[tuple]], set]:
    """The same rule, one path at a time: nodes expanded level by level, and those verified."""
    verify_s, node_s, level_s = (
        column.tolist() for column in tree_costs(kind.verify_ms, kind.level_ms, kind.node_budget)
    )
    values, levels, frontier, spent = {(): 1.0}, [], [()], 0.0
    promise, weight = defaultdict(float), 0.0

    def best() -> tuple[float, list]:
        ranked = sorted((path for path in values if path), key=lambda path: (-values[path], len(path)))
        sets = [ranked[:n] for n in range(min(len(ranked), kind.node_budget) + 1)]
        rates = [(1 + sum(values[p] for p in chosen)) / (verify_s[len(chosen)] + spent) for chosen in sets]
        return max(rates), sets[int(np.argmax(rates))]

    while frontier and len(levels) < kind.max_depth:
        levels.append(frontier)
        spent += level_s[len(frontier)]
        children = []
        for path in frontier:
            probs = table._table[path]
            weight += values[path]
            for rank, token in enumerate(np.argsort(-np.array(probs), kind="stable").tolist()):
                accepted = chance(probs[token], kind.factors[min(rank, 1)])
                promise[rank] += values[path] * accepted
                values[*path, token] = values[path] * accepted
                children.append((*path, token))
        now, chosen = best()
        ranked = sorted(values.values(), reverse=True)[1:]
        least = max(now * node_s[len(chosen)], ranked[kind.node_budget - 1] if len(ranked) >= kind.node_budget else 0)
        children.sort(key=lambda path: -values[path])
        gains, gain = [0.0], 0.0
        for width, path in enumerate(children[: kind.node_budget], start=1):
            gain += sum(max(values[path] * promise[rank] / weight - least, 0.0) for rank in promise)
            gains.append(gain - now * level_s[width])
        frontier = children[: int(np.argmax(gains))]
    return levels, set(best()[1])


@pytest.mark.parametrize("verify_ms", [CONVEX, STEPS, FLAT, MILD])
@pytest.mark.parametrize("seed", range(12))
def test_levels_are_drafted_as_wide_and_as_long_as_they_promise_to_pay(seed, verify_ms):
    level_ms = ["0.02", "0.1", "0.3", "1:0.05 6:0.3"][seed % 4]
    kind = drafter(verify_ms, level_ms, odds=["1 1", "2.5 1.3"][seed % 2], node_budget=15, max_depth=3)
    table = random_table(seed)
    levels, kept = reference(kind, table)
    drafted = draft(kind, table)
    assert [paths(drafted.tree, nodes) for nodes, _ in drafted.rows] == [set(level) for level in levels]
    assert paths(drafted.tree, drafted.order[1:]) == kept


def test_the_rule_decides_differently_somewhere():
    shapes = set()
    for seed in range(8):
        for verify_ms, level_ms in itertools.product((CONVEX, FLAT), ("0.02", "0.1", "0.4")):
            drafted = draft(drafter(verify_ms, level_ms, node_budget=15, max_depth=3), random_table(seed))
            shapes.add(tuple(len(nodes) for nodes, _ in drafted.rows))
    assert len({len(shape) for shape in shapes}) == 3 and max(max(shape) for shape in shapes) >= 3


SURE = [0.9, 0.1, 0.0]


def test_free_levels_go_down_to_the_depth_limit_and_dear_ones_stop_at_the_first():
    deep = draft(drafter(FLAT, "0", max_depth=7), TableSource({}, SURE))
    assert deep.tree.depths[deep.order].max() == 7 and len(deep.rows) == 7
    dear = draft(drafter(FLAT, "1000"), TableSource({}, SURE))
    assert len(dear.rows) == 1 and {STOP_REASONS[code] for code in dear.tree.stop_reason[1:]} == {"unprofitable"}


def test_dear_nodes_are_not_verified_and_free_ones_all():
    dear = draft(drafter("1:1 2:100 3:200", "0.01"), TableSource({}, SURE))
    assert dear.order.tolist() == [0]
    free = draft(drafter(FLAT, "0.01", max_depth=1), TableSource({}, [0.4, 0.3, 0.3]))
    assert len(free.order) == 4


def test_the_deeper_the_cheaper_drafting_is():
    depths = [
        draft(drafter(FLAT, level_ms), TableSource({}, SURE)).tree.depths.max()
        for level_ms in ("0.6", "0.2", "0.05", "0.01")
    ]
    assert depths == sorted(depths) and depths[0] < depths[1] < depths[-1] == 16


def test_budget_depth_and_length_are_kept():
    drafted = draft(drafter(FLAT, "0", node_budget=3, max_depth=5), TableSource({}, [0.4, 0.3, 0.3]))
    assert len(drafted.order) - 1 == 3
    limited = draft(drafter(FLAT, "0", max_depth=5), TableSource({}, SURE, depth_limit=2))
    deepest = np.flatnonzero(limited.tree.depths == 2)
    assert limited.tree.depths.max() == 2 and {STOP_REASONS[limited.tree.stop_reason[n]] for n in deepest} == {
        "length_limit"
    }
    at_max = draft(drafter(FLAT, "0", max_depth=2), TableSource({}, SURE))
    assert {STOP_REASONS[at_max.tree.stop_reason[n]] for n in np.flatnonzero(at_max.tree.depths == 2)} == {"max_depth"}
    source = TableSource({}, SURE, depth_limit=0)
    ended = draft(drafter(), source)
    assert (
        ended.order.tolist() == [0]
        and source.forwards == 0
        and STOP_REASONS[ended.tree.stop_reason[0]] == "length_limit"
    )


def test_children_are_the_likeliest_and_at_most_so_many():
    probs = np.linspace(12, 1, 12) / np.linspace(12, 1, 12).sum()
    drafted = draft(drafter(FLAT, "0", max_depth=1), TableSource({}, probs.tolist()))
    assert drafted.tree.tokens[1:].tolist() == list(range(MOST_CHILDREN))
    assert drafted.tree.branching[0] == MOST_CHILDREN and drafted.draft_sampling == "deterministic"


def test_tokens_without_probability_are_never_drafted():
    drafted = draft(drafter(FLAT, "0", max_depth=4), TableSource({}, [1.0, 0.0, 0.0]))
    assert drafted.tree.size == 5 and drafted.tree.path_probs.tolist() == [1.0] * 5


def test_settings_in_force_hold_the_learned_odds():
    kind = drafter(odds="2 0.5")
    drafted = draft(kind, TableSource({}, SURE))
    assert drafted.settings == kind.settings()
    state, history = kind.observe(drafted.state, outcome(drafted, 0))
    assert history is None and draft(kind, TableSource({}, SURE), state).settings["odds"] != "2 0.5"


def outcome(drafted, accepted: int) -> IterationFeedback:
    """The likeliest path accepted down to a depth."""
    path, node = [], 0
    for _ in range(accepted):
        node = next((n for n in drafted.order.tolist() if n and drafted.tree.parents[n] == node), None)
        if node is None:
            break
        path.append(node)
    verified = len(drafted.order) - 1
    size = drafted.tree.size - 1
    return IterationFeedback(
        len(path), len(path) + 1, size, verified, 3, tuple(path), tree=drafted.tree, order=drafted.order
    )


def run(kind, accepted: int, iterations: int, source=None):
    source, state = source or TableSource({}, [0.6, 0.3, 0.1]), kind.start([])
    for _ in range(iterations):
        drafted = draft(kind, source, state)
        state, _ = kind.observe(drafted.state, outcome(drafted, accepted))
    return state


def test_acceptance_beyond_the_drafts_confidence_raises_the_odds_and_trees_grow():
    kind = drafter(FLAT, "0.2")
    lucky, unlucky = run(kind, 9, 30), run(kind, 0, 30)
    assert lucky.log_odds[0] > 1 and unlucky.log_odds[0] < -1 and unlucky.log_odds[1] < 0
    source = TableSource({}, [0.6, 0.3, 0.1])
    assert draft(kind, source, lucky).tree.depths.max() > draft(kind, source).tree.depths.max()
    assert draft(kind, source, unlucky).tree.depths.max() < draft(kind, source, lucky).tree.depths.max()


@pytest.mark.slow
def test_learned_odds_come_to_those_of_the_outcomes():
    """First children of probability 0.6 that are accepted 9 times of 10 have 6 times the odds."""
    random, kind = np.random.default_rng(0), drafter(FLAT, "1000", max_depth=1)
    source, state = TableSource({}, [0.6, 0.3, 0.1]), kind.start([])
    for _ in range(3000):
        drafted = draft(kind, source, replace(state, tokens=0.0, seconds=0.0))
        state, _ = kind.observe(drafted.state, outcome(drafted, int(random.random() < 0.9)))
    assert np.exp(state.log_odds[0]) == pytest.approx(6, rel=0.15) and state.log_odds[1] < -2


def test_a_state_is_never_changed_in_place():
    kind, source = drafter(FLAT, "0.2"), TableSource({}, [0.6, 0.3, 0.1])
    state = run(kind, 1, 3)
    before = [state.log_odds.copy(), state.information.copy()]
    first, again = (draft(kind, source, state) for _ in range(2))
    kind.observe(first.state, outcome(first, 1))
    after = (state.log_odds, state.information)
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    assert first.tree.tokens.tolist() == again.tree.tokens.tolist() and first.order.tolist() == again.order.tolist()


def test_without_learning_every_iteration_is_the_first():
    kind = drafter(FLAT, "0.2", learn=False)
    state = run(kind, 9, 10)
    start = kind.start([])
    assert (state.log_odds == start.log_odds).all() and state.seconds == 0
    assert draft(kind, TableSource({}, SURE), state).settings == kind.settings()


def test_where_drafting_does_not_pay_it_is_left_but_for_a_look_now_and_then():
    kind, source = drafter(FLAT, "5"), TableSource({}, SURE)
    state, forwards = kind.start([]), []
    for _ in range(2 * RETRY + 2):
        drafted = draft(kind, source, state)
        forwards.append(len(drafted.rows))
        state, _ = kind.observe(drafted.state, outcome(drafted, 1))
    assert forwards == [1, *[0] * (RETRY - 1), 1, *[0] * (RETRY - 1), 1, 0]
    idle = draft(kind, source, state)
    assert idle.order.tolist() == [0] and STOP_REASONS[idle.tree.stop_reason[0]] == "unprofitable"


def test_what_the_best_tree_gives_and_costs():
    costs = tree_costs("1:1 2:1.5", "0.2", 8)
    search = RateSearch(TableSource({}, [0.8, 0.2]), 9, costs, 1, np.ones(2))
    assert search.grow() == pytest.approx((1.8, 0.0017))  # they are more than 2 in 2.2 ms


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"node_budget": 0}, "node_budget"),
        ({"node_budget": 4097}, "node_budget"),
        ({"max_depth": 0}, "max_depth"),
        ({"max_depth": 33}, "max_depth"),
        ({"verify_ms": "fast"}, "verify_ms must be milliseconds"),
        ({"verify_ms": "1:0 4:1"}, "verify_ms must be above 0"),
        ({"level_ms": "1:x"}, "level_ms must be milliseconds"),
        ({"odds": "1"}, "odds must be two factors"),
        ({"odds": "1 x"}, "odds must be two factors"),
        ({"odds": "1 0"}, "odds must be two factors"),
        ({"odds": "1 101"}, "odds must be two factors"),
        ({"odds": "1 1 1"}, "odds must be two factors"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(changes, named):
    with pytest.raises(SettingsError, match=named):
        HardwareAwareDrafter(**changes)


def test_without_costs_there_is_no_tree():
    for missing in ({"verify_ms": ""}, {"level_ms": ""}, {"odds": ""}):
        with pytest.raises(SettingsError, match="is empty: give costs"):
            draft(drafter(**missing), TableSource({}, SURE))


def test_two_iterations_with_learning_between_emit_the_targets_law():
    """The second tree depends on what the first one's outcome taught, and the joint distribution is still the
    target's.
    """
    random = np.random.default_rng(5)
    places = [path for length in range(7) for path in itertools.product(range(3), repeat=length)]
    distributions = [{path: random.dirichlet(np.full(3, 0.8)).tolist() for path in places} for _ in range(2)]
    tables = Tables("random", distributions[0], distributions[1], [1 / 3] * 3, [1 / 3] * 3)
    kind = drafter("1:1 5:1.3", "0.3", node_budget=4, max_depth=2)
    emitted: dict[tuple, float] = defaultdict(float)
    shapes = set()
    for first, chance_first, state in blocks(kind, kind.start([]), tables, ()):
        for second, chance_second, after in blocks(kind, state, tables, first):
            emitted[first + second] += chance_first * chance_second
            shapes.add((len(first), after.log_odds.tobytes(), state.log_odds.tobytes()))
    assert bias(emitted, tables) < 1e-12 and sum(emitted.values()) == pytest.approx(1)
    assert len({state for _, _, state in shapes}) > 2  # what was learned differs between outcomes


def blocks(kind, state, tables: Tables, before: tuple):
    """Every block that one iteration can emit behind some tokens: its chance and the state after it."""
    drafted = kind.draft(state, Behind(tables, before), 0, None)
    rows = [tables.target_distribution(before + path_tokens(drafted.tree, int(node))) for node in drafted.order]
    target = TargetDistributions(None, SAMPLED, probs=torch.tensor(rows, dtype=torch.float64))
    for verification, share in enumerate_draws(lambda draws: NSSVerifier().verify(drafted, target, draws)):
        path = tuple(verification.accepted)
        tokens = (*drafted.tree.tokens[list(path)].tolist(), verification.final_token)
        sizes = (drafted.tree.size - 1, len(drafted.order) - 1, 2)
        seen = IterationFeedback(len(path), len(tokens), *sizes, path, tree=drafted.tree, order=drafted.order)
        yield tokens, share, kind.observe(drafted.state, seen)[0]


class Behind(TableSource):
    """A table of distributions, read behind some tokens."""

    def __init__(self, tables: Tables, before: tuple):
        here = {path[len(before) :]: probs for path, probs in tables.draft.items() if path[: len(before)] == before}
        super().__init__(here, tables.draft_default)


def test_greedy_output_is_the_targets_and_states_move(pair):
    prompt, limits = pair.vocabulary.encode("Once upon a time there was"), Limits(40, ignore_end_of_text=True)
    method = METHODS["hardware_aware"].with_settings(verify_ms="1:3 8:4 64:14", level_ms="0.4", odds="1 1")
    sessions = [DecodeSession(pair, m, prompt, limits=limits) for m in (METHODS["autoregressive"], method)]
    for session in sessions:
        list(session)
    assert sessions[0].tokens == sessions[1].tokens
    traces = sessions[1].iterations
    assert sum(len(i.accepted) for i in traces) > 5 and len({i.settings["odds"] for i in traces}) > 5
    assert all(i.settings["verify_ms"] == "1:3 8:4 64:14" for i in traces)


def test_odds_of_the_embedded_pair(pair):
    text = ["Once upon a time there was a little girl who lived in a house near the forest."]
    greedy = measured_pair.acceptance_odds(pair, Sampling(), 8, text)
    drawn = measured_pair.acceptance_odds(pair, Sampling(temperature=1.0), 8, text)
    assert greedy[0] > drawn[0] > 0 and greedy[0] > 1
    same = replace(pair, draft=pair.target)
    assert measured_pair.acceptance_odds(same, Sampling(temperature=1.0), 8, text) == pytest.approx((1.0, 1.0))
    assert measured_pair.acceptance_odds(same, Sampling(), 8, text)[0] > 10


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
def test_a_factor_between_odds_is_found(factor):
    probs = np.random.default_rng(1).uniform(0.01, 0.99, 400)
    chances = factor * probs / (1 - probs + factor * probs)
    assert measured_pair.odds_factor(probs, chances) == pytest.approx(factor, rel=0.02)
    assert 0 < measured_pair.odds_factor(probs, np.zeros(400)) < 0.01
    assert 100 < measured_pair.odds_factor(probs, np.ones(400)) < np.inf


def test_what_a_person_put_in_is_not_taken_for_the_drafters_own(pair):
    budget = 4
    method = METHODS["hardware_aware"].with_settings(
        verify_ms="1:1 64:2", level_ms="0.2", odds="1.5 1", node_budget=budget
    )
    ids = pair.vocabulary.encode("Once upon a time there was a little girl named")
    session = DecodeSession(pair, method, ids, Sampling(), Limits(24, rows="full"))
    list(session)
    full = next(each for each in session.iterations[:-2] if each.verified == budget)
    leaf = next(n for n in full.nodes if n.draft_level is None and n.flat_index is not None)
    below, known = node_paths(full)[leaf.node_id], {n.token_id for n in full.nodes}
    new = [token for token in range(100, 200) if token not in known][:3]
    interventions = Interventions(force_in=((new[0],), (new[1],), (*below, new[2])))
    made = go_on(fork(session.trace(), session, full.index, ForkChange(interventions=interventions), live=True), 1)
    assert made.trace.iterations[full.index].verified == budget + len(new)
    live = made.session.standing(full.index + 1).state
    recorded = state_before(made.trace, full.index + 1, method)
    for name in ("log_odds", "information", "tokens", "seconds", "idle"):
        assert getattr(recorded, name) == pytest.approx(getattr(live, name)), name
