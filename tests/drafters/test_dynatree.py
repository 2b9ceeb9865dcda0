"""DynaTree's rules on a table of probabilities: breadth, depth, pruning, budget, history."""

from dataclasses import replace
from itertools import product

import pytest

from benchmarks.table_source import TableSource, path_tokens, paths
from decoding.common.errors import SettingsError
from decoding.common.settings import settings_of
from decoding.drafters import DynaTreeDrafter
from decoding.drafters.base import IterationFeedback
from decoding.methods.methods import PRESETS
from decoding.trace.records import STOP_REASONS
from tests.helpers.traces import bonus

SURE = [0.95, 0.03, 0.01, 0.01]
MIDDLE = [0.5, 0.3, 0.15, 0.05]
UNSURE = [0.3, 0.28, 0.22, 0.2]
LOW = {"confidence_low": 0.4}  # stays as set


def draft(drafter, table=None, default=SURE, depth_limit=100):
    source = TableSource(table or {}, default, depth_limit)
    return drafter.draft(drafter.start([1]), source, 7, None), source


def stop_reason(draft_, node):
    return STOP_REASONS[draft_.tree.stop_reason[node]]


def test_what_history_has_moved_stays_where_another_setting_changes():
    before = DynaTreeDrafter()
    moved = replace(before.start([]), base_depth=3, confidence_high=0.7, window=(0.5, 0.25))
    narrow, shallow = replace(before, node_budget=20), replace(before, base_depth=2)
    assert before.carried(moved, before, []) == narrow.carried(moved, before, []) == moved
    assert shallow.carried(moved, before, []) == replace(moved, base_depth=2)
    other = replace(before, history_statistic="accepted_over_drafted")
    assert other.carried(moved, before, []) == replace(moved, window=())
    flat = replace(before, base_depth=1, max_depth=3)
    assert flat.carried(replace(moved, base_depth=5), replace(flat, max_depth=8), []) == flat.start([])
    crossed = replace(before, confidence_low=0.8)
    assert crossed.carried(moved, before, []) == crossed.start([])


def test_first_level_is_the_top_token_alone_as_in_the_paper():
    drafted, _ = draft(DynaTreeDrafter(max_depth=2, base_depth=1), default=UNSURE)
    assert [path_tokens(drafted.tree, n) for n in range(drafted.tree.size) if drafted.tree.depths[n] == 1] == [(0,)]


@pytest.mark.parametrize(("probs", "children"), [(SURE, 1), (MIDDLE, 2), (UNSURE, 3)])
def test_breadth_follows_confidence(probs, children):
    drafter = DynaTreeDrafter(branch_first_level=True, max_depth=2, base_depth=1, prune_probability=0.0)
    drafted, _ = draft(drafter, {(): probs}, SURE)
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
    gated = [n for n in range(unlikely.tree.size) if stop_reason(unlikely, n) == "depth_gate"]
    assert gated and all(unlikely.tree.depths[n] - 1 >= 2 for n in gated)
    assert all(unlikely.tree.path_probs[n] < 0.5 for n in gated)


def test_early_stop_and_pruning():
    drafter = DynaTreeDrafter(branch_first_level=True, stop_probability=0.25, prune_probability=0.2)
    drafted, _ = draft(drafter, {(): UNSURE}, [0.25] * 4)
    stopped = [n for n in range(drafted.tree.size) if stop_reason(drafted, n) == "early_stop"]
    assert stopped and all(drafted.tree.path_probs[n] < 0.25 for n in stopped)
    kept = drafted.tree.path_probs[drafted.order]
    assert (kept >= 0.2).all() and drafted.tree.size > len(drafted.order)


def test_as_printed_what_is_improbable_is_verified_and_not_expanded():
    described = DynaTreeDrafter(
        branch_first_level=True, base_depth=1, max_depth=2, stop_probability=0.0, prune_probability=0.25
    )
    printed = described.with_settings(verify_pruned=True)
    shown = {}
    for name, drafter in (("described", described), ("printed", printed)):
        drafted, _ = draft(drafter, {(): UNSURE})
        shown[name] = [(path_tokens(drafted.tree, n), stop_reason(drafted, n)) for n in range(1, drafted.tree.size)]
        shown[f"{name}, verified"] = [path_tokens(drafted.tree, n) for n in drafted.order[1:]]
    # The root's three children have 0.3, 0.28 and 0.22, the only grandchildren 0.3 x 0.95 and 0.28 x 0.95.
    reasons = ["expanded", "expanded", "below_threshold", "depth_gate", "depth_gate"]
    assert shown["described"] == shown["printed"] == list(zip([(0,), (1,), (2,), (0, 0), (1, 0)], reasons, strict=True))
    assert shown["described, verified"] == [(0,), (1,), (0, 0), (1, 0)]
    assert shown["printed, verified"] == [(0,), (1,), (2,), (0, 0), (1, 0)]
    assert [each.rule({}).left_out for each in (described, printed)] == ["improbable", None]
    assert "verify_pruned" not in described.settings() and printed.settings()["verify_pruned"] is True


def test_node_budget_is_never_exceeded_and_is_said():
    drafter = DynaTreeDrafter(branch_first_level=True, node_budget=7, prune_probability=0.0, stop_probability=0.0)
    drafted, _ = draft(drafter, default=UNSURE)
    assert drafted.tree.size - 1 == 7
    assert any(stop_reason(drafted, n) == "budget" for n in range(drafted.tree.size))


def test_one_forward_per_level():
    drafted, source = draft(DynaTreeDrafter(branch_first_level=True), default=MIDDLE)
    assert source.forwards == int(drafted.tree.level.max()) + 1
    expanded = drafted.tree.level >= 0
    assert (drafted.tree.level[expanded] == drafted.tree.depths[expanded]).all()


def test_length_limit_ends_the_tree():
    drafted, source = draft(DynaTreeDrafter(), default=SURE, depth_limit=2)
    assert drafted.tree.depths.max() == 2
    drafted, source = draft(DynaTreeDrafter(), default=SURE, depth_limit=0)
    assert drafted.tree.size == 1 and source.forwards == 0 and stop_reason(drafted, 0) == "length_limit"


def test_ablation_switches():
    base = {"base_depth": 2, "max_depth": 6, "stop_probability": 0.05, "prune_probability": 0.0}
    no_depth, _ = draft(DynaTreeDrafter(dynamic_depth=False, **base), default=MIDDLE)
    assert no_depth.tree.depths.max() == 3
    assert not {"early_stop", "depth_gate"} & {stop_reason(no_depth, n) for n in range(no_depth.tree.size)}
    no_breadth, _ = draft(DynaTreeDrafter(adaptive_breadth=False, **base), default=UNSURE)
    widths = no_breadth.tree.branching[no_breadth.tree.branching > 0]
    assert set(widths[1:].tolist()) == {2}


def held(state):
    """The settings that history may move, by name, τ_l among them."""
    return {name: value for name, value in vars(state).items() if name != "window"}


def observe(drafter, state, accepted, times):
    history = None
    for _ in range(times):
        state, history = drafter.observe(state, IterationFeedback(accepted, accepted + 1, 10, 10, 5))
    return state, history


def test_history_waits_then_moves_each_iteration_and_stays_in_range():
    drafter = DynaTreeDrafter()
    state, history = observe(drafter, drafter.start([1]), accepted=5, times=4)
    assert history.decision == "too_few" and held(state) == held(drafter.start([1]))
    state, history = observe(drafter, state, accepted=5, times=1)
    assert history.decision == "bolder" and history.mean == 1.0
    assert held(state) == {"base_depth": 6, "confidence_high": 0.85, "deep_probability": 0.45} | LOW
    state, _ = observe(drafter, state, accepted=5, times=30)
    assert held(state) == {"base_depth": 7, "confidence_high": 0.5, "deep_probability": 0.3} | LOW
    state, history = observe(drafter, state, accepted=0, times=60)
    assert history.decision == "more_careful"
    assert held(state) == {"base_depth": 2, "confidence_high": 0.95, "deep_probability": 0.8} | LOW
    assert len(history.window) == drafter.history_window


def adapted(values, decision, **settings):
    """What one adjustment makes of (base_depth, confidence_high, deep_probability)."""
    names = ("base_depth", "confidence_high", "deep_probability")
    drafter = DynaTreeDrafter(**dict(zip(names, values, strict=True)), history_minimum=1, **settings)
    state, history = observe(drafter, drafter.start([1]), accepted=5 if decision == "bolder" else 0, times=1)
    assert history.decision == decision
    drafter.with_settings(**held(state))  # what history makes of settings never contradicts the others
    return tuple(held(state)[name] for name in names)


@pytest.mark.parametrize("decision", ["bolder", "more_careful"])
@pytest.mark.parametrize(("depth_step", "step"), [(0, 0.0), (1, 1e-9), (1, 0.05), (8, 0.5)])
@pytest.mark.parametrize("low_ends", [(0.01, 0.0), (0.55, 0.4)])  # τ_l and ρ_stop
def test_an_adjustment_never_moves_against_its_direction(decision, depth_step, step, low_ends):
    sign = 1 if decision == "bolder" else -1
    others = {"confidence_low": low_ends[0], "stop_probability": low_ends[1]}
    others |= {"history_depth_step": depth_step, "history_probability_step": step}
    highs = [high for high in (0.01, 0.45, 0.5, 0.55, 0.9, 0.95, 0.9600001, 0.97, 0.999999) if high >= low_ends[0]]
    deeps = [deep for deep in (0.0, 0.2, 0.3, 0.4, 0.123456789, 0.5, 0.8, 0.85, 0.9, 0.99) if deep >= low_ends[1]]
    for max_depth, bases in ((2, (1,)), (3, (1, 2)), (8, (1, 6, 7))):
        for base, high, deep in product(bases, highs, deeps):
            after = adapted((base, high, deep), decision, max_depth=max_depth, **others)
            for before, moved, way, size, least, most in (
                (base, after[0], sign, depth_step, 2, max_depth - 1),
                (high, after[1], -sign, step, 0.5, 0.95),
                (deep, after[2], -sign, step, 0.3, 0.8),
            ):
                assert 0 <= way * (moved - before) <= size + 1e-6, (before, moved)
                if least <= before <= most:
                    assert least <= moved <= most, (before, moved)


@pytest.mark.parametrize(
    ("decision", "before", "after"),
    [
        ("more_careful", (1, 0.97, 0.9), (1, 0.97, 0.9)),
        ("bolder", (1, 0.97, 0.9), (2, 0.92, 0.85)),
        ("bolder", (7, 0.45, 0.2), (7, 0.45, 0.2)),
        ("more_careful", (7, 0.45, 0.2), (6, 0.5, 0.25)),
    ],
)
def test_settings_outside_the_range_of_the_schedule_stay_or_go_the_way_that_is_asked(decision, before, after):
    assert adapted(before, decision) == after


def test_history_holds_inside_the_dead_band_and_can_be_switched_off():
    drafter = DynaTreeDrafter(history_target=0.6)
    state, history = observe(drafter, drafter.start([1]), accepted=3, times=8)
    assert history.decision == "hold" and held(state) == held(drafter.start([1]))
    state, history = DynaTreeDrafter(history=False).observe(state, IterationFeedback(5, 6, 10, 10, 5))
    assert history is None


@pytest.mark.parametrize(("statistic", "value"), [("accepted_over_drafted", 0.4), ("committed_over_drafted", 0.5)])
def test_the_papers_fraction_is_over_drafted_without_and_with_the_bonus_token(statistic, value):
    drafter = DynaTreeDrafter(history_statistic=statistic)
    _, history = observe(drafter, drafter.start([1]), accepted=4, times=1)
    assert history.window == (value,)


@pytest.mark.parametrize("name", ["DynaTree, Section 3 as described", "DynaTree, Algorithm 1 as printed"])
def test_the_paper_moves_its_confidence_thresholds_and_the_base_depth_alone(name):
    drafter = PRESETS[name].drafter.with_settings(history_minimum=1)
    state, history = observe(drafter, drafter.start([1]), accepted=0, times=1)
    assert history.before == {"base_depth": 5, "confidence_high": 0.9, "confidence_low": 0.4}
    assert history.after == {"base_depth": 4, "confidence_high": 0.95, "confidence_low": 0.45}
    assert state.deep_probability == drafter.deep_probability == drafter.in_force(state)["deep_probability"]
    assert drafter.resumed(drafter.start([1]), replace(bonus(), history=history)) == state
    assert "history_deep_probability" not in DynaTreeDrafter().settings()


def test_the_low_threshold_adapts_too_where_it_is_asked_for():
    drafter = DynaTreeDrafter(history_confidence_low=True, history_minimum=1)
    state, history = observe(drafter, drafter.start([1]), accepted=5, times=1)
    assert history.before == {"base_depth": 5, "confidence_high": 0.9, "confidence_low": 0.4, "deep_probability": 0.5}
    assert history.after == {"base_depth": 6, "confidence_high": 0.85, "confidence_low": 0.35, "deep_probability": 0.45}
    assert drafter.resumed(drafter.start([1]), replace(bonus(), history=history)) == state
    lowest, _ = observe(drafter, state, accepted=5, times=20)
    highest, _ = observe(drafter, state, accepted=0, times=30)
    assert (lowest.confidence_low, lowest.confidence_high) == (0.1, 0.5)
    assert (highest.confidence_low, highest.confidence_high) == (0.5, 0.95)
    # It is the one in force: 0.38 is between the thresholds where τ_l has come down to 0.35.
    wide = drafter.with_settings(branch_first_level=True)
    for start, breadth, children in ((wide.start([1]), "unsure", 3), (state, "between", 2)):
        drafted = wide.draft(start, TableSource({}, [0.38, 0.32, 0.2, 0.1]), 7, None)
        assert (wide.breadths(drafted)[0], drafted.tree.branching[0]) == (breadth, children)
        assert drafted.settings["confidence_low"] == start.confidence_low
    assert "history_confidence_low" not in DynaTreeDrafter().settings()


@pytest.mark.parametrize("decision", ["bolder", "more_careful"])
@pytest.mark.parametrize("step", [0.0, 0.05, 0.5])
def test_the_low_threshold_never_passes_the_high_one(decision, step):
    for low, high in product((0.01, 0.1, 0.3, 0.45, 0.5, 0.7), (0.1, 0.3, 0.45, 0.5, 0.52, 0.7, 0.97)):
        if low > high:
            continue
        drafter = DynaTreeDrafter(
            confidence_low=low, confidence_high=high, history_confidence_low=True, history_minimum=1,
            history_probability_step=step,
        )  # fmt: skip
        state, _ = observe(drafter, drafter.start([1]), accepted=5 if decision == "bolder" else 0, times=3)
        assert state.confidence_low <= state.confidence_high
        moved = state.confidence_low - low
        assert moved <= 0 if decision == "bolder" else moved >= 0
        assert not 0.1 <= low <= 0.5 or 0.1 <= state.confidence_low <= 0.5


@pytest.mark.parametrize(
    ("statistic", "described", "printed"),
    [
        ("accepted_over_depth", 2 / 2, 2 / 3),
        ("accepted_over_drafted_depth", 2 / 3, 2 / 3),
        ("accepted_over_drafted", 2 / 5, 2 / 5),
        ("committed_over_drafted", 3 / 5, 3 / 5),
        ("committed_over_base_depth", 3 / 4, 3 / 4),
    ],
)
def test_each_statistic_by_hand(statistic, described, printed):
    """Levels of 0.95, of 0.475 and 0.285, and of 0.2375 and 0.1425 below the likelier one; two nodes are accepted."""
    drafter = DynaTreeDrafter(
        base_depth=2, adaptive_breadth=False, dynamic_depth=False, prune_probability=0.3, history_statistic=statistic
    )
    for each, value, depth in ((drafter, described, 2), (drafter.with_settings(verify_pruned=True), printed, 3)):
        drafted, _ = draft(each, {(): SURE}, MIDDLE)
        tree, order = drafted.tree, drafted.order
        counts = tree.size - 1, len(order) - 1, int(tree.depths[order].max())
        assert counts == (5, 5 if each.verify_pruned else 2, depth)
        state = replace(drafted.state, base_depth=6)  # what history has moved is not what was set
        _, history = each.observe(state, IterationFeedback(2, 3, *counts, tree=tree, order=order))
        assert history.window == (value,) and history.statistic == statistic


def test_the_depth_as_drafted_is_in_records_of_trees_alone():
    drafter = DynaTreeDrafter(history_statistic="accepted_over_drafted_depth")
    with pytest.raises(SettingsError, match="recorded without its tree"):
        drafter.observe(drafter.start([]), IterationFeedback(1, 2, 3, 3, 2))


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


def test_a_record_that_moves_other_settings_is_refused():
    history = bonus().history
    drafter = DynaTreeDrafter()
    for after in ({"node_budget": 3}, {**history.after, "base_depth": 3.5}):
        record = replace(bonus(), history=replace(history, after=after))
        with pytest.raises(SettingsError):
            drafter.resumed(drafter.start([]), record)


def test_an_order_is_asked_for_only_where_it_has_an_effect():
    free = {"adaptive_breadth": False, "branch_mid": 5, "confidence_high": 0.3}
    assert DynaTreeDrafter(**free).branch_mid == 5
    assert DynaTreeDrafter(dynamic_depth=False, stop_probability=0.6).stop_probability == 0.6
    with pytest.raises(SettingsError, match="must not decrease"):
        DynaTreeDrafter(**free).with_settings(adaptive_breadth=True)


def test_history_raises_the_base_depth_up_to_the_largest_without_dynamic_depth_too():
    assert not settings_of(DynaTreeDrafter)["max_depth"].needs
    depths = []
    for most in (6, 9):
        drafter = DynaTreeDrafter(dynamic_depth=False, max_depth=most)
        state = drafter.start([])
        for _ in range(20):
            state, _ = drafter.observe(
                state, IterationFeedback(accepted=5, committed=6, drafted=5, verified=5, depth=5)
            )
        depths.append(state.base_depth)
    assert depths == [5, 8]
