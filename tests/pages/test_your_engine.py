"""Your engine: an example at once, an engine's own words read and drawn, a sentence for what is foreign."""

import math
import re
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from decoding.analysis.batch import Rates
from decoding.analysis.known_models import KNOWN_MODELS, known_shape
from decoding.analysis.own_server import LogCheck, OwnPoint
from decoding.analysis.roofline import ACCELERATORS, Setup, gain_band
from decoding.analysis.when_it_pays import answer
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.recorded import recorded_run
from decoding.trace.engine_metrics import read_metrics
from pages.ui.common.models import ModelManager, manager
from pages.ui.common.state import Run
from pages.ui.engine.batch import HERE, above_words, batches_html, speculation
from pages.ui.engine.models import EAGLE3, LOOKUP, ON_SCREEN, OWN_CHIP, OWN_CONFIG, TYPED
from pages.ui.engine.own import acceptance_words, best_words, check_words, flip_words, headline, log_headline
from pages.ui.engine.view import EXAMPLE, PAYS, VIEW, can_pay, definitions_html, example, next_words
from tests.pages.apptest import ROOT, open_page, sentences
from viz.charts.engines import other_lengths_figure, positions_figure, speedup_by_batch_figure

PAGE = "pages/your_engine.py"
LOG = (
    "INFO SpecDecoding metrics: Mean acceptance length: 1.60, Accepted throughput: 12.00 tokens/s, "
    "Drafted throughput: 60.00 tokens/s, Accepted: 120 tokens, Drafted: 600 tokens, "
    "Per-position acceptance rate: 0.400, 0.150, 0.050, Avg Draft acceptance rate: 20.0%"
)
MEAN = "Mean acceptance length: 1.60"
ENGINE = "INFO Engine 000: Avg generation throughput: 254.0 tokens/s, Running: 16 reqs, Waiting: 0 reqs"


@pytest.fixture
def page():
    return open_page(PAGE)


def shown(page) -> str:
    return "\n".join(str(each.value) for each in (*page.markdown, *page.info, *page.warning, *page.caption)).replace(
        "\\", ""
    )


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
    drawn = [(line.line.color, line.line.dash, line.marker.symbol) for line in figure.data]
    assert len(set(drawn)) == len({color for color, *_ in drawn}) == 4, "lines that differ at a glance"
    high, stayed, low = (trace.y for trace in figure.data[1:])
    assert all(most >= mid >= least for most, mid, least in zip(high, stayed, low, strict=True)) and high[-1] > low[-1]
    assert figure.data[0].x[-1] == metrics.draft_length == figure.data[1].x[0]


def test_what_the_last_positions_add_is_said():
    def said(*rates: str) -> str:
        mean = 1 + sum(map(float, rates))
        log = f"Mean acceptance length: {mean:.2f}, Per-position acceptance rate: {', '.join(rates)}"
        return next_words(read_metrics(log.encode()))

    assert said("0.400", "0.150", "0.050") == "Position 3 adds 0.05 of the 1.60 tokens that a pass commits."
    assert said("0.400", "0.030", "0.010").startswith("Positions 2 to 3 add 0.04 of the 1.44 tokens")
    assert "accepted in 90% of its tests: try a larger K" in said("0.800", "0.720")
    few = LOG.replace("1.60", "2.36").replace("0.400, 0.150, 0.050", "0.800, 0.560").replace("20.0%", "68.0%")
    few = read_metrics(few.replace("120 tokens", "34 tokens").replace("600 tokens", "50 tokens").encode())
    assert few.positions[1].conditional_error and next_words(few) == "", "70% of 20 tests"
    assert said("0.400", "0.150") == next_words(read_metrics(b"Mean acceptance length: 1.60")) == ""


def test_one_click_leads_to_what_pays(page):
    page.button(key="engine_pays").click().run()
    assert not sentences(page) and page.segmented_control(key=VIEW).value == PAYS
    page.run()
    assert page.segmented_control(key=VIEW).value == PAYS


def test_no_answer_is_promised_where_there_is_none():
    old = read_metrics(b"slot print_timing: draft acceptance rate = 0.57576 (  171 accepted /   297 generated)")
    assert (
        not can_pay(old) and can_pay(read_metrics(b"Mean acceptance length: 1.60")) and can_pay(read_metrics(example()))
    )


def test_whether_acceptance_is_normal_is_said_with_its_source():
    low = acceptance_words(read_metrics(LOG.encode()))
    assert "2.29 for Llama-3.1-8B + EAGLE (vLLM GitHub thread 20780" in low and "Yours is 1.60" in low
    assert "Position 1 is accepted in 40.0%" in low and "chat template" in low and "draftscope doctor" in low
    fine = acceptance_words(read_metrics(LOG.replace("0.400, 0.150, 0.050", "0.700, 0.150, 0.050").encode()))
    assert "Position 1" not in fine and "none was found of a draft model" in low
    damaged = read_metrics(LOG.replace("length: 1.60", "length: 2.60").encode())
    assert damaged.wrong and "Yours is" not in acceptance_words(damaged) and not next_words(damaged)


def test_every_definition_is_named_and_text_is_escaped():
    metrics = read_metrics(example())
    said = definitions_html(metrics)
    assert all((f">{each.name}</th>" in said) == (each.value is not None) for each in metrics.definitions)
    assert 0 < said.count("<tr>") - 1 < len(metrics.definitions)
    odd = replace(metrics.definitions[0], name="<script>")
    assert "<script>" not in definitions_html(replace(metrics, definitions=(odd,)))


SERVER = {"target": "Llama-3.1-70B", "draft": "Llama-3.2-1B", "chip": "h100-sxm"}


def pays(page, log: str = "", tensor_parallel: int = 4, **changed):
    """The page with a log, on what pays for a server."""
    page.segmented_control(key=VIEW).set_value(PAYS).run()
    if log:
        page.text_area(key="engine_text").set_value(log).run()
        for role, name in (SERVER | changed).items():
            page.selectbox(key=f"batch_{role}").set_value(name)
        page.run()
        if OWN_CONFIG not in changed.values():  # whose text comes first
            page.number_input(key="batch_tp").set_value(tensor_parallel).run()
    return page


def has_table(page) -> bool:
    """Whether a best K stands by batch."""
    return any("best K" in each.proto.body for each in page.get("html"))


def test_it_opens_with_an_example_that_is_called_one(page):
    pays(page)
    assert not sentences(page) and "An example" in shown(page)
    assert "**" in shown(page) and "Llama" in shown(page) and "H100 SXM" in shown(page)
    page.selectbox(key="example_target").set_value("Qwen3-30B-A3B").run()
    assert not sentences(page) and "of them active" in shown(page)


def test_there_is_no_verdict_without_the_models_of_the_server(page):
    page.segmented_control(key=VIEW).set_value(PAYS).run()
    page.text_area(key="engine_text").set_value(LOG).run()
    assert not sentences(page)
    assert "No verdict yet" in shown(page) and "Choose target, draft and accelerator" in shown(page)
    assert "**" not in shown(page) and not page.code


def test_there_is_no_verdict_for_a_paste_that_cannot_be_read(page):
    pays(page, LOG)
    page.text_area(key="engine_text").set_value(LOG[:100]).run()
    assert len(sentences(page)) == 1 and "could not be read, so there is no verdict" in shown(page)
    assert "**" not in shown(page) and not page.code


@pytest.mark.slow
def test_a_servers_own_k_at_its_batch(page):
    pays(page, LOG)
    assert not sentences(page) and "An example" not in shown(page)
    assert "**Your log contradicts the model at a batch of 8 to 32: if so many ran, a round takes" in shown(page)
    assert "By the model alone: K = 3 is unlikely to pay" in shown(page) and "Your log has 20 rounds a second" in shown(
        page
    )
    assert not page.code and not has_table(page), "no schedule of K while the log contradicts the model"
    page.text_area(key="engine_text").set_value(f"{MEAN}, {LOG[LOG.index('Per') :]}").run()
    assert "**K = 3 is unlikely to pay at a batch of 8 to 32: modelled 1." in shown(page)
    assert "nothing checks the model" in shown(page), "half a line has no throughput"
    assert "plain steps and commits 1.60 tokens" in shown(page) and "The engine's work is taken as 0.75 ms" in shown(
        page
    )
    assert "No trees" in shown(page), "vLLM counts nothing by rank"
    assert not page.code, "a name of ours is no repository"
    page.text_input(key="serve_Target_Llama-3.1-70B").set_value("meta-llama/Llama-3.1-70B")
    page.text_input(key="serve_Draft_Llama-3.2-1B").set_value("meta-llama/Llama-3.2-1B").run()
    command = page.code[0].value
    assert command.startswith("vllm serve meta-llama/Llama-3.1-70B") and "--tensor-parallel-size 4" in command
    assert '"method": "draft_model"' in command and "Llama-3.2-1B" in command
    page.number_input(key="batch_k_3").set_value(7).run()
    assert "No verdict for K = 7: acceptance is known up to position 3" in shown(page), "and nothing beyond it"
    assert "**" not in shown(page) and not page.code


def test_a_log_beyond_what_the_controls_offer_is_judged(page):
    rates = ", ".join(["0.500"] * 20)
    pays(page, f"{MEAN[:-4]}11.00, Per-position acceptance rate: {rates}\n{ENGINE.replace('16', '70000')}")
    assert not sentences(page) and page.number_input(key="batch_k_20").value == 20
    assert page.number_input(key="batch_to_65536_65536").value == 65_536


@pytest.mark.slow
def test_a_batch_that_memory_has_no_room_for_gets_no_verdict(page):
    pays(page, f"{ENGINE.replace('16', '900')}\n{LOG}")
    page.number_input(key="batch_context").set_value(4096).run()
    assert not sentences(page) and "No verdict" in shown(page) and "**" not in shown(page)
    assert "Memory as set has room for 119 sequences, your log has 900: correct the context" in shown(page)
    page.number_input(key="batch_from_900_900").set_value(8)
    page.number_input(key="batch_to_900_900").set_value(64).run()
    assert "at a batch of 8 to 64" in shown(page), "what is said to run instead is judged"
    page.text_area(key="engine_text").set_value(LOG).run()
    page.number_input(key="batch_to").set_value(150).run()
    assert "at a batch of 8 to 119" in shown(page) and "room for 119 sequences" in shown(page)
    page.number_input(key="batch_from").set_value(120).run()
    assert "Memory as set has room for 119 sequences, 150 are asked for" in shown(page) and "**" not in shown(page)


def test_what_the_log_leaves_for_the_engine_is_taken_over_in_one_click(page):
    pays(page, f"{ENGINE}\n{LOG}")
    assert "at a batch of 16: a round takes" in shown(page), "the log tells how many ran"
    before = page.number_input(key="batch_engine_ms").value
    page.button(key="batch_take_engine").click().run()
    assert not sentences(page) and page.number_input(key="batch_engine_ms").value > before + 10
    assert "they agree" in shown(page) and "K = 3 does not pay at a batch of 16" in shown(page)
    page.run()
    assert page.number_input(key="batch_engine_ms").value > before + 10


@pytest.mark.slow
def test_the_engines_work_for_each_sequence_is_not_taken_over_twice(page):
    pays(page, f"{ENGINE}\n{LOG}")
    page.number_input(key="batch_fixed_3").set_value(20_000.0).run()
    assert "at a batch of 16: a round takes" in shown(page)
    page.button(key="batch_take_engine").click().run()
    check = next(each.value for each in page.markdown if "rounds a second" in each.value).replace("\\", "")
    logged, modelled = re.search(r"has (\d+) rounds a second .* expects (\d+)", check).groups()
    assert logged == modelled and "they agree" in check


def test_a_short_paste_and_the_models_are_in_the_address():
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    page.query_params["log"] = LOG
    page.query_params["batch_target"] = "Llama-3.1-70B"
    page.query_params[VIEW] = PAYS
    page.switch_page(PAGE).run()
    assert page.text_area(key="engine_text").value == LOG and page.query_params["log"] == LOG
    assert page.selectbox(key="batch_target").value == "Llama-3.1-70B" and "Choose draft and accelerator" in shown(page)
    page.text_area(key="engine_text").set_value(f"{LOG}\n" * 20).run()
    assert "log" not in page.query_params, "what is long stays out of it"


@pytest.mark.parametrize("target", ["meta-llama/Llama-3.3-70B-Instruct", "org/no-such-model"])
def test_a_repository_is_typed_and_is_what_is_served(target):
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    chip = ACCELERATORS["h100-sxm"].label
    asked = {"target": target, "draft": "meta-llama/Llama-3.2-1B-Instruct", "chip": chip, "tp": "4"}
    page.query_params.update({f"batch_{role}": name for role, name in asked.items()})
    page.query_params["log"] = f"{MEAN}, {LOG[LOG.index('Per') :]}"
    page.query_params[VIEW] = PAYS
    page.switch_page(PAGE).run()
    if target.startswith("org"):
        (said,) = sentences(page)
        assert "org/no-such-model is not a known model" in said and "paste its config.json" in said
    else:
        assert not sentences(page) and f"vllm serve {target}" in page.code[0].value
        assert '"model": "meta-llama/Llama-3.2-1B-Instruct"' in page.code[0].value


@pytest.mark.slow
def test_sglang_gets_its_own_command_and_its_throughput_is_checked(page):
    pays(page)
    log = "Decode batch, #running-req: 19, accept len: 2.60, gen throughput (token/s): {}.70"
    page.text_area(key="engine_text").set_value(log.format(2200)).run()
    page.number_input(key="batch_told_k").set_value(5).run()
    pays(page, log.format(2200))
    page.text_input(key="serve_Target_Llama-3.1-70B").set_value("org/t")
    page.text_input(key="serve_Draft_Llama-3.2-1B").set_value("org/d").run()
    assert not sentences(page) and "**K = 5 pays at" in shown(page)
    assert "over all sequences (2,201 tokens/s)" in shown(page)
    assert (
        page.code[0].value.startswith("python -m sglang.launch_server") and "--model-path org/t" in page.code[0].value
    )
    assert "SGLang keeps one K" in shown(page) and "--tp-size 4" in page.code[0].value
    page.text_area(key="engine_text").set_value(log.format(253)).run()
    assert "**Your log contradicts the model at a batch of 19" in shown(page) and not page.code


def test_figures_that_contradict_themselves_are_not_acted_on(page):
    pays(page, LOG.replace("length: 1.60", "length: 2.60"))
    assert "No verdict" in shown(page) and "its rates add up to 1.6" in shown(page)
    assert "**" not in shown(page) and not page.code
    rising = LOG.replace("0.400, 0.150, 0.050", "0.400, 0.450, 0.050")
    page.text_area(key="engine_text").set_value(rising).run()
    assert page.number_input(key="batch_k_3").value == 3 and "acceptance is known up to position 1" in shown(page)


def test_a_pair_that_cannot_run_gets_no_verdict(page):
    pays(page, LOG, draft="Qwen2.5-0.5B")
    assert "No verdict" in shown(page) and "this pair cannot run" in shown(page)
    assert "**" not in shown(page) and not page.code


def test_another_draft_than_the_one_that_ran_gets_no_verdict(page):
    pays(page, LOG)
    page.selectbox(key="batch_draft").set_value(EAGLE3).run()
    assert f"No verdict for {EAGLE3} on Llama-3.1-70B" in shown(page) and "**" not in shown(page) and not page.code
    page.button(key="batch_ran").click().run()
    assert "**" in shown(page), "the first choice may have been the wrong one"


@pytest.mark.slow
def test_marginal_rates_typed_as_conditional_are_recognised(page):
    pays(page, LOG)
    control = next(each for each in page.segmented_control if each.label == "Acceptance of")
    control.set_value(TYPED).run()
    assert "type your rates by depth" in shown(page) and "**" not in shown(page), "nothing is judged that nobody gave"
    page.text_input(key="batch_typed_depth").set_value("0.4, 0.15, 0.05").run()
    assert "**" not in shown(page) and "marginal ones of what you pasted" in shown(page)
    page.text_input(key="batch_typed_depth").set_value("0.4, 0.375, 0.333").run()
    assert "**" in shown(page) and "Beyond depth 3 the last rate is kept" in shown(page)


@pytest.mark.slow
def test_marginal_rates_that_are_the_conditional_ones_too_are_taken(page):
    pays(page, LOG.replace("0.400, 0.150, 0.050", "1.000, 0.700").replace("1.60", "2.70"))
    next(each for each in page.segmented_control if each.label == "Acceptance of").set_value(TYPED).run()
    page.text_input(key="batch_typed_depth").set_value("1.000, 0.700").run()
    assert "marginal ones" not in shown(page) and "**" in shown(page)
    page.text_area(key="engine_text").set_value("Per-position acceptance rate: 0.400, 0.000, 0.000").run()
    page.text_input(key="batch_typed_depth").set_value("0.4, 0, 0").run()
    assert "marginal ones" not in shown(page) and "**" in shown(page)


def test_positions_behind_one_that_never_passes_are_known(page):
    pays(page, LOG.replace("0.400, 0.150, 0.050", "0.400, 0.200, 0.000, 0.000, 0.000"))
    assert not sentences(page) and page.number_input(key="batch_k_5").value == 5
    assert "**" in shown(page) and "over all sequences" in shown(page), "judged, and its throughput beside the model"


@pytest.mark.slow
def test_tensor_parallel_is_that_of_the_log_or_said_to_be_assumed(page):
    pays(page, LOG, target="Llama-3.1-8B", tensor_parallel=1)
    assert "Tensor parallel is assumed to be 1" in shown(page)
    page.number_input(key="batch_tp").set_value(2).run()
    assert "assumed" not in shown(page)
    page.text_area(key="engine_text").set_value(f"INFO config: tensor_parallel_size=8, seed=0\n{LOG}").run()
    assert page.number_input(key="batch_tp_8").value == 8 and "on 8 x H100 SXM" in shown(page)


def test_models_that_memory_has_no_room_for_get_no_verdict(page):
    pays(page, LOG, tensor_parallel=1)
    (said,) = sentences(page)
    assert "set tensor parallel to 2 or more" in said and "**" not in shown(page) and not page.code


def test_a_mean_length_alone_asks_for_k(page):
    pays(page)
    page.text_area(key="engine_text").set_value("Mean acceptance length: 1.60").run()
    assert "Give the K that the engine ran with" in shown(page)
    page.number_input(key="batch_told_k").set_value(4).run()
    pays(page, "Mean acceptance length: 1.60")
    assert not sentences(page) and "one rate for all positions" in shown(page)
    assert "**K = 4 is" in shown(page), "the K that was given is the one that is judged"


@pytest.mark.slow
def test_a_low_first_position_leads_to_the_doctor(page):
    page.text_area(key="engine_text").set_value(LOG).run()
    doctor = page.button(key="engine_doctor")
    named = manager().info
    assert doctor.label == f"Acceptance doctor{f' of {named.name}, loaded here' if named else ''}"
    doctor.click().run()
    assert not sentences(page) and any(tab.label == "Acceptance doctor" for tab in page.tabs)
    fine = LOG.replace("0.400, 0.150, 0.050", "0.700, 0.150, 0.050").replace("1.60", "1.90")
    page.text_area(key="engine_text").set_value(fine).run()
    assert not any(each.key == "engine_doctor" for each in page.button)


def test_the_words_by_hand():
    def own(batch: int, gain: float, engine_ms: float = 1.0) -> OwnPoint:
        return OwnPoint(batch, 3, 1.5 * gain, 0.010, 0.015, engine_ms / 1000)

    band = gain_band(8)
    sure, likely, unlikely = 1.01 / band.low, 1.01 / band.middle, 0.99 / band.middle
    assert headline([own(8, sure)]).startswith("K = 3 pays at a batch of 8: modelled")
    assert headline([own(8, likely)]).startswith("K = 3 is likely to pay at a batch of 8: modelled")
    assert headline([own(8, unlikely)]).startswith("K = 3 is unlikely to pay at a batch of 8: modelled")
    usual = f"about {1.14 * gain_band(19).middle:.2f}x by the median of gains published for batches nearest to it"
    assert usual in headline([own(19, 1.14)])
    assert headline([own(8, 0.9)]).startswith("K = 3 does not pay at a batch of 8: modelled 0.90x")
    # Below 1 in the model, and yet some published gain was further above it.
    assert gain_band(64).high > 1 and headline([own(64, 0.99)]).startswith("K = 3 is unlikely to pay at a batch of 64")
    assert headline([own(8, unlikely), own(16, sure)]).startswith(
        "Whether K = 3 pays at a batch of 8 to 16 is not decided"
    )
    assert headline([own(8, 1.2)], modelled=False) == "K = 3 pays at a batch of 8: modelled 1.20x plain decoding."
    # 15 ms for 1.8 tokens that plain decoding makes in 18 ms: 3 ms more than the 1 ms of the engine
    assert "above about 4 ms it does not pay in the model" in flip_words([own(8, 1.2)])
    assert flip_words([own(8, 1.2)]).startswith("A round takes 1.50 plain steps and commits 1.80 tokens. The engine")
    assert "below about 0.5 ms it pays" in flip_words([own(8, 1 - 0.5 / 15)])
    assert "Not even an engine that adds nothing" in flip_words([own(8, 0.9)])
    slow, ends = LogCheck(300.0, 540.0, (533.0, 1066.0), 6), (own(6, 1.2), own(12, 1.2))
    assert "Or about 6 sequences ran on average" in check_words(slow, *ends)
    assert "sequences ran" not in check_words(slow, *ends, running_known=True)
    assert log_headline(slow, *ends) == (
        "Your log contradicts the model at a batch of 6 to 12: if so many ran, a round takes 20 to 40 ms, not 15 ms. "
        "If the engine adds the difference, K = 3 gives 0.45x to 0.90x."
    )
    assert "at a batch of 6: a round takes 20 ms" in log_headline(slow, own(6, 1.2), own(6, 1.2), running_known=True)
    assert "2,000 rounds a second, not 533 to 1,066" in log_headline(replace(slow, rounds=2000.0), *ends)
    assert "they agree" in check_words(replace(slow, rounds=600.0), own(8, 1.2), own(16, 1.2))
    assert "about 30 sequences ran" in check_words(
        replace(slow, rounds=2000.0, sequences=30), own(8, 1.2), own(16, 1.2)
    )


def test_the_best_k_is_told_with_those_that_are_as_good():
    chain = Rates((0.4, 0.1), deepest=3)
    found = answer(known_shape("Llama-3.1-8B"), None, Setup(ACCELERATORS["l40s"]), chain, (1, 64))
    first, last = found.rows
    first, last = replace(first, gains=(1.2, 1.19, 1.0)), replace(last, gains=(0.9, 0.8, 0.7))
    assert best_words([first]) == "Fastest in the model: K = 1 (1.20x, as good within 3%: 1 and 2)."
    assert best_words([first, last]) == (
        "Fastest in the model: K = 1 (1.20x, as good within 3%: 1 and 2) at 1; "
        "plain decoding (a draft has 0.90x) at 64."
    )


def test_the_content_of_the_speculative_config():
    by_batch = [(1, 64, 2), (65, 180, 1), (181, 256, 0)]
    assert speculation("draft_model", "d", by_batch) == {
        "method": "draft_model", "num_speculative_tokens": 2, "model": "d",
        "num_speculative_tokens_per_batch_size": [[1, 64, 2], [65, 180, 1], [181, 256, 0]],
    }  # fmt: skip
    assert speculation("eagle3", "h", [(1, 256, 4)]) == {"method": "eagle3", "num_speculative_tokens": 4, "model": "h"}
    assert speculation("ngram", "", by_batch) == {"method": "ngram", "num_speculative_tokens": 2}
    assert speculation("eagle", "h", [(1, 256, 0)]) == {}
    assert above_words("eagle", by_batch) == "Above a batch of 256 vLLM keeps the last entry: plain decoding."
    assert above_words("ngram", by_batch) == "It drafts at every batch: above a batch of 180 it is modelled to lose."
    assert above_words("eagle", [(1, 256, 4)]) == "It drafts at every batch: modelled up to 256."
    assert "no --speculative-config" in above_words("eagle", [(1, 256, 0)])


@pytest.mark.slow
def test_measured_passes_of_this_machine_answer_too(page, monkeypatch):
    pays(page)
    page.segmented_control(key="batch_passes").set_value(HERE).run()
    assert not sentences(page) and page.button(key="measure_batches").label == "Measure batches"
    assert "Modelled" not in shown(page)
    curve = CostCurve((CostPoint(1, 0.01, 0.01, 0.01), CostPoint(64, 0.1, 0.1, 0.1)))
    one = CostModel(curve, curve, 0.0, 0.0, 1, 256, "2026-01-02T03:04:05Z", "a machine")
    costs = {1: one, 8: replace(one, draft=curve.raised(0.1), batch=8)}
    monkeypatch.setattr(manager(), "batch_costs", {"": costs})
    pair = recorded_run(EXAMPLE).pair
    monkeypatch.setattr(ModelManager, "info", pair)
    page.run()
    assert not sentences(page)
    assert "**K = 3" in shown(page) and f"{pair.name}, measured at batches of 1 and 8, of which" in shown(page)
    page.number_input(key="batch_to").set_value(8).run()
    assert f"{pair.name}. Acceptance of " in shown(page)
    page.number_input(key="batch_to").set_value(64)
    page.number_input(key="batch_from").set_value(64).run()
    assert "Passes are measured of up to 8 sequences, 64 are asked for" in shown(page) and "**" not in shown(page)
    page.number_input(key="batch_from").set_value(8).run()
    assert "Other programs" not in shown(page)
    monkeypatch.setattr(manager(), "batch_costs", {"": {1: replace(one, others=0.4)}})
    page.run()
    assert (
        "No verdict" in shown(page)
        and "Other programs used up to 40%" in shown(page)
        and page.button(key="measure_batches").label == "Measure again"
    )


def test_measured_passes_are_joined_to_rates_of_the_same_pair_alone(page, monkeypatch):
    curve = CostCurve((CostPoint(1, 0.01, 0.01, 0.01), CostPoint(64, 0.1, 0.1, 0.1)))
    costs = {8: CostModel(curve, curve, 0.0, 0.0, 1, 256, "2026-01-02T03:04:05Z", "a machine", batch=8)}
    run = recorded_run(EXAMPLE)
    monkeypatch.setattr(manager(), "batch_costs", {"": costs})
    monkeypatch.setattr(ModelManager, "info", replace(run.pair, name="Another pair"))
    pays(page)
    page.segmented_control(key="batch_passes").set_value(HERE).run()
    said = f"these rates are of {run.pair.name}, and the passes of the pair in memory, Another pair"
    assert not sentences(page) and said in shown(page) and "**" not in shown(page)
    page.text_area(key="engine_text").set_value(LOG).run()
    assert "the rates of the draft that ran in your engine" in shown(page) and "**" not in shown(page)
    page.button(key="batch_ran_here").click().run()
    page.number_input(key="batch_to").set_value(8).run()
    assert "**K = 3" in shown(page) and "Another pair. Acceptance" in shown(page)
    monkeypatch.setattr(ModelManager, "info", run.pair)
    page.run()
    assert f"No verdict yet: the passes are of the pair in memory, {run.pair.name}," in shown(page)
    headed = replace(run, settings={**run.settings, "draft_head": "eagle"})
    page.session_state["run"] = Run(headed)
    page.run()
    next(each for each in page.segmented_control if each.label == "Acceptance of").set_value(ON_SCREEN).run()
    assert page.button(key="measure_batches").label == "Measure batches" and "**" not in shown(page)
    monkeypatch.setattr(manager(), "batch_costs", {"": costs, "eagle": costs})
    page.run()
    assert not sentences(page) and "**K = 3" in shown(page)


@pytest.mark.slow
def test_a_configuration_of_ones_own_and_a_damaged_one(page):
    pays(page)
    page.selectbox(key="example_target").set_value(OWN_CONFIG).run()
    assert not sentences(page) and "your target" in shown(page)
    page.text_area(key="example_target_text").set_value('{"model_type": "llama"}').run()
    (said,) = sentences(page)
    assert "your target has no hidden_size" in said
    page.selectbox(key="example_target").set_value("GPT-2").run()
    page.selectbox(key="example_chip").set_value(OWN_CHIP).run()
    page.selectbox(key="example_draft").set_value(LOOKUP).run()
    assert not sentences(page) and "your own accelerator" in shown(page).replace("\\", "")
    assert not page.code, "an example has no command to paste"


@pytest.mark.slow
def test_a_servers_own_configuration_is_not_that_of_the_example(page):
    pays(page)
    page.selectbox(key="example_target").set_value(OWN_CONFIG).run()
    assert page.text_area(key="example_target_text").value
    pays(page, LOG, target=OWN_CONFIG, draft=OWN_CONFIG)
    assert not page.text_area(key="batch_target_text").value and "**" not in shown(page)
    assert "No verdict yet: paste the config.json of your target and draft" in shown(page)
    page.text_area(key="batch_target_text").set_value(KNOWN_MODELS["Llama-3.1-70B"].text).run()
    assert "paste the config.json of your draft," in shown(page) and "**" not in shown(page)
    page.text_area(key="batch_draft_text").set_value(KNOWN_MODELS["Llama-3.2-1B"].text)
    page.run()
    page.number_input(key="batch_tp").set_value(4).run()
    assert not sentences(page) and "**" in shown(page) and "your target, 70.6 B parameters" in shown(page)


def test_the_chart_by_batch_marks_one_and_where_it_is_crossed():
    points = [(1, 2.0, "K=3"), (16, 1.5, "K=2"), (256, 0.5, "K=1")]
    figure = speedup_by_batch_figure({"best chain": points}, (40.0,), "modelled", 256, yours=(8, 32))
    assert list(figure.data[0].x) == [1, 16, 256] and list(figure.data[0].y) == [2.0, 1.5, 0.5]
    assert "modelled" in figure.data[0].name and "modelled" in figure.layout.yaxis.title.text
    assert figure.layout.xaxis.type == "log" and list(figure.layout.xaxis.tickvals) == [1, 16, 256]
    level, crossed, crowded, yours = figure.layout.shapes
    assert level.y0 == level.y1 == 1 and crossed.x0 == 40 and crowded.x0 == 256 < crowded.x1
    assert yours.x0 < 8 and yours.x1 > 32
    labels = {note.text: note.x for note in figure.layout.annotations}
    assert labels["break-even 40"] == pytest.approx(math.log10(40)) and "no room in memory" in labels
    low, high = figure.layout.xaxis.range
    assert low < 0 < math.log10(256) < high


def test_the_table_by_batch_says_that_it_is_modelled():
    target = known_shape("Llama-3.1-8B")
    found = answer(target, None, Setup(ACCELERATORS["l40s"]), Rates((0.5,), (0.4, 0.2)), (1, 64))
    said = batches_html(found)
    assert '<th scope="col" class="number">its round</th>' in said and "verification limited by" in said
    assert "<caption>Modelled</caption>" in said and said.count("<tr>") == 3 and "K=" not in said
    owned = answer(target, None, Setup(ACCELERATORS["l40s"]), Rates((0.05,), deepest=2), (1,), 2)
    assert ">K=2</th>" in batches_html(owned) and "best tree" not in batches_html(owned)
    assert f"{found.rows[1].point.tree.speedup:.2f}x" in said
