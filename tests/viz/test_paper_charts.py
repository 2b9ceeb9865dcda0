"""Charts of the papers' tables: our estimates and theirs, also where one of them is missing."""

import pandas as pd
import pytest

from decoding.papers.judge import judge
from decoding.papers.registry import EXHIBITS
from tests.experiments.test_papers import BY_KEY, DYNATREE, row, rows
from viz.paper_charts import exhibit_figure


def test_a_table_has_a_dot_with_an_interval_and_the_papers_mark():
    outcome = judge(BY_KEY["dynatree/table-1"], rows())
    paper, here = exhibit_figure(outcome, outcome.exhibit.figures[0]).data
    assert paper.name == "paper" and list(paper.x) == [1.0, 1.47, 1.50, 1.64]
    assert here.x[here.y.index(DYNATREE)] == pytest.approx(1.8) and min(here.error_x.array) >= 0
    assert exhibit_figure(outcome, outcome.exhibit.figures[0], dark=True).layout.xaxis.title.text == "speed-up"


def test_a_figure_has_a_line_per_way_over_its_axis():
    sweep = "DynaTree, lengths"
    made = [row(line, prompt, speed * length, experiment=sweep, asked_tokens=length, block=f"{prompt}{length}")
            for line, speed in (("autoregressive", 1.0), ("dynatree", 2.0)) for prompt in "abc"
            for length in (100, 500)]  # fmt: skip
    outcome = judge(BY_KEY["dynatree/figure-5"], pd.DataFrame(made))
    figure = exhibit_figure(outcome, outcome.exhibit.figures[0])
    assert [trace.name for trace in figure.data] == ["Autoregressive", "DynaTree"]
    assert list(figure.data[1].x) == [100, 500] and list(figure.data[1].y) == [2.0, 2.0]
    assert figure.layout.xaxis.title.text == "generated tokens"


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.key)
def test_what_was_not_run_shows_the_papers_numbers(exhibit):
    outcome = judge(exhibit, rows()[:0])
    for figure in exhibit.figures:
        names = {trace.name for trace in exhibit_figure(outcome, figure).data}
        assert "here, 95% interval" not in names
