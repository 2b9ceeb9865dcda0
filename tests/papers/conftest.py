"""What the tests of papers share."""

import pytest

from decoding.papers import stored


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "RESULTS", tmp_path / "results")
    return tmp_path / "results"
