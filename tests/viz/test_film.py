"""Films: which iterations the browser gets, what a frame holds, and that unchanged data keep their versions."""

import json

import pytest

from tests.helpers import traces
from viz.scope.data import FEWEST, FILM_NODES, film_data, frame_data, make_frame, near_edge, window_around

RUN = traces.run_mixed()
ASK = {"serial": 1, "iteration": 0, "node": None, "phase": None}


def test_a_short_run_is_sent_whole():
    assert window_around([65] * 40, 7) == range(0, 40)
    assert window_around([12], 0) == range(0, 1)


def test_a_window_stands_around_the_iteration_and_keeps_to_the_budget():
    fits = FILM_NODES // 72
    assert window_around([64] * 200, 100) == range(101 - fits // 2, 101 + fits // 2)
    # At an end of the run the other side gets what is left over.
    assert window_around([64] * 200, 0) == range(0, fits)
    assert window_around([64] * 200, 199) == range(200 - fits, 200)


def test_however_large_the_trees_the_neighbours_are_there(monkeypatch):
    monkeypatch.setattr("viz.scope.data.FILM_NODES", 10)
    assert window_around([100_000] * 50, 20) == range(20 - FEWEST, 21 + FEWEST)


@pytest.mark.parametrize(("index", "near"), [(50, True), (51, True), (60, False), (70, True), (10, True)])
def test_more_is_fetched_before_an_edge_is_reached(index, near):
    assert near_edge(range(50, 71), index, 200) is near


def test_the_ends_of_the_run_are_no_edges():
    assert not near_edge(range(0, 21), 0, 21) and not near_edge(range(0, 21), 20, 21)


def test_a_frame_is_the_iteration_with_its_nodes_in_rows():
    frame = make_frame(RUN.iterations[1], "r", 1, "title")
    data = json.loads(frame.text)
    nodes = data["scene"].pop("nodes")
    plain = json.loads(json.dumps(frame_data(RUN.iterations[1], scene_id="r:1", title="title")))
    assert [dict(zip(nodes["names"], row, strict=True)) for row in nodes["rows"]] == plain["scene"].pop("nodes")
    assert data == plain


def test_versions_follow_the_content():
    frame = make_frame(RUN.iterations[0], "r", 0)
    assert make_frame(RUN.iterations[0], "r", 0).version == frame.version
    big = traces.big(400)
    assert make_frame(big, "r", 0).version != make_frame(big, "r", 0, unfolded=(3, 40)).version


def test_the_film_changes_its_version_only_with_what_it_shows():
    frames = [make_frame(iteration, "r", index) for index, iteration in enumerate(RUN.iterations)]
    window = range(len(frames))
    film = film_data(RUN, "r", window, frames, ASK)
    assert film_data(RUN, "r", window, frames, ASK)["version"] == film["version"]
    assert film_data(RUN, "r", window, frames, ASK | {"serial": 2})["version"] != film["version"]
    assert film_data(RUN, "r", range(2, 5), frames[2:5], ASK)["version"] != film["version"]
    assert film["film"]["count"] == len(RUN.iterations) and film["film"]["first"] == 0
    assert json.loads(film["film"]["shared"])["strip"]["columns"][7][:3] == [2, "bonus", 1]
