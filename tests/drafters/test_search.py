"""Search drafters against brute force and plain references on random tables of probabilities."""

import heapq
import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from benchmarks.table_source import TableSource, path_tokens, paths
from decoding.common.errors import SettingsError
from decoding.drafters.base import TreeBuilder
from decoding.drafters.candidates import best_children
from decoding.drafters.eagle2 import Eagle2Drafter
from decoding.drafters.opt_tree import OptTreeDrafter
from decoding.drafters.salf import SalfDrafter
from decoding.drafters.specexec import SpecExecDrafter
from decoding.trace.records import STOP_REASONS
from tests.helpers.families import family

SEEDS = range(40)
SHAPES = [(3, 5), (4, 4), (7, 3), (12, 3), (50, 2)]
EIGHTHS = [0.5, 0.25, 0.125, 0.125]
DRAFTERS = [OptTreeDrafter(gain_threshold=0.0), Eagle2Drafter(), SpecExecDrafter(), SalfDrafter(gain_threshold=0.0)]


@dataclass(frozen=True)
class Problem:
    """A random table down to `depth`, with settings to search it with; `values` holds every path's probability."""

    table: dict
    values: dict
    depth: int
    node_budget: int
    batch: int

    def source(self) -> TableSource:
        return TableSource(self.table, [])  # a path below `depth` has no distribution: asking for one fails

    def draft(self, drafter):
        return drafter.draft(None, self.source(), 9, None)

    def kept(self, drafter) -> set:
        drafted = self.draft(drafter)
        return paths(drafted.tree, drafted.order[1:])

    def mass(self, drafter) -> float:
        return sum(self.values[path] for path in self.kept(drafter))

    def best_paths(self, value=None, allowed=lambda path: True) -> set:
        """Brute force: the N paths of highest value, parents first where values tie."""
        value = value or (lambda path: self.values[path])
        ranked = sorted(filter(allowed, self.values), key=lambda path: (-value(path), len(path)))
        return set(ranked[: self.node_budget])


def problem(seed: int) -> Problem:
    random = np.random.default_rng(seed)
    vocab, depth = SHAPES[seed % len(SHAPES)]
    sharpness = random.uniform(0.1, 1.0)
    table, values = {}, {(): 1.0}
    for length in range(depth):
        for path in itertools.product(range(vocab), repeat=length):
            table[path] = random.dirichlet(np.full(vocab, sharpness)).tolist()
            values.update({(*path, token): values[path] * prob for token, prob in enumerate(table[path])})
    del values[()]
    return Problem(table, values, depth, int(random.integers(1, 60)), int(random.integers(1, 12)))


@pytest.fixture(scope="module", params=family(SEEDS, *SEEDS[:15]))
def case(request) -> Problem:
    return problem(request.param)


def optimal(case: Problem, **settings) -> SpecExecDrafter:
    return SpecExecDrafter(node_budget=case.node_budget, batch=case.batch, max_depth=case.depth, **settings)


def salf(case: Problem, threshold: float, **settings) -> SalfDrafter:
    settings = {"batch": case.batch, "max_depth": case.depth} | settings
    return SalfDrafter(node_budget=case.node_budget, gain_threshold=threshold, **settings)


def batch_sums(drafted) -> list[float]:
    """Values of the nodes of each draft forward, summed."""
    expanded = drafted.tree.level >= 0
    return np.bincount(drafted.tree.level[expanded], drafted.tree.path_probs[expanded]).tolist()


def stop_reason(drafted, nodes) -> set[str]:
    return {STOP_REASONS[drafted.tree.stop_reason[node]] for node in nodes}


def unexpanded(drafted) -> np.ndarray:
    return np.flatnonzero(drafted.tree.level < 0)


def test_optimal_search_finds_the_best_nodes_of_all(case):
    assert case.kept(optimal(case)) == case.best_paths()


def test_opt_tree_without_a_threshold_finds_them_too(case):
    drafter = OptTreeDrafter(node_budget=case.node_budget, gain_threshold=0.0, max_depth=case.depth)
    assert case.kept(drafter) == case.best_paths()


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.2, 0.5])
def test_opt_tree_adds_levels_while_they_are_worth_it(case, threshold):
    drafted = case.draft(OptTreeDrafter(node_budget=case.node_budget, gain_threshold=threshold, max_depth=case.depth))
    mass, forwards = 0.0, 1
    for depth in range(1, case.depth + 1):
        placed = case.best_paths(allowed=lambda path, depth=depth: len(path) <= depth)
        gained, mass = sum(case.values[path] for path in placed) - mass, sum(case.values[path] for path in placed)
        last = min(placed, key=lambda path: case.values[path]) if len(placed) == case.node_budget else None
        worth = any(len(path) == depth and path != last for path in placed)
        if depth == case.depth or gained <= threshold or not worth:
            break
        forwards += 1
    assert paths(drafted.tree, drafted.order[1:]) == placed and len(drafted.rows) == forwards


def test_salf_without_a_threshold_is_optimal_search(case):
    ours, theirs = case.draft(salf(case, 0.0)), case.draft(optimal(case))
    assert ours.tree.tokens.tolist() == theirs.tree.tokens.tolist()
    assert ours.tree.parents.tolist() == theirs.tree.parents.tolist()
    assert ours.order.tolist() == theirs.order.tolist() and len(ours.rows) == len(theirs.rows)


def beam_search(case: Problem, width: int) -> set:
    """EAGLE-2 written for one path at a time."""
    beam, pool = [()], []
    for _ in range(case.depth):
        level = []
        for path in beam:
            level += [(*path, token) for token in np.argsort(case.table[path])[::-1][:width].tolist()]
        pool += level
        beam = sorted(level, key=lambda path: -case.values[path])[:width]
    return set(sorted(pool, key=lambda path: (-case.values[path], len(path)))[: case.node_budget])


@pytest.mark.parametrize("width", [1, 3, 10])
def test_eagle2_is_beam_search_with_a_ranking_of_all_it_scored(case, width):
    drafter = Eagle2Drafter(node_budget=case.node_budget, beam_width=width, max_depth=case.depth)
    drafted = case.draft(drafter)
    assert paths(drafted.tree, drafted.order[1:]) == beam_search(case, width)
    assert len(drafted.rows) == case.depth
    assert case.mass(drafter) <= case.mass(optimal(case)) + 1e-12


def test_beam_search_is_below_optimal_search_somewhere():
    cases = [problem(seed) for seed in SEEDS]
    beams = [case.mass(Eagle2Drafter(case.node_budget, beam_width=3, max_depth=case.depth)) for case in cases]
    gaps = [case.mass(optimal(case)) - beam for case, beam in zip(cases, beams, strict=True)]
    assert sum(gap > 1e-3 for gap in gaps) > len(gaps) / 4


def salf_reference(case: Problem, threshold: float, top_up: bool) -> tuple[set, int]:
    """Algorithm 2 with a heap; the root takes no place, and the last level none in a batch. Also draft forwards."""

    def ranked(path):
        return (-case.values[path], len(path), path)

    queue, moved, forwards = [ranked((token,)) for token in range(len(case.table[()]))], [], 1
    while True:
        heapq.heapify(queue)
        batch = []
        while queue and len(batch) < case.batch:
            moved.append(heapq.heappop(queue))
            if len(moved[-1][2]) < case.depth:
                batch.append(moved[-1])
        moved = sorted(moved)[: case.node_budget]
        least = -moved[-1][0] if len(moved) == case.node_budget else 0.0
        batch = [node for node in batch if -node[0] > least]
        if not batch or sum(-node[0] for node in batch) < threshold:
            pool = moved + (queue if top_up else [])
            return {node[2] for node in sorted(pool)[: case.node_budget]}, forwards
        forwards += 1
        for _, _, path in batch:
            queue += [ranked((*path, token)) for token in range(len(case.table[path]))]
        queue = sorted(queue)[: case.node_budget]


@pytest.mark.parametrize("top_up", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6, 0.9])
def test_salf_is_algorithm_2(case, threshold, top_up):
    drafted = case.draft(salf(case, threshold, top_up=top_up))
    kept, forwards = salf_reference(case, threshold, top_up)
    assert paths(drafted.tree, drafted.order[1:]) == kept
    assert len(drafted.rows) == forwards


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_salf_batch_sums_never_rise_and_it_stops_at_the_first_below_the_threshold(case, threshold):
    sums = batch_sums(case.draft(salf(case, 0.0)))
    assert sums[0] == 1.0 and (np.diff(sums) <= 1e-12).all()
    stopped = batch_sums(case.draft(salf(case, threshold)))
    assert stopped == sums[: sum(value >= threshold for value in sums)]


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.9])
def test_topping_up_takes_no_draft_forward_and_never_loses_mass(case, threshold):
    plain, topped = (case.draft(salf(case, threshold, top_up=top_up)) for top_up in (False, True))
    assert len(topped.rows) == len(plain.rows)
    assert case.mass(salf(case, threshold, top_up=True)) >= case.mass(salf(case, threshold)) - 1e-12


def test_an_early_stop_leaves_places_free_that_topping_up_fills():
    case = problem(4)
    plain, topped = (case.draft(salf(case, 0.9, top_up=top_up, batch=2)) for top_up in (False, True))
    assert len(plain.order) - 1 < len(topped.order) - 1 == case.node_budget
    assert "low_promise" in stop_reason(plain, unexpanded(plain)) and "low_promise" in stop_reason(
        topped, unexpanded(topped)
    )


@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda drafter: type(drafter).__name__)
def test_trees_are_connected_within_budget_and_hold_nothing_of_no_use(case, drafter):
    drafter = drafter.with_settings(node_budget=case.node_budget, max_depth=case.depth)
    drafted = case.draft(drafter)
    tree, order = drafted.tree, drafted.order.tolist()
    assert drafted.draft_sampling == "deterministic" and order[0] == 0 and 0 < len(order) - 1 <= case.node_budget
    assert all(tree.parents[node] in order for node in order[1:])
    assert set(order) | set(np.flatnonzero(tree.level >= 0)) == set(range(tree.size))
    assert tree.depths.max() <= case.depth
    for node in range(tree.size):
        assert tree.path_probs[node] == pytest.approx(case.values.get(path_tokens(tree, node), 1.0))
        children = [child for child in order if tree.parents[child] == node]
        assert tree.branching[node] == (len(children) if tree.level[node] >= 0 else -1)
        assert tree.path_probs[children].tolist() == sorted(tree.path_probs[children], reverse=True)
    deep = tree.depths == case.depth
    assert stop_reason(drafted, np.flatnonzero(tree.level >= 0)) == {"expanded"}
    assert stop_reason(drafted, np.flatnonzero(deep)) <= {"max_depth"} and not (deep & (tree.level >= 0)).any()


def test_a_drafter_may_leave_out_nodes_beside_the_improbable_ones():
    builder = TreeBuilder(TableSource({}, EIGHTHS), 9)
    tokens, probs = builder.expand(np.zeros(1, dtype=np.int64), top=4)
    builder.add_best(np.zeros(1, dtype=np.int64), np.array([4]), tokens, probs, room=4)
    keep = np.array([True, False, True, True, True])
    drafted = builder.finish("deterministic", None, {}, prune_probability=0.2, keep=keep)
    assert drafted.order.tolist() == [0, 2]
    assert builder.finish("deterministic", None, {}, keep=keep).order.tolist() == [0, 2, 3, 4]


def test_nodes_that_lose_their_place_are_drafted_and_not_verified():
    lost = {}
    for drafter in DRAFTERS:
        drafted = [problem(seed).draft(drafter.with_settings(node_budget=12, max_depth=2)) for seed in SEEDS]
        lost[type(drafter)] = sum(draft.tree.size - len(draft.order) for draft in drafted)
    assert all(count > 0 for count in lost.values()), lost


@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda drafter: type(drafter).__name__)
def test_the_length_limit_ends_the_tree(drafter):
    drafted = drafter.draft(None, TableSource({}, EIGHTHS, depth_limit=2), 9, None)
    deepest = np.flatnonzero(drafted.tree.depths == 2)
    assert drafted.tree.depths.max() == 2 and stop_reason(drafted, deepest) == {"length_limit"}
    source = TableSource({}, EIGHTHS, depth_limit=0)
    drafted = drafter.draft(None, source, 9, None)
    assert drafted.tree.size == 1 and source.forwards == 0 and stop_reason(drafted, [0]) == {"length_limit"}


@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda drafter: type(drafter).__name__)
def test_tokens_without_probability_are_never_drafted(drafter):
    drafted = drafter.draft(None, TableSource({}, [1.0, 0.0, 0.0]), 9, None)
    assert drafted.tree.size - 1 == drafter.max_depth and drafted.tree.path_probs.tolist() == [1.0] * drafted.tree.size


@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda drafter: type(drafter).__name__)
def test_ties_go_to_the_shallower_node(drafter):
    table = {(): [0.5, 0.5, 0.0], (0,): [1.0, 0.0, 0.0], (1,): [1.0, 0.0, 0.0]}
    drafter = drafter.with_settings(node_budget=2)
    drafted = drafter.draft(None, TableSource(table, [0.4, 0.3, 0.3]), 9, None)
    assert paths(drafted.tree, drafted.order[1:]) == {(0,), (1,)}
    drafted = drafter.with_settings(node_budget=3).draft(None, TableSource(table, [0.4, 0.3, 0.3]), 9, None)
    assert paths(drafted.tree, drafted.order[1:]) == {(0,), (1,), (0, 0)}


@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda drafter: type(drafter).__name__)
def test_settings_in_force_are_the_drafters_own(drafter):
    drafted = drafter.draft("state", TableSource({}, EIGHTHS), 9, None)
    assert drafted.settings == drafter.settings() and drafted.state == "state"


@pytest.mark.parametrize(("threshold", "forwards", "why"), [(0.18, 3, set()), (0.1875, 2, {"low_gain"})])
def test_opt_tree_stops_after_a_level_that_adds_no_more_than_the_threshold(threshold, forwards, why):
    # The four best sum to 1 after one level, to 1.1875 after two; the third changes nothing.
    source = TableSource({}, [0.5, 0.25, 0.1875, 0.0625])
    drafted = OptTreeDrafter(node_budget=4, gain_threshold=threshold).draft(None, source, 9, None)
    assert source.forwards == forwards and stop_reason(drafted, unexpanded(drafted)) == why
    assert paths(drafted.tree, drafted.order[1:]) == {(0,), (1,), (2,), (0, 0)}


def test_one_forward_per_level_or_batch():
    case = problem(2)
    opt = case.draft(OptTreeDrafter(node_budget=40, gain_threshold=0.0, max_depth=3))
    assert len(opt.rows) == 3 and opt.tree.level[opt.tree.level >= 0].max() == 2
    for batch in (1, 4):
        search = case.draft(SpecExecDrafter(node_budget=20, batch=batch, max_depth=3))
        sizes = [len(nodes) for nodes, _ in search.rows]
        assert sizes[0] == 1 and max(sizes) == batch and sum(sizes) == (search.tree.level >= 0).sum()


def test_children_cap_the_children_of_a_node(case):
    def allowed(path):
        parents = [case.table[path[:depth]] for depth in range(len(path))]
        return all((np.array(probs) > probs[token]).sum() < 2 for probs, token in zip(parents, path, strict=True))

    assert case.kept(optimal(case, children=2)) == case.best_paths(allowed=allowed)
    assert case.kept(optimal(case, children=100)) == case.best_paths()


def test_decay_ranks_deep_nodes_lower(case):
    def decayed(path):
        return case.values[path] * 0.6 ** len(path)

    assert case.kept(optimal(case, decay=0.6)) == case.best_paths(decayed)


def test_decay_and_children_change_the_tree_somewhere():
    cases = [problem(seed) for seed in SEEDS]
    for settings in ({"decay": 0.6}, {"children": 2}):
        assert sum(case.kept(optimal(case, **settings)) != case.best_paths() for case in cases) > len(cases) / 4


def test_the_best_children_of_many_rows_are_found_among_all_of_them():
    distributions = torch.softmax(3 * torch.randn(40, 500, generator=torch.Generator().manual_seed(1)), -1)
    distributions[:, 7] = 0.0
    values = np.random.default_rng(1).dirichlet(np.ones(40))
    products = distributions.double().numpy() * values[:, None]
    ranked = np.sort(products.ravel())[::-1]
    for least, count, expected in ((0.0, 30, 30), (float(ranked[19]) * (1 - 1e-6), 30, 20), (0.0, 40 * 500, 40 * 499)):
        rows, tokens, probs = best_children(distributions, values, least, count)
        assert len(rows) == expected and 7 not in tokens
        assert np.sort(products[rows, tokens])[::-1] == pytest.approx(ranked[:expected], rel=1e-6)
        assert probs.dtype == np.float64 and (probs == distributions.double().numpy()[rows, tokens]).all()
        assert (np.diff(rows * 500 + tokens) > 0).all()


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        *((type(drafter), {"node_budget": 0}, "node_budget") for drafter in DRAFTERS),
        *((type(drafter), {"node_budget": 4097}, "node_budget") for drafter in DRAFTERS),
        *((type(drafter), {"max_depth": 0}, "max_depth") for drafter in DRAFTERS),
        *((type(drafter), {"max_depth": 33}, "max_depth") for drafter in DRAFTERS),
        (OptTreeDrafter, {"gain_threshold": -0.1}, "gain_threshold"),
        (OptTreeDrafter, {"gain_threshold": 1.0}, "gain_threshold"),
        (SalfDrafter, {"gain_threshold": 1.0}, "gain_threshold"),
        (SalfDrafter, {"gain_threshold": -0.1}, "gain_threshold"),
        (SalfDrafter, {"batch": 0}, "batch"),
        (SpecExecDrafter, {"batch": 0}, "batch"),
        (SpecExecDrafter, {"children": -1}, "children"),
        (SpecExecDrafter, {"decay": 0.0}, "decay"),
        (SpecExecDrafter, {"decay": 1.1}, "decay"),
        (Eagle2Drafter, {"beam_width": 0}, "beam_width"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(kind, changes, named):
    with pytest.raises(SettingsError, match=named):
        kind(**changes)
