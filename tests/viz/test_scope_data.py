"""The component's data: complete, small, plain."""

import json
from dataclasses import replace

import pytest

from decoding.trace.metrics import measure_run, tokens_before_loop
from tests.helpers import traces
from viz.glossary import explain_term
from viz.scope.data import HEADS, compact_data, frame_data, run_strip, run_text
from viz.scope.phases import FINAL_ID

RUN = traces.run_mixed()


def frame(run, index: int = 0) -> dict:
    return frame_data(run.iterations[index], scene_id=f"r:{index}")


@pytest.mark.parametrize("index", range(len(RUN.iterations)))
def test_every_iteration_gives_plain_json_without_nan(index):
    data = frame(RUN, index)
    text = json.dumps(data, allow_nan=False)
    assert data["scene"]["scene_id"] == f"r:{index}" and len(text) < 60_000


def test_every_drawn_node_has_a_card_and_every_card_its_distributions():
    data = frame(RUN)
    ids = {str(node["node_id"]) for node in data["scene"]["nodes"]}
    assert set(data["cards"]) == ids
    for card in data["cards"].values():
        assert card["why"] and str(card["probs"]) in data["distributions"]


def test_distributions_hold_the_node_in_question_and_both_sides():
    probs = frame(RUN)["distributions"]["3"]
    rows = {row["text"]: row for row in probs["rows"]}
    assert [rows["Yes"][name] for name in ("draft", "target", "node")] == [0.62, 0.17, 8]
    assert [rows["No"][name] for name in ("draft", "target", "node")] == [0.05, 0.69, FINAL_ID]
    assert rows["·What"]["node"] is None
    assert len(probs["rows"]) >= 10 and probs["after"] == '·"'
    assert [test["state"] for test in probs["tests"]] == ["rejected", "rejected", "recovered"]


def test_the_law_of_a_place_that_nobody_computed_says_so():
    probs = frame(traces.run_autoregressive())["distributions"]["0"]
    assert probs["has_target"] and not probs["has_draft"]


def test_the_text_gives_each_token_its_iteration_and_its_node_there():
    spans = run_text(RUN, 1, 1)["spans"]
    assert [span[2] for span in spans if span[3] == 1] == [1, 3, FINAL_ID]
    assert max(span[3] for span in spans if span[3] is not None) == 1
    long = traces.run_of([traces.bonus()] * 300)
    text = run_text(long, 250, 250)
    assert text["before"] + len(text["spans"]) == 7 + 251 * 3


def test_the_text_of_a_film_reaches_back_from_its_first_iteration():
    text = run_text(traces.run_of([traces.bonus()] * 300), 200, 220)
    before_first = [span for span in text["spans"] if span[3] < 200]
    assert len(before_first) >= 240 and text["spans"][-1][3] == 220


def test_the_strip_counts_in_a_loop_what_a_comparison_leaves_out():
    """The iteration that completes the first repeated 16 tokens begins before the loop, but is no longer counted."""
    text = [*range(20), *range(20)]
    each = [
        replace(traces.autoregressive(), index=place, committed_ids=tuple(text[at : at + 4]), in_loop=at >= 36)
        for place, at in enumerate(range(0, len(text), 4))
    ]
    run = replace(traces.run_of(each), iterations=tuple(each))
    strip = run_strip(run)
    counted = measure_run(run, tokens_before_loop(run.output_ids))
    assert sum(not column[2] for column in strip["columns"]) == counted.iterations == 8
    assert strip["totals"] == "40 tokens, 10 target passes; in a loop: 5 tokens, 2 passes"


def test_the_run_strip_has_a_column_per_iteration():
    assert len(run_strip(traces.run_of([traces.bonus()] * 300))["columns"]) == 300
    assert run_strip(RUN)["columns"][7] == [2, "bonus", 1, "High confidence (τ_h) 0.8 → 0.75"]


def test_a_big_tree_stays_small_on_the_wire():
    run = traces.run_of([traces.big(1024)])
    assert len(json.dumps(frame(run))) < 480_000


def test_a_summary_says_that_it_has_no_tree():
    data = frame(traces.run_of([traces.summary()]))
    assert data["recorded"] is False and data["mask"]["order"] == []


def test_folded_trees_bring_all_their_nodes_as_bars():
    data = frame(traces.run_of([traces.big(1024)]))
    assert data["overview"]["count"] == 1024 and len(data["overview"]["tops"]) == 1025
    assert frame(RUN)["overview"] is None


def test_every_panel_and_every_mark_of_the_legend_is_explained():
    assert all(map(explain_term, HEADS.values()))
    assert all(item["help"] for index in range(len(RUN.iterations)) for item in frame(RUN, index)["legend"])


def test_marks_go_along_with_a_tree():
    assert compact_data(traces.bonus(), scene_id="a", marks={2: "only in A"})["marks"] == {"2": "only in A"}
