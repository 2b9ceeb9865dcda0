"""Charts of a training: figures find their panel by name, axes are labelled, and ranges stay where they are."""

import pytest

from viz.charts.description import chart_sentence, chart_table
from viz.charts.training import (
    MOST_POINTS,
    Moment,
    best,
    family_of,
    moments_figure,
    panels,
    round_range,
    series,
    training_figure,
    words_of,
)


def record(step: int, **figures: float) -> dict:
    return {"phase": "training", "step": step, "trained_s": 6.0 * step, "written": 1e9, **figures}


RECORDS = [
    record(0, held_out_overlap_1=0.14, held_out_overlap_2=0.07, held_out_loss=8.9, held_out_tokens_per_pass=1.2),
    *(record(step, loss=90.0 / step, classification_1=9.0, gradient_norm=2.0) for step in range(1, 41)),
    record(40, held_out_overlap_1=0.6, held_out_overlap_2=0.5, held_out_loss=3.1, held_out_tokens_per_pass=2.4),
]


def figure_of(title: str, **settings):
    panel = next(panel for panel in panels(RECORDS) if panel.title.startswith(title))
    return training_figure(panel, RECORDS, **settings)


def test_figures_stand_in_panels_by_what_they_measure():
    titles = [panel.title for panel in panels(RECORDS)]
    assert titles == [
        "Loss", "Acceptance, held-out text", "Tokens per target pass, held-out text", "Loss on held-out text",
        "Parts of the loss", "Gradient norm",
    ]  # fmt: skip


def test_a_plain_loss_and_its_held_out_ones_share_a_panel():
    text = [record(1, loss=3.0, held_out=3.1, held_out_stories=2.9, held_out_code=3.3)]
    (panel,) = panels(text)
    assert panel.names == ("loss", "held_out", "held_out_code", "held_out_stories")
    figure = training_figure(panel, text)
    assert [trace.name for trace in figure.data] == ["loss", "held-out", "code", "stories"]
    assert len({(trace.line.dash, trace.marker.symbol) for trace in figure.data}) == 4, "not by colour alone"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("block_efficiency", "Tokens per target pass"),
        ("held_out_rate_over_static", "Modelled throughput"),
        ("held_out_agreement_2", "Greedy agreement"),
        ("looping", "Text that loops"),
        ("regressions", "Parts of the loss"),
        ("learning_rate", "Learning rate"),
        ("temperature_seen", "Temperature seen"),
    ],
)
def test_a_name_finds_its_family(name: str, title: str):
    assert family_of(name).title == title


@pytest.mark.parametrize("dark", [False, True])
def test_shares_are_percent_from_zero_and_legends_leave_out_what_the_heading_says(dark: bool):
    figure = figure_of("Acceptance", dark=dark)
    assert [trace.name for trace in figure.data] == ["depth 1", "depth 2"]
    assert figure.data[0].y == pytest.approx((14.0, 60.0)) and figure.data[0].x == (0, 40)
    assert figure.layout.yaxis.range[0] == 0.0 and 100 < figure.layout.yaxis.range[1] < 103
    assert figure.layout.yaxis.title.text.endswith("(%)") and figure.layout.xaxis.title.text == "training step"
    assert "overlap of the two distributions" in chart_sentence(figure).lower() and chart_table(figure).rows


@pytest.mark.parametrize(
    ("names", "legend"),
    [
        (("overlap", "held_out_overlap", "held_out_overlap_code"), ["training", "held-out", "code"]),
        (("held_out_overlap", "held_out_overlap_code"), ["mean", "code"]),
        (("held_out", "held_out_code"), ["mean", "code"]),
        (("loss", "held_out", "held_out_code"), ["loss", "held-out", "code"]),
        (("looping", "looping_held_out"), ["training", "held-out"]),
        (("held_out_agreement_1", "held_out_agreement_2"), ["depth 1", "depth 2"]),
        (("loss", "held_out_loss"), ["loss", "held-out loss"]),
        (("held_out_overlap",), ["held-out overlap"]),
        (("regression", "classification_1"), ["regression", "classification at depth 1"]),
    ],
)
def test_legends_are_short(names: tuple[str, ...], legend: list[str]):
    (panel,) = panels([record(1, **dict.fromkeys(names, 0.5))])
    assert [panel.words(name) for name in panel.names] == legend


def test_nothing_moves_while_figures_come_in():
    early = training_figure(panels(RECORDS)[0], RECORDS[:30], planned=1000)
    late = training_figure(panels(RECORDS)[0], RECORDS, planned=1000)
    assert early.layout.xaxis.range == late.layout.xaxis.range and late.layout.xaxis.range[1] >= 1000
    by_time = training_figure(panels(RECORDS)[0], RECORDS, by_time=True, planned=10)
    assert by_time.layout.xaxis.title.text == "minutes of training"
    assert by_time.data[0].x[-1] == pytest.approx(4.0) and 10 <= by_time.layout.xaxis.range[1] < 11


def test_first_losses_far_above_the_others_are_reported_not_drawn():
    figure = figure_of("Loss")
    assert figure.layout.yaxis.range[1] < 90
    assert "starts at 90" in figure.layout.annotations[0].text
    assert figure.data[0].y[0] == 90.0, "the curve itself is whole"
    assert not training_figure(panels(RECORDS)[4], RECORDS).layout.annotations


def test_tokens_per_pass_begin_at_those_of_plain_decoding():
    low, high = figure_of("Tokens").layout.yaxis.range
    assert 0.85 < low < 1 and high >= 2.5


def test_long_curves_are_means_of_neighbours():
    long = [record(step, loss=float(step % 2)) for step in range(1, 4 * MOST_POINTS + 1)]
    points = series(long, "loss")
    assert len(points) == MOST_POINTS and {value for _, value in points} == {0.5}
    assert points[-1][0] == 4 * MOST_POINTS
    (panel,) = panels(long)
    assert training_figure(panel, long).data[0].mode == "lines"


def test_what_is_no_number_is_left_out():
    odd = [record(1, loss=1.0), record(2, loss=float("nan")), record(3, loss=None), record(4, loss="x"), record(5)]
    assert series(odd, "loss") == [(1, 1.0)]


@pytest.mark.parametrize("dark", [False, True])
def test_moments_have_a_frame_around_the_one_that_is_looked_at(dark: bool):
    moments = [Moment(0, "before training", 1.0), Moment(50, "step 50", 2.25), Moment(100, "<b>x</b>", 3.0)]
    figure = moments_figure(moments, 1, by_time=False, planned=200, dark=dark)
    curve, frame = figure.data
    assert (curve.x, curve.y) == ((0, 50, 100), (1.0, 2.25, 3.0)) and (frame.x, frame.y) == ((50,), (2.25,))
    assert curve.hovertext[2] == "&lt;b&gt;x&lt;/b&gt;"
    assert figure.layout.xaxis.range[1] >= 200 and figure.layout.yaxis.range[1] > 3.0
    assert figure.layout.yaxis.title.text == "tokens per target pass"


def test_the_best_figure_is_that_of_held_out_text():
    assert best(RECORDS) == ("held_out_tokens_per_pass", 2.4)
    assert best([record(1, loss=3.0, held_out=2.5), record(2, loss=2.0, held_out=2.7)]) == ("held_out", 2.5)
    assert best([record(1, acceptance=0.3), record(2, acceptance=0.2)]) == ("acceptance", 0.3)
    assert best([]) is None and best([record(1, loss=2.0)]) is None


@pytest.mark.parametrize("values", [[], [2.61, 2.93], [0.0, 9.0], [5.0], [-1.0, 1.0], [0.0012, 0.0017]])
def test_ranges_are_round(values: list[float]):
    low, high = round_range(values)
    assert low <= min(values, default=0) < high and high >= max(values, default=1)
    assert len(f"{low:g}") <= 6 and len(f"{high:g}") <= 6


def test_names_in_words():
    assert words_of("held_out_overlap_2") == "held-out overlap at depth 2"
    assert words_of("tokens_per_pass_static") == "tokens per pass, best static shape"
    assert words_of("rate_over_static") == "rate over static"
