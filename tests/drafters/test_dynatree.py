"""DynaTree's rules on a table of probabilities: breadth, depth, pruning, budget, history."""

import pytest

from decoding.drafters import DynaTreeDrafter
from decoding.drafters.base import Outcome
from decoding.errors import SettingsError
from decoding.trace import GROWTHS
from tests.tables import TableSource, path_tokens, paths

SURE = [0.95, 0.03, 0.01, 0.01]
MIDDLE = [0.5, 0.3, 0.15, 0.05]
UNSURE = [0.3, 0.28, 0.22, 0.2]


def draft(drafter, table=None, default=SURE, depth_limit=100):
    source = TableSource(table or {}, default, depth_limit)
    return drafter.draft(drafter.start([1]), source, 7, None), source


def growth(draft_, node):
    return GROWTHS[draft_.tree.growth[node]]


def test_first_level_is_the_top_token_alone_as_in_the_paper():
    drafted, _ = draft(DynaTreeDrafter(max_depth=2, base_depth=1), default=UNSURE)
    assert [path_tokens(drafted.tree, n) for n in range(drafted.tree.size) if drafted.tree.depths[n] == 1] == [(0,)]


@pytest.mark.parametrize(("law", "children"), [(SURE, 1), (MIDDLE, 2), (UNSURE, 3)])
def test_breadth_follows_confidence(law, children):
    drafter = DynaTreeDrafter(branch_first_level=True, max_depth=2, base_depth=1, prune_probability=0.0)
    drafted, _ = draft(drafter, {(): law}, SURE)
    assert (drafted.tree.depths == 1).sum() == children
    assert drafted.tree.branching[0] == children


def test_confidence_equal_to_the_high_threshold_counts_as_high():
    drafter = DynaTreeDrafter(branch_first_level=True, confidence_high=0.5, confidence_low=0.4)
    drafted, _ = draft(drafter, {(): [0.5, 0.3, 0.1, 0.1]}, SURE)
    assert drafted.tree.branching[0] == 1


def test_depth_gate_lets_only_likely_paths_beyond_the_base_depth():
    drafter = DynaTreeDrafter(base_depth=2, max_depth=6, deep_probability=0.5, stop_probability=0.01)
    likely, _ = draft(drafter, default=SURE)
    assert likely.tree.depths.max() == 7  # the paper's D_max counts from 0
    unlikely, _ = draft(drafter, default=MIDDLE)
    gated = [n for n in range(unlikely.tree.size) if growth(unlikely, n) == "depth_gate"]
    assert gated and all(unlikely.tree.depths[n] - 1 >= 2 for n in gated)
    assert all(unlikely.tree.path_probs[n] < 0.5 for n in gated)


def test_early_stop_and_pruning():
    drafter = DynaTreeDrafter(branch_first_level=True, stop_probability=0.25, prune_probability=0.2)
    drafted, _ = draft(drafter, {(): UNSURE}, [0.25] * 4)
    stopped = [n for n in range(drafted.tree.size) if growth(drafted, n) == "early_stop"]
    assert stopped and all(drafted.tree.path_probs[n] < 0.25 for n in stopped)
    kept = drafted.tree.path_probs[drafted.order]
    assert (kept >= 0.2).all() and drafted.tree.size > len(drafted.order)


def test_node_budget_is_never_exceeded_and_is_said():
    drafter = DynaTreeDrafter(branch_first_level=True, node_budget=7, prune_probability=0.0, stop_probability=0.0)
    drafted, _ = draft(drafter, default=UNSURE)
    assert drafted.tree.size - 1 == 7
    assert any(growth(drafted, n) == "budget" for n in range(drafted.tree.size))


def test_one_forward_per_level():
    drafted, source = draft(DynaTreeDrafter(branch_first_level=True), default=MIDDLE)
    assert source.forwards == int(drafted.tree.level.max()) + 1
    expanded = drafted.tree.level >= 0
    assert (drafted.tree.level[expanded] == drafted.tree.depths[expanded]).all()


def test_length_limit_ends_the_tree():
    drafted, source = draft(DynaTreeDrafter(), default=SURE, depth_limit=2)
    assert drafted.tree.depths.max() == 2
    drafted, source = draft(DynaTreeDrafter(), default=SURE, depth_limit=0)
    assert drafted.tree.size == 1 and source.forwards == 0 and growth(drafted, 0) == "length_limit"


def test_ablation_switches():
    base = {"base_depth": 2, "max_depth": 6, "stop_probability": 0.05, "prune_probability": 0.0}
    no_depth, _ = draft(DynaTreeDrafter(dynamic_depth=False, **base), default=MIDDLE)
    assert no_depth.tree.depths.max() == 3
    assert not {"early_stop", "depth_gate"} & {growth(no_depth, n) for n in range(no_depth.tree.size)}
    no_breadth, _ = draft(DynaTreeDrafter(adaptive_breadth=False, **base), default=UNSURE)
    widths = no_breadth.tree.branching[no_breadth.tree.branching > 0]
    assert set(widths[1:].tolist()) == {2}


def observe(drafter, state, accepted, times):
    history = None
    for _ in range(times):
        state, history = drafter.observe(state, Outcome(accepted, accepted + 1, 10, 10, 5))
    return state, history


def test_history_waits_then_moves_each_iteration_and_stays_in_range():
    drafter = DynaTreeDrafter()
    state, history = observe(drafter, drafter.start([1]), accepted=5, times=4)
    assert history.decision == "too_few" and state.values() == drafter.start([1]).values()
    state, history = observe(drafter, state, accepted=5, times=1)
    assert history.decision == "bolder" and history.mean == 1.0
    assert state.values() == {"base_depth": 6, "confidence_high": 0.85, "deep_probability": 0.45}
    state, _ = observe(drafter, state, accepted=5, times=30)
    assert state.values() == {"base_depth": 7, "confidence_high": 0.5, "deep_probability": 0.3}
    state, history = observe(drafter, state, accepted=0, times=60)
    assert history.decision == "more_careful"
    assert state.values() == {"base_depth": 2, "confidence_high": 0.95, "deep_probability": 0.8}
    assert len(history.window) == drafter.history_window


def test_history_holds_inside_the_dead_band_and_can_be_switched_off():
    drafter = DynaTreeDrafter(history_target=0.6)
    state, history = observe(drafter, drafter.start([1]), accepted=3, times=8)
    assert history.decision == "hold" and state.values() == drafter.start([1]).values()
    state, history = DynaTreeDrafter(history=False).observe(state, Outcome(5, 6, 10, 10, 5))
    assert history is None


def test_the_papers_fraction_counts_committed_over_drafted():
    drafter = DynaTreeDrafter(history_statistic="committed_over_drafted")
    _, history = observe(drafter, drafter.start([1]), accepted=4, times=1)
    assert history.window == (0.5,)


def test_adapted_settings_are_the_ones_in_force():
    drafter = DynaTreeDrafter()
    state, _ = observe(drafter, drafter.start([1]), accepted=5, times=9)
    drafted = drafter.draft(state, TableSource({}, SURE), 7, None)
    assert drafted.settings["base_depth"] == state.base_depth != drafter.base_depth
    assert drafted.settings["confidence_low"] == drafter.confidence_low


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"base_depth": 8, "max_depth": 8}, "base_depth"),
        ({"branch_min": 3, "branch_mid": 2}, "branch_min"),
        ({"confidence_low": 0.95}, "confidence_low"),
        ({"stop_probability": 0.6}, "stop_probability"),
        ({"node_budget": 0}, "node_budget"),
        ({"prune_probability": 1.0}, "prune_probability"),
        ({"history_minimum": 11}, "history_minimum"),
        ({"history_statistic": "luck"}, "history_statistic"),
    ],
)
def test_contradictory_settings_are_refused_by_name(changes, named):
    with pytest.raises(SettingsError, match=named):
        DynaTreeDrafter(**changes)


def test_children_are_the_most_likely_ones():
    drafted, _ = draft(DynaTreeDrafter(branch_first_level=True, base_depth=1, max_depth=2), {(): MIDDLE}, SURE)
    assert paths(drafted.tree, [1, 2]) == {(0,), (1,)}
