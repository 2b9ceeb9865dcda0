"""The Compare page: a comparison from start to files, what stands against one, and what is kept."""

import csv
import io
import json
import shlex
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.methods import contestants_from
from decoding.common.errors import SettingsError
from decoding.compare.comparison import score
from decoding.compare.contestants import format_contestant, parse_contestant
from decoding.compare.identity import OutputDifference
from decoding.trace.metrics import Spread
from pages.ui.common.errors import sentence
from pages.ui.compare.outputs import as_csv, as_json, command
from pages.ui.compare.results import doubt_words, findings, slower_words, table_html, times_words, unrest_words
from pages.ui.widgets.contestants import COMPARE, check_contestants, short_label
from tests.pages.apptest import open_field, open_page, press_start, sentences

TOKENS = 24


def open_compare(*names: str, **state) -> AppTest:
    """The page with a short plan, and these contestants instead of the default ones."""
    return open_field(COMPARE, *names, **{"max_new_tokens": TOKENS} | state)


@pytest.fixture(scope="module")
def done() -> AppTest:
    """One finished comparison; the tests look at it in different ways and leave the comparison itself alone."""
    app = open_compare("autoregressive", "hf_generate", "fixed_tree", "dynatree")
    app = press_start(app, "compare")
    assert not sentences(app)
    return app


@pytest.mark.parametrize("view", ["Overview", "Time", "Acceptance", "Outputs", "Trees"])
def test_the_page_opens_with_a_recorded_comparison_of_its_own_settings(view: str):
    app = open_page("pages/compare.py")
    app.session_state["compare_view"] = view
    app.run()
    assert not sentences(app) and not app.info and not app.warning
    assert "comparison" not in app.session_state, "a measured one takes its place"
    names = [app.session_state[key] for key in app.session_state["compare_slots"]]
    assert names == ["autoregressive", "hf_generate", "linear", "fixed_tree", "dynatree"]
    assert any("Not measured on this machine" in caption.value for caption in app.caption)
    if view == "Overview":
        assert [button.key for button in app.button if button.disabled] == []


def test_a_comparison_measures_everyone_and_outputs_agree(done: AppTest):
    comparison = done.session_state["comparison"].comparison
    assert len(comparison.results) == 4 and not comparison.differences
    assert len({result.output_ids for result in comparison.results}) == 1
    assert all(result.metrics and result.metrics.ttft_s < result.metrics.wall_s for result in comparison.results)


@pytest.mark.parametrize("view", ["Overview", "Time", "Acceptance", "Outputs", "Trees"])
@pytest.mark.parametrize("figures", ["without loops", "whole output"])
def test_every_view_draws(done: AppTest, view: str, figures: str):
    done.session_state["compare_view"], done.session_state["compare_loops"] = view, figures
    done.run()
    assert not sentences(done)


def test_trees_are_drawn_on_the_prefix_that_the_slider_says(done: AppTest):
    done.session_state["compare_view"] = "Trees"
    done.run()
    done.slider(key="compare_prefix").set_value(5).run()
    assert not sentences(done)
    outcome = done.session_state["comparison"]
    fixed, dyna = outcome.trees[5]
    assert fixed.prefix_length == dyna.prefix_length == len(outcome.prompt_ids) + 5
    assert fixed.nodes[0].token_id == dyna.nodes[0].token_id == outcome.comparison.results[0].output_ids[4]
    expected = outcome.comparison.results[0].output_ids[5 : 5 + len(fixed.committed_ids)]
    assert fixed.committed_ids == expected  # greedy: whoever drafts, the text goes on the same


def test_results_survive_a_page_switch(done: AppTest):
    before = done.session_state["comparison"]
    done.switch_page("app.py").run()
    done.switch_page("pages/compare.py").run()
    assert done.session_state["comparison"] is before
    assert not done.info and done.session_state["compare_prefix"] is not None
    assert [done.session_state[key] for key in done.session_state["compare_slots"]][-1] == "dynatree"


def test_csv_has_one_line_per_call_and_json_everything(done: AppTest):
    outcome = done.session_state["comparison"]
    rows = list(csv.DictReader(io.StringIO(as_csv(outcome))))
    assert [row["method"] for row in rows] == ["autoregressive", "hf_generate", "fixed_tree", "dynatree"]
    assert float(rows[3]["throughput"]) > 0 and rows[1]["drafted"] == ""
    record = json.loads(as_json(outcome))
    assert record["calls"][0]["output_ids"] == list(outcome.comparison.results[0].output_ids)
    assert record["loop_free"][3]["settings"]["base_depth"] and record["hardware"]
    assert record["loop_free"][2]["same_output"] is True


def test_what_a_library_says_is_no_formula_in_the_csv(done: AppTest):
    outcome = done.session_state["comparison"]
    first, *others = outcome.comparison.results
    failed = replace(outcome.comparison, results=(replace(first, failure="=1+1"), *others))
    rows = list(csv.DictReader(io.StringIO(as_csv(replace(outcome, comparison=failed)))))
    assert [row["failure"] for row in rows] == ["'=1+1", *[""] * len(others)]


def test_the_command_names_the_same_comparison(done: AppTest):
    outcome = done.session_state["comparison"]
    words = shlex.split(command(outcome))
    assert words[:4] == ["python", "-m", "benchmarks.methods", "--methods"]
    named = contestants_from(words[4 : words.index("--max-new-tokens")])
    assert [c.method for c in named] == [c.method for c in outcome.comparison.contestants]
    assert f"--prompt={outcome.plan.prompt.name}" in words and words[words.index("--repeats") + 1] == "1"


def test_the_table_escapes_and_names_its_reference(done: AppTest):
    outcome = done.session_state["comparison"]
    scores = score(outcome.comparison)
    table = table_html(scores, outcome)
    assert "Same output as Autoregressive" in table and table.count("✓ identical") == 3
    assert any("is fastest" in sentence for sentence in findings(scores))


def test_a_cancelled_run_keeps_what_was_measured():
    app = open_compare("autoregressive", "linear", compare_repeats=20)
    app.button(key="compare_start").click().run()
    job = app.session_state["job_compare"]
    while job.active and job.done < 2:
        job.wait(0.05)
    job.cancel()
    assert job.wait(30) and job.state == "cancelled"
    app.run()
    assert not sentences(app)
    outcome = app.session_state["comparison"]
    assert outcome.cancelled and 2 <= len(outcome.comparison.results) < 40
    assert any("cancelled early" in caption.value for caption in app.caption)


def test_a_run_that_is_cancelled_at_once_says_so():
    app = open_compare("autoregressive", "linear")
    app.button(key="compare_start").click().run()
    job = app.session_state["job_compare"]
    job.cancel()
    assert job.wait(60)
    if "comparison" not in app.run().session_state:
        assert "Cancelled before" in app.info[0].value
    assert not sentences(app)


def test_an_empty_prompt_is_told_in_a_sentence():
    app = open_compare("autoregressive", "linear", prompt="own text", prompt_text="  ")
    assert sentences(press_start(app, "compare")) == ["The prompt is empty: type some text or pick a sample prompt."]
    assert "comparison" not in app.session_state


def test_a_prompt_that_is_too_long_is_told_and_results_stay(done: AppTest):
    before = done.session_state["comparison"]
    app = open_compare(comparison=before, prompt="own text", prompt_text="a frog " * 3000)
    (said,) = sentences(press_start(app, "compare"))
    assert "context" in said and "shorten" in said
    assert app.session_state["comparison"] is before


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["dynatree"], "at least 2 methods and there is 1"),
        (["autoregressive", "dynatree", "autoregressive"], "Autoregressive occurs twice with the same settings"),
        (["linear"] * 7, "at most 6 methods and there are 7"),
    ],
)
def test_too_few_or_the_same_twice_is_told_before_the_start(names: list[str], words: str):
    app = open_compare(*names)
    (said,) = sentences(app)
    assert words in said
    app.button(key="compare_start").click().run()
    assert "job_compare" not in app.session_state


def test_more_than_six_are_told():
    seven = [parse_contestant(f"linear:length={number}") for number in range(1, 8)]
    with pytest.raises(SettingsError, match="at most 6 methods and there are 7"):
        check_contestants(COMPARE, seven)


def test_settings_that_contradict_one_another_are_told_and_stay_editable():
    app = open_compare(contestant_4_dynatree_base_depth=9, contestant_4_dynatree_max_depth=4, contestant_4_open=True)
    said = sentences(app)
    assert said and all("“Base depth”" in words for words in said)
    assert app.slider(key="contestant_4_dynatree_base_depth").value == 9
    app.slider(key="contestant_4_dynatree_base_depth").set_value(3).run()
    assert not sentences(app)


def test_a_contestant_is_added_changed_and_taken_out():
    app = open_compare(compare_add=True)
    app.button(key="compare_add_hf_assisted").click().run()
    key = app.session_state["compare_slots"][-1]
    assert app.session_state[key] == "hf_assisted" and len(app.session_state["compare_slots"]) == 6
    app.session_state[f"{key}_open"] = True
    app.run()
    app.button(key=f"{key}_remove").click().run()
    assert len(app.session_state["compare_slots"]) == 5 and not sentences(app)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("dynatree", "DynaTree"),
        ("dynatree:history=false", "DynaTree · no history adaptation"),
        ("linear:length=4", "Linear chain · length 4"),
        ("delayed:selector=selector-20261122-101010-specinfer", "Delayed expansion · selector"),
        ("delayed:verifier=khisti,selector=khisti", "Delayed expansion · selector khisti, khisti"),
        ("dynatree:history=false,dynamic_depth=false,base_depth=3", "DynaTree · D_0 3 +2"),
    ],
)
def test_labels_are_short_and_say_what_was_changed(text: str, label: str):
    contestant = parse_contestant(text)
    assert len(short_label(contestant.method)) <= 44
    if label.count("+") == 0:
        assert short_label(contestant.method) == label
    assert parse_contestant(format_contestant(contestant)) == contestant


def test_another_pair_in_memory_is_told_in_place_of_trees(done: AppTest):
    outcome = done.session_state["comparison"]
    generation, outcome.generation = outcome.generation, -1
    outcome.trees.clear()
    done.session_state["compare_view"] = "Trees"
    said = sentences(done.run())
    outcome.generation = generation
    assert "Another pair has been loaded since: compare again to see trees." in said


def test_a_first_difference_is_marked_and_explained(done: AppTest):
    outcome = done.session_state["comparison"]
    same = outcome.comparison
    difference = OutputDifference(3, 5, 6, 0.31, True, "Token 4 is 'a' instead of 'b'.")
    outcome.comparison = replace(same, differences=((2, 0, difference), (1, 0, replace(difference, margin=1e-5))))
    done.session_state["compare_view"] = "Outputs"
    done.run()
    assert not sentences(done)
    captions = [caption.value.replace("\\", "") for caption in done.caption]
    assert captions.count("Compared with Autoregressive: Token 4 is 'a' instead of 'b'.") == 2
    table = table_html(score(outcome.comparison), outcome)
    outcome.comparison = same
    assert "✗ differs at token 4" in table and "≈ near tie at token 4" in table and table.count("✓ identical") == 1


def test_a_slower_method_is_explained_by_its_measured_phases(done: AppTest):
    plain, _, fixed, _ = score(done.session_state["comparison"].comparison)
    slow = replace(fixed, over_autoregressive=Spread(0.5, 0.4, 0.6, 3))
    (said,) = slower_words(slow, plain)
    assert "Fixed tree is not faster (0.50× Autoregressive)" in said and "% of each iteration" in said
    assert "To break even" in said or "Without prefill it is faster" in said
    unsure = replace(fixed, over_autoregressive=Spread(0.99, 0.9, 1.1, 3))
    assert "both sides of 1" in slower_words(unsure, plain)[0]
    assert slower_words(replace(fixed, over_autoregressive=Spread(1.2, 1.1, 1.3, 3)), plain) == []
    even = Spread(0.998, 0.99, 1.0, 3)
    assert "about even with Autoregressive (0.998×)" in slower_words(replace(fixed, over_autoregressive=even), plain)[0]
    assert times_words(even) == "about even (0.998×)" and times_words(Spread(0.99, 0.9, 1.1, 3)) == "0.99×"


def test_figures_of_an_earlier_setting_are_marked(done: AppTest):
    assert not done.warning
    done.number_input(key="compare_repeats").set_value(2).run()
    said = done.warning[0].value.replace("\\", "")
    assert "other settings (24 tokens × 1 repeat" in said and "press Compare" in said
    done.number_input(key="compare_repeats").set_value(1).run()
    assert not done.warning


def test_an_order_that_the_repeats_do_not_settle_is_called_uncertain(done: AppTest):
    first, second = score(done.session_state["comparison"].comparison)[2:]

    def measured(entry, *speeds: float):
        calls = {number: replace(entry.typical, throughput=speed) for number, speed in enumerate(speeds)}
        return replace(entry, calls=calls)

    best = measured(first, 90.0, 100.0, 110.0)
    assert doubt_words(best, [best, measured(second, 70.0, 80.0, 89.0)]) == ""
    overlapping = measured(second, 70.0, 80.0, 90.0)
    assert f"overlap with those of {second.contestant.label}, so their order is uncertain" in doubt_words(
        best, [best, overlapping]
    )
    assert "their order is uncertain" in " ".join(findings((best, overlapping)))
    once = measured(first, 100.0)
    assert doubt_words(once, [once, measured(second, 100.0)]) == "", "one call has no spread to judge by"


def test_repeats_that_differ_widely_are_pointed_out(done: AppTest):
    plain = score(done.session_state["comparison"].comparison)[0]
    assert unrest_words([plain]) == []
    calls = {0: plain.typical, 1: replace(plain.typical, throughput=3 * plain.typical.throughput)}
    assert "differ by up to 3.0×" in unrest_words([replace(plain, calls=calls)])[0]


def test_defects_are_no_stack_trace():
    assert "Traceback" not in sentence(RuntimeError("boom"))
