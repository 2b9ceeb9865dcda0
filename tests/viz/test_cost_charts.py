"""The chart of costs: what was measured stands as points with whiskers, what is read off as a line."""

import pytest

from viz.charts.methods import CostLine, cost_figure
from viz.theme import PHASE_COLORS

TARGET = CostLine((1, 2, 4), (2.0, 3.0, 2.5), (1.9, 2.75, 2.5), (2.5, 4.0, 3.0), (2.0, 2.5, 2.5, 2.5))
DRAFT = CostLine((1, 4), (0.25, 0.5), (0.5, 0.5), (0.75, 0.5), (0.25, 0.3, 0.4, 0.5))


@pytest.mark.parametrize("dark", [False, True])
def test_points_are_what_was_measured_and_the_line_what_is_read_off(dark):
    figure = cost_figure(TARGET, DRAFT, dark)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == [
        "target pass, interpolated",
        "target pass, measured",
        "draft level, interpolated",
        "draft level, measured",
    ]
    points, line = traces["target pass, measured"], traces["target pass, interpolated"]
    assert (points.x, points.y, points.mode) == (TARGET.sizes, TARGET.medians, "markers")
    assert points.error_y.array == (0.5, 1.0, 0.5) and points.error_y.arrayminus == pytest.approx((0.1, 0.25, 0.0))
    assert (tuple(line.x), line.y, line.mode) == ((1, 2, 3, 4), TARGET.line, "lines")
    assert line.line.color == points.marker.color == PHASE_COLORS["verify"]
    draft = traces["draft level, measured"]
    assert draft.marker.color == PHASE_COLORS["draft"] and draft.marker.symbol != points.marker.symbol
    assert traces["draft level, interpolated"].line.dash != line.line.dash
    assert draft.error_y.arrayminus == (0.0, 0.0)  # a point below its quartiles has no whisker downwards


def test_axes_say_what_and_in_which_unit():
    layout = cost_figure(TARGET, DRAFT).layout
    assert (layout.yaxis.title.text, layout.yaxis2.title.text) == ("target pass (ms)", "draft level (ms)")
    assert "nodes" in layout.xaxis.title.text and "root" in layout.xaxis.title.text
    assert layout.xaxis2.title.text == "nodes in the level"
    assert layout.xaxis.type == "log" and layout.xaxis.ticktext == ("1", "2", "4")
    assert layout.yaxis.rangemode == "tozero" and not layout.annotations


def test_without_times_it_says_how_to_get_them():
    figure = cost_figure(None, None)
    assert not figure.data and "load a pair" in figure.layout.annotations[0].text


def test_light_and_dark_differ_in_the_whiskers_alone():
    light, dark = (cost_figure(TARGET, DRAFT, dark) for dark in (False, True))
    assert light.data[1].error_y.color != dark.data[1].error_y.color
    assert light.data[1].marker.color == dark.data[1].marker.color
