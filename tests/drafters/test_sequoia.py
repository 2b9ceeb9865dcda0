"""Sequoia: the best shape against all shapes, and the tree drawn after it."""

import heapq
from functools import cache
from itertools import product

import numpy as np
import pytest

from benchmarks.table_source import TableSource, path_tokens
from decoding.common.errors import SettingsError
from decoding.drafters.sequoia import SequoiaDrafter, best_shape
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling
from decoding.trace.records import STOP_REASONS, DrawTrace
from tests.helpers.replayed_draws import ReplayDraws

FALLING, RISING, WITH_GAP = (0.6, 0.2, 0.1), (0.1, 0.2, 0.5), (0.4, 0.0, 0.3)
ONCE = Sampling(temperature=1.0)


def value(children, acceptance, node=0) -> float:
    """F of a shape: the sum over its nodes of the product of P[slot] along the path."""
    below = zip(acceptance, children[node], strict=False)
    return 1.0 + sum(accepted * value(children, acceptance, child) for accepted, child in below)


def depth_of(children, node=0) -> int:
    return max((1 + depth_of(children, child) for child in children[node]), default=0)


@cache
def all_values(nodes: int, depth: int, acceptance: tuple[float, ...]) -> tuple[float, ...]:
    """F of every shape with exactly this many nodes, its root counted, and at most this depth."""
    found = [1.0] if nodes == 1 else []
    for count in range(1, len(acceptance) + 1) if depth else ():
        for sizes in product(range(1, nodes), repeat=count):
            if sum(sizes) == nodes - 1:
                for below in product(*(all_values(size, depth - 1, acceptance) for size in sizes)):
                    found.append(1.0 + float(np.dot(acceptance[:count], below)))
    return tuple(found)


@pytest.mark.parametrize("acceptance", [FALLING, RISING, WITH_GAP])
@pytest.mark.parametrize(("budget", "depth"), [(1, 3), (3, 2), (5, 1), (6, 2), (6, 3), (6, 6)])
def test_no_shape_is_better(acceptance, budget, depth):
    children = best_shape(acceptance, budget, depth, depth)
    best = max(max(all_values(nodes, depth, acceptance), default=0.0) for nodes in range(1, budget + 2))
    assert value(children, acceptance) == pytest.approx(best, abs=1e-12)
    assert len(children) <= budget + 1 and depth_of(children) <= depth
    assert sorted(child for slots in children for child in slots) == list(range(1, len(children)))


def test_a_large_shape_has_the_likeliest_places():
    """With falling rates a place is never worth more than those it needs: the best ones one by one are optimal."""
    acceptance = tuple(0.55 * 0.6**rank for rank in range(16))
    heap, best, taken = [(-1.0, 0)], 0.0, 0
    while taken < 1025:
        worth, depth = heapq.heappop(heap)
        best, taken = best - worth, taken + 1
        if depth < 9:
            for accepted in acceptance:
                heapq.heappush(heap, (worth * accepted, depth + 1))
    children = best_shape(acceptance, 1024, 9, 9)
    assert value(children, acceptance) == pytest.approx(best, abs=1e-9) and len(children) == 1025


def test_a_shallower_shape_from_the_same_table():
    assert best_shape(FALLING, 12, 2, 5) == best_shape(FALLING, 12, 2, 2) != best_shape(FALLING, 12, 5, 5)


def test_no_place_without_worth():
    assert best_shape((0.7, 0.0), 50, 4, 4) == ((1,), (2,), (3,), (4,), ())
    assert best_shape((0.0,), 50, 4, 4) == ((),)


def replay(drafter, outcomes, source):
    draws = ReplayDraws(tuple(DrawTrace("choose", 1.0, outcome, 0.0) for outcome in outcomes))
    return drafter.draft(None, source, 9, draws)


def test_a_level_is_drawn_child_by_child():
    assert best_shape((0.6, 0.25), 4, 3, 3) == ((1, 2), (3,), (), (4,), ())
    source = TableSource({}, [0.5, 0.3, 0.2])
    draft = replay(SequoiaDrafter(node_budget=4, max_depth=3, acceptance=" 0.6, 0.25"), [2, 0, 1, 1], source)
    assert [path_tokens(draft.tree, node) for node in range(1, 5)] == [(2,), (0,), (2, 1), (2, 1, 1)]
    assert [STOP_REASONS[code] for code in draft.tree.stop_reason[[2, 4]]] == ["shape", "max_depth"]
    assert draft.tree.branching.tolist() == [2, 1, -1, 1, -1] and source.forwards == 3


def test_every_first_child_comes_before_every_second():
    drafter = SequoiaDrafter(node_budget=6, max_depth=2, acceptance="0.5,0.45")
    draft = replay(drafter, [0, 1, 2, 1, 0, 0], TableSource({}, [0.5, 0.3, 0.2]))
    assert draft.tree.parents.tolist() == [-1, 0, 0, 1, 2, 1, 2]
    assert draft.tree.tokens[1:].tolist() == [0, 1, 2, 1, 0, 0]


def test_where_tokens_run_out_their_places_stay_empty():
    drafter = SequoiaDrafter(node_budget=6, max_depth=2, acceptance="0.5,0.45")
    draft = drafter.draft(None, TableSource({(0,): [0.0, 0.5, 0.5]}, [1.0, 0.0, 0.0]), 9, GeneratorDraws(0))
    assert draft.tree.parents.tolist() == [-1, 0, 1, 1]


def test_the_length_limit_asks_for_the_best_shape_of_that_depth():
    drafter = SequoiaDrafter(node_budget=6, max_depth=6, acceptance="0.9,0.05")
    probs = [0.5, 0.3, 0.2]
    assert drafter.draft(None, TableSource({}, probs), 9, GeneratorDraws(0)).tree.depths.max() == 6
    limited = drafter.draft(None, TableSource({}, probs, depth_limit=2), 9, GeneratorDraws(0))
    assert limited.tree.size == 7 and limited.tree.depths.max() == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"node_budget": 0},
        {"node_budget": 1025},
        {"max_depth": 0},
        {"acceptance": "0.5,x"},
        {"acceptance": "0.5,,0.1"},
        {"acceptance": "nan"},
        {"acceptance": "-0.1"},
        {"acceptance": "0.7,0.4"},
        {"acceptance": ",".join(["0.01"] * 17)},
    ],
)
def test_out_of_range_is_refused(changes):
    with pytest.raises(SettingsError, match=next(iter(changes))):
        SequoiaDrafter(**changes)


def test_without_rates_there_is_no_shape():
    with pytest.raises(SettingsError, match="acceptance is empty"):
        SequoiaDrafter().draft(None, TableSource({}, [0.5, 0.5]), 9, GeneratorDraws(0))
