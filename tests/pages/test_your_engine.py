"""Your engine: an example at once, an engine's own words read and drawn, a sentence for what is foreign."""

from dataclasses import replace

import pytest

from decoding.recorded import recorded_run
from decoding.trace.engine_metrics import read_metrics
from pages.ui.engine.view import EXAMPLE, definitions_html, example
from tests.pages.apptest import open_page, sentences
from viz.charts.engines import other_lengths_figure, positions_figure

PAGE = "pages/your_engine.py"
LOG = (
    "INFO SpecDecoding metrics: Mean acceptance length: 1.60, Accepted throughput: 12.00 tokens/s, "
    "Drafted throughput: 60.00 tokens/s, Accepted: 120 tokens, Drafted: 600 tokens, "
    "Per-position acceptance rate: 0.400, 0.150, 0.050, Avg Draft acceptance rate: 20.0%"
)


@pytest.fixture
def page():
    return open_page(PAGE)


def shown(page) -> str:
    return "\n".join(str(each.value) for each in (*page.markdown, *page.info, *page.warning, *page.caption))


def test_it_opens_on_the_profile_of_a_recorded_run(page):
    assert not sentences(page)
    assert "An example" in shown(page) and recorded_run(EXAMPLE).label in shown(page)
    assert "profile.json" in shown(page) and "K = 3" in shown(page)


def test_what_an_engine_logs_takes_its_place_and_what_is_foreign_is_one_sentence(page):
    page.text_area(key="engine_text").set_value(LOG).run()
    assert not sentences(page)
    assert "**vLLM**" in shown(page) and "K = 3" in shown(page) and "An example" not in shown(page)
    page.text_area(key="engine_text").set_value("the weather is fine").run()
    (said,) = sentences(page)
    assert said.endswith(".") and "**vLLM**" not in shown(page)


def test_the_charts_show_the_figures_and_the_bounds():
    metrics = read_metrics(example())
    run = recorded_run(EXAMPLE)
    alone, beside = (positions_figure(metrics, rates, run.label) for rates in ([], [0.5, 0.25]))
    assert [round(y, 6) for y in alone.data[0].y] == [round(100 * each.marginal, 6) for each in metrics.positions]
    assert len(alone.data) == 2 and list(beside.data[2].y) == [50, 25]
    figure = other_lengths_figure(metrics)
    high, stayed, low = (trace.y for trace in figure.data[1:])
    assert all(most >= mid >= least for most, mid, least in zip(high, stayed, low, strict=True)) and high[-1] > low[-1]
    assert figure.data[0].x[-1] == metrics.draft_length == figure.data[1].x[0]


def test_every_definition_is_named_and_text_is_escaped():
    metrics = read_metrics(example())
    said = definitions_html(metrics)
    assert all(f"<th>{each.name}</th>" in said for each in metrics.definitions)
    odd = replace(metrics.definitions[0], name="<script>")
    assert "<script>" not in definitions_html(replace(metrics, definitions=(odd,)))
