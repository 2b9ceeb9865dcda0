"""Numbers on screen: neither 0 nor 1 by rounding, two can be told apart, scripts and Python write them alike."""

import json
import shutil
import subprocess

import pytest

from decoding.common import formats
from decoding.common.formats import apart, limit_and_drawn, percent
from viz.components import component_script

NONE = float("nan")


@pytest.mark.parametrize(
    ("probability", "said"),
    [
        (0.0, "0%"),
        (1.0, "100%"),
        (0.123, "12.3%"),
        (0.9996, "99.96%"),
        (0.0004, "0.04%"),
        (1e-7, "less than 0.01%"),
        (0.99996, "more than 99.99%"),
    ],
)
def test_a_share_is_never_all_or_nothing_by_rounding(probability, said):
    assert percent(probability) == said


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (0.27, 0.54, ("0.27", "0.54")),
        (0.6212, 0.6231, ("0.621", "0.623")),
        (0.004, 0.97, ("0.004", "0.97")),
        (0.9996, 0.5, ("0.9996", "0.50")),
        (0.3, 0.999, ("0.30", "0.999")),
        (0.0, 0.97, ("0", "0.97")),
        (1.0, 0.97, ("1", "0.97")),
    ],
)
def test_a_limit_and_a_draw_can_be_reported_apart_and_read_neither_0_nor_1(first, second, said):
    assert apart(first, second) == limit_and_drawn(first, second) == said
    assert limit_and_drawn(first, None)[1] == "none"


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("number", (0.0, 0.004, 0.62, None, NONE), "0.00 <0.01 0.62 – –"),
        ("duration", (3.1e-4, 0.0029, 1.5), "310 µs, 2.9 ms, 1.50 s"),
        ("long_duration", (5, 61, 4900, 90_000, 3e5), "under a minute, 1 min, 1 h 22 min, 25 h, 3 days"),
        ("about", (20, 600), "under a minute, about 10 min"),
        ("elapsed", (12.4, 150), "12 s, 2 min"),
        ("byte_size", (310 << 10, 5 << 20, 3 << 30), "310 KiB, 5 MiB, 3.0 GiB"),
        ("parameters", (70_426_624, 2_775_208_960), "70.4 M, 2.78 B"),
        ("difference", (3, -0.5, 0), "+3, −0.5, same"),
        ("ordinal", (1, 12, 23, 1111), "1st, 12th, 23rd, 1,111th"),
        ("listed", (["a"], ["a", "b", "c"]), "a, a, b and c"),
    ],
)
def test_how_values_are_said(name, values, said):
    separator = ", " if "," in said else " "
    assert separator.join(getattr(formats, name)(value) for value in values) == said


def test_how_two_values_are_said():
    assert [formats.part_of(*each) for each in ((31, 50), (0, 0), (None, 3))] == ["62% (31 / 50)", "–", "–"]
    changes = [formats.relative_change(*each) for each in ((100, 112), (100, 97), (100, 100.2), (0, 3))]
    assert changes == ["+12%", "−3%", "same", "same"]
    assert [formats.plural(1234, "node"), formats.plural(1, "child", "children")] == ["1,234 nodes", "1 child"]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
def test_scripts_write_numbers_as_python_does():
    values = [0, 1e-7, 0.0009, 0.004, 0.0051, 0.3, 0.62, 0.9999, 1, 1.5, 12.34, 87_654]
    calls = "values.map((v) => [number(v, 2), number(v, 3), duration(v), count(v)])"
    script = (
        f"{component_script('components/formats.js')}\nconst values = {values};\nconsole.log(JSON.stringify({calls}));"
    )
    done = subprocess.run(["node", "--input-type=module"], input=script, capture_output=True, text=True, check=True)
    for value, written in zip(values, json.loads(done.stdout), strict=True):
        ours = [formats.number(value), formats.number(value, 3), formats.duration(value)]
        assert written[:3] == ours
        assert written[3] == f"{value:,}" or isinstance(value, float)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
def test_a_bound_has_as_many_decimals_as_the_probabilities_beside_it():
    asked = ("0.62", "0.002", "null, 0.0046", "null, 0.0151", "null")
    calls = f"[{', '.join(f'probability({each})' for each in asked)}]"
    script = f"{component_script('components/formats.js')}\nconsole.log(JSON.stringify({calls}));"
    done = subprocess.run(["node", "--input-type=module"], input=script, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["0.62", "<0.01", "<0.01", "<0.02", "–"]
