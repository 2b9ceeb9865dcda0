"""Your engine: an example at once, an engine's own words read and drawn, a sentence for what is foreign."""

import math
from dataclasses import replace

import pytest

from decoding.analysis.batch import Rates
from decoding.analysis.known_models import known_shape
from decoding.analysis.roofline import ACCELERATORS, Setup
from decoding.analysis.when_it_pays import answer
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.recorded import recorded_run
from decoding.trace.engine_metrics import read_metrics
from pages.ui.common.models import ModelManager, manager
from pages.ui.engine.batch import HERE, LOOKUP, OWN_CHIP, OWN_CONFIG, batches_html
from pages.ui.engine.view import EXAMPLE, definitions_html, example, next_words
from tests.pages.apptest import open_page, sentences
from viz.charts.engines import other_lengths_figure, positions_figure, speedup_by_batch_figure

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
    unknown = positions_figure(read_metrics(b"Per-position acceptance rate: 0.400, 0.150"), [], "")
    assert alone.data[0].error_y.array and unknown.data[0].error_y.array is None, "no error is known, so none is drawn"
    assert len(alone.data) == 2 and list(beside.data[2].y) == [50, 25]
    figure = other_lengths_figure(metrics)
    high, stayed, low = (trace.y for trace in figure.data[1:])
    assert all(most >= mid >= least for most, mid, least in zip(high, stayed, low, strict=True)) and high[-1] > low[-1]
    assert figure.data[0].x[-1] == metrics.draft_length == figure.data[1].x[0]


def test_what_to_do_next_follows_from_the_rates():
    def said(*rates: str) -> str:
        log = f"Mean acceptance length: 1.60, Per-position acceptance rate: {', '.join(rates)}"
        return next_words(read_metrics(log.encode()))

    assert said("0.400", "0.150", "0.050").startswith("With K = 2 a pass would still commit 1.55 of its 1.60 tokens. ")
    assert "accepted in 90% of its tests: try a larger K" in said("0.800", "0.720")
    assert said("0.400", "0.150").startswith("Which K pays")
    assert next_words(read_metrics(b"Mean acceptance length: 1.60")).startswith("Which K pays")


def test_every_definition_is_named_and_text_is_escaped():
    metrics = read_metrics(example())
    said = definitions_html(metrics)
    assert all(f"<th>{each.name}</th>" in said for each in metrics.definitions)
    odd = replace(metrics.definitions[0], name="<script>")
    assert "<script>" not in definitions_html(replace(metrics, definitions=(odd,)))


def test_when_it_stops_to_pay_opens_with_an_answer(page):
    assert not sentences(page)
    assert "**Modelled" in shown(page) and "Llama" in shown(page) and "H100 SXM" in shown(page)
    page.selectbox(key="batch_target").set_value("Qwen3-30B-A3B").run()
    page.selectbox(key="batch_draft").set_value("EAGLE-3 head on the target").run()
    assert not sentences(page) and "of them active" in shown(page)
    page.text_area(key="engine_text").set_value(LOG).run()  # no ranks, so no trees
    assert not sentences(page) and "Without acceptance by rank there is no tree" in shown(page)


def test_measured_passes_of_this_machine_answer_too(page, monkeypatch):
    page.segmented_control(key="batch_passes").set_value(HERE).run()
    assert not sentences(page) and page.button(key="measure_batches").label == "Measure batches"
    assert "Modelled" not in shown(page)
    curve = CostCurve((CostPoint(1, 0.01, 0.01, 0.01), CostPoint(64, 0.1, 0.1, 0.1)))
    one = CostModel(curve, curve, 0.0, 0.0, 1, 256, "2026-01-02T03:04:05Z", "a machine")
    costs = {1: one, 8: replace(one, draft=curve.raised(0.1), batch=8)}
    monkeypatch.setattr(manager(), "batch_costs", {"": costs})
    monkeypatch.setattr(ModelManager, "info", replace(recorded_run(EXAMPLE).pair, name="A pair"))
    page.run()
    assert not sentences(page)
    assert "**Modelled from measured passes" in shown(page) and "A pair. Acceptance of " in shown(page)
    assert "Other programs" not in shown(page)
    monkeypatch.setattr(manager(), "batch_costs", {"": {1: replace(one, others=0.4)}})
    page.run()
    assert (
        "Other programs used up to 40%" in shown(page) and page.button(key="measure_batches").label == "Measure again"
    )


def test_a_configuration_of_ones_own_and_a_damaged_one(page):
    page.selectbox(key="batch_target").set_value(OWN_CONFIG).run()
    assert not sentences(page) and "your target" in shown(page)
    page.text_area(key="batch_target_text").set_value('{"model_type": "llama"}').run()
    (said,) = sentences(page)
    assert "your target has no hidden_size" in said
    page.selectbox(key="batch_target").set_value("GPT-2").run()
    page.selectbox(key="batch_chip").set_value(OWN_CHIP).run()
    page.selectbox(key="batch_draft").set_value(LOOKUP).run()
    assert not sentences(page) and "your own accelerator" in shown(page).replace("\\", "")


def test_the_chart_by_batch_marks_one_and_where_it_is_crossed():
    points = [(1, 2.0, "K=3"), (16, 1.5, "K=2"), (256, 0.5, "K=1")]
    figure = speedup_by_batch_figure({"best chain": points}, (40.0,), "modelled", 256)
    assert list(figure.data[0].x) == [1, 16, 256] and list(figure.data[0].y) == [2.0, 1.5, 0.5]
    assert "modelled" in figure.data[0].name and "modelled" in figure.layout.yaxis.title.text
    assert figure.layout.xaxis.type == "log" and list(figure.layout.xaxis.tickvals) == [1, 16, 256]
    level, crossed, crowded = figure.layout.shapes
    assert level.y0 == level.y1 == 1 and crossed.x0 == 40 and crowded.x0 < 256 < crowded.x1
    labels = {note.text: note.x for note in figure.layout.annotations}
    assert labels["break-even 40"] == pytest.approx(math.log10(40)) and "no room in memory" in labels
    low, high = figure.layout.xaxis.range
    assert low < 0 < math.log10(256) < high


def test_the_table_by_batch_says_that_it_is_modelled():
    target = known_shape("Llama-3.1-8B")
    found = answer(target, None, Setup(ACCELERATORS["l40s"]), Rates((0.5,), (0.4, 0.2)), (1, 64))
    said = batches_html(found)
    assert "<caption>Modelled</caption>" in said and said.count("<tr>") == 3 and "no room" not in said
    assert f"{found.rows[1].point.tree.speedup:.2f}x" in said
