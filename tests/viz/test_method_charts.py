"""Charts that set methods beside each other, from plain numbers."""

from dataclasses import replace

from viz.charts.methods import (
    Bar,
    ProgressCurve,
    TokenCost,
    latency_figure,
    names,
    progress_figure,
    speed_figure,
    token_cost_figure,
)

BARS = [
    Bar("Autoregressive", 50.0, 48.0, 51.0, "50.0", baseline=True),
    Bar("DynaTree · no history, D_0 3, D_max 4", 75.0, 70.0, 90.0, "75.0 · 1.50×"),
]


def test_speed_has_median_quartiles_and_words_clear_of_the_whisker():
    figure = speed_figure(BARS, dark=True)
    (bars,) = figure.data
    assert list(bars.x) == [50.0, 75.0]
    assert list(bars.error_x.array) == [1.0, 15.0] and list(bars.error_x.arrayminus) == [2.0, 5.0]
    assert [(note.x, note.text) for note in figure.layout.annotations] == [(51.0, "50.0"), (90.0, "75.0 · 1.50×")]
    assert figure.layout.xaxis.range[1] > 90 and figure.layout.xaxis.title.text == "tokens / s (median, quartiles)"
    few = speed_figure([replace(bar, repeats=3) for bar in BARS])
    assert few.layout.xaxis.title.text == "tokens / s (median, range)" and "(range " in few.data[0].hovertemplate


def test_long_labels_break_into_two_lines_and_stay_different():
    short, long = names(["DynaTree", "DynaTree · no history, D_0 3, D_max 4"])
    assert short == "DynaTree" and long == "DynaTree · no history, D_0<br>3, D_max 4"
    assert names(["<b>x</b>"]) == ["&lt;b&gt;x&lt;/b&gt;"]


def test_token_cost_stacks_only_the_parts_that_are_there():
    costs = [TokenCost("a", {"draft": 0.002, "verify": 0.004}), TokenCost("b", {"whole": 0.01})]
    figure = token_cost_figure(costs)
    assert {trace.name: list(trace.x) for trace in figure.data} == {
        "no phase times (external baseline)": [0.0, 10.0],
        "draft": [2.0, 0.0],
        "verify": [4.0, 0.0],
    }
    assert figure.layout.barmode == "stack"


def test_progress_begins_at_nothing_and_marks_only_the_end():
    figure = progress_figure([ProgressCurve("a", (0.1, 0.2), (3, 5))])
    (curve,) = figure.data
    assert list(curve.x) == [0.0, 0.1, 0.2] and list(curve.y) == [0, 3, 5]
    assert list(curve.marker.size) == [0, 0, 10]


def test_latency_is_in_milliseconds_on_two_named_axes():
    first = [Bar("a", 0.020, 0.019, 0.025, "")]
    figure = latency_figure(first, [Bar("a", 0.005, 0.004, 0.006, "")])
    assert [list(trace.x) for trace in figure.data] == [[20.0], [5.0]]
    assert "TTFT" in figure.layout.xaxis.title.text and "TPOT" in figure.layout.xaxis2.title.text
