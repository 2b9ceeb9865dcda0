"""Drafting step by step: which steps a phase has, which nodes each shows, what it says."""

import json
from dataclasses import replace

import pytest

from benchmarks.table_source import TableSource
from decoding.drafters.dyspec import DySpecDrafter
from decoding.drafters.salf import SalfDrafter
from decoding.sampling.draws import GeneratorDraws
from tests.helpers import traces
from tests.helpers.searches import searched
from tests.trace.test_searches import SURE, TABLE, RandomTable, replayed
from viz.scope.data import compact_data, frame_data
from viz.scope.outline import tables
from viz.scope.scene import build_scene, fold_parent
from viz.scope.steps import search_steps

HEAP = searched(DySpecDrafter(node_budget=4, max_depth=2), TableSource(TABLE, SURE), replayed([0, 1, 1, 2]))
ROUNDS = searched(
    SalfDrafter(node_budget=5, batch=2, gain_threshold=0.7),
    TableSource({(): [0.5, 0.25, 0.25], (0,): [0.5, 0.5, 0.0], (1,): SURE}, SURE),
)
DRAFTERS = [
    DySpecDrafter(node_budget=30),
    DySpecDrafter(node_budget=30, max_depth=3),
    SalfDrafter(node_budget=30, batch=2, gain_threshold=0.0),
    SalfDrafter(node_budget=60, batch=6, gain_threshold=0.4),
]


def untimed(made):
    """Where forwards are not timed one by one, as on a GPU."""
    return replace(made, times=replace(made.times, draft_levels_s=()))


def lists(search: dict, step: int) -> list[tuple]:
    """The lists of a step: rows with their texts, and how many more there are."""
    found = search["steps"][step]["lists"]
    return [([[search["texts"][text], *rest] for text, *rest in rows], more) for _, rows, more in found]


@pytest.mark.parametrize("as_timed", [lambda made: made, untimed], ids=["timed", "untimed"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda drafter: drafter.rule({}).drafter)
def test_the_phases_share_the_steps_and_show_what_their_last_one_shows(drafter, seed, as_timed):
    made = as_timed(searched(drafter, RandomTable(seed, 12), GeneratorDraws(seed)))
    scene, count = build_scene(made, scene_id="s"), len(search_steps(made)["steps"])
    drafting = [phase for phase in scene.phases if phase.key.startswith(("draft", "tree"))]
    assert [step for phase in drafting for step in range(*phase.steps)] == list(range(count))
    assert all(phase.steps[0] >= phase.steps[1] for phase in scene.phases if phase not in drafting)
    for phase in drafting:
        if phase.steps[0] < phase.steps[1]:
            there = {place for place, state in enumerate(phase.states) if state != "hidden"}
            assert there == {place for place, step in enumerate(scene.appears) if step < phase.steps[1]}
            new = {place for place, state in enumerate(phase.states) if state == "new"}
            assert new == {place for place, step in enumerate(scene.appears) if phase.steps[0] <= step < phase.steps[1]}


def test_a_fold_appears_with_the_first_of_its_nodes():
    made = searched(DySpecDrafter(node_budget=400), RandomTable(1, 12), GeneratorDraws(1))
    scene = build_scene(made, scene_id="s")
    drawn = {node.node_id for node in scene.nodes}
    for node, appears in zip(scene.nodes, scene.appears, strict=True):
        if (owner := fold_parent(node.node_id)) is not None:
            hidden = [n.node_id for n in made.nodes if n.node_id not in drawn]
            inside = [n for n in hidden if next(i for i in reversed(made.path(n)) if i in drawn) == owner]
            assert len(inside) == node.folded and appears == min(inside) - 1
        elif node.node_id > 0:
            assert appears == node.node_id - 1


def test_the_steps_of_a_heap_say_what_was_drawn_and_what_waits():
    search = search_steps(HEAP)
    first, second, third, _ = search["steps"]
    assert search["title"] == "Heap" and search["about"] and "Algorithm 1" in search["help"]
    assert first["said"].startswith(
        "Pop 1 of 4: the 1st draw below the root has the highest value, 1.000; it draws ‘t0’"
    )
    assert first["said"].endswith("with draft forward 1.") and "forward" not in second["said"]
    assert [name for name, _ in search["figures"]][:3] == ["v", "v₀ = v·R below", "v₁ = v−v₀ beside"]
    assert first["values"] == ["1.000", "0.500", "0.500", "0.500", "1"] and third["values"][1] == "–"
    (waiting, more), (rest, _) = lists(search, 0)
    assert waiting == [["2nd below the root", 0.5, 0], ["1st below ‘t0’", 0.5, 1]] and more == 0
    assert rest == [["‘t1’", 0.5, None], ["‘t2’", 0.5, None]] and first["asked"] == [0]


def test_the_steps_of_a_search_by_rounds_say_why_it_ended():
    search = search_steps(ROUNDS)
    first, second, last = search["steps"]
    assert "whose path probability is 1" in first["said"] and first["values"][:2] == ["1.000", "–"]
    assert "sum to S = 0.75, not below th = 0.70, so draft forward 2" in second["said"]
    assert second["values"] == ["0.750", "1.000", "0.7", "2 of 5", "0"]
    assert [text for text, *_ in lists(search, 1)[1][0]] == ["+ ‘t0’", "+ ‘t1’"]
    assert "S = 0.50, below Gain threshold (th) 0.7" in last["said"] and last["said"].endswith("after 2 forwards.")
    full = searched(SalfDrafter(node_budget=2, batch=4, gain_threshold=0.0), TableSource({(): [0.5, 0.5]}, [0.5, 0.5]))
    assert search_steps(full)["steps"][-1]["said"].startswith("The end: no waiting node can have a child among the 2")
    topped = searched(SalfDrafter(node_budget=5, batch=2, gain_threshold=0.7, top_up=True), TableSource(TABLE, SURE))
    assert "Free places go to the best that wait." in search_steps(topped)["steps"][-1]["said"]


def test_steps_are_small_plain_data_and_a_table():
    made = searched(DySpecDrafter(node_budget=64), RandomTable(2, 300), GeneratorDraws(2))
    data = frame_data(made, scene_id="s")
    assert len(json.dumps(data["search"], allow_nan=False)) < 64 * 500
    table = tables(made)[0]
    assert table.title == "Drafting: heap" and len(table.rows) == 64 and len(table.heads) == len(table.rows[0])
    assert tables(ROUNDS)[0].title == "Drafting: rounds"


def test_other_drafters_have_no_steps():
    data = frame_data(traces.dynatree_recovered(), scene_id="s")
    assert data["search"] is None and data["scene"]["appears"] == ()
    assert all(phase["steps"] == (0, 0) for phase in data["scene"]["phases"])
    assert "search" not in compact_data(HEAP, scene_id="s")
