"""Charts of a sweep: what they hold, how axes are labelled, what a click on a point stands for."""

import pandas as pd
import pytest

from viz.charts.sweeps import (
    MOST_SERIES,
    SCALES,
    Axis,
    Measure,
    cells_sentence,
    cells_table,
    every_run,
    heat_map,
    lines_over,
    parallel,
    value_words,
)
from viz.theme import contrast

DEPTH, WIDTH = Axis("settings.max_depth", "Maximum depth (D_max)"), Axis("settings.branching", "Children (B)")
SPEED = Measure("value", "speed-up")


@pytest.fixture
def cells() -> pd.DataFrame:
    """Three of four combinations; the fourth has not been run."""
    made = [(3, 2, 1.2), (3, 3, 1.3), (4, 2, 1.6)]
    return pd.DataFrame(
        [(depth, width, value, value - 0.1, value + 0.2, 4, 8) for depth, width, value in made],
        columns=[DEPTH.column, WIDTH.column, "value", "low", "high", "prompts", "runs"],
    )


def test_values_are_reported_as_the_screen_tells_them():
    assert [value_words(value) for value in (3, 3.0, 0.05, True, False, "heavy_path", "")] == [
        "3", "3", "0.05", "on", "off", "heavy path", "none"
    ]  # fmt: skip
    assert value_words(20240601) != value_words(20240602) and value_words(20240601.0) == "20240601"


def test_names_are_text_and_no_markup(cells):
    kind = Axis("kind", "kind of text")
    named = cells.assign(kind=["<b>x</b>", "y", "z"])
    figure = heat_map(named, kind, WIDTH, SPEED)
    assert "<b>" not in "".join(figure.data[0].x) and "<b>" not in "".join(figure.data[1].x)
    assert figure.data[1].customdata[0][0] == "<b>x</b>", "a click is matched by the name itself"
    assert "<b>" not in "".join("".join(trace.text) for trace in lines_over(named, kind, WIDTH, SPEED).data)


@pytest.mark.parametrize("dark", [False, True])
def test_a_heat_map_holds_the_means_and_a_point_to_click_on_each(cells, dark):
    figure = heat_map(cells, DEPTH, WIDTH, SPEED, dark)
    colors, points = figure.data
    assert list(colors.x) == ["3", "4"] and list(colors.y) == ["2", "3"]
    numbers = figure.layout.annotations
    assert [(each.x, each.y, each.text) for each in numbers][-1] == (0, 1, "1.30") and len(numbers) == 3
    low, high = numbers[0].font.color, numbers[1].font.color
    assert contrast(low, SCALES[dark][0][1]) > 4.5 and contrast(high, SCALES[dark][1][1]) > 4.5
    assert colors.z[0][0] == 1.2 and colors.z[0][1] == 1.6 and colors.z[1][1] != colors.z[1][1], "not run: empty"
    assert [list(each) for each in points.customdata] == [["3", "2"], ["3", "3"], ["4", "2"]]
    assert (figure.layout.hoverdistance, figure.layout.hovermode) == (-1, "closest"), "all of a cell can be clicked"
    assert points.marker.opacity == 0 and "1.20 (1.10 to 1.40), mean over 4 prompts, 8 runs" in points.text[0]
    assert figure.layout.xaxis.title.text == "Maximum depth (D_max)" and figure.layout.yaxis.type == "category"


def test_lines_have_intervals_and_differ_not_by_colour_alone(cells):
    figure = lines_over(cells, DEPTH, WIDTH, SPEED)
    assert [trace.name for trace in figure.data] == ["Children (B) 2", "Children (B) 3"]
    first, second = figure.data
    assert (
        list(first.x) == pytest.approx([2.92, 3.92])  # beside 3 and 4, so that intervals do not lie on one another
        and list(first.y) == [1.2, 1.6]
        and list(first.error_y.array) == pytest.approx([0.2] * 2)
    )
    assert list(first.error_y.arrayminus) == pytest.approx([0.1] * 2) and first.mode == "lines+markers"
    assert first.marker.symbol != second.marker.symbol and first.line.dash != second.line.dash
    assert [list(each) for each in first.customdata] == [["3", "2"], ["4", "2"]]
    alone = lines_over(cells[cells[WIDTH.column] == 2], DEPTH, None, SPEED)
    assert [trace.name for trace in alone.data] == ["speed-up"] and not alone.layout.showlegend


def test_words_along_an_axis_are_points_without_a_line(cells):
    words = cells.assign(**{DEPTH.column: ["greedy", "a verifier with a name that is too long for a tick", "nss"]})
    (points,) = lines_over(words, DEPTH, None, SPEED).data
    first, second, _ = points.x
    assert points.mode == "markers" and first == "greedy" and second.endswith("…")
    assert list(points.customdata[1]) == ["a verifier with a name that is too long for a tick"]


def test_no_more_lines_than_can_be_reported_apart(cells):
    many = pd.concat([cells.head(1).assign(**{WIDTH.column: width}) for width in range(20)])
    assert len(lines_over(many, DEPTH, WIDTH, SPEED).data) == MOST_SERIES


def test_a_share_is_reported_in_percent(cells):
    share = Measure("value", "accepted / drafted, %", 100, 1)
    assert heat_map(cells, DEPTH, WIDTH, share).data[0].z[0][0] == 120 and "120.0" in cells_sentence(
        cells, [DEPTH], share
    )
    assert list(lines_over(cells, DEPTH, WIDTH, share).data[0].error_y.array) == pytest.approx([20, 20])


def test_parallel_coordinates_have_an_axis_per_setting_and_figure():
    table = pd.DataFrame(
        {DEPTH.column: [3.0, 4.0, None], "base": ["Fixed tree", "Fixed tree", "Linear"], "speedup": [1.0, 1.5, 1.2],
         "passes": [8, 6, 9]}
    )  # fmt: skip
    measures = (Measure("passes", "passes"), Measure("speedup", "speed-up"))
    (lines,) = parallel(table, (DEPTH, Axis("base", "method")), measures).data
    assert [each.label for each in lines.dimensions] == [DEPTH.words, "method", "passes", "speed-up"]
    depth = lines.dimensions[0]
    assert list(depth.ticktext) == ["3", "4", "–"] and list(depth["values"]) == [0, 1, 2], (
        "a method without the setting"
    )
    assert list(lines.line.color) == [1.0, 1.5, 1.2] and lines.line.colorbar.title.text == "speed-up"


def test_every_run_is_a_point_with_its_key():
    runs = pd.DataFrame(
        {"key": ["a", "b"], "words": ["<b>one</b>", "two"], "x": [2.0, 3.0], "y": [1.0, 1.5], "kind": ["s", "t"]}
    )
    figure = every_run(runs, Measure("x", "tokens per pass"), Measure("y", "speed-up"), Axis("kind", "kind of text"))
    assert [[list(each) for each in trace.customdata] for trace in figure.data] == [[["a"]], [["b"]]]
    assert figure.data[0].text[0] == "&lt;b&gt;one&lt;/b&gt;" and figure.layout.showlegend
    assert len(every_run(runs, Measure("x", "x"), Measure("y", "y"), None).data) == 1


def test_a_chart_in_words_and_numbers(cells):
    said = cells_sentence(cells, [DEPTH, WIDTH], SPEED)
    assert said.startswith("Speed-up by Maximum depth (D_max) and Children (B): from 1.20 (Maximum depth (D_max) 3, ")
    assert said.endswith("3 combinations.") and "nothing has been run yet" in cells_sentence(cells[:0], [], SPEED)
    table = cells_table(cells, [DEPTH, WIDTH], [SPEED])
    assert table.heads == ("Maximum depth (D_max)", "Children (B)", "speed-up", "prompts", "runs")
    assert table.rows[0] == ("3", "2", "1.20 (1.10 to 1.40)", "4", "8")
    assert cells_table(cells.assign(value=None), [DEPTH], [SPEED]).rows[0][1] == "–"
