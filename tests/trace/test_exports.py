"""The timeline of a run in Chrome's trace event format: what its readers demand, and the measured times."""

import csv
import io
import json
from dataclasses import replace

import pytest

from decoding.recorded import home_run
from decoding.trace.exports import iterations_csv, nodes_csv, perfetto_json, safe_cell
from decoding.trace.records import PHASES
from tests.helpers.traces import dynatree_recovered, run_autoregressive, run_mixed, run_of, run_replayed, summary

NEEDED = {"X": {"name", "cat", "pid", "tid", "ts", "dur", "args"}, "C": {"name", "cat", "pid", "ts", "args"},
          "M": {"name", "pid", "tid", "ts", "args"}}  # fmt: skip
ROUNDING_US = 0.002


def events_of(*runs) -> list[dict]:
    document = json.loads(perfetto_json(runs))
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    return document["traceEvents"]


def slices(events: list[dict], category: str) -> list[dict]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


@pytest.mark.parametrize("build", [home_run, run_mixed, run_autoregressive, lambda: run_of([summary(0)])])
def test_every_event_is_of_the_format(build):
    for event in events_of(build()):
        assert set(event) == NEEDED[event["ph"]] | {"ph"}
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        assert isinstance(event["args"], dict)
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())


@pytest.mark.parametrize("build", [home_run, run_mixed])
def test_slices_nest(build):
    """On one thread a reader takes a slice that lies inside another for its child, and refuses half an overlap."""
    open_: list[dict] = []
    for event in sorted((e for e in events_of(build()) if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= event["ts"] + ROUNDING_US:
            open_.pop()
        if open_:
            assert event["ts"] + event["dur"] <= open_[-1]["ts"] + open_[-1]["dur"] + ROUNDING_US, event
        open_.append(event)


def test_a_replayed_iteration_says_that_it_was_not_measured():
    run = run_replayed()
    reported = [event["args"].get("time") for event in slices(events_of(run), "iteration")]
    assert reported == [None, None, "not measured: replayed from stored logits"]
    assert "replayed" in json.loads(perfetto_json([run]))["otherData"]["times"]
    assert "replayed" not in json.loads(perfetto_json([run_mixed()]))["otherData"]["times"]


def test_durations_are_the_measured_ones():
    run = home_run()
    events = events_of(run)
    iterations = slices(events, "iteration")
    assert len(iterations) == len(run.iterations)
    for event, iteration in zip(iterations, run.iterations, strict=True):
        assert event["ts"] == pytest.approx(1e6 * iteration.started_s, abs=ROUNDING_US)
        assert event["dur"] == pytest.approx(1e6 * iteration.times.total_s, rel=1e-3)
    for phase in PHASES:
        reported = sum(event["dur"] for event in slices(events, "phase") if event["name"] == phase)
        measured = sum(getattr(iteration.times, f"{phase}_s") for iteration in run.iterations)
        assert reported == pytest.approx(1e6 * measured, abs=ROUNDING_US * len(run.iterations))
    levels = sum(len(iteration.times.draft_levels_s) for iteration in run.iterations)
    assert len(slices(events, "draft forward")) == levels > 0
    assert slices(events, "prefill")[0]["dur"] == pytest.approx(1e6 * run.totals.prefill_s, abs=ROUNDING_US)


def test_counters_and_names():
    run = home_run()
    events = events_of(run, replace(run, label="second"))
    names = {(event["pid"], event["name"]): event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names[2, "process_name"].startswith("second")
    assert (1, "thread_name") in names
    accepted = [e["args"]["accepted"] for e in events if e["name"] == "accepted tokens" and e["pid"] == 1]
    assert accepted == [len(iteration.accepted) for iteration in run.iterations]
    output = [e["args"]["tokens"] for e in events if e["name"] == "tokens of the output" and e["pid"] == 1]
    assert output[-1] == run.totals.new_tokens


def test_a_run_without_iterations():
    assert {event["ph"] for event in events_of(run_of([]))} == {"M"}


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_node_once():
    run = run_mixed()
    rows = read(nodes_csv(run))
    assert len(rows) == sum(len(iteration.nodes) for iteration in run.iterations)
    node = run.iterations[0].nodes[3]
    row = next(row for row in rows if (row["iteration"], row["node_id"]) == ("0", "3"))
    assert (row["text"], row["verdict"], row["pruned"]) == (node.text, node.verdict, "false")
    assert float(row["path_probability"]) == node.path_probability
    assert rows[0]["draft_probability"] == ""


def test_every_iteration_once():
    run = run_mixed()
    rows = read(iterations_csv(run))
    assert [int(row["index"]) for row in rows] == list(range(len(run.iterations)))
    first = run.iterations[0]
    assert float(rows[0]["verify_s"]) == first.times.verify_s
    assert int(rows[0]["accepted"]) == len(first.accepted)
    assert rows[0]["committed_text"] == "".join(first.committed_texts)
    assert int(rows[0]["target_slots_before"]) == first.kv_target.slots_before
    assert "base_depth=" in rows[0]["settings"]


def test_a_run_without_a_draft_or_iterations():
    assert read(iterations_csv(run_autoregressive()))[0]["draft_slots_before"] == ""
    assert read(nodes_csv(run_of([]))) == read(iterations_csv(run_of([]))) == []


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1\n", "-x", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "'"])
def test_formulas_are_text_and_come_back(text: str):
    assert safe_cell(text) == f"'{text}"
    run = run_of([dynatree_recovered()])
    first = run.iterations[0]
    node = replace(first.nodes[1], text=text, target_argmax_text=text)
    run = replace(run, iterations=(replace(first, nodes=(first.nodes[0], node, *first.nodes[2:])),))
    row = read(nodes_csv(run))[1]
    assert row["text"] == row["target_argmax_text"] == f"'{text}"
    assert row["text"].removeprefix("'") == text


@pytest.mark.parametrize("value", ["a=1", " the", "", 3, 0.5, -2, None, "-0.52", "-7", "+1", "-1.2e-05"])
def test_other_values_stay_as_they_are(value):
    assert safe_cell(value) == value
