"""The map of a selector's choice: what it draws, marks and says."""

import math

import numpy as np
import pytest

from decoding.trace.records import SelectorTrace
from viz.charts.selector import (
    SHAPE,
    action_figure,
    action_map,
    action_sentence,
    action_table,
    scalar_rows,
    shape_of,
    shape_words,
)

PLACES = range(324)


def place_of(paths: int, trunk: int, branch: int) -> int:
    return int(np.ravel_multi_index((paths - 1, trunk, branch), SHAPE))


def choice(rule: str = "tokens") -> SelectorTrace:
    """Tokens grow with the tree's depth, time with its nodes; (2, 1, 3) was chosen and (1, 0, 2) is static."""
    shapes = [shape_of(place) for place in PLACES]
    tokens = tuple(1 + 0.5 * min(trunk + branch, 4) for _, trunk, branch in shapes)
    seconds = tuple(0.01 + 0.001 * (trunk + paths * branch) for paths, trunk, branch in shapes)
    scalars = {"root_entropy": 1.25, "log_length": math.log(64), "log_draft_s": math.log(0.0005), "draft_s": 0.0005,
               "target_s": 0.02}  # fmt: skip
    return SelectorTrace(rule, scalars, tokens, seconds, place_of(2, 1, 3), place_of(1, 0, 2))


def test_the_map_is_tokens_over_time():
    shown = action_map(choice())
    assert shown.values[place_of(2, 1, 3)] == pytest.approx(3.0 / 0.017) and shown.measure == "tokens/s"
    assert shown.marks == {"chosen": place_of(2, 1, 3), "static": place_of(1, 0, 2)}
    found = np.array(choice().worth)
    found[place_of(3, 2, 2)] = 9
    best = action_map(choice(), found)
    assert best.marks["best"] == place_of(3, 2, 2) and best.values[place_of(3, 2, 2)] == pytest.approx(9 / 0.018)


def test_the_static_shape_asks_no_selector():
    record = choice()
    told = SelectorTrace(record.rule, {**record.scalars, "asking_s": 0.002}, *map(list, (record.worth, record.seconds)),
                         record.chosen, record.static)  # fmt: skip
    shown = action_map(told)
    assert shown.at("static") == pytest.approx((2.0 / 0.010, 0.010))
    assert shown.at("chosen") == pytest.approx((3.0 / 0.017, 0.017))
    assert action_map(record).at("static") == pytest.approx((2.0 / 0.012, 0.012))
    assert ("Asking the selector, ms", "2.00") in scalar_rows(told)
    told.scalars["asking_s"] = 0.012  # all of its time: no record of this program holds that
    assert action_map(told).at("static") == pytest.approx((2.0 / 0.012, 0.012))


def test_a_policy_has_probabilities():
    shown = action_map(choice("policy"))
    assert shown.measure == "probability, %" and shown.tokens is None and shown.values[0] == 100
    assert action_table(shown).rows[0][4] == "–"


@pytest.mark.parametrize("dark", [False, True])
def test_every_cell_stands_in_the_panel_of_its_k(dark):
    shown = action_map(choice())
    figure = action_figure(shown, dark)
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    assert [one.z.shape for one in maps] == [(9, 9)] * 4
    assert maps[1].z[1][3] == pytest.approx(shown.values[place_of(2, 1, 3)])
    points = [trace for trace in figure.data if trace.type == "scatter" and trace.text is not None]
    assert len(points) == 4 and all(len(one.text) == 81 for one in points)
    words = dict(zip(zip(points[2].x, points[2].y, strict=True), points[2].text, strict=True))
    assert words[5, 4].startswith("K 3, L₁ 4, L₂ 5: ") and "3.00 tokens in 29.0 ms" in words[5, 4]
    chosen, static = (trace for trace in figure.data if trace.showlegend is None and trace.name)
    assert (chosen.x[0], chosen.y[0], chosen.xaxis) == (3, 1, "x2") and chosen.name.startswith("chosen: 176.5 tokens/s")
    assert (static.x[0], static.y[0], static.xaxis) == (2, 0, "x")


def test_words_and_numbers():
    assert shape_words(place_of(1, 2, 3)) == shape_words(place_of(4, 5, 0)) == "a chain of 5"
    assert shape_words(place_of(3, 0, 0)) == "no draft" and shape_words(place_of(2, 1, 3)) == "K 2, L₁ 1, L₂ 3"
    said = action_sentence(action_map(choice()))
    assert "chosen K 2, L₁ 1, L₂ 3, 176.5 tokens/s; best static a chain of 2, 166.7 tokens/s" in said
    rows = action_table(action_map(choice())).rows
    assert len(rows) == 324 and rows[0][3] == "214.3" and rows[0][:3] == ("1", "0", "4")
    assert scalar_rows(choice()) == [
        ("Draft's entropy at the root, nats", "1.25"), ("Context, tokens", "64"), ("Draft pass, ms", "0.50"),
        ("Target pass, ms", "20.00"),
    ]  # fmt: skip
