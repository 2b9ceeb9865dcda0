"""Modelled figures say whose costs they use; runs that took much longer, and repeats that differ, warn and offer to
measure again."""

from dataclasses import replace
from statistics import median

import pytest

from decoding.analysis.budgets import SLOW, misfit
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.costs import measuring
from decoding.recorded import home_run
from decoding.trace.metrics import slowdown
from pages.ui.common.models import manager
from pages.ui.common.state import Run
from pages.ui.tune.view import disturbance_words
from pages.ui.tune.work import Trial
from pages.ui.widgets.costs import busy_words, doubt_words, measured_on, other_words, own_costs, slow_words
from tests.pages.apptest import finish, open_page, sentences

STEP, TUNE = "pages/step_through.py", "pages/tune_live.py"


def costs(seconds: float) -> CostModel:
    """A machine on which every pass takes so long."""
    curve = CostCurve((CostPoint(1, seconds, seconds, seconds),))
    return CostModel(curve, curve, seconds / 10, seconds / 10, 40, 256, "2026-01-02T03:04:05Z", "A machine, 2 threads")


FAST = costs(1e-6)  # a pass takes longer on any machine


def fitting(run: Run) -> CostModel:
    """A machine that is as fast as a run says; of another day, as what is computed from costs is kept by theirs."""
    iterations = run.trace.iterations[1:]
    passes = median(each.times.mask_s + each.times.verify_s for each in iterations)
    rest = median(each.times.total_s for each in iterations) - passes
    usual = replace(costs(passes), draft=costs(1e-9).draft, level_s=0.0)
    return replace(usual, iteration_s=rest, measured="2026-01-03T03:04:05Z")


def timed(seconds: float, count: int = 5):
    """Iterations whose target pass took so long."""
    whole = home_run().iterations[0]
    times = replace(whole.times, mask_s=0.0, verify_s=seconds, total_s=2 * seconds)
    return [replace(whole, times=times) for _ in range(count)]


def texts(at) -> str:
    return "\n".join(element.value for element in (*at.markdown, *at.caption)).replace("\\", "")


def test_a_slowdown_is_reported_from_enough_passes_without_the_first():
    usual = costs(0.01)
    assert slowdown(timed(0.05), usual) == pytest.approx(5.0)
    assert slowdown([*timed(9.0, 1), *timed(0.01)], usual) == pytest.approx(1.0), "the first one warms up"
    assert slowdown(timed(0.05, 3), usual) is None
    replayed = replace(timed(0.05)[0], times=replace(timed(0.05)[0].times, total_s=0.0))
    assert slowdown([replayed] * 9, usual) is None
    assert slow_words(timed(0.01 * SLOW / 1.1), usual) == "" == slow_words(timed(0.05), None)
    said = slow_words(timed(0.05), usual)
    assert "5.0×" in said and "2026-01-02 at 03:04 UTC" in said


@pytest.mark.parametrize("times", [1.4, 1.6, 0.7, 0.6])
def test_costs_fit_a_run_whose_passes_and_iterations_take_about_as_long(times):
    whole = replace(costs(0.01), draft=costs(1e-9).draft, level_s=0.0, iteration_s=0.01)
    far = not 1 / 1.5 <= times <= 1.5
    both, passes = timed(0.01 * times), timed(0.01)
    slow = [replace(each, times=replace(each.times, total_s=0.02 * times)) for each in passes]
    found = [misfit(each, whole) for each in (both, slow, both[:3])]
    assert [bool(each) for each in found] == [far, far, False]
    assert not far or (found[1][0] == "iterations" and found[0][1] == pytest.approx(times, rel=0.01))


def test_nothing_is_concluded_from_costs_that_contradict_the_run_or_themselves(monkeypatch):
    run, usual = Run(replace(home_run(), iterations=tuple(timed(0.05))), "decoded"), costs(0.05)
    recorded = replace(run, source="recorded")
    restless = replace(usual, target=CostCurve((CostPoint(1, 0.05, 0.05, 0.1),)), draft=CostCurve(
        (CostPoint(1, 0.05, 0.05, 0.1),)))  # fmt: skip
    fall = replace(usual, target=CostCurve(tuple(CostPoint(size, s, s, s) for size, s in ((1, 0.2), (2, 0.05)))))
    said = {"fits": usual, "restless": restless, "falls": fall, "falls beside work": replace(fall, others=0.7)}
    words = {name: [doubt_words(recorded, each)] for name, each in said.items()}
    monkeypatch.setattr("pages.ui.widgets.costs.own_costs", lambda run: True)
    usual_misfit = misfit(run.trace.iterations, costs(0.005))
    assert f"target passes of this run took {usual_misfit[1]:.2g} times as long" in doubt_words(run, costs(0.005))
    monkeypatch.setattr("pages.ui.widgets.costs.misfit", lambda *_: None)
    for name, each in said.items():
        words[name].append(doubt_words(run, each))
    assert [list(map(bool, pair)) for pair in words.values()] == [[False] * 2, [True, False], [False] * 2, [True] * 2]
    assert "differed by 2.0×" in words["restless"][0] and "70% of the processors" in words["falls beside work"][1]
    assert "while other work disturbed it on 2026-01-02" in measured_on(restless)


def test_repeats_that_differ_say_that_the_machine_is_busy(monkeypatch):
    monkeypatch.setattr(manager(), "costs", None)
    assert busy_words(1.4) == "" and "3.0×" in busy_words(3.0)
    quiet, busy = (Trial(number, None, None, tuple(made)) for number, made in enumerate((
        timed(0.01), [*timed(0.01, 2), *timed(0.05, 3)],
    )))  # fmt: skip
    assert disturbance_words((quiet, quiet)) == []
    assert "5.0×" in disturbance_words((quiet, busy))[0]
    monkeypatch.setattr(manager(), "costs", FAST)
    (said,) = disturbance_words((quiet, quiet))
    assert "2026-01-02" in said


def test_a_run_of_another_machine_is_not_judged_by_the_costs_of_this_one(monkeypatch):
    monkeypatch.setattr(manager(), "costs", FAST)
    assert own_costs(Run(home_run(), "recorded")) is None
    assert own_costs(Run(home_run(), "opened")) is None


@pytest.mark.slow
def test_step_through_warns_and_measures_again(monkeypatch):
    at = open_page(STEP)
    at.session_state["prompt_text"] = "Once upon a time there was a little girl who"
    at.session_state["max_new_tokens"] = 16
    at.button(key="start").click().run()
    finish(at, "step")
    at.button(key="to_end").click().run()
    finish(at, "step")
    monkeypatch.setattr(manager(), "costs", FAST)
    fits = fitting(at.session_state["run"])
    monkeypatch.setattr(manager(), "measure_costs", lambda head="": monkeypatch.setattr(manager(), "costs", fits))
    at.session_state["why_shown"], at.session_state["iteration"] = "What was possible", 0
    at.run()
    assert sentences(at) == []
    said = texts(at)
    assert "× as long as measured on 2026-01-02" in said
    assert "Budgets are not compared" in said and "Over the run, measured without prefill" in said
    assert "modelled:" not in said, "no figure of a model that the run contradicts"
    assert {"step_measure_again", "why_measure_again"} <= {button.key for button in at.button}
    at.button(key="step_measure_again").click().run()
    assert not any(button.key in ("step_measure_again", "why_measure_again") for button in at.button)
    said = texts(at)
    assert said.index("Over the run, measured without prefill") < said.index("Over the run, modelled: ")
    assert "For the same text, from passes measured on this machine on 2026-01-03" in said
    assert "This iteration, modelled: " in said and "A machine, 2 threads" in said


@pytest.mark.slow
def test_tune_warns_and_measures_again(monkeypatch):
    def settled():
        for slot in ("tune_draft", "tune_measure"):
            if f"job_{slot}" in at.session_state:
                finish(at, slot)

    at = open_page(TUNE)
    settled()
    monkeypatch.setattr(manager(), "costs", FAST)
    monkeypatch.setattr(manager(), "mend_costs", lambda: None)  # FAST is not what is kept
    slower = replace(costs(100.0), measured="2026-01-03T03:04:05Z")
    monkeypatch.setattr(manager(), "measure_costs", lambda head="": monkeypatch.setattr(manager(), "costs", slower))
    at.run()
    at.slider(key="tune_dynatree_prune_probability").set_value(0.0).run()
    settled()
    assert sentences(at) == [] and "2026-01-02" in texts(at)
    at.button(key="tune_measure_again").click().run()
    assert "2026-01-02" not in texts(at)


@pytest.mark.parametrize(
    ("share", "said"), [(0.1, ""), (0.6, "longer now, because other programs use 60% of the processors")]
)
def test_an_estimate_says_that_other_work_makes_it_too_short(monkeypatch, share, said):
    monkeypatch.setattr(measuring.OtherWork, "share", lambda self: share)
    assert other_words() == said
    at = open_page("pages/compare.py")
    takes = next(each.value for each in at.caption if "recorded speeds" in each.value)
    assert ("programs use 60%" in takes) == bool(said)
