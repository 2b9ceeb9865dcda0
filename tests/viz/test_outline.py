"""The views as text: nothing that the picture says is missing, and no token becomes markup."""

import csv
import html
import re
from dataclasses import replace
from io import StringIO

import plotly.graph_objects as go
import pytest

from decoding.trace.exports import csv_table
from decoding.trace.tree_mask import tree_mask
from decoding.trace.validation import check_run
from tests.helpers import traces
from viz.charts.description import chart_sentence, chart_table
from viz.charts.hindsight import run_luck_figure
from viz.charts.run import accepted_length_figure, adaptation_figure, phase_times_over_run, tokens_over_time
from viz.explain.iteration import history_changes
from viz.scope.data import run_strip
from viz.scope.outline import (
    Table,
    cache_table,
    first_sentence,
    mask_table,
    outline_html,
    outline_text,
    phase_table,
    steps_table,
    table_html,
    tables,
    tree_outline,
)
from viz.scope.phases import FINAL_ID
from viz.scope.scene import build_scene

EVERY = (
    traces.dynatree_recovered,
    traces.sampled_recovered,
    traces.bonus,
    traces.fallback,
    traces.pruned,
    traces.autoregressive,
    traces.ended,
    traces.summary,
)


@pytest.mark.parametrize("made", EVERY)
def test_every_node_has_a_line_below_its_parent(made):
    iteration = made()
    lines = tree_outline(iteration)
    assert sorted(line.node_id for line in lines if line.node_id != FINAL_ID) == list(range(len(iteration.nodes)))
    place = {line.node_id: number for number, line in enumerate(lines)}
    for node in iteration.nodes[1:]:
        line = lines[place[node.node_id]]
        assert place[node.parent_id] < place[node.node_id]
        assert line.depth == node.depth
        assert f"Node {node.node_id} " in line.words
        assert ("pruned" if node.pruned else node.verdict.replace("_", " ")) in line.words
    finals = [line for line in lines if line.node_id == FINAL_ID]
    assert len(finals) == (1 if iteration.nodes and iteration.final_kind != "none" else 0)
    for line in finals:
        assert line.depth == len(iteration.accepted) + 1
        assert iteration.final_kind in line.words


def test_a_line_has_both_distributions_the_verdict_and_the_reason():
    iteration = traces.dynatree_recovered()
    node = next(each for each in iteration.nodes if each.verdict == "rejected")
    line = next(each for each in tree_outline(iteration) if each.node_id == node.node_id)
    distributions = f"draft {node.draft_probability:.2f} → target {node.target_probability:.2f}"
    assert line.words.startswith(f"Node {node.node_id} ‘")
    assert f"{distributions}, path probability {node.path_probability:.2f}, rejected. The target prefers" in line.words


def test_a_summary_says_that_it_has_no_tree():
    assert tree_outline(traces.summary()) == ()
    assert "without its tree" in outline_text(traces.summary())
    assert "without its tree" in mask_table(traces.summary()).note


def test_the_list_is_nested_and_closed():
    iteration = traces.big(40)
    lines = tree_outline(iteration)
    written = outline_html(lines)
    assert written.count("<ul>") == written.count("</ul>")
    assert written.count("<li>") == written.count("</li>") == len(lines)
    depth = deepest = 0
    for tag in re.findall(r"</?ul>", written):
        depth += 1 if tag == "<ul>" else -1
        assert depth >= 0
        deepest = max(deepest, depth)
    assert deepest == 1 + max(line.depth for line in lines)


def test_the_mask_says_whom_each_node_sees():
    iteration = traces.pruned()
    mask, table = tree_mask(iteration), mask_table(iteration)
    assert len(table.rows) == len(mask.order)
    for row, cells in enumerate(table.rows):
        seen = {int(node) for node in re.findall("[0-9]+", cells[3].partition(", node")[2])}
        assert seen == set(iteration.path(mask.order[row]))
        assert f"{mask.prefix_columns} prefix tokens" in cells[3]


def test_every_row_of_the_caches_has_its_fate():
    iteration = traces.dynatree_recovered()
    cache = iteration.kv_target
    table = cache_table(iteration, "target", cache)
    fates = [row[3] for row in table.rows]
    assert len(fates) == cache.slots_written
    assert fates.count("dropped") == cache.slots_freed
    moved = [row for row in table.rows if row[3].startswith("moved")]
    assert [int(row[3].split()[-1]) for row in moved] == [
        cache.slots_before + place for place, row in enumerate(cache.moved_from) if row != cache.slots_before + place
    ]
    rebuilt = cache_table(iteration, "target", replace(cache, rebuilt=True))
    assert any("recomputed" in row[3] for row in rebuilt.rows)


def test_tests_and_times_are_all_there():
    iteration = traces.sampled_recovered()
    assert len(steps_table(iteration).rows) == len(iteration.steps)
    assert any(row[5] != "–" for row in steps_table(iteration).rows)
    times = phase_table(iteration)
    assert times.rows[-1][0] == "all"
    assert times.note.startswith("Measured; ")
    unmeasured = replace(iteration, times=replace(iteration.times, **dict.fromkeys(
        ("draft_s", "prune_s", "mask_s", "verify_s", "select_s", "commit_s", "rebuild_s", "adapt_s", "total_s"), 0.0
    )))  # fmt: skip
    assert phase_table(unmeasured).rows == ()
    assert "not measured" in phase_table(unmeasured).note


@pytest.mark.parametrize("made", EVERY)
def test_every_table_is_a_rectangle(made):
    for table in tables(made()):
        assert table.rows or table.note
        assert {len(row) for row in table.rows} <= {len(table.heads)}


def test_token_text_is_never_markup():
    nasty = "<img src=x onerror=alert(1)>"
    iteration = traces.dynatree_recovered()
    nodes = tuple(replace(node, text=nasty) for node in iteration.nodes)
    written = outline_html(tree_outline(replace(iteration, nodes=nodes)))
    written += "".join(table_html(table) for table in tables(replace(iteration, nodes=nodes)))
    written += table_html(Table(nasty, (nasty,), ((nasty,),), nasty))
    assert "<img" not in written
    assert html.escape("<img") in written


def test_first_sentence_keeps_numbers_whole():
    assert first_sentence("The target has 0.98; fine. More.") == "The target has 0.98; fine."
    assert first_sentence("Only one.") == "Only one."
    assert first_sentence("") == ""


def test_a_chart_in_words_has_its_numbers():
    run = traces.run_mixed()
    figure = phase_times_over_run(run)
    table = chart_table(figure)
    assert len(table.rows) == len(run.iterations)
    assert table.heads[0] == "iteration"
    assert table.rows[0][1] == f"{run.iterations[0].times.draft_s * 1e3:.4g}"
    sentence = chart_sentence(figure)
    assert sentence.startswith("Time (ms) by iteration: draft ")
    assert sentence.count("\n") == 0
    assert chart_sentence(accepted_length_figure([run])).startswith("Share of iterations (%) by drafted tokens")


def test_a_table_is_a_file_that_spreadsheets_read():
    written = csv_table(("a", "b"), (("1,5", 'say "hi"'), ("2", "x")))
    assert list(csv.reader(StringIO(written))) == [["a", "b"], ["1,5", 'say "hi"'], ["2", "x"]]


def test_token_text_is_no_formula_in_a_csv_file():
    cells = ("=HYPERLINK(A1)", "+1+1", "-1-1", "@x", "\ttab", "'quoted", "2-1")
    row = next(csv.reader(StringIO(csv_table(("a",) * len(cells), (cells,))).readlines()[1:]))
    assert row == [f"'{cell}" for cell in cells[:-1]] + ["2-1"]


def test_numbers_below_zero_are_numbers_in_the_csv_file_of_a_chart():
    table = chart_table(run_luck_figure((0, 1), (1, 2), (1.52, 1.0), (1.0, 1.0)))
    written = csv_table(table.heads, table.rows)
    rows = list(csv.reader(StringIO(written)))
    assert [[float(cell) for cell in row] for row in rows[1:]] == [[1, -0.52], [2, 0.48]]


def test_marks_that_repeat_a_line_are_not_reported_twice():
    run = traces.run_mixed()
    table = chart_table(tokens_over_time([run]))
    assert len(table.heads) == 2
    assert len(table.rows) == len(run.iterations) + 1


def test_values_without_shared_places_stand_in_rows_of_their_own():
    figure = go.Figure([go.Scatter(x=[1.5, 1.5], y=[1, 2], name="a"), go.Scatter(x=[7.25], y=[3], name="b")])
    table = chart_table(figure)
    assert table.heads == ("Series", "Place", "Value")
    assert table.rows == (("a", "1.5", "1"), ("a", "1.5", "2"), ("b", "7.25", "3"))


def test_lying_bars_are_read_along_their_axis_and_markup_is_taken_out():
    figure = go.Figure(go.Bar(x=[2.0, 3.0], y=["<b>A</b><br>&lt;s&gt;", "B"], orientation="h", name="speed"))
    figure.update_layout(xaxis_title="tokens/s", yaxis_title="method")
    assert chart_table(figure).rows == (("A, <s>", "2"), ("B", "3"))
    assert chart_sentence(figure) == "Tokens/s by method: speed from 2 (at A, <s>) to 3 (at B)."


def test_a_chart_without_data_says_what_it_says_itself():
    assert "no history adaptation" in chart_sentence(adaptation_figure(traces.run_autoregressive()))
    assert chart_sentence(go.Figure()) == "An empty chart."


def test_a_fork_that_moves_one_setting_more_is_a_run_and_has_a_chart():
    before, after = traces.bonus(1), traces.bonus(2)
    moved = {side: {**getattr(after.history, side), "confidence_low": 0.35} for side in ("before", "after")}
    after = replace(
        after, history=replace(after.history, **moved), settings=after.settings | {"history_confidence_low": True}
    )
    run = traces.run_of([traces.fallback(0), before, after])
    check_run(run)
    table = chart_table(adaptation_figure(run))
    column = next(place for place, head in enumerate(table.heads) if head.startswith("Low confidence (τ_l)"))
    assert [row[column] for row in table.rows] == ["–", "0.35"]


def test_history_says_the_same_iteration_in_the_chart_the_strip_the_phase_and_the_table():
    run = traces.run_of([traces.fallback(0), traces.bonus(1), traces.bonus(2), replace(traces.bonus(3), history=None)])
    still = replace(run.iterations[2].history, after=run.iterations[2].history.before)
    run = replace(run, iterations=(*run.iterations[:2], replace(run.iterations[2], history=still), run.iterations[3]))
    changed, history = run.iterations[1], run.iterations[1].history
    words = history_changes(history)
    assert [column[3] for column in run_strip(run)["columns"]] == ["", words, "", ""]
    table = chart_table(adaptation_figure(run))
    column = next(place for place, head in enumerate(table.heads) if head.startswith("High confidence (τ_h)"))
    assert {row[0]: row[column] for row in table.rows} == {"2": "0.75", "3": "0.8"}, "what each iteration left"
    phase = next(each for each in build_scene(changed, scene_id="s").phases if each.key == "history")
    assert words in phase.caption
    reported = next(each for each in tables(changed) if each.title == "History adaptation")
    assert words in reported.note
    assert [row[1] for row in reported.rows] == [f"{value:.3f}" for value in history.window]
    assert reported.rows[-1][0] == str(changed.index + 1)
    assert all(f"{value:.2f}" in phase.caption for value in history.window)
