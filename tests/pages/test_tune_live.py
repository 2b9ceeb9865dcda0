"""Tune live: a change drafts the same prefix again, leaves a point, and never loses what is on screen."""

from dataclasses import replace
from html import unescape

import pytest

from decoding.methods.methods import METHODS, PRESETS, START
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from pages.ui.common.models import manager
from pages.ui.common.scheduler import ModelTask
from pages.ui.common.state import Run
from pages.ui.tune import work
from pages.ui.tune.view import BY_BATCH, changes_html, nodes_words, overlap
from pages.ui.widgets.controls import setting_key
from tests.helpers import traces
from tests.pages.apptest import finish, open_page, sentences
from viz.branches.diff import TreeDiff, compare_trees, same_tree, what_changed

PAGE = "pages/tune_live.py"
SLOTS = ("tune_draft", "tune_measure")


def settle(at):
    """Wait for drafting and measuring; the page is drawn again after each."""
    for slot in SLOTS:
        if f"job_{slot}" in at.session_state:
            finish(at, slot)
    return at


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch):
    monkeypatch.setattr(work, "REPEATS", work.FEWEST_REPEATS)


@pytest.fixture
def page():
    return settle(open_page(PAGE))


def bench_of(at):
    return at.session_state["tune_bench"]


def slider(at, name: str, method: str = "dynatree"):
    return at.slider(key=setting_key("tune", method, name))


def reported(at) -> str:
    return unescape(" ".join(element.proto.body for element in at.get("html")))


def test_both_trees_and_every_setting_are_there_at_first(page):
    assert sentences(page) == []
    pinned, now = bench_of(page).shown
    assert pinned is now
    assert pinned.method.settings() == START.settings()
    assert len(pinned.seconds) >= 3
    assert page.button(key="tune_pin").disabled
    assert "median of" in reported(page)
    buttons = {button.key: button for button in page.button}
    captions = " ".join(caption.value for caption in page.caption).replace("\\", "")
    for name, value in METHODS["dynatree"].settings().items():
        if name == "verifier":
            continue
        button = buttons[f"back_{setting_key('tune', 'dynatree', name)}"]
        assert "empty" not in button.label
        assert button.disabled == (name != "branch_first_level"), "what the app begins with differs in nothing else"
        source, _, shown = button.label.partition(": ")
        assert source == METHODS["dynatree"].infos[name].source
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert float(shown) == value
            assert slider(page, name).value == value
    assert "Path probability needed to grow beyond D_0." in captions


def test_nodes_of_two_trees_in_words():
    same = TreeDiff((), (), ((1, 1), (2, 2)), True)
    assert nodes_words(same, 2, 2) == "Both trees have the same 2 nodes."
    assert "1 are verified in the pinned one, 2 in this one" in nodes_words(same, 1, 2)
    assert "1 only in the pinned one" in nodes_words(TreeDiff((3,), (), (), True), 2, 2)


def test_a_slider_drafts_the_same_prefix_again(page):
    base = list(bench_of(page).base.tokens)
    slider(page, "node_budget").set_value(1).run()
    settle(page)
    pinned, now = bench_of(page).shown
    assert now.method.drafter.node_budget == 1
    assert pinned.method.settings() == START.settings()
    assert pinned.iteration.prefix_length == now.iteration.prefix_length == len(base)
    assert bench_of(page).base.tokens == base
    assert now.iteration.verified < pinned.iteration.verified
    first, second = bench_of(page).measured[pinned.number, now.number]
    assert len(first) == len(second) >= 3, "measured in turn"
    assert all(seconds > 0 for seconds in first + second)
    assert compare_trees(pinned.iteration, now.iteration).same_text
    assert "Same text as far as both go, different work" in reported(page)
    assert {point.label for point in bench_of(page).iteration_points.values()} == {
        "DynaTree · first level may branch",
        "DynaTree · N_max 1, first level may branch",
    }


@pytest.mark.slow
def test_settings_that_draft_the_same_tree_have_one_time(page):
    slider(page, "node_budget").set_value(255).run()
    settle(page)
    pinned, now = bench_of(page).shown
    assert pinned is not now and pinned.worked_like(now)
    first, second = bench_of(page).measured[pinned.number, now.number]
    assert first == second and len(first) == 2 * work.FEWEST_REPEATS
    speeds = {point.throughput for point in bench_of(page).iteration_points.values()}
    assert len(speeds) == 1, "both settings stand at one place of the chart"
    assert "Nothing changed here" in reported(page) and "time, same work · median of 6" in reported(page)
    assert not replace(now, method=now.method.with_settings(cache_policy="rebuild")).worked_like(pinned)
    slider(page, "node_budget").set_value(1).run()
    settle(page)
    assert "Nothing changed here" not in reported(page)
    assert not bench_of(page).shown[1].worked_like(pinned)


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 5])
def test_the_tree_is_that_of_a_fresh_run_on_the_same_text(page, position):
    page.text_area(key="prompt_text").set_value("Once upon a time there was a purple xylophone").run()
    settle(page)
    page.slider(key="tune_position").set_value(position).run()
    settle(page)
    bench = bench_of(page)
    prefix = [*bench.text.prompt_ids, *bench.text.output_ids[:position]]
    assert bench.base.tokens == prefix
    fresh = DecodeSession(bench.base.pair, START, prefix, limits=Limits(64)).step()
    here = bench.shown[1].iteration
    assert [(node.parent_id, node.token_id) for node in here.nodes] == [
        (node.parent_id, node.token_id) for node in fresh.nodes
    ]
    assert here.committed_ids == fresh.committed_ids
    assert here.prefix_length == fresh.prefix_length


@pytest.mark.slow
def test_the_default_comes_back_by_its_button(page):
    slider(page, "base_depth").set_value(2).run()
    slider(page, "node_budget").set_value(4).run()
    settle(page)
    assert bench_of(page).shown[1].iteration.drafted <= 4
    page.button(key=f"back_{setting_key('tune', 'dynatree', 'node_budget')}").click().run()
    page.button(key=f"back_{setting_key('tune', 'dynatree', 'base_depth')}").click().run()
    settle(page)
    assert slider(page, "base_depth").value == 5
    assert bench_of(page).shown[1].method.settings() == START.settings()


@pytest.mark.slow
def test_a_contradiction_is_one_sentence_and_keeps_the_tree(page):
    before = bench_of(page).shown
    slider(page, "base_depth").set_value(9).run()
    settle(page)
    assert len(sentences(page)) == 1
    assert "below “Maximum depth”" in sentences(page)[0].replace("\\", "")
    assert bench_of(page).shown == before
    assert "last valid settings" in reported(page)
    assert page.button(key="tune_whole_run").disabled
    slider(page, "max_depth").set_value(12).run()
    settle(page)
    assert sentences(page) == []
    assert bench_of(page).shown[1].method.drafter.max_depth == 12


@pytest.mark.slow
def test_pin_and_back(page):
    slider(page, "branch_max").set_value(5).run()
    settle(page)
    page.button(key="tune_pin").click().run()
    settle(page)
    assert bench_of(page).shown[0].method.drafter.branch_max == 5
    page.button(key="tune_reset").click().run()
    settle(page)
    assert [trial.method.drafter.branch_max for trial in bench_of(page).shown] == [5, 3]
    page.button(key="tune_back").click().run()
    settle(page)
    assert slider(page, "branch_max").value == 5
    page.button(key="tune_take").click().run()
    assert page.session_state[setting_key("method", "dynatree", "branch_max")] == 5, "Step through has it too"


@pytest.mark.slow
def test_another_place_drafts_both_trees_again_and_drops_its_points(page):
    slider(page, "branch_max").set_value(4).run()
    settle(page)
    length = bench_of(page).shown[0].iteration.prefix_length
    page.slider(key="tune_position").set_value(10).run()
    settle(page)
    pinned, now = bench_of(page).shown
    assert pinned.iteration.prefix_length == now.iteration.prefix_length == length - 29
    assert len(bench_of(page).iteration_points) == 2


@pytest.mark.slow
def test_a_configuration_of_the_papers_sets_method_and_sliders(page):
    name = "fixed tree D5 B2 (ablation)"
    page.selectbox(key="tune_preset").set_value(name).run()
    settle(page)
    assert page.selectbox(key="tune").value == "fixed_tree"
    assert slider(page, "max_depth", "fixed_tree").value == 5
    assert bench_of(page).shown[1].method.settings() == PRESETS[name].settings()


@pytest.mark.slow
def test_only_methods_that_draft_can_be_tuned(page):
    assert page.selectbox(key="tune").options == [m.label for m in METHODS.values() if m.name != "autoregressive"]
    page.selectbox(key="tune").set_value("linear").run()
    settle(page)
    assert sentences(page) == []
    assert bench_of(page).shown[1].iteration.drafted == 8


@pytest.mark.slow
def test_a_whole_generation_leaves_its_point(page):
    page.number_input(key="tune_tokens").set_value(24).run()
    page.button(key="tune_whole_run").click().run()
    finish(page, "tune_whole")
    (point,) = bench_of(page).whole_points
    assert point.throughput > 0
    assert point.group == "whole generation"
    assert "Same text as that of the prefix." in bench_of(page).whole_words


@pytest.mark.slow
def test_sampled_output_is_not_said_to_be_the_same_whatever_the_settings(page):
    assert "never depends" in reported(page)
    page.slider(key="sampling_temperature").set_value(1.0).run()
    settle(page)
    assert "never depends" not in reported(page) and "random numbers" in reported(page)
    slider(page, "prune_probability").set_value(0.0).run()
    settle(page)
    assert "never depends" not in reported(page) and "random numbers" in reported(page)
    page.number_input(key="tune_tokens").set_value(8).run()
    page.button(key="tune_whole_run").click().run()
    finish(page, "tune_whole")
    assert "Same text" not in bench_of(page).whole_words and "sampled" in bench_of(page).whole_words


@pytest.mark.slow
def test_a_generation_past_the_context_is_one_sentence_and_a_cancelled_one_leaves_no_point(page):
    page.number_input(key="tune_tokens").set_value(4096).run()
    page.button(key="tune_whole_run").click().run()
    finish(page, "tune_whole")
    assert len(sentences(page)) == 1
    assert "exceed the context" in sentences(page)[0]
    assert bench_of(page).whole_points == []
    bench = bench_of(page)
    job = ModelTask("work", bool)
    job.cancel()
    bench.generate(METHODS["dynatree"], 24, job)
    assert bench.whole_points == []


@pytest.mark.slow
def test_the_prefix_can_come_from_the_run_of_step_through(page):
    at = page.switch_page("pages/step_through.py").run()
    run = at.session_state["run"]
    at.session_state["iteration"] = 3
    at.switch_page(PAGE).run()
    settle(at)
    at.segmented_control(key="tune_source").set_value("Run in Step through").run()
    settle(at)
    assert sentences(at) == []
    iteration = run.trace.iterations[3]
    for trial in bench_of(at).shown:
        assert trial.iteration.prefix_length == iteration.prefix_length
        drafted = [
            [(node.parent_id, node.token_id, node.pruned) for node in each.nodes]
            for each in (trial.iteration, iteration)
        ]
        assert drafted[0] == drafted[1], "the settings are the run's"


@pytest.mark.slow
def test_an_empty_prompt_is_one_sentence_and_keeps_the_trees(page):
    before = bench_of(page).shown
    page.text_area(key="prompt_text").set_value("").run()
    settle(page)
    assert sentences(page) == ["The prompt is empty: type some text or pick a sample prompt."]
    assert bench_of(page).shown == before
    page.run()
    assert len(sentences(page)) == 1


@pytest.mark.slow
def test_who_comes_from_a_run_of_their_own_stands_at_its_iteration(page):
    at = page.switch_page("pages/step_through.py").run()
    run = at.session_state["run"]
    at.session_state["run"] = replace(run, source="decoded")
    at.session_state["iteration"] = 3
    del at.session_state["tune_source"]
    at.switch_page(PAGE).run()
    settle(at)
    assert at.session_state["tune_source"] == "Run in Step through"
    for place in (3, 1):
        at.session_state["iteration"] = place
        settle(at.run())
        assert {each.iteration.prefix_length for each in bench_of(at).shown} == {
            run.trace.iterations[place].prefix_length
        }, "and again after another one was looked at"


@pytest.mark.slow
def test_of_a_sampled_run_the_pinned_tree_is_its_own_and_others_draw_the_same_numbers(page):
    pair = manager().pair()
    ids, sampling = pair.vocabulary.encode("The old sailor opened the door"), Sampling(0.8, seed=3)
    session = DecodeSession(pair, METHODS["dyspec"], ids, sampling, Limits(40))
    made = list(session)
    page.session_state["run"] = Run(session.trace(), session=session)
    page.session_state["iteration"] = 3
    settle(page.run())
    page.segmented_control(key="tune_source").set_value("Run in Step through").run()
    settle(page)
    pinned, now = bench_of(page).shown
    assert pinned is now and same_tree(pinned.iteration, made[3])
    assert [each.uniform for each in pinned.iteration.draws] == [each.uniform for each in made[3].draws]
    assert "The pinned tree is the run's own." in reported(page) and "not the run's" not in reported(page)
    slider(page, "node_budget", "dyspec").set_value(8).run()
    settle(page)
    pinned, now = bench_of(page).shown
    assert same_tree(pinned.iteration, made[3]) and now.iteration.drafted == 8
    assert not compare_trees(pinned.iteration, now.iteration).only_second, "its 8 nodes are the first 8 of the run's"
    assert "The pinned tree is the run's own. 8 nodes in both trees" in reported(page)
    page.slider(key="tune_position").set_value(made[3].prefix_length - len(ids) + 1).run()
    settle(page)
    begins = {each.prefix_length for each in made}
    alone = made[3].prefix_length + 1 not in begins
    assert ("No iteration of the run began here" in reported(page)) is alone
    page.slider(key="tune_position").set_value(made[3].prefix_length - len(ids)).run()
    page.number_input(key="sampling_seed").set_value(4).run()
    settle(page)
    assert not same_tree(bench_of(page).shown[0].iteration, made[3])
    assert "The pinned tree is not the run's: it is drafted anew here." in reported(page)


@pytest.mark.slow
def test_both_trees_by_batch_size_once_batches_are_measured(page, monkeypatch):
    monkeypatch.setattr(manager(), "batch_costs", {})
    page.segmented_control(key="tune_view").set_value(BY_BATCH).run()
    assert sentences(page) == [] and page.button(key="measure_batches").label == "Measure batches"
    costs = manager().costs
    monkeypatch.setattr(manager(), "batch_costs", {"": {1: costs, 8: replace(costs, batch=8)}})
    page.run()
    assert sentences(page) == [] and page.select_slider(key="tune_batch").options == ["batch of 1", "batch of 8"]
    page.select_slider(key="tune_batch").set_value(8).run()
    captions = " ".join(caption.value for caption in page.caption)
    assert "Modelled from passes measured on this machine" in captions and "8 sequences at once" in captions


def test_times_that_overlap_are_called_noise():
    assert overlap([1.0, 1.1, 1.2, 1.3], [1.1, 1.2, 1.3, 1.4]) and overlap([1.0], [9.0])
    assert not overlap([1.0, 1.1, 1.2, 1.3], [2.2, 2.3, 2.4, 2.5])
    changes = what_changed(traces.dynatree_recovered(), traces.bonus(), 0.0243, 0.0423)
    assert "may be noise" in changes_html(changes, 4, noise=True) and "noise" not in changes_html(changes, 4)
