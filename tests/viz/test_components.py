"""Scripts and styles of the components: modules that join into one, write no markup and ask nobody for anything."""

import re

import pytest

from viz.components import FOLDER, component_script, component_style
from viz.theme import MARKS, PHASE_COLORS, SERIES

COMPONENTS = ("scope/scope.js", "race/race.js", "branches/graph.js", "verify/table.js")
PAGES = ("standalone/scope.js", "standalone/figures.js", "standalone/race.js")
STYLES = ("scope/scope.css", "race/race.css", "branches/graph.css", "verify/table.css")


@pytest.mark.parametrize("name", COMPONENTS + PAGES)
def test_modules_join_into_one(name):
    code = component_script(name)
    assert not re.search(r"^import\b", code, re.M)
    assert code.count("export default") == (name in COMPONENTS)
    names = re.findall(r"^(?:export )?(?:default )?(?:function|const|let) (\w+)", code, re.M)
    assert len(names) == len(set(names)), "two modules have a name in common"


def test_what_is_imported_stands_before_what_uses_it():
    code = component_script("race/race.js")
    assert code.index("function html") < code.index("const SHAPES") < code.index("function buildLane")


def test_every_script_belongs_to_a_component():
    joined = "\n".join(component_script(name) for name in COMPONENTS + PAGES)
    for path in FOLDER.glob("*/*.js"):
        first_line = path.read_text(encoding="utf-8").splitlines()[0]
        assert first_line in joined, path


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.[jc]s*")), ids=lambda path: path.name)
def test_nothing_writes_markup_or_asks_anybody(path):
    source = path.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|insertAdjacentHTML|\bfetch\b|XMLHttpRequest|WebSocket|import\(", source)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", source)


@pytest.mark.parametrize("name", STYLES)
def test_styles_use_the_colours_of_the_theme(name):
    css = component_style(name)
    for state in ("accepted", "rejected", "recovered", "bonus", "fallback"):
        assert f"--{state}: {MARKS[state].color};" in css
    assert f"--draft: {PHASE_COLORS['draft']};" in css


def test_the_sides_of_a_fork_have_the_colours_of_the_charts():
    css = component_style("branches/graph.css")
    assert f"--a: {SERIES[0]};" in css
    assert f"--b: {SERIES[1]};" in css


def test_every_state_has_a_shape_and_a_style():
    code, css = component_script("scope/scope.js"), component_style("scope/scope.css")
    shapes = code.split("const SHAPES = {")[1].split("};")[0]
    for state in (*MARKS, "new", "drafted"):
        assert re.search(rf"^\s*{state}:", shapes, re.M), state
        assert f".s-{state}" in css, state
