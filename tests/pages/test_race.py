"""The Race page: the recorded race, a race of one's own, runs that are there already, and what stands against one."""

import io
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from decoding.common.errors import SettingsError
from decoding.compare.comparison import Comparison, Result
from decoding.compare.contestants import Contestant
from decoding.compare.identity import OutputDifference
from decoding.methods.methods import METHODS
from decoding.recorded import RACE_REPEATS, race_runs
from decoding.trace.metrics import measure_run
from decoding.trace.run_file import save_run
from pages.ui.common.state import PromptChoice, Run
from pages.ui.compare.plan import ComparisonPlan, ComparisonResult
from pages.ui.race import available, race_of, race_of_runs, recorded_race, replayed_words
from pages.ui.widgets.contestants import RACE
from tests.helpers.traces import PAIR, run_autoregressive, run_mixed
from tests.pages.apptest import finish, open_field, press_start, sentences

TOKENS = 16


def open_race(*racers: str, **state) -> AppTest:
    """The page with a short plan and these methods."""
    return open_field(RACE, *racers, **{"max_new_tokens": TOKENS} | state)


@pytest.fixture(scope="module")
def recorded() -> AppTest:
    """One race of three methods, an outside baseline among them."""
    at = press_start(open_race("autoregressive", "hf_generate", "linear", race_repeats=3), "race")
    assert sentences(at) == []
    return at


def test_something_races_before_anything_is_recorded_and_its_methods_are_those_chosen():
    at = open_race()
    assert sentences(at) == []
    assert "Not measured on this machine" in at.caption[-1].value
    chosen = [at.session_state[key] for key in at.session_state["race_slots"]]
    assert chosen == [run.method for run in race_runs()]


@pytest.mark.slow
def test_a_race_of_ones_own_replays_each_methods_median_call(recorded: AppTest):
    race = recorded.session_state["race"]
    assert [lane.label for lane in race.lanes] == ["Autoregressive", "Hugging Face generate", "Linear chain"]
    assert len({lane.output_ids for lane in race.lanes}) == 1 and len(race.lanes[0].output_ids) == TOKENS
    assert [run.label for run in race.runs] == ["Autoregressive", "Linear chain"]
    assert len(recorded.get("plotly_chart")) == 1
    for lane in race.lanes:
        assert lane.throughput == sorted(lane.speeds)[1]
        assert "of 3, the median" in lane.note
    assert race.lanes[1].plain and not race.lanes[1].has_phases
    assert "Measured on this machine" in race.about and "3 times in turn after 0 warm-up rounds" in race.about


@pytest.mark.slow
def test_choices_that_are_not_the_race_on_screen_are_marked():
    def marked(at: AppTest) -> list[str]:
        return [caption.value for caption in at.caption if ":material/pending:" in caption.value]

    (said,) = marked(open_race())
    assert "Lost mitten" in said, "the race that comes with the program, not the prompt chosen"
    at = press_start(open_race("autoregressive", "linear"), "race")
    assert marked(at) == []
    at.session_state["race_slots"] = at.session_state["race_slots"][::-1]
    (said,) = marked(at.run())
    assert at.session_state["race"].title in said


@pytest.mark.slow
def test_it_is_still_there_after_another_page(recorded: AppTest):
    before = recorded.session_state["race"]
    recorded.switch_page("pages/compare.py").run()
    recorded.switch_page("pages/race.py").run()
    assert recorded.session_state["race"] is before and sentences(recorded) == []


@pytest.mark.parametrize(
    ("racers", "words"),
    [
        (("autoregressive",), "at least 2 methods and there is 1"),
        (("linear", "linear"), "occurs twice with the same settings"),
        (("autoregressive", "linear", "dynatree", "fixed_tree", "eagle2"), "at most 4 methods and there are 5"),
    ],
)
def test_what_cannot_race_is_reported_before_anything_runs(racers, words):
    at = open_race(*racers)
    assert any(words in sentence for sentence in sentences(at))
    at.button(key="race_start").click().run()
    assert "job_race" not in at.session_state


def test_an_empty_prompt_is_reported_in_a_sentence():
    at = press_start(open_race("autoregressive", "linear", prompt="own text", prompt_text="  "), "race")
    assert any("The prompt is empty" in sentence for sentence in sentences(at))
    assert "race" not in at.session_state


@pytest.mark.slow
def test_cancelled_before_two_methods_were_measured():
    at = open_race("autoregressive", "linear", max_new_tokens=256)
    at.button(key="race_start").click().run()
    job = at.session_state["job_race"]
    while job.active and job.done < 1:
        job.wait(0.01)
    job.cancel()
    finish(at, "race")
    assert "race" not in at.session_state
    assert all("Fewer than two methods were measured" in sentence for sentence in sentences(at))


def outcome_of(runs, differences=(), failure: str | None = None) -> ComparisonResult:
    """A comparison made of hand-written runs."""
    contestants = [Contestant(run.label, method=METHODS[run.method]) for run in runs]
    results = [
        Result(i, 0, 0, run.output_ids, len(run.output_ids), measure_run(run), measure_run(run), run)
        for i, run in enumerate(runs)
    ]
    if failure:
        contestants.append(Contestant("Big", method=METHODS["fixed_tree"]))
        results.append(Result(len(runs), 0, 0, (), 0, None, None, None, failure))
    from decoding.sampling.sampling import Sampling

    comparison = Comparison(tuple(contestants), ("p",), tuple(results), differences, 0)
    plan = ComparisonPlan(PromptChoice("stories/x", "text"), 8, 1, 1, Sampling())
    return ComparisonResult(comparison, plan, (1,), ("a",), {}, False, PAIR, None, 0, {"processor": "test"})


def test_why_a_text_parts_is_taken_from_the_measurement():
    difference = OutputDifference(0, 1, 2, 3e-5, True, "Token 1 is a near tie.")
    race = race_of(outcome_of([run_autoregressive(), run_mixed()], ((1, 0, difference),)))
    assert race.explained == {1: "Token 1 is a near tie."}


@pytest.mark.parametrize(
    ("repeats", "words"),
    [
        (1, "its only call is replayed"),
        (2, "the slower of its two calls is replayed"),
        (3, "its median call is replayed"),
        (4, "the slower of its middle two calls is replayed"),
    ],
)
def test_it_says_which_call_is_replayed(repeats: int, words: str):
    assert replayed_words(repeats) == words


def test_a_method_without_a_lane_is_named():
    race = race_of(outcome_of([run_autoregressive(), run_mixed()], failure="Big ran out of memory: lower it."))
    assert race.missing == ("Big ran out of memory: lower it.",) and len(race.lanes) == 2
    with pytest.raises(SettingsError, match=r"Big ran out of memory: lower it\. Fewer than two"):
        race_of(outcome_of([run_mixed()], failure="Big ran out of memory: lower it."))


def test_the_programs_own_race_says_where_it_was_measured():
    race = recorded_race()
    assert "Not measured on this machine" in race.about and len(race.lanes) == 3
    for lane in race.lanes:
        assert len(lane.speeds) == RACE_REPEATS
        assert lane.throughput == pytest.approx(sorted(lane.speeds)[RACE_REPEATS // 2], rel=1e-4)


def test_runs_of_one_prompt_race_and_others_are_refused():
    race = race_of_runs([("A", run_mixed()), ("B", run_autoregressive())])
    assert [lane.label for lane in race.lanes] == ["A", "B"] and "Decoded separately" in race.about
    other = replace(run_mixed(), prompt_ids=(7,), prompt_texts=("x",))
    with pytest.raises(SettingsError, match="B and A have different prompts"):
        race_of_runs([("A", run_mixed()), ("B", other)])


def test_runs_on_screen_and_in_files_can_be_chosen(monkeypatch):
    import pages.ui.race as race_runs

    file = io.BytesIO()
    save_run(run_autoregressive(), file)
    file.seek(0)
    file.name = "saved.dscope"
    state = {"run": Run(run_mixed()), "race_files": [file]}
    monkeypatch.setattr(race_runs.st, "session_state", state)
    assert list(available()) == ["DynaTree (Step through)", "Autoregressive (saved.dscope)"]


@pytest.mark.slow
def test_the_chosen_runs_race():
    at = open_race()
    at.session_state["run"] = Run(run_mixed())
    at.session_state["comparison"] = outcome_of([run_autoregressive(), run_mixed()])
    at.session_state["race_runs_open"] = True
    at.run()
    at.multiselect(key="race_chosen").set_value(["DynaTree (Step through)"]).run()
    at.button(key="race_these").click().run()
    assert any("at least 2 runs" in sentence for sentence in sentences(at))
    at.multiselect(key="race_chosen").set_value(["DynaTree (Step through)", "Autoregressive (Compare)"]).run()
    at.button(key="race_these").click().run()
    assert sentences(at) == []
    assert [lane.label for lane in at.session_state["race"].lanes][1] == "Autoregressive (Compare)"
