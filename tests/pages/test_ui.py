"""The parts that pages share: worker, model manager, errors, settings."""

import logging
import threading

import pytest

from decoding.errors import DraftscopeError, OutOfMemoryError, PairError, SettingsError
from decoding.methods import METHODS, PRESETS
from decoding.presets import PairSettings
from pages.ui.errors import OUT_OF_MEMORY, as_draftscope_error, escape_markdown, sentence
from pages.ui.models import ModelManager, describe_pair, gibibytes, parameters
from pages.ui.setting_info import CODE_DEFAULTS, GROUPS, IDLE_WITHOUT, PAPER_DEFAULTS, SETTING_INFO
from pages.ui.setting_widgets import setting_help
from pages.ui.worker import Job, Worker


def done(function) -> Job:
    job = Worker().submit(Job("work", function))
    assert job.wait(10)
    return job


def test_worker_returns_results_in_order():
    worker, order = Worker(), []
    jobs = [worker.submit(Job(str(i), lambda job, i=i: order.append(i) or i)) for i in range(5)]
    assert all(job.wait(10) for job in jobs)
    assert order == [0, 1, 2, 3, 4]
    assert [job.result for job in jobs] == order
    assert {job.state for job in jobs} == {"done"}


def test_one_thing_at_a_time():
    worker, inside, most = Worker(), [], []

    def work(job):
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.01)
        inside.pop()

    jobs = [worker.submit(Job("x", work)) for _ in range(6)]
    assert all(job.wait(10) for job in jobs)
    assert max(most) == 1


def test_cancel_ends_work_and_spares_waiting_work():
    worker, begun = Worker(), threading.Event()

    def forever(job):
        begun.set()
        while not job.cancelled:
            threading.Event().wait(0.005)
        return "part"

    first, second = worker.submit(Job("a", forever)), worker.submit(Job("b", lambda job: 1))
    assert begun.wait(10)
    second.cancel()
    first.cancel()
    assert second.wait(10)
    assert (first.state, first.result) == ("cancelled", "part")
    assert (second.state, second.result) == ("cancelled", None)


def test_a_known_error_keeps_its_sentence():
    def fail(job):
        raise SettingsError("length must be from 1 to 64.")

    job = done(fail)
    assert job.state == "failed"
    assert str(job.error) == "length must be from 1 to 64."


def test_a_defect_is_one_sentence_on_screen_and_a_traceback_in_the_log(caplog):
    def fail(job):
        raise KeyError("secret")

    worker = Worker()
    with caplog.at_level(logging.ERROR, logger="draftscope"):
        job = worker.submit(Job("work", fail))
        assert job.wait(10)
    assert "secret" not in str(job.error)
    assert "KeyError" in str(job.error)
    assert "Traceback" in caplog.text
    assert done(lambda job: 1).result == 1
    after = worker.submit(Job("next", lambda job: 2))
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
def test_out_of_memory_is_told(error):
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
    assert own.memory() is None
    assert own.pair() is own.pair()
    assert own.generation == 1
    assert "Embedded pair" in describe_pair(own.info)


def test_manager_releases_before_it_loads(models, monkeypatch):
    from decoding import pair as pair_module

    order, load, release = [], pair_module.load_pair, pair_module.release
    monkeypatch.setattr(pair_module, "load_pair", lambda settings: order.append("load") or load(settings))
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


def test_a_pair_that_fails_late_leaves_the_embedded_pair(models, monkeypatch):
    from decoding import pair as pair_module

    load = pair_module.load_pair

    def full(settings):
        if settings.context_length == 333:
            raise OutOfMemoryError("cuda is full.")
        return load(settings)

    monkeypatch.setattr(pair_module, "load_pair", full)
    with pytest.raises(OutOfMemoryError, match=r"cuda is full\. The embedded pair is loaded instead"):
        models.load(PairSettings(context_length=333))
    assert models.settings == PairSettings()
    assert not models.pair().target.released


def test_every_setting_of_every_method_is_explained():
    named = {name for method in (*METHODS.values(), *PRESETS.values()) for name in method.settings()}
    assert named <= set(SETTING_INFO), f"no line in SETTING_INFO for {sorted(named - set(SETTING_INFO))}"
    for name, info in SETTING_INFO.items():
        assert info.meaning.endswith("."), name
        assert info.group in GROUPS, name
        if info.low is not None:
            assert info.low < info.high and info.step > 0, name
    assert {name for idle in IDLE_WITHOUT.values() for name in idle} <= set(SETTING_INFO)


def test_sliders_hold_every_configuration_of_the_papers():
    for label, method in {**METHODS, **PRESETS}.items():
        for name, value in method.settings().items():
            info = SETTING_INFO[name]
            if info.low is not None:
                assert info.low <= value <= info.high, (label, name)


def test_an_error_names_settings_as_their_widgets_do():
    with pytest.raises(SettingsError) as wrong:
        METHODS["dynatree"].with_settings(branch_mid=4)
    said = sentence(wrong.value).replace("\\", "")
    assert said.startswith("“Children, sure (B_min)”, “Children, in between (B_mid)” and “Children, unsure (B_max)”")
    with pytest.raises(SettingsError) as wrong:
        METHODS["dynatree"].with_settings(confidence_low=0.95)
    assert "“Low confidence” (τ_l = 0.95)" in sentence(wrong.value).replace("\\", "")


def test_the_source_of_every_default_is_told():
    for defaults in (PAPER_DEFAULTS, CODE_DEFAULTS):
        for method, names in defaults.items():
            assert set(names) <= METHODS[method].settings().keys(), method
    assert setting_help("dynatree", "base_depth", 5).endswith("below D_max. Default of the paper: 5.")
    assert setting_help("dynatree", "branch_mid", 2).endswith("Default of the paper's public code: 2.")
    assert setting_help("opt_tree", "gain_threshold", 0.2).endswith("tokens. Default: 0.2.")
    assert setting_help("sequoia", "acceptance", "").endswith("Default: empty.")
    assert setting_help("dynatree", "history", True).endswith("Default of the paper: on.")


def test_sizes_in_words():
    assert parameters(70_426_624) == "70.4 M"
    assert parameters(2_775_208_960) == "2.78 B"
    assert gibibytes(3 * 2**30) == "3.0 GiB"
    assert gibibytes(5 * 2**20) == "5 MiB"


def test_the_base_of_errors_is_ours():
    assert isinstance(as_draftscope_error(SettingsError("x")), DraftscopeError)


def test_a_choice_is_called_as_people_call_it():
    assert [SETTING_INFO["node_order"].told(order) for order in SETTING_INFO["node_order"].choices] == [
        "Breadth-first (BFS)", "Depth-first (DFS)", "Heavy path first",
    ]  # fmt: skip
    assert SETTING_INFO["cache_policy"].told("some_word") == "some word"
