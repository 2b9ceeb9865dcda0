"""Charts of the papers' tables and figures: ours and theirs on one axis or in two panels, also where one is missing."""

import pytest

from viz.charts.description import chart_sentence
from viz.charts.papers import PaperMark, far_apart, lines_figure, places_figure, table_figure

TABLE = [
    PaperMark("Autoregressive", ours=1.0, low=1.0, high=1.0, paper=1.0),
    PaperMark("Tree <b>, D = 8", ours=1.8, low=1.6, high=1.9, paper=1.5),
    PaperMark("Never run", paper=1.64),
]
LINES = [PaperMark(way, at, speed * at, speed * at - 1, speed * at + 2) for way, speed in (("A", 1.0), ("B", 2.0))
         for at in (100, 500)]  # fmt: skip


def test_a_table_has_a_dot_with_its_interval_and_the_papers_mark():
    figure = table_figure(TABLE, "speed-up")
    paper, here = figure.data
    assert (paper.name, list(paper.x)) == ("paper", [1.0, 1.5, 1.64])
    assert (here.name, list(here.x)) == ("Draftscope, 95% interval", [1.0, 1.8])
    assert here.error_x.array == pytest.approx([0, 0.1]) and here.error_x.arrayminus == pytest.approx([0, 0.2])
    assert paper.marker.symbol != here.marker.symbol and {paper.xaxis, here.xaxis} <= {None, "x"}
    assert figure.layout.xaxis.title.text == "speed-up"
    assert list(figure.layout.yaxis.categoryarray) == ["Never run", "Tree &lt;b&gt;, D = 8", "Autoregressive"]
    assert "Draftscope, 95% interval from 1 (at Autoregressive) to 1.8 (at Tree <b>, D = 8)" in chart_sentence(figure)


@pytest.mark.parametrize(("factor", "apart"), [(1.0, False), (7.0, False), (0.15, False), (9.0, True), (0.1, True)])
def test_numbers_far_apart_get_an_axis_each(factor, apart):
    marks = [
        PaperMark("A", ours=100.0 * factor, paper=100.0),
        PaperMark("B", ours=150 * factor, paper=150.0),
        PaperMark("C", paper=1),
    ]
    assert far_apart(marks) is apart
    figure = table_figure(marks, "tokens/s", dark=True)
    paper, here = figure.data
    assert (paper.xaxis == "x2") is apart and here.xaxis in (None, "x")
    assert figure.layout.xaxis.title.text == ("tokens/s, Draftscope" if apart else "tokens/s")
    if apart:
        assert figure.layout.xaxis2.title.text == "tokens/s, paper" and figure.layout.yaxis2.matches == "y"
    lines = lines_figure([PaperMark("A", at, at * factor, paper=at) for at in (1, 2)], "tokens/s", "length")
    assert (lines.data[1].yaxis == "y2") is apart and lines.data[1].showlegend is False
    assert (lines.data[1].mode == "lines+markers") is apart


def test_numbers_that_share_no_place_are_compared_by_their_middle():
    assert not far_apart([PaperMark("A", 100, ours=3.0), PaperMark("A", 200, paper=1.5)])
    assert far_apart([PaperMark("A", 100, ours=300.0), PaperMark("A", 200, paper=1.5)])
    assert not far_apart([PaperMark("A", ours=3.0)]) and not far_apart([])


def test_a_figure_has_a_line_per_way_over_its_axis():
    figure = lines_figure([*LINES, PaperMark("C", 100, paper=90.0)], "speed-up", "generated tokens")
    assert [trace.name for trace in figure.data] == ["A", "B", "C"]
    assert list(figure.data[1].x) == [100, 500] and list(figure.data[1].y) == [200.0, 1000.0]
    assert list(figure.data[1].error_y.array) == [2.0, 2.0]
    assert figure.data[0].line.dash != figure.data[1].line.dash
    assert figure.data[2].marker.symbol.endswith("-open") and figure.data[2].showlegend
    assert figure.layout.xaxis.title.text == "generated tokens" and len(figure.layout.annotations) == 1
    assert not lines_figure(LINES, "speed-up", "length").layout.annotations


def test_of_more_methods_than_colours_those_of_one_family_share_theirs():
    names = [f"{letter}{rest}" for letter in "ABCDEFG" for rest in ("", ", delayed")]
    traces = lines_figure([PaperMark(name, 1, 1.0) for name in names], "tokens/s", "T").data
    looks = {trace.name: (trace.line.color, trace.line.dash, trace.marker.symbol) for trace in traces}
    assert len(set(looks.values())) == len(names) and len({look[0] for look in looks.values()}) == 7
    assert looks["C"][0] == looks["C, delayed"][0] and looks["C"][1:] != looks["C, delayed"][1:]
    few = lines_figure([PaperMark(name, 1, 1.0) for name in names[:8]], "tokens/s", "T").data
    assert len({trace.line.color for trace in few}) == 8


def test_places_of_two_settings_are_coloured_marks():
    marks = [PaperMark(way, at, at * 100 + up) for way, up in (("low", 2), ("lower", 1)) for at in (0.8, 0.9)]
    level = PaperMark("Tree <b>", 0.8, 70.0)
    figure = places_figure(
        [*marks, PaperMark("low", 0.95), level], {"low": 0.4, "lower": 0.3}, "tokens/s", "τ_h", "τ_l"
    )
    (found,) = figure.data
    assert list(zip(found.x, found.y, found.marker.color, strict=True)) == [
        (0.8, 0.4, 82.0), (0.9, 0.4, 92.0), (0.8, 0.3, 81.0), (0.9, 0.3, 91.0)
    ]  # fmt: skip
    assert found.mode == "markers+text" and list(found.text) == ["82", "92", "81", "91"]
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("τ_h", "τ_l")
    assert [each.text for each in figure.layout.annotations] == ["Tree &lt;b&gt;: 70"]


def test_few_places_are_the_ticks_of_their_axis():
    def ticks(*places):
        return lines_figure([PaperMark("A", at, 1.0) for at in places], "speed-up", "depth").layout.xaxis.tickvals

    assert ticks(4, 2, 3) == (2, 3, 4) and ticks(100, 250, 500, 1500) == (100, 250, 500, 1500)
    assert ticks(1, 2, 100) is None and ticks(*range(20)) is None and ticks(5) is None


def test_names_on_the_axis_have_marks_beside_one_another_and_no_lines():
    marks = [PaperMark(way, kind, 1.0, paper=2.0) for way in ("A", "B") for kind in ("stories", "code")]
    figure = lines_figure(marks, "speed-up", "kind of text")
    assert {trace.mode for trace in figure.data} == {"markers"} and figure.layout.scattermode == "group"
    assert [trace.offsetgroup for trace in figure.data] == ["A", "A", "B", "B"]
    assert figure.layout.xaxis.categoryarray == ("stories", "code")


def test_one_prompt_has_no_interval_and_nothing_run_no_dot_of_ours():
    (only,) = table_figure([PaperMark("A", ours=2.0)], "speed-up").data
    assert only.name == "Draftscope" and list(only.error_x.array) == [0]
    assert [trace.name for trace in table_figure([PaperMark("A", paper=2.0)], "speed-up").data] == ["paper"]
