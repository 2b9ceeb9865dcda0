"""The model manager when a pair loads but cannot decode."""

import pytest

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
