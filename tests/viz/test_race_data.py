"""The race: tokens at their recorded times, and the sentences it ends with, from hand-written traces."""

import json
from dataclasses import replace

import pytest

from decoding.common.errors import SettingsError
from decoding.recorded import RACERS, race_runs
from decoding.trace.records import SamplingTrace
from tests.helpers.traces import autoregressive, ended, run_autoregressive, run_mixed, run_of, run_replayed, summary
from viz.race.data import (
    SPEEDS,
    decided,
    default_speed,
    difference_words,
    identity_words,
    iteration_ticks,
    lane_facts,
    partings,
    race_data,
    readable,
    time_ticks,
)
from viz.race.lanes import Lane, LaneStep, check_lanes, lane_of, lane_of_times

PROMPT = ((1, "Once"), (2, " upon"))


def lane(
    label: str, ids: tuple[tuple[int, ...], ...], first_s: float, step_s: float, *, draft_s: float = 0.0, **changes
) -> Lane:
    """A call whose iterations commit `ids`, begin at `first_s` and take `step_s` each, `draft_s` of it drafting."""
    steps = tuple(
        LaneStep(
            first_s + place * step_s,
            first_s + (place + 1) * step_s,
            tokens,
            tuple((f" t{token}", "drafted") for token in tokens),
            (("draft", draft_s), ("verify", step_s - draft_s)) if draft_s else (("verify", step_s),),
            len(tokens) - 1,
        )
        for place, tokens in enumerate(ids)
    )
    asked = {"target": "target, float32, cpu", "temperature": 0.0, "ended": False, "plain": False}
    asked |= {"reads_prompt": asked["plain"] or changes.get("plain", False)} | changes
    return Lane(label, "lean engine", steps, (1, 2), ("Once", " upon"), **asked)


# Eight tokens in four passes of 30 ms after a prefill of 10 ms; the same eight one by one at 20 ms.
TREE = lane("Tree", ((1, 2), (3, 4), (5, 6), (7, 8)), 0.010, 0.030, draft_s=0.012)
PLAIN = lane("Plain", tuple((token,) for token in range(1, 9)), 0.0, 0.020, plain=True)


def test_tokens_appear_when_the_commit_of_their_iteration_had_ended():
    run = run_mixed()
    shown = race_data([lane_of(run), lane_of(run_autoregressive())], "r")["lanes"][0]
    assert [step["end"] for step in shown["steps"]] == [iteration.ended_s for iteration in run.iterations]
    committed = [text for iteration in run.iterations for text in iteration.committed_texts]
    assert [token[0] for step in shown["steps"] for token in step["tokens"]] == [readable(text) for text in committed]
    assert shown["count"] == run.totals.new_tokens == len(committed)


def test_what_was_replayed_has_no_times_to_race_with():
    with pytest.raises(SettingsError, match="was replayed"):
        lane_of(run_replayed())


def test_phases_fill_their_iteration_and_follow_on_each_other():
    for step in lane_of(run_mixed()).steps:
        assert sum(seconds for _, seconds in step.phases) == pytest.approx(step.end_s - step.start_s)
    names = [name for name, _ in lane_of(run_mixed()).steps[1].phases]
    assert names == ["draft", "prune", "mask", "verify", "select", "commit", "rebuild", "other"]


def test_a_first_pass_that_reads_the_prompt_begins_before_the_prefill_ends():
    iteration = replace(autoregressive(), started_s=0.007, ended_s=0.0081)
    run = replace(run_autoregressive(), iterations=(iteration, *run_autoregressive().iterations[1:]))
    made = lane_of(run)
    assert made.steps[0].start_s < 0.007 and made.reads_prompt
    assert made.prompt_s == 0.0081 and made.later == made.steps[1:]


def test_provenance_is_that_of_the_scope_and_the_targets_own_without_a_draft():
    kinds = [[kind for _, kind in step.tokens] for step in lane_of(run_mixed()).steps]
    assert kinds[0] == ["drafted", "drafted", "recovered"]
    assert kinds[2] == ["drafted", "drafted", "bonus"] and kinds[3] == ["fallback"] and kinds[8] == ["drafted"] * 2
    assert {kind for step in lane_of(run_autoregressive()).steps for _, kind in step.tokens} == {"own"}


def test_a_run_recorded_as_a_summary_races_too():
    assert lane_of(run_of([summary(), summary()])).count == 6


def times_of(**changes) -> Lane:
    tokens = [(token, f" t{token}") for token in (1, 2, 3)]
    asked = {"prompt": PROMPT, "target": "t", "temperature": 0.0, "ended": False, "plain": True} | changes
    return lane_of_times("generate", "transformers", (0.02, 0.03, 0.05), (1, 1, 3), tokens, **asked)


def test_without_a_draft_no_phase_of_drafting_has_time_and_the_first_pass_is_the_prefill():
    first, *later = lane_of(run_autoregressive()).steps
    assert first.start_s == 0 and first.phases[0][0] == "prefill"
    assert [name for name, _ in first.phases[1:]] == ["select", "commit", "other"]
    assert {tuple(name for name, _ in step.phases) for step in later} == {("verify", "select", "commit", "other")}


def test_arrival_times_make_a_lane_without_phases():
    made = times_of()
    assert [(step.start_s, step.end_s, step.token_ids) for step in made.steps] == [
        (0, 0.02, (1,)),
        (0.02, 0.05, (2, 3)),
    ]
    assert not made.has_phases and made.output_ids == (1, 2, 3)
    assert "phases not reported" in lane_facts(made, [made, TREE])


def test_the_same_greedy_texts_are_said_to_be_the_same():
    same, words = identity_words([TREE, PLAIN], {})
    assert same is True and words == "Both texts are equal token for token (all 8 tokens, greedy)."


def test_the_first_difference_is_reported_with_both_tokens_or_with_what_was_measured():
    other = lane("Other", ((1, 2), (3, 9), (5, 6), (7, 8)), 0.01, 0.03)
    same, words = identity_words([other, PLAIN], {})
    assert same is False
    assert "Other diverges from Plain: token 4 is ‘·t9’ instead of ‘·t4’" in words and "not measured" in words
    assert identity_words([other, PLAIN], {0: "Measured so."})[1] == "Other diverges from Plain: Measured so."


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_shorter_text_differs_only_if_it_ended_by_itself(by_itself: bool):
    short = lane("Short", ((1, 2), (3, 4)), 0.01, 0.03, ended=by_itself)
    same, words = identity_words([short, PLAIN], {})
    assert same is not by_itself
    assert ("the end instead of ‘·t5’" in words) if by_itself else ("the first 4 tokens, which all have" in words)


def test_sampled_texts_differ_by_their_draws():
    sampled = [replace(each, temperature=0.8) for each in (TREE, PLAIN)]
    assert "same draws" in identity_words(sampled, {})[1]
    sampled[0] = lane("Tree", ((9, 2), (3, 4)), 0.01, 0.03, temperature=0.8)
    same, words = identity_words(sampled, {})
    assert same is None and "temperature 0.8" in words and "other draws" in words


def test_texts_of_two_targets_are_not_compared():
    same, words = identity_words([replace(TREE, target="another, float16, cuda"), PLAIN], {})
    assert same is None and "different targets" in words


def test_what_made_the_difference_is_counted_and_multiplies_out():
    words = difference_words([PLAIN, TREE])
    assert "Tree took 4 verification passes for 8 tokens (2.00 each), Plain 8 (1.00 each)" in words
    assert "30.0 ms (draft 12.0 ms, target 18.0 ms) compared with 20.0 ms (target 20.0 ms" in words
    assert "2.00× the tokens in 1.50× the time is 1.33× the speed" in words
    # Both calls as a whole: 160 ms against 130 ms.
    assert words.endswith(", or 1.23× with the prompt (10.0 ms compared with 20.0 ms).")


def test_the_difference_names_who_reports_no_phases():
    words = difference_words([times_of(), TREE])
    assert "Tree took 16.2 ms per token, generate 16.7 ms; generate reports no phases" in words


def repeated(each: Lane, *speeds: float) -> Lane:
    return replace(each, speeds=speeds)


@pytest.mark.parametrize(
    ("speeds", "fastest"),
    [
        (((60.0, 61.0, 62.0), (50.0, 50.5, 51.0)), "Tree"),
        (((50.0, 50.5, 51.0), (60.0, 61.0, 62.0)), "Plain"),
        (((50.0, 60.0, 55.0), (51.0, 58.0, 57.0)), None),
        (((60.0, 61.0), (50.0, 50.5)), None),
        (((60.0, 61.0, 62.0), (50.0,)), None),
        (((), ()), None),
    ],
)
def test_a_lane_is_called_the_fastest_only_where_three_repeats_say_so(speeds, fastest):
    lanes = [repeated(each, *own) for each, own in zip((TREE, PLAIN), speeds, strict=True)]
    shown = race_data(lanes, "k")
    assert [lane["label"] for lane in shown["lanes"] if lane["fastest"]] == ([fastest] if fastest else [])
    assert shown["finish"]["headline"]


def test_lanes_are_compared_within_each_repeat():
    drift = (1.0, 1.05, 0.95, 1.04, 0.96)
    tree, other = (repeated(replace(TREE, label=name), *(speed * each for each in drift))
                   for name, speed in (("Tree", 820.0), ("Other", 800.0)))  # fmt: skip
    line = decided([tree, other, repeated(PLAIN, *[500.0] * len(drift))])
    assert line.winner is not None and line.winner.label == "Tree", "both drift alike: the tree is always ahead"


def test_the_replayed_calls_are_compared_where_nothing_is_known_of_others():
    line = decided([TREE, PLAIN])
    assert line.best.figure.value == pytest.approx(160 / 130) and line.best.figure.count == 1
    assert f"{160 / 130:.2f}" in race_data([TREE, PLAIN], "k")["finish"]["headline"]
    assert decided([PLAIN, PLAIN]) is None


def test_lanes_part_where_they_take_different_steps_from_the_same_token():
    other = lane("Other", ((1, 2), (3,), (4, 5, 6), (7, 8)), 0.010, 0.040, draft_s=0.012)
    # Both begin at tokens 0, 2 and 6; from 2 the tree goes on to 4, the other one to 3.
    assert partings([TREE, other, PLAIN]) == {"time": [pytest.approx(0.090)], "iteration": [2.0]}
    assert partings([TREE, PLAIN]) == {"time": [], "iteration": []}, "plain decoding parts everywhere"
    unlike = lane("Unlike", ((1, 9), (3,), (4, 5, 6)), 0.010, 0.030, draft_s=0.012)
    assert partings([TREE, unlike])["iteration"] == [1.0], "nothing is compared behind the first difference"


def test_a_verdict_from_other_calls_than_those_shown_is_explained():
    lanes = [repeated(TREE, 75.0, 76.0, 77.0), repeated(PLAIN, 50.0, 50.0, 50.0)]
    doubt = race_data(lanes, "k")["finish"]["doubt"]
    assert f"{160 / 130:.2f}" in doubt and "1.52" in doubt
    shown = [repeated(TREE, *[TREE.throughput] * 3), repeated(PLAIN, *[PLAIN.throughput] * 3)]
    assert race_data(shown, "k")["finish"]["doubt"] == ""


def test_texts_of_different_lengths_are_reported():
    assert race_data([TREE, PLAIN], "k")["finish"]["doubt"] == ""
    assert race_data([TREE, lane("Short", ((1,),), 0.0, 0.03)], "k")["finish"]["doubt"]


def test_facts_of_a_lane_count_its_passes_and_its_speed():
    assert lane_facts(TREE, [TREE, PLAIN]) == (
        "4 passes · 2.00 tokens each · 30.0 ms per iteration (draft 12.0 ms, target 18.0 ms) · 1.23× Plain"
    )


@pytest.mark.parametrize(
    ("lanes", "words"),
    [
        ([], "at least 2 runs, but there is none"),
        ([TREE], "at least 2 runs, but there is 1"),
        ([TREE] * 5, "at most 4 runs, but there are 5"),
        ([PLAIN, replace(TREE, prompt_ids=(5,))], "Tree and Plain have different prompts"),
    ],
)
def test_what_cannot_race_is_refused_in_a_sentence(lanes, words):
    with pytest.raises(SettingsError, match=words):
        check_lanes(lanes)


def test_runs_without_tokens_are_refused():
    with pytest.raises(SettingsError, match="DynaTree has not decoded anything"):
        lane_of(replace(run_mixed(), iterations=()))
    with pytest.raises(SettingsError, match="generate has not decoded anything"):
        lane_of_times("generate", "", (), (), (), prompt=PROMPT, target="t", temperature=0.0, ended=False, plain=True)


def test_an_ended_text_and_its_temperature_are_read_from_the_run():
    run = run_of([ended()])
    run = replace(run, totals=replace(run.totals, stopped="end_of_text"), sampling=SamplingTrace(temperature=0.7))
    assert lane_of(run).ended and lane_of(run).temperature == 0.7


def test_data_is_plain_and_has_an_axis_for_both_ways_to_replay():
    data = race_data([PLAIN, TREE], "r", hold=True)
    assert json.loads(json.dumps(data))["finish"]["same"] is True and data["hold"]
    assert data["end_s"] == pytest.approx(0.16) and data["iterations"] == 8 and data["tallest"] == 2
    assert data["ticks"]["time"][1] == (0.02, "20 ms") and data["ticks"]["iteration"][-1] == (8.0, "8")
    assert time_ticks(2.0)[1] == (0.5, "0.5 s") and len(time_ticks(0.195)) <= 10
    assert iteration_ticks(1) == [(0.0, "0"), (1.0, "1")]


def test_the_replay_begins_at_a_speed_that_can_be_watched():
    assert SPEEDS[default_speed(30.0)][0] == 1.0
    assert SPEEDS[default_speed(0.2)][0] == 0.02
    assert default_speed(1e-6) == len(SPEEDS) - 1


@pytest.mark.parametrize(
    ("text", "shown"), [(" the", " the"), ("\n", "\\n"), ("  ", "··"), ("", ""), ("a\u202eb", "a\\u202eb")]
)
def test_token_text_reads_as_prose_and_hides_nothing(text: str, shown: str):
    assert readable(text) == shown


def test_a_call_that_drafts_without_telling_what_claims_no_token_for_the_target():
    given = dict(prompt=[(1, "a")], target="t", temperature=0.0, ended=False)
    tokens = [(2, "b"), (3, "c")]
    assisted, plain = (
        lane_of_times("HF", "", (0.1, 0.2), (1, 2), tokens, plain=plain, **given) for plain in (False, True)
    )
    assert {provenance for step in assisted.steps for _, provenance in step.tokens} == {"unknown"}
    assert {provenance for step in plain.steps for _, provenance in step.tokens} == {"own"}


def test_everything_in_the_legend_has_a_sentence():
    data = race_data([lane_of(run_mixed()), lane_of(run_autoregressive())], "r")
    shown = {provenance for lane in data["lanes"] for step in lane["steps"] for _, provenance, _ in step["tokens"]}
    shown |= {name for name, *_ in data["phases"]} | {"prefill", "tokens", "tokens/s", "recorded time", "unknown"}
    assert all(data["terms"].get(name) for name in shown)


def test_the_race_that_comes_with_the_program_is_whole_and_agrees():
    runs = race_runs()
    assert len(runs) == len(RACERS)
    data = race_data([lane_of(run) for run in runs], "recorded")
    assert data["finish"]["same"] is True
    assert data["lanes"][0]["label"] == "Autoregressive"
