"""CSV of nodes and iterations: every node, every iteration, and no cell that a spreadsheet would compute."""

import csv
import io
from dataclasses import replace

import pytest

from decoding.trace.tables import iterations_csv, nodes_csv, safe_cell
from tests.helpers.traces import dynatree_recovered, run_autoregressive, run_mixed, run_of


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
    assert int(rows[0]["target_rows_before"]) == first.kv_target.rows_before
    assert "base_depth=" in rows[0]["settings"]


def test_a_run_without_a_draft_or_iterations():
    assert read(iterations_csv(run_autoregressive()))[0]["draft_rows_before"] == ""
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
