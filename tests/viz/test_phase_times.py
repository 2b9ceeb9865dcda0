"""The times of the phase strip and of the Time panel are the same times under the same names."""

from dataclasses import replace

import pytest

from decoding.recorded import recorded_run
from tests.helpers import traces
from viz.scope.phases import time_rows
from viz.scope.scene import build_scene

RUNS = ("home", "sampled", "tree_loses_plain", "tree_helps_chain")


@pytest.mark.parametrize("name", RUNS)
def test_strip_and_panel_add_up_to_the_iteration(name):
    for iteration in recorded_run(name).iterations:
        rows = {words: seconds for _, words, seconds in time_rows(iteration)}
        assert sum(rows.values()) == pytest.approx(iteration.times.total_s)
        strip: dict[str, float] = {}
        for phase in build_scene(iteration, scene_id="s").phases:
            title = "draft forwards" if phase.key.startswith("draft") else phase.title.lower()
            strip[title] = strip.get(title, 0.0) + (phase.seconds or 0.0)
        left = {words: seconds for words, seconds in rows.items() if words != "other"}
        strip = {title: seconds for title, seconds in strip.items() if seconds}
        assert {title.replace("commit & kv", "commit & KV") for title in strip} == set(left) - {"rebuild KV"}
        assert sum(strip.values()) == pytest.approx(sum(left.values()))


def test_a_draft_whose_forwards_were_not_timed_has_one_time():
    trace = traces.dynatree_recovered()
    trace = replace(trace, times=replace(trace.times, draft_levels_s=()))
    assert next(row[1] for row in time_rows(trace)) == "whole draft"
    phases = {phase.key: phase for phase in build_scene(trace, scene_id="s").phases}
    assert phases["tree"].title == "Whole draft" and "not timed one by one" in phases["tree"].caption


def test_a_replayed_iteration_has_no_times():
    trace = traces.dynatree_recovered()
    trace = replace(trace, times=replace(trace.times, total_s=0.0))
    assert time_rows(trace) == []
    assert {phase.seconds for phase in build_scene(trace, scene_id="s").phases} == {None}


def test_a_draft_that_was_asked_and_left_the_tree_empty_is_shown_and_says_why():
    trace = traces.dynatree_recovered()
    root = replace(trace.nodes[0], stop_reason="below_threshold", branching=None, breadth=None)
    empty = replace(
        trace, nodes=(root,), flatten_order=(0,), drafted=0, verified=0, accepted=(), steps=(), draft_forwards=1,
        times=replace(trace.times, draft_levels_s=(0.002,)),
    )  # fmt: skip
    phases = {phase.key: phase for phase in build_scene(empty, scene_id="s").phases}
    assert phases["draft-1"].seconds == 0.002
    assert "added no node" in phases["draft-1"].caption and "is below" in phases["draft-1"].caption
    assert "Nothing was drafted, as" in phases["select"].caption
    assert empty.tree_was_drafted and not replace(empty, draft_forwards=0).tree_was_drafted
