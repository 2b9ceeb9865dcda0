"""The model manager when a pair loads but cannot decode."""

import pytest

import decoding.pair as pair_module
from decoding.pair import PairSettings, embedded_pair
from pages.ui import models


def test_a_pair_that_fails_its_warm_up_does_not_stay_in_memory(monkeypatch):
    loaded = embedded_pair()

    def fails(_pair):
        raise MemoryError

    monkeypatch.setattr(pair_module, "load_pair", lambda _settings: loaded)
    monkeypatch.setattr(models, "_warm_up", fails)
    with pytest.raises(MemoryError):
        models.ModelManager()._load(PairSettings())
    assert loaded.target.released and loaded.draft.released
