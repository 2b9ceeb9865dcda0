"""The component's data: complete, small, plain; and its scripts and colours agree with the Python side."""

import json
import re
from pathlib import Path

import pytest

from tests import traces
from viz.phases import FINAL_ID
from viz.scope_data import compact_data, diff_marks, scope_data
from viz.theme import MARKS, PHASE_COLORS

FOLDER = Path(__file__).resolve().parents[2] / "viz" / "scope"
RUN = traces.run_mixed()


@pytest.mark.parametrize("index", range(len(RUN.iterations)))
def test_every_iteration_gives_plain_json_without_nan(index):
    data = scope_data(RUN, index, key="r")
    text = json.dumps(data, allow_nan=False)
    assert data["scene"]["scene_id"] == f"r:{index}" and len(text) < 60_000


def test_every_drawn_node_has_a_card_and_every_card_its_laws():
    data = scope_data(RUN, 0)
    ids = {str(node["node_id"]) for node in data["scene"]["nodes"]}
    assert set(data["cards"]) == ids
    for card in data["cards"].values():
        assert card["why"] and str(card["law"]) in data["laws"]


def test_laws_hold_the_node_in_question_and_both_sides():
    law = scope_data(RUN, 0)["laws"]["3"]
    rows = {row[1]: row[2:] for row in law["rows"]}
    assert rows["Yes"] == [0.62, 0.17] and rows["No"] == [0.05, 0.69]
    assert len(law["rows"]) >= 10 and law["after"] == '·"'
    assert [test["state"] for test in law["tests"]] == ["rejected", "rejected", "recovered"]


def test_the_law_of_a_place_that_nobody_computed_says_so():
    law = scope_data(traces.run_autoregressive(), 0)["laws"]["0"]
    assert law["has_target"] and not law["has_draft"]


def test_the_text_marks_the_current_tokens_with_their_nodes():
    spans = scope_data(RUN, 1)["text"]["spans"]
    assert [span[2] for span in spans if span[2] is not None] == [1, 3, FINAL_ID]
    long = traces.run_of([traces.bonus()] * 300)
    text = scope_data(long, 250)["text"]
    assert text["before"] + len(text["spans"]) == 7 + 251 * 3


def test_the_run_strip_is_a_window_around_the_iteration():
    long = traces.run_of([traces.bonus()] * 300)
    strip = scope_data(long, 250)["strip"]
    assert strip["count"] == 300 and strip["first"] <= 250 < strip["first"] + len(strip["columns"])
    assert scope_data(RUN, 0)["strip"]["columns"][7] == [2, "bonus", 1]


def test_a_big_tree_stays_small_on_the_wire():
    run = traces.run_of([traces.big(1024)])
    assert len(json.dumps(scope_data(run, 0))) < 400_000


def test_a_summary_says_that_it_has_no_tree():
    data = scope_data(traces.run_of([traces.summary()]), 0)
    assert data["recorded"] is False and data["mask"]["png"] is None


def test_diff_marks_compare_paths_of_tokens():
    first, second = traces.dynatree_recovered(), traces.sampled_recovered()
    assert diff_marks(first, second) == ({}, {})
    other = traces.iteration_of(traces.DYNATREE[:9], final=None, final_kind="none")
    marks, none = diff_marks(first, other, names=("wide", "narrow"))
    assert marks == dict.fromkeys((10, 11, 12, 13), "only in wide") and none == {}
    assert compact_data(first, scene_id="a", marks=marks)["marks"]["10"] == "only in wide"


def test_the_style_sheet_uses_the_colours_of_the_theme():
    css = (FOLDER / "scope.css").read_text()
    for name in ("accepted", "rejected", "recovered", "bonus", "fallback"):
        assert f"--{name}: {MARKS[name].color};" in css
    assert f"--draft: {PHASE_COLORS['draft']};" in css


def test_the_scripts_know_every_state_and_never_write_markup():
    code = "".join(path.read_text() for path in FOLDER.glob("*.js"))
    css = (FOLDER / "scope.css").read_text()
    shapes = code.split("const SHAPES = {")[1].split("};")[0]
    for state in (*MARKS, "new", "drafted"):
        assert re.search(rf"^\s*{state}:", shapes, re.M), state
        assert f".s-{state}" in css, state
    assert "innerHTML" not in code and "insertAdjacentHTML" not in code
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", code + css)


def test_the_joined_scripts_are_one_module():
    names = ("draw.js", "tree.js", "card.js", "panels.js", "scope.js")
    assert {path.name for path in FOLDER.glob("*.js")} == set(names)
    code = "\n".join((FOLDER / name).read_text() for name in names)
    assert code.count("export default") == 1 and not re.search(r"^import ", code, re.M)
    functions = re.findall(r"^(?:export default )?function (\w+)", code, re.M)
    assert len(functions) == len(set(functions))


def test_the_room_imports_neither_models_nor_streamlit():
    import ast

    for path in FOLDER.parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in {"torch", "transformers", "streamlit"}, (path.name, name)
                assert not name.startswith("decoding.") or name in {"decoding.trace", "decoding.errors"}, (path, name)
