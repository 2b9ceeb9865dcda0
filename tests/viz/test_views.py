"""Mask, cache, text, graph and figures, from hand-written traces."""

import base64
import html
import io
import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image

from decoding.recorded import home_run
from decoding.trace.tree_mask import tree_mask
from tests.helpers import traces
from viz.charts import methods
from viz.charts import run as charts
from viz.explain.known import Known
from viz.scope.export import tree_figure
from viz.scope.panels import (
    MAX_CELLS,
    cache_figure,
    cache_strips,
    mask_figure,
    mask_png,
    provenance_counts,
    text_html,
    text_spans,
)
from viz.scope.phases import phases_of
from viz.scope.scene import build_scene
from viz.theme import MARKS, PHASE_COLORS, PHASE_WORDS, style
from viz.tokens import columns, escaped, visible


def test_a_row_of_the_mask_sees_itself_and_its_ancestors_only():
    trace = traces.dynatree_recovered()
    mask = tree_mask(trace)
    for row, node in enumerate(mask.order):
        seen = {mask.order[column] for column in np.nonzero(mask.allowed[row])[0]}
        assert seen == set(trace.path(node))
    assert mask.prefix_columns == 75 and mask.cells == sum(len(trace.path(i)) for i in mask.order)


def test_the_mask_follows_the_flatten_order_even_where_children_come_first():
    trace = traces.dynatree_recovered()
    order = (0, *reversed(trace.flatten_order[1:]))
    mask = tree_mask(replace(trace, flatten_order=order))
    row = order.index(13)
    assert {order[c] for c in np.nonzero(mask.allowed[row])[0]} == {0, 1, 3, 8, 10, 13}


def test_pruned_nodes_are_not_in_the_mask():
    assert tree_mask(traces.pruned()).order == (0, 1, 3)


def test_the_mask_picture_is_one_bit_and_holds_the_mask():
    allowed = tree_mask(traces.big(300)).allowed
    url = mask_png(allowed, 1)
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert data[24:26] == bytes([1, 3])  # bit depth 1, palette
    image = Image.open(io.BytesIO(data))
    assert np.array_equal(np.array(image).astype(bool), allowed)
    assert image.convert("RGBA").getpixel((0, 0)) == (0, 158, 115, 255)
    assert image.convert("RGBA").getpixel((300, 0))[3] == 0
    assert len(url) < 20_000


def test_the_mask_figure_states_the_prefix_and_answers_the_pointer():
    figure = mask_figure(traces.dynatree_recovered())
    assert "75" in figure.layout.annotations[0].text
    assert len(figure.data[0].x) == tree_mask(traces.dynatree_recovered()).cells


def test_each_cache_says_which_end_of_the_text_it_lacks():
    recovered = traces.sampled_recovered()
    final = visible(recovered.final_text)
    # The target's final token is chosen after its pass; a draft that never read an accepted leaf lacks that one too.
    kept = recovered.kv_draft.moved_from
    behind = replace(recovered, kv_draft=replace(recovered.kv_draft, moved_from=kept[: len(recovered.accepted)]))
    target, draft = cache_strips(behind)
    assert target.rest == f"no slot: {final}"
    assert draft.rest == f"no slot: {visible(recovered.committed_texts[-2])} {final}"
    far = replace(recovered, kv_draft=replace(recovered.kv_draft, slots_before=recovered.kv_target.slots_before - 9))
    assert cache_strips(far)[1].rest.startswith("no slot: ") and "earlier and" in cache_strips(far)[1].rest


def test_the_last_token_of_a_text_gets_no_row():
    last = home_run().iterations[-1]
    assert last.final_kind == "none" and last.accepted
    target, draft = cache_strips(last)
    assert target.rest == draft.rest == f"no slot for {visible(last.committed_texts[-1])}: the text ends"


def test_the_cache_strip_says_what_was_kept_moved_and_freed():
    strip = cache_strips(traces.dynatree_recovered())[0]
    assert [cell.node_id for cell in strip.written if cell.kept] == [0, 1, 3]
    assert [cell.node_id for cell in strip.after] == [0, 1, 3]
    assert [cell.moved for cell in strip.after] == [False, False, True]
    assert [cell.node_id for cell in strip.written if cell.moved] == [3]
    assert [cell.row for cell in strip.after] == [75, 76, 77]
    assert "11 freed" in strip.note
    assert f"slot {next(cell.row for cell in strip.written if cell.moved)} → 77, node 3" in strip.note


def test_all_moved_slots_are_named_unless_they_are_many():
    run = traces.dynatree_recovered()
    moved = (75, 77, 78, 79, 80, 81, 82)
    note = cache_strips(replace(run, kv_target=replace(run.kv_target, moved_from=moved)))[0].note
    assert "(slots 77 → 76, 78 → 77, 79 → 78, 80 → 79, 81 → 80, 82 → 81)" in note
    note = cache_strips(replace(run, kv_target=replace(run.kv_target, moved_from=(*moved, 83))))[0].note
    assert "(7 moved: 77 → 76 … 83 → 82)" in note


def test_a_rebuild_moves_nothing():
    target, draft = cache_strips(traces.sampled_recovered())
    assert target.rebuilt and not any(cell.moved for cell in target.after) and "second pass" in target.note
    assert not draft.rebuilt
    assert len(cache_strips(traces.autoregressive())) == 1


def test_a_first_pass_that_reads_the_prompt_has_it_before_the_root():
    first = replace(traces.bonus(0), kv_draft=None)
    before, rows = first.prefix_length - 1, 1 + first.verified
    first = replace(first, kv_target=replace(first.kv_target, slots_before=0, slots_written=before + rows))
    assert tree_mask(first).prefix_columns == before
    said = {phase.key: phase.caption for phase in phases_of(Known(first), ())}
    assert f"over {before} earlier tokens, the root and {first.verified} nodes took" in said["verify"]
    assert f"a mask of {rows} × {before + rows}" in said["mask"]
    assert "earlier" not in {phase.key: phase.caption for phase in phases_of(Known(traces.bonus(0)), ())}["verify"]


def test_a_long_strip_keeps_every_kept_row_and_counts_the_rest():
    strip = cache_strips(traces.big(1024))[0]
    assert len(strip.written) == MAX_CELLS and strip.not_drawn == 1025 - MAX_CELLS
    assert sum(cell.kept for cell in strip.written) == len(strip.after)


def test_each_token_says_where_it_came_from():
    run = traces.run_mixed()
    spans = text_spans(run, current=0)
    output = [span for span in spans if span.provenance != "prompt"]
    assert [s.provenance for s in output[:3]] == ["drafted", "drafted", "recovered"]
    assert [s.node_id for s in output[:4]] == [1, 3, -2, None]
    assert "".join(s.text for s in output) == "".join(t for i in run.iterations for t in i.committed_texts)
    counts = provenance_counts(spans)
    assert sum(counts.values()) == run.totals.new_tokens
    assert counts["drafted"] == sum(len(i.accepted) for i in run.iterations)


def test_token_text_is_never_markup():
    nasty = traces.iteration_of(
        (traces.Spec(0, "<img src=x onerror=alert(1)>", 0.9, 0.9, "accepted"),), final=(1, '"</span>', 0.5),
        final_kind="bonus",
    )  # fmt: skip
    page = text_html(text_spans(traces.run_of([nasty]), 0))
    assert "<img" not in page and "&lt;img" in page and "&lt;/span&gt;" in page
    scene = build_scene(nasty, scene_id="s", title="<b>title</b>")
    for figure in (tree_figure(scene), mask_figure(nasty), charts.run_strip_figure(traces.run_of([nasty]), 0)):
        assert not re.search(r"<(?!extra|/extra|br|sub|/sub)[a-z/]", figure.to_json().replace("\\u003c", "<"))


def test_whitespace_is_visible_and_shapeless_characters_are_escaped():
    assert visible(" a\n\t") == "·a\\n\\t"
    assert visible("") == "∅"
    assert visible("\u202e\u200b\x00\u2028") == "\\u202e\\u200b\\x00\\u2028"
    assert visible("<0xE2>") == "<0xE2>"
    assert visible("abcdefgh", 5) == "abcd…"
    assert columns("日本") == 4 and visible("日本語日本語", 6) == "日本…"
    assert escaped("<b>&") == "&lt;b&gt;&amp;"


def test_the_exported_tree_shows_what_the_scene_shows():
    scene = build_scene(traces.dynatree_recovered(), scene_id="s")
    marks = [trace for trace in tree_figure(scene).data if trace.mode == "markers+text"]
    drawn = {node: trace.name for trace in marks for node in trace.customdata}
    assert drawn == {node.node_id: MARKS[node.state].words for node in scene.nodes}


def test_shapes_and_dashes_tell_states_apart_without_colour():
    reported = ("accepted", "rejected", "not_reached", "recovered", "bonus", "fallback", "pruned")
    assert len({MARKS[state].symbol for state in reported}) == len(reported)
    assert MARKS["accepted"].dash != MARKS["rejected"].dash


RUN, PLAIN = traces.run_mixed(), traces.run_autoregressive()
FIGURES = {
    "phase_times": lambda dark: charts.phase_times_figure(RUN.iterations[1], dark),
    "phase_times_over_run": lambda dark: charts.phase_times_over_run(RUN, dark),
    "run_strip": lambda dark: charts.run_strip_figure(RUN, 2, dark),
    "accepted_length": lambda dark: charts.accepted_length_figure([RUN, PLAIN], dark),
    "tokens_over_time": lambda dark: charts.tokens_over_time([RUN, PLAIN], dark),
    "adaptation": lambda dark: charts.adaptation_figure(RUN, dark),
    "acceptance_by_depth": lambda dark: charts.acceptance_by_depth([RUN], dark),
    "acceptance": lambda dark: methods.acceptance_figure(
        [methods.Acceptance("A", 5, 10, 8), methods.Acceptance("B", 0, 0, 0)], dark
    ),
    "tried": lambda dark: methods.tuning_figure(
        [methods.Tried("a", 10, 0.2, methods.WHOLE), methods.Tried("b", 12, 0.4, methods.ITERATION)], "b", "a", dark
    ),
    "cache": lambda dark: cache_figure(traces.sampled_recovered(), dark),
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", FIGURES)
def test_every_chart_labels_its_axes_and_keeps_the_legend_off_the_data(name, dark):
    figure = FIGURES[name](dark)
    assert isinstance(figure, go.Figure) and len(figure.data) > 0
    assert figure.layout.xaxis.title.text
    legend = figure.layout.legend.y
    assert legend >= 1 or legend < 0


def test_the_parts_of_a_time_bar_add_up_to_the_iteration():
    figure = charts.phase_times_figure(RUN.iterations[1])
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(RUN.iterations[1].times.total_s * 1e3)


def test_acceptance_writes_both_denominators_and_none_where_nothing_was_drafted():
    figure = FIGURES["acceptance"](False)
    assert figure.data[0].text == ("5 / 10", "nothing drafted") and figure.data[1].text == ("5 / 8", "nothing drafted")


def test_empty_charts_say_what_fills_them():
    assert "no history adaptation" in charts.adaptation_figure(PLAIN).layout.annotations[0].text


def test_style_follows_the_theme():
    assert style(go.Figure(), True).layout.font.color != style(go.Figure(), False).layout.font.color


def test_every_phase_has_a_colour_and_words():
    from decoding.trace.records import PHASES

    assert set(PHASES) | {"other"} == set(PHASE_COLORS) == set(PHASE_WORDS)


def test_html_keeps_the_text_itself():
    spans = text_spans(traces.run_mixed(), 3)
    plain = html.unescape(re.sub(r"<[^>]*>", "", text_html(spans)))
    assert plain == "".join(span.shown for span in spans)
