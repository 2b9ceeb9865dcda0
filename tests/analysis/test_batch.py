"""The best chain and tree by batch size: values computed by hand, and all trees tried one by one."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from decoding.analysis.batch import (
    BatchPoint,
    Choice,
    DraftShape,
    Rates,
    chain_by_batch,
    chains,
    crossings,
    iterations_speedup,
    speed_by_batch,
    trees,
)
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.common.errors import SettingsError
from decoding.recorded import recorded_run

RATES = Rates(by_depth=(0.6, 0.5), by_rank=(0.55, 0.2, 0.1))


def costs(verify: dict[int, float], level: float, batch: int = 1) -> CostModel:
    target = CostCurve(tuple(CostPoint(size, s, s, s) for size, s in verify.items()))
    return CostModel(target, CostCurve((CostPoint(1, level, level, level),)), 0.0, 0.0, 1, 1, "", "", batch=batch)


def test_a_chain_makes_the_tokens_that_its_rates_promise():
    assert [round(each.tokens, 6) for each in chains(RATES, 3)] == [1.6, 1.9, 2.05]
    assert chains(RATES, 3)[-1].widths == (1, 1, 1)


def test_a_speed_up_is_over_an_iteration_of_plain_decoding():
    slow = replace(costs({1: 1.0, 64: 1.0}, level=0.0), iteration_s=1.0)
    rates = Rates((1.0,), deepest=1)
    assert speed_by_batch({1: slow}, rates)[0].chain.speedup == 2.0
    point = speed_by_batch({1: replace(slow, plain_s=0.0)}, rates)[0]
    assert (point.chain.speedup, point.plain) == (1.0, 1.0)


def test_further_children_share_what_the_first_leaves():
    assert RATES.chances(1) == pytest.approx([0.6, 0.2 * 0.4 / 0.45, 0.1 * 0.4 / 0.45])
    assert RATES.chances(7) == pytest.approx([0.5, 0.2 * 0.5 / 0.45, 0.1 * 0.5 / 0.45])
    assert Rates((0.5,)).chances(2).tolist() == [0.5] and Rates((1.0,), (1.0, 0.0)).chances(1)[1] == 0


def test_no_tree_of_a_size_and_depth_promises_more():
    """Of all sets of nodes that hold their parents."""
    paths = [(a,) for a in range(3)] + [(a, b) for a in range(3) for b in range(3)]
    value = {path: float(np.prod([RATES.chances(place + 1)[child] for place, child in enumerate(path)]))
             for path in paths}  # fmt: skip
    found = {(each.nodes, each.depth): each for each in trees(RATES, 5, 2)}
    for count in range(1, 6):
        best = max(
            sum(value[path] for path in some)
            for some in combinations(paths, count)
            if all(len(path) == 1 or path[:1] in some for path in some)
        )
        assert max(found[key].tokens for key in found if key[0] == count) == pytest.approx(1 + best)


def test_a_level_is_as_wide_as_the_nodes_that_have_children():
    even = Rates((0.5,), (0.5, 0.45))
    shape = next(each for each in trees(even, 6, 2) if each.nodes == 6)
    assert shape.widths == (1, 2) and shape.tokens == pytest.approx(1 + 0.95 + 0.95 * 0.95)


def test_the_best_shape_and_its_speed_by_hand():
    cheap, dear = costs({1: 1.0, 2: 1.0, 3: 4.0}, 0.25), costs({1: 1.0, 2: 2.0}, 0.5, batch=8)
    small, large = speed_by_batch({8: dear, 1: cheap}, Rates((0.8,)))
    assert (small.batch, small.chain.shape.nodes, small.tree) == (1, 1, None)
    assert small.chain.speedup == pytest.approx(1.8 / 1.25) and small.plain == 1
    assert large.chain.speedup == pytest.approx(1.8 / 2.5) and large.plain == 8


def test_where_speculation_stops_to_pay():
    def points(*speedups: float) -> tuple[BatchPoint, ...]:
        shape = DraftShape(1, (1,), 1.5)
        return tuple(BatchPoint(2**place, 1.0, Choice(shape, each), None) for place, each in enumerate(speedups))

    assert crossings(points(1.5, 1.2, 1.1), "chain") == ()
    assert crossings(points(2.0, 0.5), "chain") == pytest.approx((2**0.5,))  # halfway in the logarithm
    assert crossings(points(0.5, 2.0, 0.5), "chain") == pytest.approx((2**0.5, 2**1.5))
    assert crossings(points(2.0, 0.5), "tree") == ()


def test_the_best_chain_by_ranges_of_batch_sizes():
    def point(batch: int, tokens: int, speedup: float) -> BatchPoint:
        return BatchPoint(batch, 1.0, Choice(DraftShape(tokens, (1,) * tokens, 2.0), speedup), None)

    points = [point(1, 3, 2.0), point(4, 3, 1.5), point(8, 1, 1.1), point(16, 1, 0.9), point(64, 2, 0.8)]
    # 8 pays 1.1x and 16 pays 0.9x: by their logarithms it is lost at 8 x 2^0.475 = 11.1
    assert chain_by_batch(points) == [(1, 4, 3), (5, 11, 1), (12, 64, 0)]
    assert chain_by_batch([points[3], replace(points[2], batch=32)]) == [(1, 23, 0), (24, 32, 1)]
    assert chain_by_batch(points[:1]) == [(1, 1, 3)] and chain_by_batch([]) == []


def test_a_runs_own_trees_at_the_costs_of_a_batch():
    run = recorded_run("tree_helps")
    free = costs({1: 1.0, 1000: 1.0}, 0.0)
    tokens = sum(len(each.committed_ids) for each in run.iterations)
    assert iterations_speedup(run.iterations, free) == pytest.approx(tokens / len(run.iterations))
    dear = costs({1: 1.0, 2: 2.0}, 0.0)
    seconds = sum(1 + each.verified for each in run.iterations)
    assert iterations_speedup(run.iterations, dear) == pytest.approx(tokens / seconds)


def test_a_summary_of_a_run_costs_what_its_trees_do():
    run = recorded_run("tree_helps")
    level = CostCurve((CostPoint(1, 0.5, 0.5, 0.5), CostPoint(101, 1.5, 1.5, 1.5)))
    even = replace(costs({1: 1.0, 101: 2.0}, 0.0), draft=level)  # a line: only the mean width counts
    summary = [replace(each, nodes=()) for each in run.iterations]
    assert iterations_speedup(summary, even) == pytest.approx(iterations_speedup(run.iterations, even))
    assert iterations_speedup([], even) is None


@pytest.mark.parametrize("rates", [((), ()), ((1.2,), ()), ((0.5,), (0.8, 0.3)), ((-0.1,), ())])
def test_what_are_no_rates_is_refused(rates):
    with pytest.raises(SettingsError, match="from 0 to 1"):
        Rates(*rates)
