"""Sampling on every page: what fits is offered, what would bias is grey, a refused choice is one sentence."""

import pytest

from decoding.methods.methods import METHODS
from decoding.verifiers import VERIFIERS
from tests.helpers.families import family
from tests.pages.apptest import finish, open_page, sentences

STEP = "pages/step_through.py"


def buttons(at, method: str, key: str = "method") -> dict:
    """The verifier buttons of a method by name."""
    return {name: at.button(key=f"{key}_{method}_verifier_{name}") for name in VERIFIERS}


def chosen(at, method: str, key: str = "method") -> list[str]:
    return [name for name, button in buttons(at, method, key).items() if button.proto.type == "primary"]


def warm(at, temperature: float = 0.8):
    at.session_state["sampling_temperature"] = temperature
    return at.run()


def test_without_a_choice_nss_takes_the_place_of_greedy():
    at = open_page(STEP)
    assert chosen(at, "dynatree") == ["greedy"]
    warm(at)
    assert chosen(at, "dynatree") == ["nss"] and sentences(at) == []
    shown = buttons(at, "dynatree")
    assert [name for name, button in shown.items() if not button.disabled] == ["nss"]
    assert "would bias the output of trees of the draft's likeliest tokens" in shown["spectr"].help.replace("\\", "")
    assert "temperature 0" in shown["greedy"].help


@pytest.mark.slow
def test_a_choice_that_no_longer_fits_is_refused_in_a_sentence():
    at = open_page(STEP)
    at.button(key="method_dynatree_verifier_greedy").click().run()
    warm(at)
    reported = sentences(at)
    assert any("needs temperature 0, not 0.8" in sentence for sentence in reported), reported
    assert at.button(key="start").disabled
    at.button(key="method_dynatree_verifier_nss").click().run()
    assert sentences(at) == [] and not at.button(key="start").disabled


@pytest.mark.slow
def test_a_switch_of_the_drafter_changes_what_fits():
    at = warm(open_page(STEP))
    at.selectbox(key="method").select("linear").run()
    assert buttons(at, "linear")["block"].disabled
    at.toggle(key="method_linear_sampled").set_value(True).run()
    assert not buttons(at, "linear")["block"].disabled


@pytest.mark.slow
def test_a_verifiers_own_setting_stands_beside_it():
    at = warm(open_page(STEP))
    at.selectbox(key="method").select("iid_paths").run()
    assert not [s for s in at.slider if s.key == "method_iid_paths_truncation"]
    at.button(key="method_iid_paths_verifier_khisti").click().run()
    at.slider(key="method_iid_paths_truncation").set_value(4).run()
    at.session_state["max_new_tokens"] = 8
    at.button(key="start").click().run()
    finish(at, "step")
    settings = at.session_state["run"].trace.settings
    assert (settings["verifier"], settings["truncation"]) == ("khisti", 4) and sentences(at) == []


TUNED = [name for name in METHODS if name not in ("autoregressive", "dyspec", "sequoia")]


@pytest.mark.slow
@pytest.mark.parametrize("name", TUNED)
def test_every_method_is_tuned_at_a_temperature(name):
    at = open_page("pages/tune_live.py")
    at.session_state["tune"] = name
    warm(at)
    finish(at, "tune_draft")
    assert sentences(at) == []
    assert at.session_state["tune_bench"].shown[1].method.name == name


@pytest.mark.slow
def test_sampled_outputs_are_compared_by_figures_only():
    at = open_page("pages/compare.py")
    at.session_state["max_new_tokens"], at.session_state["compare_repeats"] = 12, 1
    warm(at)
    assert sentences(at) == []
    at.button(key="compare_start").click().run()
    finish(at, "compare")
    comparison = at.session_state["comparison"].comparison
    assert comparison.sampling.temperature == 0.8 and comparison.differences == ()
    assert all(not result.failure for result in comparison.results)


@pytest.mark.parametrize("page", family((STEP, "pages/compare.py", "pages/race.py", "pages/tune_live.py"), STEP))
def test_a_runs_own_values_beyond_the_widgets_are_moved_into_them(page: str):
    """A run of the command line may have been sampled in ways that no widget offers."""
    at = open_page(None)
    for name, value in {"temperature": 3.5, "top_p": 0.01, "draft_temperature": 9.0, "seed": 2**40}.items():
        at.session_state[f"sampling_{name}"] = value
    at.switch_page(page)
    at.run()
    assert sentences(at) == []
    sliders = ("temperature", "top_p", "draft_temperature")
    assert [at.slider(key=f"sampling_{name}").value for name in sliders] == [2.0, 0.05, 2.0]
    assert at.number_input(key="sampling_seed").value == 2**31 - 1
