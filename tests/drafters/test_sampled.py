"""Drafters that sample, on tables of probabilities: what they draw, in which order, and when they stop."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
import torch

from benchmarks.enumeration import enumerate_draws
from benchmarks.table_source import TableSource, path_tokens
from decoding.common.errors import SettingsError
from decoding.drafters import drawing
from decoding.drafters.base import IterationFeedback
from decoding.drafters.delayed import DelayedDrafter
from decoding.drafters.dyspec import DySpecDrafter
from decoding.drafters.dyspec_threshold import DySpecThresholdDrafter
from decoding.drafters.iid_paths import IIDPathsDrafter
from decoding.drafters.linear import LinearDrafter
from decoding.drafters.sequoia import SequoiaDrafter
from decoding.drafters.specinfer_widths import SpecInferWidthsDrafter
from decoding.sampling.draws import GeneratorDraws
from decoding.trace.records import STOP_REASONS, DrawTrace
from tests.helpers.replayed_draws import ReplayDraws

PROBS = [0.6, 0.3, 0.1]
TABLE = {(): [0.5, 0.3, 0.2], (0,): [0.1, 0.6, 0.3], (1,): [0.7, 0.3, 0.0], (2,): [0.2, 0.2, 0.6]}
SURE = [1.0, 0.0]
SMALL = [
    LinearDrafter(length=3, sampled=True),
    IIDPathsDrafter(paths=2, length=2),
    DelayedDrafter(paths=2, trunk=1, branch=2),
    SpecInferWidthsDrafter(widths="2,2"),
    DySpecDrafter(node_budget=4),
    DySpecThresholdDrafter(threshold=0.2, node_budget=5, max_depth=2),
    SequoiaDrafter(node_budget=5, max_depth=3, acceptance="0.6,0.3,0.05"),
]
LARGE = [
    LinearDrafter(length=12, sampled=True),
    IIDPathsDrafter(paths=4, length=6),
    DelayedDrafter(paths=3, trunk=4, branch=4),
    SpecInferWidthsDrafter(),
    SpecInferWidthsDrafter(widths="2,1,2,1", sampled=False),
    DySpecDrafter(node_budget=40),
    DySpecThresholdDrafter(threshold=0.02),
    SequoiaDrafter(node_budget=40, acceptance="0.6,0.2,0.1"),
]


def name(drafter) -> str:
    return f"{type(drafter).__name__}-{drafter.draft_sampling}"


def replay(drafter, outcomes, source):
    """The tree of a drafter whose draws come out as given; all of them must be asked for."""
    draws = ReplayDraws(tuple(DrawTrace("choose", 1.0, outcome, 0.0) for outcome in outcomes))
    draft = drafter.draft(None, source, 9, draws)
    with pytest.raises(ValueError, match="do not match"):
        draws.choose(torch.ones(1))
    return draft


def sampled(drafter, source, seed=0):
    return drafter.draft(None, source, 9, GeneratorDraws(seed))


def drawn_ids(draft) -> list[int]:
    return list(range(1, draft.tree.size)) if draft.drawn is None else draft.drawn.tolist()


def growths(draft) -> list[str]:
    return [STOP_REASONS[code] for code in draft.tree.stop_reason]


@pytest.mark.parametrize("drafter", SMALL, ids=name)
def test_every_token_follows_the_law_of_its_draw_whatever_was_drawn_before(drafter):
    """After any draws at a node, the next one there has the draft's distribution: whole, or without what was drawn."""
    distributions, total = defaultdict(Counter), 0.0
    run = lambda draws: drafter.draft(None, TableSource(TABLE, PROBS), 9, draws)  # noqa: E731
    for draft, probability in enumerate_draws(run):
        total += probability
        before = defaultdict(tuple)
        for node in drawn_ids(draft):
            path = path_tokens(draft.tree, node)
            distributions[path[:-1], before[path[:-1]]][path[-1]] += probability
            before[path[:-1]] += (path[-1],)
    assert total == pytest.approx(1.0)
    assert max(len(siblings) for _, siblings in distributions) >= (0 if drafter.draft_sampling == "single_path" else 1)
    for (path, siblings), counts in distributions.items():
        probs = np.array(TABLE.get(path, PROBS))
        if drafter.draft_sampling == "without_replacement":
            probs[list(siblings)] = 0.0
        expected = {token: p for token, p in enumerate(probs / probs.sum()) if p > 0}
        found = {token: count / counts.total() for token, count in counts.items()}
        assert found == pytest.approx(expected), (path, siblings)


@pytest.mark.parametrize("drafter", LARGE, ids=name)
def test_what_every_sampled_tree_keeps(drafter):
    source = TableSource(TABLE, PROBS)
    draft = sampled(drafter, source)
    tree = draft.tree
    rows = {
        int(node): row for nodes, distributions in draft.rows for node, row in zip(nodes, distributions, strict=True)
    }
    assert tree.size > 5 and draft.draft_sampling == drafter.draft_sampling and draft.settings == drafter.settings()
    assert draft.order.tolist() == tree.breadth_first().tolist()
    assert source.forwards == len(draft.rows) and set(rows) == set(np.flatnonzero(tree.level >= 0).tolist())
    entries = Counter(int(tree.parents[node]) for node in drawn_ids(draft))
    assert Counter(drawn_ids(draft)) == {node: tree.multiplicity[node] for node in range(1, tree.size)}
    for node in range(tree.size):
        probs = TABLE.get(path_tokens(tree, node), PROBS)
        assert (growths(draft)[node] == "expanded") == (node in rows) == (node in entries)
        assert tree.branching[node] == entries.get(node, -1)
        if node in rows:
            assert rows[node].tolist() == probs and tree.confidence[node] == max(probs)
        if node:
            probs_above = TABLE.get(path_tokens(tree, node)[:-1], PROBS)
            assert tree.draft_probs[node] == probs_above[tree.tokens[node]]


@pytest.mark.parametrize("drafter", LARGE, ids=name)
@pytest.mark.parametrize("limit", [0, 2])
def test_no_node_lies_below_the_length_limit(drafter, limit):
    source = TableSource(TABLE, PROBS, depth_limit=limit)
    draft = sampled(drafter, source)
    deepest = draft.tree.depths == limit
    assert draft.tree.depths.max() == limit and (source.forwards > 0) == (limit > 0)
    assert {stop_reason for stop_reason, last in zip(growths(draft), deepest, strict=True) if last} == {"length_limit"}


@pytest.mark.parametrize("drafter", LARGE, ids=name)
def test_the_record_of_the_draws_replays_the_tree(drafter):
    draws = GeneratorDraws(3)
    first = drafter.draft(None, TableSource(TABLE, PROBS), 9, draws)
    again = replay(drafter, [draw.outcome for draw in draws.record], TableSource(TABLE, PROBS))
    assert again.tree.tokens.tolist() == first.tree.tokens.tolist() and drawn_ids(again) == drawn_ids(first)
    assert len(draws.record) == (0 if drafter.draft_sampling == "deterministic" else len(drawn_ids(first)))


def test_sampled_chain():
    source = TableSource(TABLE, PROBS)
    draft = replay(LinearDrafter(length=3, sampled=True), [1, 0, 2], source)
    assert path_tokens(draft.tree, 3) == (1, 0, 2) and source.forwards == 3 and growths(draft)[3] == "max_depth"
    assert draft.tree.path_probs[3] == pytest.approx(0.3 * 0.7 * 0.1)
    assert (
        LinearDrafter(sampled=True).draft_sampling == "single_path"
        and LinearDrafter().draft_sampling == "deterministic"
    )


def test_paths_are_drawn_level_by_level_and_path_by_path():
    source = TableSource(TABLE, PROBS)
    draft = replay(IIDPathsDrafter(paths=3, length=2), [2, 0, 2, 1, 0, 1], source)
    assert [path_tokens(draft.tree, node) for node in drawn_ids(draft)] == [(2,), (0,), (2,), (2, 1), (0, 0), (2, 1)]
    assert source.forwards == 2 and draft.tree.size == 5
    assert draft.tree.multiplicity.tolist() == [1, 2, 1, 2, 1]
    assert draft.tree.branching.tolist() == [3, 2, 1, -1, -1]
    assert growths(draft)[3:] == ["max_depth"] * 2


def test_paths_that_agree_share_their_nodes():
    source = TableSource({}, SURE)
    draft = sampled(IIDPathsDrafter(paths=4, length=5), source)
    assert draft.tree.size == 6 and source.forwards == 5
    assert draft.tree.multiplicity.tolist() == [1, 4, 4, 4, 4, 4]


def test_no_length_is_no_draft():
    for drafter in (IIDPathsDrafter(paths=3, length=0), DelayedDrafter(paths=3, trunk=0, branch=0)):
        source = TableSource({}, SURE)
        assert sampled(drafter, source).tree.size == 1 and source.forwards == 0


def test_delayed_paths_begin_below_the_trunk():
    source = TableSource(TABLE, PROBS)
    draft = replay(DelayedDrafter(paths=2, trunk=2, branch=2), [0, 1, 2, 0, 1, 1], source)
    assert [path_tokens(draft.tree, node)[2:] for node in drawn_ids(draft)[2:]] == [(2,), (0,), (2, 1), (0, 1)]
    assert draft.tree.branching[:3].tolist() == [1, 1, 2] and source.forwards == 4
    sure = sampled(DelayedDrafter(paths=3, trunk=2, branch=2), TableSource({}, SURE))
    assert sure.tree.multiplicity.tolist() == [1, 1, 1, 3, 3]


def test_delayed_without_trunk_or_branch():
    same = sampled(IIDPathsDrafter(paths=3, length=4), TableSource(TABLE, PROBS), seed=5)
    paths = sampled(DelayedDrafter(paths=3, trunk=0, branch=4), TableSource(TABLE, PROBS), seed=5)
    assert paths.tree.tokens.tolist() == same.tree.tokens.tolist() and drawn_ids(paths) == drawn_ids(same)
    trunk = sampled(DelayedDrafter(paths=3, trunk=3, branch=0), TableSource(TABLE, PROBS))
    assert trunk.tree.depths.tolist() == [0, 1, 2, 3] and trunk.draft_sampling == "single_path"
    assert DelayedDrafter(paths=1).draft_sampling == IIDPathsDrafter(paths=1).draft_sampling == "single_path"


def test_every_draw_of_a_node_has_its_own_draws_below():
    source = TableSource({}, SURE)
    draft = sampled(SpecInferWidthsDrafter(widths="2,1,3"), source)
    assert draft.tree.multiplicity.tolist() == [1, 2, 2, 6] and source.forwards == 3
    assert draft.tree.branching.tolist() == [2, 2, 6, -1]


def test_widths_without_sampling_take_the_likeliest():
    source = TableSource(TABLE, PROBS)
    draft = SpecInferWidthsDrafter(widths="2, 1", sampled=False).draft(None, source, 9, None)
    assert [path_tokens(draft.tree, node) for node in range(1, 5)] == [(0,), (1,), (0, 1), (1, 0)]
    assert draft.draft_sampling == "deterministic" and draft.drawn is None and source.forwards == 2
    assert draft.tree.multiplicity.tolist() == [1] * 5 and growths(draft)[3:] == ["max_depth"] * 2


def test_heap_draws_where_the_next_draw_is_worth_most():
    """Worth: 1 at the root; .4 there and .6 at node 1; .54 there and .06 at node 2; .18 there and .36 at node 3."""
    source = TableSource({}, PROBS)
    draft = replay(DySpecDrafter(node_budget=5), [0, 2, 0, 1, 0], source)
    assert draft.tree.parents.tolist() == [-1, 0, 1, 1, 0, 3] and source.forwards == 3
    assert growths(draft) == ["expanded", "expanded", "outdrawn", "expanded", "outdrawn", "outdrawn"]
    assert draft.tree.branching.tolist() == [2, 2, -1, 1, -1, -1]


def worth_of_draws(draft) -> tuple[list[float], list[float]]:
    """What each draw was worth, in order, and what the next one at every node would be."""
    worth, left = [], {0: 1.0}
    for node in drawn_ids(draft):
        parent, prob = int(draft.tree.parents[node]), draft.tree.draft_probs[node]
        worth.append(draft.tree.path_probs[parent] * left[parent])
        left[parent], left[node] = left[parent] - prob, 1.0
    return worth, [draft.tree.path_probs[node] * mass for node, mass in left.items()]


@pytest.mark.parametrize("seed", range(5))
def test_no_other_draw_was_worth_more(seed):
    probs = torch.softmax(2 * torch.randn(30, generator=torch.Generator().manual_seed(seed)).double(), -1).tolist()
    worth, open_draws = worth_of_draws(sampled(DySpecDrafter(node_budget=60), TableSource({}, probs), seed))
    assert all(later <= before + 1e-12 for before, later in pairwise(worth))
    assert max(open_draws) <= min(worth) + 1e-12
    worth, open_draws = worth_of_draws(sampled(DySpecThresholdDrafter(threshold=0.03), TableSource({}, probs), seed))
    assert max(open_draws) < 0.03 + 1e-12 and min(worth) > 0.03 - 1e-12


def test_heap_gives_ties_to_the_older_draw_and_leaves_an_empty_law():
    draft = sampled(DySpecDrafter(node_budget=8), TableSource({}, [0.5, 0.5]))
    assert draft.tree.parents.tolist() == [-1, 0, 0, 1, 2, 1, 3, 2, 4]


@pytest.mark.parametrize("drafter", [DySpecDrafter(max_depth=6), DySpecThresholdDrafter(max_depth=6)], ids=name)
def test_a_sure_draft_makes_a_chain(drafter):
    draft = sampled(drafter, TableSource({}, SURE))
    assert draft.tree.depths.tolist() == list(range(7)) and growths(draft)[6] == "max_depth"


def test_heap_survives_masses_below_rounding():
    """Of 1 + 1e-30 nothing but 1 is left in a sum, and yet there is a second token to draw."""
    draft = sampled(DySpecDrafter(node_budget=6, max_depth=2), TableSource({}, [1.0, 1e-30, 1e-300]))
    assert draft.tree.size == 7 and np.isfinite(draft.tree.path_probs).all()


def test_threshold_draws_in_rounds_while_the_next_draw_is_worth_it():
    """Worth: .6 and .3 for nodes 1 and 2, .1 left at the root; .36 and .18 for 3 and 4, .24 and .12 left above; ..."""
    source = TableSource({}, PROBS)
    draft = replay(DySpecThresholdDrafter(threshold=0.2), [0, 1, 0, 0, 1, 0, 0], source)
    assert draft.tree.parents.tolist() == [-1, 0, 0, 1, 2, 1, 3, 6] and source.forwards == 4
    low = [node for node, stop_reason in enumerate(growths(draft)) if stop_reason == "below_threshold"]
    assert low == [4, 5, 7]


def test_threshold_budget_ends_a_round_and_asks_for_no_law_in_vain():
    source = TableSource({}, PROBS)
    draft = replay(DySpecThresholdDrafter(threshold=0.2, node_budget=3), [0, 1, 0], source)
    assert draft.tree.parents.tolist() == [-1, 0, 0, 1] and source.forwards == 2
    assert growths(draft) == ["expanded", "expanded", "budget", "budget"]


@pytest.mark.parametrize("budget", [1, 2, 17, 100])
def test_as_many_nodes_as_the_budget(budget):
    for drafter in (DySpecDrafter(budget), DySpecThresholdDrafter(1e-6, budget)):
        assert sampled(drafter, TableSource({}, [0.1] * 10)).tree.size == budget + 1


def test_many_draws_at_once_are_the_same_as_few(monkeypatch):
    distributions, rows = (
        torch.rand(5, 7, generator=torch.Generator().manual_seed(0)),
        np.array([3, 3, 0, 1, 4, 2, 2, 2]),
    )
    at_once = drawing.draw_rows(GeneratorDraws(1), distributions, rows)
    monkeypatch.setattr(drawing, "ROWS_AT_ONCE", 3)
    in_parts = drawing.draw_rows(GeneratorDraws(1), distributions, rows)
    assert at_once[0].tolist() == in_parts[0].tolist() == GeneratorDraws(1).choose_each(distributions[rows])
    assert at_once[1].tolist() == in_parts[1].tolist() == distributions[rows, at_once[0]].tolist()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (LinearDrafter, {"length": 65}),
        (IIDPathsDrafter, {"paths": 0}),
        (IIDPathsDrafter, {"paths": 17}),
        (IIDPathsDrafter, {"length": -1}),
        (IIDPathsDrafter, {"length": 33}),
        (DelayedDrafter, {"paths": 0}),
        (DelayedDrafter, {"trunk": -1}),
        (DelayedDrafter, {"branch": 17}),
        (SpecInferWidthsDrafter, {"widths": ""}),
        (SpecInferWidthsDrafter, {"widths": "1,,2"}),
        (SpecInferWidthsDrafter, {"widths": "1,0"}),
        (SpecInferWidthsDrafter, {"widths": "17"}),
        (SpecInferWidthsDrafter, {"widths": "1.5"}),
        (SpecInferWidthsDrafter, {"widths": "1,1*64"}),
        (SpecInferWidthsDrafter, {"widths": "1*0"}),
        (SpecInferWidthsDrafter, {"widths": "1*2*2"}),
        (SpecInferWidthsDrafter, {"widths": "16,16,16"}),
        (SpecInferWidthsDrafter, {"widths": ",".join(["15"] * 32)}),
        (DySpecDrafter, {"node_budget": 0}),
        (DySpecDrafter, {"max_depth": 33}),
        (DySpecThresholdDrafter, {"threshold": 0}),
        (DySpecThresholdDrafter, {"threshold": 1.1}),
        (DySpecThresholdDrafter, {"node_budget": 4097}),
    ],
)
def test_out_of_range_is_refused(kind, changes):
    with pytest.raises(SettingsError, match=next(iter(changes))):
        kind(**changes)


def test_a_threshold_is_sought_that_gives_trees_of_the_wanted_size():
    drafter, random = DySpecThresholdDrafter(mean_nodes=24), np.random.default_rng(0)
    state, draws, sizes = drafter.start([]), GeneratorDraws(0), []
    for _ in range(150):
        source = TableSource({}, random.dirichlet(np.full(30, 0.2)).tolist())
        draft = drafter.draft(state, source, 9, draws)
        assert draft.settings["threshold"] == state.threshold
        sizes.append(draft.tree.size - 1)
        feedback = IterationFeedback(0, 1, sizes[-1], sizes[-1], 1)
        state, history = drafter.observe(draft.state, feedback)
    assert np.mean(sizes[30:]) == pytest.approx(24, rel=0.1) and len(set(sizes)) > 10 and history is None
    fixed = DySpecThresholdDrafter()
    assert fixed.start([]) is None and "mean_nodes" not in fixed.settings() and not fixed.moving


def test_widths_of_many_levels_are_written_short():
    assert SpecInferWidthsDrafter(widths="8,1*7").by_level == (8, *[1] * 7)
    assert SpecInferWidthsDrafter(widths="2 , 3*2").by_level == (2, 3, 3)
