"""Charts and tree of the Verifiers page: what is drawn is what was given, axes are named, tokens are escaped."""

from dataclasses import replace

import pytest

from tests.helpers.traces import big, fallback, sampled_recovered
from viz.charts.description import chart_sentence, chart_table
from viz.verify import (
    TWO_LINE_ROWS,
    Curve,
    DistributionPanel,
    acceptance_by_depth_figure,
    distributions_figure,
    draft_probability_figure,
    expected_tokens_figure,
    kept_tree_data,
)

PANELS = [
    DistributionPanel("1. <b>x", "passes 0.25", (0.10, 0.60, 0.30), (0.40, 0.35, 0.25), tested=(0,)),
    DistributionPanel("Final token", "after 1 rejection", (0.0, 0.80, 0.20)),
]
RATES = Curve("SpecInfer", (0, 1), (0.7, 0.6), (0.02, None), (33, 1))
BOUND = Curve("α_opt", (0, 1), (0.8, 0.7), (0.01, None), (33, 1), bound=True)


def kept(iteration, chance: float = 0.25):
    """The iteration as if every verified node had this exact probability."""
    nodes = [replace(n, acceptance_probability=None if n.flat_index is None else chance) for n in iteration.nodes]
    return replace(iteration, nodes=tuple(nodes))


@pytest.mark.parametrize("dark", [False, True])
def test_every_panel_has_its_distributions_its_words_and_one_scale(dark: bool):
    figure = distributions_figure(["<b>x", " the"], PANELS, "ρ × draft", dark)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    marks = [trace for trace in figure.data if trace.type == "scatter"]
    assert [tuple(bar.x) for bar in bars] == [panel.target for panel in PANELS]
    assert [tuple(mark.x) for mark in marks] == [PANELS[0].draft], "a final token is tested against nothing"
    assert [trace.name for trace in figure.data if trace.showlegend] == ["target, then its residuals", "ρ × draft"]
    assert len({tuple(axis.range) for axis in (figure.layout.xaxis, figure.layout.xaxis2)}) == 1
    assert figure.layout.xaxis.range[1] > 0.8
    words = " ".join(note.text for note in figure.layout.annotations)
    assert "passes 0.25" in words and "after 1 rejection" in words and "probability" in words


def test_tokens_are_escaped_in_ticks_titles_and_hover():
    figure = distributions_figure(["<b>x", " the"], PANELS)
    assert list(figure.layout.yaxis.ticktext) == ["&lt;b&gt;x ", "·the ", "all others "]
    assert "<b>1. &lt;b&gt;x</b>" in figure.layout.annotations[0].text
    assert figure.data[0].customdata[0] == "&lt;b&gt;x"


def test_the_numbers_behind_it_name_the_tokens():
    figure = distributions_figure(["<b>x", " the"], [PANELS[0], replace(PANELS[0], title="2. the")])
    table = chart_table(figure)
    assert [row[0] for row in table.rows] == ["<b>x", "·the", "all others"]
    assert table.heads[1:] == ("target, then its residuals", "draft", "2. the: target", "2. the: draft")
    assert table.rows[0][1:3] == ("0.1", "0.4") and "at <b>x" in chart_sentence(figure)


def test_the_tested_token_stands_out():
    bars = distributions_figure(["a", "b"], PANELS).data[0]
    assert bars.marker.color[0] != bars.marker.color[1]


def test_acceptance_has_error_bars_and_a_bound_has_none():
    figure = acceptance_by_depth_figure([RATES, BOUND], replace(RATES, label="L1 distance", y=(0.9, 1.1)))
    rates, bound, l1 = figure.data
    assert list(rates.y) == [0.7, 0.6] and list(rates.error_y.array) == [0.02, 0.0]
    assert bound.mode == "lines" and bound.line.dash == "dash" and bound.error_y.array is None
    assert list(l1.y) == [0.9, 1.1] and l1.yaxis == "y2" and not l1.showlegend
    assert "acceptance rate" in figure.layout.yaxis.title.text and "L1" in figure.layout.yaxis2.title.text
    assert "depth" in figure.layout.xaxis2.title.text
    assert ["n 33" in figure.layout.xaxis2.ticktext[0], "n 1<" in figure.layout.xaxis2.ticktext[1]] == [True, True]


def test_bins_print_their_number_of_tokens():
    accepted = Curve("min(1, target / draft)", (0.05, 0.15), (0.3, 0.5), (0.01, None), (1292, 1))
    figure = draft_probability_figure(accepted, replace(accepted, label="target probability", y=(0.02, 0.14)))
    assert {note.text: note.x for note in figure.layout.annotations} == {"1,292": 0.05, "1": 0.15}
    diagonal, first, second = figure.data
    assert list(diagonal.x) == list(diagonal.y) == [0, 1]
    assert list(first.y) == [0.3, 0.5] and list(second.y) == [0.02, 0.14]
    assert first.marker.symbol != second.marker.symbol
    assert "draft probability" in figure.layout.xaxis.title.text


def test_expected_tokens_in_the_order_given_with_numbers_clear_of_the_whiskers():
    means = Curve("expected tokens", (0, 1), (1.5, 2.5), (0.1, 0.3), (33, 33))
    figure = expected_tokens_figure(["NSS", "Traversal"], means)
    (bars,) = figure.data
    assert list(bars.y) == ["NSS ", "Traversal "] and list(bars.x) == [1.5, 2.5]
    assert figure.layout.yaxis.autorange == "reversed"
    assert [(note.x, note.text) for note in figure.layout.annotations] == [(1.6, "1.50"), (2.8, "2.50")]
    assert figure.layout.xaxis.range[1] > 2.8


def test_the_tree_tells_each_nodes_probability_and_frames_the_stop():
    iteration = kept(sampled_recovered())
    data = kept_tree_data(iteration, scene_id="a", title="SpecInfer", walker="this seed")
    nodes = {node["node_id"]: node for node in data["scene"]["nodes"]}
    assert set(nodes) == set(range(14)), "the final token has no place of its own"
    assert all(nodes[number]["both"] == "0.25" for number in range(1, 14))
    assert "reached and accepted with probability 0.2500" in nodes[1]["title"]
    assert data["marks"] == {str(iteration.accepted[-1]): "end of this seed"}
    assert "13 nodes · number: acceptance" in data["scene"]["note"]
    assert "No" in data["scene"]["summary"], "the summary still tells the final token"
    assert data["cards"] == {}
    states = {node["node_id"]: node["state"] for node in data["scene"]["nodes"]}
    verdicts = {node.node_id: node.verdict for node in iteration.nodes}
    assert "rejected" in verdicts.values()
    assert all(states[node] == verdict for node, verdict in verdicts.items() if verdict in ("accepted", "rejected"))


def test_nothing_moves_between_two_walks():
    first = kept_tree_data(kept(sampled_recovered()), scene_id="a", title="SpecInfer", walker="this seed")
    walked = replace(kept(sampled_recovered()), accepted=(), final_kind="fallback", committed_ids=(1,))
    walked = replace(walked, committed_texts=("x",))
    second = kept_tree_data(walked, scene_id="a", title="NSS", walker="this seed")
    place = [[(n["node_id"], n["row"], n["depth"]) for n in data["scene"]["nodes"]] for data in (first, second)]
    assert place[0] == place[1]
    assert second["marks"] == {"0": "end of this seed"}


def test_a_tall_tree_has_the_number_before_the_token():
    iteration = kept(big(40), 0.001)
    data = kept_tree_data(iteration, scene_id="a", title="t", walker="this seed")
    assert data["scene"]["rows"] > TWO_LINE_ROWS
    labels = {node["node_id"]: node["label"] for node in data["scene"]["nodes"]}
    assert labels[1].startswith("<0.01 ")
    widest = max(node["chars"] for node in data["scene"]["nodes"] if node["depth"] == 1)
    assert data["scene"]["column_chars"][1] == widest >= len(labels[1])


def test_a_node_that_was_not_verified_has_no_probability():
    iteration = kept(fallback())
    hidden = replace(iteration.nodes[3], flat_index=None, acceptance_probability=None)
    data = kept_tree_data(
        replace(iteration, nodes=(*iteration.nodes[:3], hidden)), scene_id="a", title="t", walker="this seed"
    )
    reported = data["scene"]["nodes"][3]
    assert "reached and accepted" not in reported["title"]
    assert reported["both"] == "", "the draft's probability in this place would be taken for that of acceptance"
