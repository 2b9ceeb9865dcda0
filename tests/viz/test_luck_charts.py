"""Charts of luck and hindsight: what they draw, and that token text stays data."""

import pytest

from viz.charts.hindsight import (
    BudgetLine,
    RankBar,
    budget_figure,
    lost_figure,
    ranks_figure,
    run_luck_figure,
    token_distribution_figure,
)

BARS = (
    RankBar("<b>", 1, True, "taken", "in this tree"),
    RankBar(" was", 21, False, "possible", "seen in iteration 4"),
    RankBar("\n", None, False, "beyond", "unknown"),
    RankBar(" a", 3, True, "beyond", "in this tree"),
)


def test_the_law_with_what_happened_and_the_rerolled_draws():
    figure = token_distribution_figure({1: 0.25, 2: 0.0, 3: 0.75}, 3, {1: 30, 3: 70})
    exact, happened, rolled = figure.data
    assert list(exact.y) == [25, 0] and list(exact.x) == [1, 2] and (happened.x[0], happened.y[0]) == (3, 75)
    assert list(rolled.y) == [30, 0, 70] and "100 re-rolled" in rolled.name
    assert figure.layout.xaxis.title.text and figure.layout.yaxis.title.text


def test_what_happened_stays_in_view_though_it_was_unlikely():
    assert list(token_distribution_figure({1: 1.0}, 4).data[1].x) == [4]


def test_the_run_is_summed_up_in_its_band():
    figure = run_luck_figure((0, 2), (3, 1), (2.0, 2.0), (1.0, 3.0), current=2)
    wide, narrow, line, here = figure.data
    assert list(line.y) == [1.0, 0.0] and list(line.x) == [1, 3]
    assert list(narrow.y)[:2] == pytest.approx([1.0, 2.0]) and list(wide.y)[:2] == pytest.approx([2.0, 4.0])
    assert (here.x[0], here.y[0]) == (3, 0.0)
    assert len(run_luck_figure((0, 2), (3, 1), (2.0, 2.0), (1.0, 3.0)).data) == 3


@pytest.mark.parametrize("dark", [False, True])
def test_ranks_by_what_a_tree_could_reach(dark):
    figure = ranks_figure(BARS, dark)
    assert {bar.name: list(bar.y) for bar in figure.data} == {
        "in this tree": [1],
        "within reach of the best tree of this size": [21],
        "out of reach": [3],
    }
    assert figure.data[1].text == ("> 20",) and figure.layout.annotations[0].text == "?"
    assert figure.layout.xaxis.ticktext[0] == "&lt;b&gt;" and figure.layout.xaxis.ticktext[2] == "\\n"


def test_the_axis_says_that_only_the_first_tokens_are_drawn():
    assert ranks_figure(BARS).layout.xaxis.title.text == "token that followed"
    assert ranks_figure(BARS * 7).layout.xaxis.title.text == "token that followed (first 24 of 28)"


def test_budgets_mark_the_best_and_the_whole():
    figure = budget_figure(BudgetLine((1.0, 2.0, 2.0), (0.01, 0.01, 0.02), best=1))
    rates, whole, best, tokens = figure.data
    assert list(rates.y) == pytest.approx([100, 200, 100]) and (whole.x[0], best.x[0]) == (2, 1)
    assert list(tokens.y) == [1, 2, 2] and tokens.line.shape == "hv"
    assert "best budget: 200.0 tokens/s" in best.name


def test_lost_rates_by_iteration():
    (bars,) = lost_figure((0, 3), (5.0, 0.0), current=3).data
    assert list(bars.x) == [1, 4] and bars.marker.color[0] != bars.marker.color[1]
