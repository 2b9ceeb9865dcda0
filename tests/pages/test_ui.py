"""The parts that pages share: worker, model manager, errors, settings."""

import logging
import re
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from decoding.common.errors import DraftscopeError, OutOfMemoryError, PairError, SettingsError
from decoding.methods.methods import METHODS
from decoding.models.presets import PairSettings
from decoding.sampling.sampling import Sampling
from pages.ui.common.errors import JOINER, OUT_OF_MEMORY, as_draftscope_error, escape_markdown, info_of, sentence
from pages.ui.common.models import ModelManager, describe_pair, engine_words
from pages.ui.common.worker import ModelTask, Worker
from pages.ui.widgets.controls import SAMPLING, setting_help


def done(function) -> ModelTask:
    job = Worker().submit(ModelTask("work", function))
    assert job.wait(10)
    return job


def test_worker_returns_results_in_order():
    worker, order = Worker(), []
    jobs = [worker.submit(ModelTask(str(i), lambda job, i=i: order.append(i) or i)) for i in range(5)]
    assert all(job.wait(10) for job in jobs)
    assert order == [0, 1, 2, 3, 4]
    assert [job.result for job in jobs] == order
    assert {job.state for job in jobs} == {"done"}


def test_a_known_error_keeps_its_sentence():
    def fail(job):
        raise SettingsError("length must be from 1 to 64.")

    job = done(fail)
    assert job.state == "failed"
    assert str(job.error) == "length must be from 1 to 64."


def test_a_defect_is_one_sentence_on_screen_and_a_traceback_in_the_log(caplog, uncaught: list[str]):
    def fail(job):
        raise KeyError("secret")

    worker = Worker()
    with caplog.at_level(logging.ERROR, logger="draftscope"):
        job = worker.submit(ModelTask("work", fail))
        assert job.wait(10)
    assert "secret" not in str(job.error)
    assert "KeyError" in str(job.error)
    assert "Traceback" in caplog.text and len(uncaught) == 1
    uncaught.clear()
    assert done(lambda job: 1).result == 1
    after = worker.submit(ModelTask("next", lambda job: 2))
    assert after.wait(10)
    assert after.result == 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        OutOfMemoryError("full"),
    ],
)
def test_out_of_memory_is_reported(error):
    known = as_draftscope_error(error)
    assert isinstance(known, OutOfMemoryError)
    assert sentence(error) in (OUT_OF_MEMORY, "full")


def test_other_errors_are_not_taken_for_mistakes_of_the_user():
    assert as_draftscope_error(RuntimeError("shape mismatch")) is None
    assert as_draftscope_error(ValueError("x")) is None
    assert "shape" not in sentence(RuntimeError("shape mismatch"))


def test_markdown_of_names_stays_text():
    assert escape_markdown("[x](http://y) *b* $a$ :red[c]").count("\\") >= 10
    assert escape_markdown("plain words") == "plain words"


# What Streamlit's page does to a text after its escapes are gone.
PICTURES = (r":streamlit:", r":material[_/](\w+):", r":[+-]?\w+:")
SIGNS = r"(^|\s)(<->|->|<-|--|>=|<=|~=)(\s|$)"


@pytest.mark.parametrize(
    "name",
    ["a -> b", "<-> x", "a <-", "--", "a -- b >= c <= d ~= e", ":streamlit:", "x :material/home: y", ":+1: :100::dog:"],
)
def test_names_are_not_made_pictures_or_signs(name: str):
    shown = re.sub(r"\\(?=[!-/:-@[-`{-~])", "", escape_markdown(name))
    assert re.search("|".join((*PICTURES, SIGNS)), name)
    assert not re.search("|".join((*PICTURES, SIGNS)), shown)
    assert shown.replace(JOINER, "") == name


@pytest.fixture(scope="module")
def models():
    """A manager of its own with the embedded pair loaded."""
    own = ModelManager()
    own.pair()
    return own


def test_manager_loads_the_embedded_pair_when_first_asked():
    own = ModelManager()
    assert own.info is None
    assert not own.loaded
    assert own.memory_words() == ""
    assert own.pair() is own.pair()
    assert own.generation == 1
    assert "Embedded pair" in describe_pair(own.info)
    other = replace(own.info, draft=replace(own.info.draft, engine="transformers", engine_reason="asked for"))
    why = own.info.target.engine_reason
    assert engine_words(other) == f"Engine of the target: packed, {why}. Engine of the draft: transformers, asked for."


@pytest.mark.slow
def test_manager_releases_before_it_loads(models, monkeypatch):
    from decoding.models import pair as pair_module
    from decoding.session import session as opening

    order, load, release = [], pair_module.load_pair, pair_module.release
    monkeypatch.setattr(opening, "load_pair", lambda settings: order.append("load") or load(settings))
    monkeypatch.setattr(pair_module, "release", lambda pair: order.append("release") or release(pair))
    old = models.pair()
    new = models.load(PairSettings(context_length=256))
    assert order == ["release", "load"]
    assert old.target.released
    assert new.context == 256


def test_an_unknown_model_leaves_the_pair_in_memory(models):
    before = models.pair()
    with pytest.raises(PairError):
        models.load(PairSettings(target="nobody/nothing", draft="nobody/nothing"))
    assert models.pair() is before
    assert not before.target.released


@pytest.mark.slow
def test_a_pair_that_fails_late_leaves_the_embedded_pair(models, monkeypatch):
    from decoding.session import session as opening

    load = opening.load_pair

    def full(settings):
        if settings.context_length == 333:
            raise OutOfMemoryError("cuda is full.")
        return load(settings)

    monkeypatch.setattr(opening, "load_pair", full)
    with pytest.raises(OutOfMemoryError, match=r"cuda is full\. The embedded pair is loaded instead"):
        models.load(PairSettings(context_length=333))
    assert models.settings == PairSettings()
    assert not models.pair().target.released


def test_an_error_names_settings_as_their_widgets_do():
    with pytest.raises(SettingsError) as wrong:
        METHODS["dynatree"].with_settings(branch_mid=4)
    said = sentence(wrong.value).replace("\\", "")
    assert said.startswith(
        "“Children, confident (B_min)”, “Children, medium (B_mid)” and “Children, uncertain (B_max)”"
    )
    with pytest.raises(SettingsError) as wrong:
        METHODS["dynatree"].with_settings(confidence_low=0.95)
    assert "“Low confidence” (τ_l = 0.95)" in sentence(wrong.value).replace("\\", "")


def test_help_tells_range_and_source_of_the_default():
    def reported(method: str, name: str) -> str:
        return setting_help(METHODS[method].infos[name], METHODS[method].all_settings()[name])

    assert reported("dynatree", "base_depth").endswith("Accepted: from 1 to 31. Default of the DynaTree paper: 5.")
    assert reported("dynatree", "branch_mid").endswith("Default of the DynaTree paper's public code: 2.")
    assert reported("opt_tree", "gain_threshold").endswith("Accepted: from 0 to below 1. Default: 0.2.")
    assert reported("sequoia", "acceptance").endswith("Default: measured with the loaded pair.")
    assert reported("linear", "length").endswith("Default of the DynaTree paper: 8.")


def form(method: str) -> None:
    from decoding.methods.methods import METHODS
    from pages.ui.widgets.controls import settings_form

    settings_form(METHODS[method], "form")


@pytest.mark.parametrize("method", [*METHODS])
def test_sliders_lie_in_what_is_accepted(method: str):
    infos = METHODS[method].with_settings(verifier="khisti").infos
    at = AppTest.from_function(form, args=(method,))
    at.session_state[f"form_{method}_verifier"] = "khisti"  # it has a setting of its own
    at.run()
    assert not at.exception
    sliders = {slider.key.removeprefix(f"form_{method}_"): slider for slider in at.slider}
    assert sliders.keys() == {name for name, info in infos.items() if info.accepted}
    for name, slider in sliders.items():
        info = infos[name]
        assert slider.min in info.accepted and slider.max in info.accepted, name
        assert (slider.label, slider.step, slider.value) == (info.title, info.step, info.default), name


def test_a_slider_shows_what_is_accepted_beyond_its_range_and_nothing_else():
    at = AppTest.from_function(form, args=("dyspec_threshold",))
    at.session_state["form_dyspec_threshold_node_budget"] = 3000
    at.session_state["form_dyspec_threshold_threshold"] = 0.0
    at.run()
    budget, threshold = (at.slider(key=f"form_dyspec_threshold_{name}") for name in ("node_budget", "threshold"))
    assert (budget.value, budget.max, threshold.value, threshold.min) == (3000, 3000, 0.001, 0.001)
    budget.set_value(100).run()
    assert at.slider(key="form_dyspec_threshold_node_budget").max == 1024


def test_sampling_widgets_lie_in_what_is_accepted():
    for name, (_, low, high, _, default, _) in SAMPLING.items():
        assert low <= default <= high
        Sampling(**{name: low})
        Sampling(**{name: high})


def test_the_base_of_errors_is_ours():
    assert isinstance(as_draftscope_error(SettingsError("x")), DraftscopeError)


def test_a_choice_is_called_as_people_call_it():
    order = info_of("node_order")
    assert [order.words(each) for each in order.choices] == [
        "Breadth-first (BFS)", "Depth-first (DFS)", "Heavy path first",
    ]  # fmt: skip
    assert info_of("cache_policy").words("some_word") == "some word"


def test_a_setting_that_is_not_known_here_is_called_by_its_name():
    assert (info_of("beam_of_light").title, info_of("beam_of_light").short) == ("Beam of light", "beam of light")
