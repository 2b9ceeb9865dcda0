"""Bars of a large tree: nested, in the order of ids, as high as the path probability."""

from dataclasses import replace

import pytest

from decoding.trace.records import ForcedTrace, node_paths
from tests.helpers import traces
from viz.scope.scene import bars, overview_data


def test_a_bar_is_as_high_as_its_path_probability_and_lies_in_its_parents():
    trace = traces.dynatree_recovered()
    made = bars(trace)
    assert made.heights[8] == pytest.approx(0.5 * 0.83 * 0.62)
    for node in trace.nodes[1:]:
        low, high = made.tops[node.node_id], made.tops[node.node_id] + made.heights[node.node_id]
        top = made.tops[node.parent_id]
        assert top - 1e-9 <= low and high <= top + made.heights[node.parent_id] + 1e-9


def test_siblings_stand_below_each_other():
    made = bars(traces.dynatree_recovered())
    assert made.tops[1] == 0 and made.tops[2] == pytest.approx(0.5)
    # The second child of node 1 begins where the first ends.
    assert made.tops[4] == pytest.approx(0.5 * 0.83)


def test_the_data_hold_every_node_with_state_and_text():
    data = overview_data(traces.pruned())
    assert data["states"] == "oaprp" and data["tokens"][1] == "·cat" and data["count"] == 4
    assert data["depths"] == [0, 1, 1, 2, 2]
    forced = replace(traces.pruned(), forced=(ForcedTrace("force_out", node_paths(traces.pruned())[2]),))
    assert overview_data(forced)["states"] == "oafrp"
