"""The chart of Tune live: axes say what they show, iterations and whole generations differ, two points are framed."""

import pytest

from viz.charts.methods import ITERATION, WHOLE, Tried, tuning_figure

TRIED = [
    Tried("whole", 90.0, 0.2, WHOLE, "whole generation"),
    Tried("paper", 200.0, 0.30, ITERATION, "3 of 10"),
    Tried("wide", 250.0, 0.12, ITERATION, "3 of 25"),
]


@pytest.mark.parametrize("dark", [False, True])
def test_points_frames_and_axes(dark: bool):
    figure = tuning_figure(TRIED, current="wide", pinned="paper", dark=dark)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == [ITERATION, WHOLE, "current", "pinned"]
    assert traces[ITERATION].marker.symbol != traces[WHOLE].marker.symbol
    assert (traces["pinned"].x, traces["pinned"].y) == ((30.0,), (200.0,))
    assert (traces["current"].x, traces["current"].y) == ((12.0,), (250.0,))
    assert "%" in figure.layout.xaxis.title.text
    assert figure.layout.yaxis.title.text == "tokens / s"
    low, high = figure.layout.yaxis.range
    assert low == 0
    assert high > 250


def test_without_points_it_says_how_to_get_one():
    figure = tuning_figure([], current="", pinned="")
    assert "Change a setting" in figure.layout.annotations[0].text
    assert not figure.layout.showlegend
