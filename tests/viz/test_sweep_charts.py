"""Charts of a sweep from rows made by hand, and the best way with how sure that is."""

import pandas as pd
import pytest

from decoding.experiments.best import best_words, ranked
from decoding.papers.judge import prepared
from tests.experiments.test_papers import row
from viz.sweep_charts import heat_map, lines_over, parallel, varied, words_of


@pytest.fixture
def swept():
    made = []
    for number, prompt in enumerate("abcdef"):
        made.append(row("autoregressive", prompt, 100.0, label="Autoregressive"))
        for depth in (3, 4):
            for branching in (2, 3):
                speed = 100.0 + 40 * (depth == 4) + 10 * branching + number
                settings = {"settings.max_depth": depth, "settings.branching": branching}
                line = f"fixed_tree:max_depth={depth},branching={branching}"
                made.append(row(line, prompt, speed, label=f"D {depth} B {branching}", **settings))
    return prepared(pd.DataFrame(made))


def test_what_varies_is_found_with_its_values(swept):
    assert varied(swept) == {"settings.max_depth": [3.0, 4.0], "settings.branching": [2.0, 3.0]}
    assert words_of("settings.max_depth") == "max depth" and words_of("cut") == "prompt tokens at most"


def test_a_heat_map_holds_the_means(swept):
    figure = heat_map(swept, "settings.max_depth", "settings.branching", "speedup", "speed-up")
    (cells,) = figure.data
    assert list(cells.x) == ["3", "4"] and list(cells.y) == ["2", "3"]
    assert cells.z[1][1] == pytest.approx(1.725) and cells.z[0][0] == pytest.approx(1.225)


def test_lines_have_intervals_over_prompts(swept):
    figure = lines_over(swept, "settings.max_depth", "settings.branching", "throughput", "tokens/s")
    assert [trace.name for trace in figure.data] == ["branching 2", "branching 3"]
    assert list(figure.data[0].y) == pytest.approx([122.5, 162.5]) and 0 < figure.data[0].error_y.array[0] < 3
    assert lines_over(swept, "settings.max_depth", None, "speedup", "speed-up").data[0].name == "all"


def test_parallel_coordinates_have_an_axis_per_setting_and_figure(swept):
    names = ("settings.max_depth", "settings.branching")
    (lines,) = parallel(swept, names, {"tokens_per_iteration": "tokens per pass", "speedup": "speed-up"}).data
    assert [each.label for each in lines.dimensions] == ["max depth", "branching", "tokens per pass", "speed-up"]
    assert list(lines.dimensions[0].ticktext) == ["3", "4"] and len(lines.line.color) == 4


def test_the_best_is_told_with_how_sure_that_is(swept):
    found = ranked(swept, "speedup")
    assert [each.label for each in found] == ["D 4 B 3", "D 4 B 2", "D 3 B 3", "D 3 B 2"] and found[0].chance == 1.0
    assert best_words(found, "times").startswith("D 4 B 3: 1.72 times (1.71 to 1.74), the best in 100% of")
    assert ranked(swept, "tpot_s", higher=False)[0].label == "D 4 B 3"
    one = ranked(swept[swept["prompt"] == "a"], "speedup")
    assert "on one prompt, which says nothing about others" in best_words(one, "times")
    assert ranked(swept[:0], "speedup") == [] and "Nothing has been measured" in best_words([], "times")
    shaken = swept.copy()
    odd = (shaken["prompt"].isin(["a", "c", "e"])) & (shaken["label"] == "D 4 B 2")
    shaken.loc[odd, "speedup"] += 0.22
    close = ranked(shaken, "speedup")
    assert 0.05 < close[0].chance < 0.95 and "is it in" in best_words(close, "times")
