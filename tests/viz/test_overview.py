"""Bars of a large tree: nested, in the order of ids, as high as the path probability."""

from dataclasses import replace

import pytest

from decoding.trace.records import ForcedTrace, node_paths
from tests.helpers import traces
from viz.scope.scene import overview_data


def test_a_bar_is_as_high_as_its_path_probability_and_lies_in_its_parents():
    trace = traces.dynatree_recovered()
    made = overview_data(trace)
    tops, heights = made["tops"], made["heights"]
    assert heights[8] == pytest.approx(0.5 * 0.83 * 0.62, abs=1e-5)
    for node in trace.nodes[1:]:
        low, high = tops[node.node_id], tops[node.node_id] + heights[node.node_id]
        top = tops[node.parent_id]
        assert top - 2e-5 <= low and high <= top + heights[node.parent_id] + 2e-5


def test_siblings_stand_below_each_other():
    tops = overview_data(traces.dynatree_recovered())["tops"]
    assert tops[1] == 0 and tops[2] == pytest.approx(0.5)
    # The second child of node 1 begins where the first ends.
    assert tops[4] == pytest.approx(0.5 * 0.83, abs=1e-5)


def test_the_data_hold_every_node_with_state_and_text():
    data = overview_data(traces.pruned())
    assert data["states"] == "oaprp" and data["tokens"][1] == "·cat" and data["count"] == 4
    assert data["depths"] == [0, 1, 1, 2, 2]
    forced = replace(traces.pruned(), forced=(ForcedTrace("force_out", node_paths(traces.pruned())[2]),))
    assert overview_data(forced)["states"] == "oafrp"
