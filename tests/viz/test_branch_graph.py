"""The history of branches: lanes below their parents, no line through another lane's dots, long runs compressed."""

import json

import pytest

from viz.branches.graph import MOST_DOTS, PROMPT, BranchLine, branch_graph

RUN = BranchLine(0, None, 0, 12, "DynaTree", "decoded")


def fork(number: int, parent: int, at: int, iterations: int | None = None, kind="live") -> BranchLine:
    return BranchLine(number, parent, at, iterations or at + 1, f"change {number}", kind)


def laid_out(lines, here: int = 0, first: int | None = None, second: int | None = None) -> dict:
    return branch_graph(lines, here, first, second)


def lane_of(graph: dict, number: int) -> dict:
    return next(lane for lane in graph["lanes"] if lane["number"] == number)


def iterations(graph: dict, places) -> list[int]:
    return [graph["columns"][place][0] for place in places]


def test_a_run_alone_is_a_lane_from_its_prompt():
    graph = laid_out([RUN], here=4, first=0)
    (lane,) = graph["lanes"]
    assert lane["leaves"] is None and lane["side"] == "A"
    assert iterations(graph, lane["columns"]) == [PROMPT, *range(12)]
    assert graph["columns"][graph["here"]][0] == 4
    assert "no branch" in graph["summary"]


def test_a_fork_leaves_from_the_last_shared_iteration():
    graph = laid_out([RUN, fork(1, 0, 5, 8)], here=5, first=0, second=1)
    lane = lane_of(graph, 1)
    row, place = lane["leaves"]
    assert graph["lanes"][row]["number"] == 0
    assert graph["columns"][place][0] == 4
    assert iterations(graph, lane["columns"]) == [5, 6, 7]
    assert [lane["side"] for lane in graph["lanes"]] == ["A", "B"]


def test_a_fork_of_the_first_iteration_leaves_from_the_prompt():
    graph = laid_out([RUN, fork(1, 0, 0)])
    assert graph["columns"][lane_of(graph, 1)["leaves"][1]][0] == PROMPT


def test_a_fork_of_a_fork_where_that_began_leaves_from_the_run():
    graph = laid_out([RUN, fork(1, 0, 5, 9), fork(2, 1, 5), fork(3, 1, 7)])
    assert graph["lanes"][lane_of(graph, 2)["leaves"][0]]["number"] == 0
    assert graph["lanes"][lane_of(graph, 3)["leaves"][0]]["number"] == 1


@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5), (5, 4, 3, 2, 1), (3, 1, 5, 2, 4)])
def test_no_line_goes_through_dots_of_another_lane(order):
    ats = {1: 3, 2: 8, 3: 3, 4: 0, 5: 6}
    lines = [RUN, *(fork(number, 0, ats[number], ats[number] + 3) for number in order), fork(6, 2, 9, 11)]
    graph = laid_out(lines)
    for row, lane in enumerate(graph["lanes"]):
        if lane["leaves"] is None:
            continue
        above, place = lane["leaves"]
        assert above < row, "a fork stands below what it leaves"
        for between in graph["lanes"][above + 1 : row]:
            assert place not in (*between["columns"], *between["gaps"])


def test_few_iterations_have_a_dot_each():
    graph = laid_out([BranchLine(0, None, 0, MOST_DOTS, "run", "recorded")])
    assert len(graph["columns"]) == MOST_DOTS + 1
    assert not any(skipped for _, skipped in graph["columns"])


def test_long_runs_are_compressed_around_what_matters():
    lines = [BranchLine(0, None, 0, 300, "run", "decoded"), fork(1, 0, 120, 200)]
    graph = laid_out(lines, here=50, first=0, second=1)
    assert len(graph["columns"]) < 30
    kept = {iteration for iteration, skipped in graph["columns"] if not skipped}
    assert {PROMPT, 0, 49, 50, 51, 119, 120, 199, 299} <= kept
    counted = sum(skipped or 1 for _, skipped in graph["columns"])
    assert counted == 301, "every iteration and the prompt stand for something"
    lane = lane_of(graph, 1)
    assert iterations(graph, lane["columns"]) == [120, 199]
    assert sum(graph["columns"][place][1] for place in lane["gaps"]) == 78


def test_an_iteration_that_no_branch_has_is_not_marked():
    assert laid_out([RUN], here=40)["here"] is None


def test_the_data_are_plain_and_small():
    lines = [BranchLine(0, None, 0, 500, "run", "decoded"), *(fork(n, 0, 10 * n, 10 * n + 5) for n in range(1, 30))]
    data = laid_out(lines, 3, 0, 2)
    assert len(json.dumps(data)) < 60_000
    assert {"number", "words", "kind", "columns", "gaps", "leaves", "side", "bias"} <= set(data["lanes"][0])
