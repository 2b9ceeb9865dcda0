"""The model manager when a pair loads but cannot decode."""

import pytest
from streamlit.testing.v1 import AppTest

from decoding.analysis.doctor import CHECKS
from decoding.models.pair import PairSettings, embedded_pair
from decoding.models.presets import DTYPES, EMBEDDED
from decoding.sampling.sampling import Sampling
from decoding.session import session as opening
from pages.ui.app import pair_dialog
from pages.ui.common import models
from pages.ui.common.scheduler import ModelTask


@pytest.mark.slow
def test_a_pair_that_fails_its_warm_up_does_not_stay_in_memory(monkeypatch):
    loaded = embedded_pair()

    def fails(_pair):
        raise MemoryError

    monkeypatch.setattr(opening, "load_pair", lambda _settings: loaded)
    monkeypatch.setattr(opening, "warm_up", fails)
    with pytest.raises(MemoryError):
        models.ModelManager()._load(PairSettings())
    assert loaded.target.released and loaded.draft.released


def test_bfloat16_is_offered_on_a_cpu_that_computes_it(monkeypatch):
    for has, offered in ((True, ["auto", "float32", "bfloat16"]), (False, ["auto", "float32"])):
        monkeypatch.setattr(pair_dialog.presets, "cpu_computes_bfloat16", lambda has=has: has)
        for name, chosen in (("cpu", "cpu"), ("auto", "cpu"), ("auto", "cuda")):
            monkeypatch.setattr(pair_dialog.presets, "choose_device", lambda _, chosen=chosen: chosen)
            assert pair_dialog.precisions(name) == (offered if chosen == "cpu" else list(DTYPES))


def choice() -> None:
    from pages.ui.app.pair_dialog import draw_choice

    draw_choice()


OWN = {"target": "/models/big", "draft": "/models/small"}


@pytest.mark.parametrize(
    ("settings", "preset"),
    [
        (PairSettings(widen=3, context_length=1024, dtype="float32"), EMBEDDED),
        (PairSettings(**OWN, chat=True), pair_dialog.OWN_PAIR),
    ],
    ids=["wide", "own"],
)
def test_the_form_begins_with_the_pair_in_memory_and_keeps_what_is_chosen_then(settings, preset, monkeypatch):
    fresh = models.ModelManager()
    fresh.settings = settings
    monkeypatch.setattr(pair_dialog, "manager", lambda: fresh)
    at = AppTest.from_function(choice, default_timeout=60).run()
    assert not at.exception and at.radio(key="pair_preset").value == preset
    assert at.number_input(key="pair_context").value == settings.context_length
    assert at.selectbox(key="pair_dtype").value == settings.dtype
    assert at.toggle(key=f"pair_chat_{preset}").value == settings.chat
    if preset == EMBEDDED:
        assert any("at the cost of a target of 96.4 M" in each.value for each in at.caption)
    else:
        assert {role: at.text_input(key=f"pair_{role}").value for role in OWN} == OWN
    at.number_input(key="pair_context").set_value(512).run()
    assert at.number_input(key="pair_context").value == 512


def test_the_environment_names_the_first_pair(monkeypatch):
    assert models.first_pair() == PairSettings()
    monkeypatch.setenv("DRAFTSCOPE_TARGET", "/models/big")
    monkeypatch.setenv("DRAFTSCOPE_DTYPE", "bfloat16")
    assert models.first_pair() == PairSettings(target="/models/big", draft=EMBEDDED, dtype="bfloat16")


@pytest.mark.slow
def test_the_doctor_examines_the_pair_in_memory_at_the_temperatures_chosen(monkeypatch, embedded):
    monkeypatch.setattr(models.manager(), "pair", lambda: embedded)
    job = ModelTask("Reading prompts", bool)
    name, found = pair_dialog._examined(job, Sampling())
    assert name == embedded.info.name and [each.check for each in found] == list(CHECKS)
    assert all(each.verdict == "sound" for each in found), found
