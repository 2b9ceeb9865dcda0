"""The Compare page: a comparison from start to files, what stands against one, and what is kept."""

import csv
import io
import json
import shlex
from dataclasses import replace
from statistics import fmean
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.methods import contestants_from
from decoding.analysis.slowdown import stretches
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.common.errors import SettingsError
from decoding.common.formats import elapsed
from decoding.compare.comparison import score
from decoding.compare.contestants import format_contestant, parse_contestant
from decoding.compare.hf_generate import BASELINES, SINGLE_ROWS
from decoding.compare.identity import OutputDifference
from decoding.recorded import home_run, recorded_run
from decoding.trace.metrics import Spread, spread
from pages.ui.common.errors import sentence
from pages.ui.common.state import PromptChoice, Run
from pages.ui.compare.findings import (
    best_chain,
    decided,
    findings,
    losses,
    needs_by_kind,
    places,
    rivals,
    same_words,
    single_rows,
    slower_words,
    steady,
    times_words,
    two_medians_words,
    unrest_words,
)
from pages.ui.compare.outputs import as_csv, as_json, command
from pages.ui.compare.results import table_html
from pages.ui.widgets.contestants import COMPARE, check_contestants
from pages.ui.widgets.prompts import prompt_title, sample_prompts
from tests.helpers.families import family
from tests.pages.apptest import open_field, open_page, press_start, sentences
from viz.explain.bottom_line import need_words

TOKENS = 24
VIEWS = ("Overview", "Time", "Acceptance", "Outputs", "Trees")
WITHOUT_DRAFT_MODEL = ("autoregressive", "prompt_lookup", "suffix", "token_recycling")


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


@pytest.mark.parametrize("view", family(VIEWS, VIEWS[0]))
def test_the_page_opens_with_a_recorded_comparison_of_its_own_settings(view: str):
    app = open_page("pages/compare.py")
    app.session_state["compare_view"] = view
    app.run()
    assert not sentences(app) and not app.info and not app.warning
    assert "comparison" not in app.session_state, "a measured one takes its place"
    names = [app.session_state[key] for key in app.session_state["compare_slots"]]
    assert names == ["autoregressive", "hf_generate", "linear", "fixed_tree", "dynatree"]
    assert any("Recorded elsewhere" in caption.value for caption in app.caption)
    if view == "Overview":
        assert [button.key for button in app.button if button.disabled] == []


def test_a_comparison_measures_everyone_and_outputs_agree(done: AppTest):
    comparison = done.session_state["comparison"].comparison
    assert len(comparison.results) == 4 and not comparison.differences
    assert len({result.output_ids for result in comparison.results}) == 1
    assert all(result.metrics and result.metrics.ttft_s < result.metrics.wall_s for result in comparison.results)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("figures", family(("loop_free", "whole"), "loop_free"))
def test_every_view_draws(done: AppTest, view: str, figures: str):
    done.session_state["compare_view"], done.session_state["compare_counted"] = view, figures
    done.run()
    assert not sentences(done)
    words = {"loop_free": "tokens counted per run: loop-free texts", "whole": "tokens counted per run: whole texts"}
    assert any(words[figures] in each.value.replace("\\", "") for each in done.caption) or view == "Trees"


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


def test_the_prefix_jumps_to_the_next_place_where_methods_part(done: AppTest):
    done.session_state["compare_view"], done.session_state["compare_prefix"] = "Trees", 0
    done.run()
    runs = [done.session_state["comparison"].comparison.of(number)[0].run for number in (2, 3)]
    parted = places(score(done.session_state["comparison"].comparison))
    assert parted == [each.start for each in stretches(*runs) if each.parts]
    seen = [
        done.button(key="compare_part").click().run().session_state["compare_prefix"] for _ in range(len(parted) + 1)
    ]
    wanted = [place for place in parted if place]
    assert seen[: len(wanted)] == wanted and seen[len(wanted)] == parted[0] and not sentences(done)


@pytest.mark.slow
def test_a_plan_is_that_of_the_session_while_its_popovers_are_closed():
    at = open_field(COMPARE, "autoregressive", "linear", max_new_tokens=8, app=AppTest)
    at.session_state["compare_repeats"], at.session_state["sampling_temperature"] = 2, 0.5
    at.run()
    assert not [each for each in at.number_input if each.key in ("compare_repeats", "max_new_tokens")]
    plan = press_start(at, "compare").session_state["comparison"].plan
    assert (plan.max_new_tokens, plan.repeats, plan.warmup, plan.sampling.temperature) == (8, 2, 0, 0.5)


def test_results_survive_a_page_switch(done: AppTest):
    before = done.session_state["comparison"]
    done.session_state["compare_view"], done.session_state["compare_prefix"] = "Trees", 0
    done.run()
    done.slider(key="compare_prefix").set_value(3).run()
    done.switch_page("app.py").run()
    done.switch_page("pages/compare.py").run()
    assert done.session_state["comparison"] is before
    assert not done.info and done.session_state["compare_prefix"] == 3
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
    assert decided([scores]).winner is None and "<b>" not in speed_row(table), "one repeat has no winner"


@pytest.mark.slow
def test_figures_appear_after_each_repeat_with_how_many_are_in():
    at = open_compare("autoregressive", "linear", compare_repeats=3)
    at.button(key="compare_start").click().run()
    job, seen = at.session_state["job_compare"], set()
    while job.active:
        if job.partial is not None and job.partial is not job.seen:
            at.run()
            outcome = job.seen or at.session_state["comparison"]
            seen.add(outcome.repeats)
            assert not sentences(at) and len(outcome.comparison.results) == 2 * outcome.repeats
            if job.active:
                assert any(f"{outcome.repeats} of 3 repeats" in caption.value for caption in at.caption)
        job.wait(0.01)
    assert min(seen) < 3, "before the last repeat is in"
    at.run()
    assert at.session_state["comparison"].repeats == 3 and not any("of 3 repeats in" in x.value for x in at.caption)


@pytest.mark.slow
def test_several_prompts_are_measured_in_turn_and_shown_by_prompt_and_over_all(done: AppTest):
    samples = [name for name in sample_prompts() if name != done.session_state["prompt"]][:2]
    at = press_start(open_compare("autoregressive", "linear", compare_more=samples), "compare")
    assert not sentences(at)
    outcome = at.session_state["comparison"]
    assert [part.plan.prompt.name for part in outcome.parts][1:] == samples
    assert [result.prompt for result in outcome.comparison.results] == [0, 0, 1, 1, 2, 2]
    assert len({part.prompt_ids for part in outcome.parts}) == 3
    lines = [x.value for x in at.markdown if "Bottom line" in x.value]
    over = decided([score(part.comparison) for part in outcome.parts])
    assert (over.best.figure.count, over.best.figure.per) == (3, "prompt") and "3 prompts" in lines[0]
    assert over.best.figure.value == pytest.approx(
        fmean(score(part.comparison)[1].over_autoregressive.median for part in outcome.parts)
    )
    rows = list(csv.DictReader(io.StringIO(as_csv(outcome))))
    assert [row["prompt"] for row in rows] == [name for name in outcome.comparison.prompts for _ in range(2)]
    records = json.loads(as_json(outcome))
    assert [record["prompt"]["name"] for record in records] == [part.plan.prompt.name for part in outcome.parts]
    assert len(command(outcome).splitlines()) == 3
    at.session_state["compare_prompt"] = outcome.comparison.prompts[1]
    for view in ("Overview", "Outputs", "Trees"):
        at.session_state["compare_view"] = view
        assert not sentences(at.run())
    assert list(outcome.parts[1].trees) == [0] and not outcome.parts[0].trees
    assert outcome.parts[1].trees[0][0].prefix_length == len(outcome.parts[1].prompt_ids)


@pytest.mark.slow
def test_the_time_is_estimated_before_the_start_from_measured_calls(done: AppTest):
    outcome = done.session_state["comparison"]
    known = done.session_state["seconds_per_token"][outcome.settings]
    calls = {format_contestant(outcome.comparison.contestants[r.contestant]): r for r in outcome.comparison.results}
    assert known == {name: call.metrics.wall_s / call.metrics.new_tokens for name, call in calls.items()}
    done.number_input(key="compare_repeats").set_value(20).run()
    seconds = 20 * TOKENS * sum(known.values())
    shown = [caption for caption in done.caption if elapsed(seconds) in caption.value]
    done.number_input(key="compare_repeats").set_value(1).run()
    assert len(shown) == 1
    (before,) = (caption for caption in open_compare().caption if "at recorded speeds" in caption.value)
    assert before.help and before.help != shown[0].help, "nothing was measured here: the times are recorded ones"


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_that_is_cancelled_at_once_says_so():
    app = open_compare("autoregressive", "linear")
    app.button(key="compare_start").click().run()
    job = app.session_state["job_compare"]
    job.cancel()
    assert job.wait(60)
    if "comparison" not in app.run().session_state:
        assert "Cancelled before" in app.info[0].value
    assert not sentences(app)


def test_an_address_names_its_comparison_so_that_a_reload_has_it(done: AppTest):
    key = done.session_state["comparison"].key
    assert key in done.query_params["comparison"]
    app = open_page()
    app.switch_page("pages/compare.py")
    app.query_params["comparison"] = key
    app.run()
    assert app.session_state["comparison"] is done.session_state["comparison"]
    unknown = open_page()
    unknown.switch_page("pages/compare.py")
    unknown.query_params["comparison"] = "0" * 32
    unknown.run()
    assert not sentences(unknown) and "comparison" not in unknown.session_state


def test_a_text_of_ones_own_is_named_by_how_it_begins():
    assert (
        prompt_title(PromptChoice("own text", "  Once upon\n a time there was ")) == "Own text ‘Once upon a time the…’"
    )
    assert prompt_title(PromptChoice("own text", "Short")) == "Own text ‘Short’"
    assert prompt_title(PromptChoice("own text", " ")) == "Own text"
    assert prompt_title(PromptChoice("stories/frog_and_boat", "any")) == "Stories · Frog and boat"


def test_an_empty_prompt_is_reported_in_a_sentence():
    app = open_compare("autoregressive", "linear", prompt="own text", prompt_text="  ")
    assert sentences(press_start(app, "compare")) == ["The prompt is empty: type some text or pick a sample prompt."]
    assert "comparison" not in app.session_state


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_reported_and_results_stay(done: AppTest):
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
        pytest.param(["linear"] * 7, "at most 6 methods and there are 7", marks=pytest.mark.slow),
    ],
)
def test_too_few_or_the_same_twice_is_reported_before_the_start(names: list[str], words: str):
    app = open_compare(*names)
    (said,) = sentences(app)
    assert words in said
    app.button(key="compare_start").click().run()
    assert "job_compare" not in app.session_state


def test_more_than_six_are_reported():
    seven = [parse_contestant(f"linear:length={number}") for number in range(1, 8)]
    with pytest.raises(SettingsError, match="at most 6 methods and there are 7"):
        check_contestants(COMPARE, seven)


@pytest.mark.slow
def test_settings_that_contradict_one_another_are_reported_and_stay_editable():
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


def test_another_pair_in_memory_is_reported_in_place_of_trees(done: AppTest):
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
    once = replace(fixed, over_autoregressive=Spread(0.5, 0.5, 0.5, 1))
    assert "1 repeat" in slower_words(once, plain)[0]
    slow = replace(fixed, over_autoregressive=Spread(0.5, 0.4, 0.6, 3))
    (said,) = slower_words(slow, plain)
    assert "Fixed tree is not faster (0.50× Autoregressive)" in said and "% of an iteration" in said
    assert "To break even" in said or "Without prefill it is faster" in said
    unsure = replace(fixed, over_autoregressive=Spread(0.99, 0.9, 1.1, 3))
    assert "both sides of 1" in slower_words(unsure, plain)[0]
    assert slower_words(replace(fixed, over_autoregressive=Spread(1.2, 1.1, 1.3, 3)), plain) == []
    even = Spread(0.998, 0.99, 1.0, 3)
    assert "about even with Autoregressive (0.998×)" in slower_words(replace(fixed, over_autoregressive=even), plain)[0]
    assert times_words(even) == "about even (0.998×)" and times_words(Spread(0.99, 0.9, 1.1, 3)) == "0.99×"


@pytest.mark.slow
def test_sampled_outputs_are_not_compared_token_for_token_but_by_their_tokens_per_pass():
    at = press_start(open_compare("autoregressive", "linear", sampling_temperature=1.0), "compare")
    assert not sentences(at)
    outcome = at.session_state["comparison"]
    plain, chain = score(outcome.comparison)
    assert same_words(plain, outcome.comparison) == "reference" != same_words(chain, outcome.comparison)
    luck = outcome.expected[1]
    assert list(outcome.expected) == [1] and 0 not in outcome.expected
    realised = [len(each.committed_ids) for each in outcome.comparison.of(1)[0].run.iterations]
    assert luck.tokens == tuple(realised), "the same seed draws the same tokens, and block efficiency counts them"
    table = table_html((plain, chain), outcome)
    assert f"{luck.mean / len(luck.tokens):.2f}" in speed_row(table, "Expected block efficiency")
    at.session_state["compare_view"] = "Outputs"
    said = [caption.value for caption in at.run().caption if "with the same seed" in caption.value]
    assert len(said) == 1 and f"{luck.happened / len(luck.tokens):.2f}" in said[0]


def test_figures_of_an_earlier_setting_are_marked(done: AppTest):
    assert not done.warning
    done.number_input(key="compare_repeats").set_value(2).run()
    said = done.warning[0].value.replace("\\", "")
    assert "another comparison (24 tokens × 1 repeat" in said and "Press Compare" in said
    done.number_input(key="compare_repeats").set_value(1).run()
    assert not done.warning


def speed_row(table: str, title: str = "Tokens/s") -> str:
    """A row of the table as it is written."""
    return next(row for row in table.split("<tr>") if f">{title}</th>" in row)


def measured(entry, *speeds: float, against: tuple[float, ...] = (50.0, 50.0, 50.0)):
    """A score with these tokens per second in its repeats, and plain decoding's beside them."""
    calls = {number: replace(entry.typical, throughput=speed) for number, speed in enumerate(speeds)}
    ratios = [mine / base for mine, base in zip(speeds, against, strict=False)]
    return replace(entry, calls=calls, over_autoregressive=spread(ratios))


def test_the_best_chain_has_its_price_against_the_best_tree(done: AppTest):
    *_, tree, other = score(done.session_state["comparison"].comparison)
    linear = replace(other, run=recorded_run("tree_helps_chain"))
    chain = measured(linear, 94.0, 94.5, 93.5)
    found = best_chain([[measured(tree, 100.0, 100.0, 100.0), chain]], tree.contestant.label)
    assert found.run == linear.run and found.speed == pytest.approx(0.94) and found.low < 0.94 < found.high
    assert best_chain([[measured(tree, 100.0), measured(linear, 94.0)]], tree.contestant.label).low is None
    assert best_chain([[tree, other]], tree.contestant.label) is None, "two trees"


def test_a_winner_is_named_and_bold_only_where_three_repeats_stand_apart(done: AppTest):
    outcome = done.session_state["comparison"]
    plain, _, first, second = score(outcome.comparison)
    plain = measured(plain, 50.0, 50.0, 50.0)
    best, label = measured(first, 98.0, 100.0, 102.0), first.contestant.label

    def shown(*entries):
        line = decided([entries])
        return line, speed_row(table_html(entries, outcome, line))

    line, row = shown(plain, best, measured(second, 80.0, 81.0, 82.0))
    assert line.winner.label == label and row.count("<b>") == 1 and "<b>100.0" in row
    for rival in (measured(second, 96.0, 101.0, 99.0), measured(second, 80.0)):
        line, row = shown(plain, best, rival)
        assert line.winner is None and second.contestant.label in {each.label for each in line.rivals}
        assert "<b>" not in row
    line, row = shown(plain, measured(first, 20.0, 20.5, 21.0), measured(second, 30.0, 30.5, 31.0))
    assert line.verdict == "plain" and line.winner is None and "<b>50.0" in row


@pytest.mark.slow
def test_where_the_tree_lost_to_the_chain_leads_to_the_iteration_and_sets_the_own_run_aside():
    at = press_start(open_compare("autoregressive", "linear", "dynatree"), "compare")
    assert not sentences(at)
    outcome = at.session_state["comparison"]
    tree, chain = rivals(score(outcome.comparison))
    assert (tree.contestant.method.name, chain.contestant.method.name) == ("dynatree", "linear")
    shown = [button for button in at.button if button.key.startswith("parting_")]
    lost = [*losses(tree.run, chain.run)[:3], *losses(chain.run, tree.run)[:3]]
    assert len(shown) == 2 * len(lost) >= 2, "an iteration of either"
    assert all(each.lost_s > 0 for each in lost)
    place = lost[0].mine[0]
    own = at.session_state["run"] = Run(home_run(), "opened")
    shown[0].click().run()
    at.switch_page("pages/step_through.py").run()
    at.session_state["job_step"].wait(60)
    at.run()
    run = at.session_state["run"]
    assert run.trace.label == shown[0].key.split("_")[1]
    assert at.session_state["iteration"] == place
    assert run.trace.totals.stopped != "unfinished", "the whole run, not cut off at the place of the link"
    assert at.session_state["run_set_aside"][0] is own
    decoded = run.trace.iterations[place].committed_ids
    measured = outcome.comparison.of(2 if run.trace.method == "dynatree" else 1)[0].run.iterations[place]
    assert decoded == measured.committed_ids


def test_a_disturbed_iteration_is_taken_from_another_repeat(done: AppTest):
    outcome = done.session_state["comparison"]
    entry = score(outcome.comparison)[3]
    (call,) = outcome.comparison.of(3)
    first, *later = call.run.iterations
    slow = replace(first, times=replace(first.times, verify_s=9.0))
    calls = [replace(call, run=replace(call.run, iterations=(each, *later))) for each in (slow, first, first)]
    repeated = replace(outcome.comparison, results=tuple(calls))
    entry = replace(entry, run=calls[0].run)
    assert steady(entry, replace(outcome, comparison=repeated)).iterations[0].times == first.times
    other = replace(calls[1], run=replace(call.run, iterations=(later[0], first, *later[1:])))
    mixed = replace(outcome.comparison, results=(calls[0], other, calls[2]))
    assert steady(entry, replace(outcome, comparison=mixed)) is entry.run


def test_headline_and_bold_ratio_come_from_the_same_ratios(done: AppTest):
    """The machine is twice as fast in the last two repeats: medians of tokens/s compare different ones."""
    outcome, drift = done.session_state["comparison"], (50.0, 100.0, 104.0)
    plain, _, first, second = score(outcome.comparison)
    entries = (
        measured(plain, *drift),
        measured(first, 100.0, 200.0, 209.0, against=drift),
        measured(second, 61.0, 240.0, 128.0, against=drift),
    )
    line = decided([entries])
    assert line.best.label == first.contestant.label and line.best.figure.value == entries[1].over_autoregressive.median
    assert line.best.figure.value == pytest.approx(2.0)
    (said,) = two_medians_words(list(entries), entries[0])
    assert said in findings(entries) and second.contestant.label in said and "1.23" in said and "1.28" in said
    assert two_medians_words(list(entries[:2]), entries[0]) == []


def test_a_ratio_to_generate_in_bfloat16_on_a_cpu_comes_with_what_to_know_of_it():
    def entry(dtype: str, over_hf: object) -> SimpleNamespace:
        return SimpleNamespace(
            run=SimpleNamespace(pair=SimpleNamespace(target=SimpleNamespace(device="cpu", dtype=dtype))),
            over_hf=over_hf,
        )

    assert single_rows([entry("bfloat16", 2.0)]) == [SINGLE_ROWS]
    assert single_rows([entry("bfloat16", None)]) == single_rows([entry("float32", 2.0)]) == single_rows([]) == []


def test_the_bottom_line_models_larger_batches_by_the_costs_of_each_contestant(done: AppTest):
    entries = score(done.session_state["comparison"].comparison)
    curve = CostCurve((CostPoint(1, 1.0, 1.0, 1.0),))
    costs = {8: CostModel(curve, curve.raised(-1.0), 0.0, 0.0, 1, 1, "", "", batch=8)}  # drafting costs nothing
    line = decided([entries], {"": costs})
    run = next(entry.run for entry in entries if entry.contestant.label == line.best.label)
    tokens = sum(len(each.committed_ids) for each in run.iterations)
    assert line.best.batches == {8: pytest.approx(tokens / len(run.iterations))}
    assert not decided([entries]).best.batches


def test_repeats_that_differ_widely_are_pointed_out(done: AppTest):
    plain = score(done.session_state["comparison"].comparison)[0]
    assert unrest_words([plain]) == ""
    calls = {0: plain.typical, 1: replace(plain.typical, throughput=3 * plain.typical.throughput)}
    assert "differ by up to 3.0×" in unrest_words([replace(plain, calls=calls)])


def test_defects_are_no_stack_trace():
    assert "Traceback" not in sentence(RuntimeError("boom"))


@pytest.mark.slow
def test_one_click_asks_whether_a_draft_model_is_needed_and_the_bottom_line_answers():
    at = open_compare(prompt="stories/frog_and_boat", compare_more=["editing/prices_in_json"])
    at.button(key="compare_question").click().run()
    assert not sentences(at)
    chosen = [at.session_state[key] for key in at.session_state["compare_slots"]]
    needs = {name: name not in WITHOUT_DRAFT_MODEL for name in chosen}
    assert "compare_question" not in [button.key for button in at.button], "it has been put"
    assert chosen[0] == "autoregressive" and set(WITHOUT_DRAFT_MODEL) <= set(chosen) and any(needs.values())
    at = press_start(at, "compare")
    assert not sentences(at)
    outcome = at.session_state["comparison"]
    assert {each.name: each.draft_model for each in outcome.comparison.contestants} == needs
    (said,) = [each.value for each in at.markdown if "Bottom line" in each.value]
    assert "Do you need a draft model" in said
    prompts = [score(part.comparison) for part in outcome.parts]
    by_kind = needs_by_kind(prompts, [each.name for each in outcome.plan.prompts])
    assert [each.partition(" (1 prompt) · ")[0] for each in by_kind] == ["Stories", "Editing"]
    assert all("(a single call)" in each for each in by_kind), "one repeat of one prompt decides nothing"
    assert by_kind[1].removeprefix("Editing (1 prompt) · ") == need_words(decided(prompts[1:]).draft_model)
    assert needs_by_kind(prompts, ["stories/a", "stories/b"]) == [], "one kind has the answer of the bottom line"


def test_a_baseline_needs_a_draft_model_where_it_is_given_one():
    needs = {name: parse_contestant(name).draft_model for name in (*BASELINES, "linear", "suffix", "autoregressive")}
    assert {name for name, needed in needs.items() if needed} == {"hf_assisted", "linear"}
