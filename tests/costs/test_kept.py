"""What is measured once per pair: kept in memory and in a file, which may be damaged or refused."""

import json
import warnings
from dataclasses import dataclass

import pytest

from decoding.costs import measuring
from decoding.costs.measuring import CalibrationCache, calibration_file


@dataclass(frozen=True)
class Info:
    name: str


@dataclass(frozen=True)
class Pair:
    info: Info


ONE, OTHER = Pair(Info("One + two")), Pair(Info("Three"))
NUMBERS = CalibrationCache("numbers", float, str)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "pair_identity", lambda pair: {"name": pair.info.name})
    monkeypatch.setattr(measuring, "_known", {})
    return tmp_path / "draftscope" / "calibration"


def measured(value: float, pair: Pair = ONE, entry: str = "here", again: bool = False) -> tuple[float, bool]:
    """What the store gives, and whether it was measured for that."""
    asked = []
    return NUMBERS.of(pair, entry, lambda: asked.append(1) or value, again), bool(asked)


def test_a_value_is_measured_once_for_each_pair_and_entry(cache, monkeypatch):
    assert NUMBERS.known(ONE, "here") is None
    assert measured(1.5) == (1.5, True) and measured(2.5) == (1.5, False) and NUMBERS.known(ONE, "here") == 1.5
    monkeypatch.setattr(measuring, "_known", {})
    assert measured(2.5) == (1.5, False)
    assert measured(3.5, again=True) == (3.5, True) and measured(4.5) == (3.5, False)
    assert measured(5.5, entry="there") == (5.5, True) and measured(6.5, OTHER) == (6.5, True)
    assert len(list(cache.iterdir())) == 2 and calibration_file(ONE, "numbers").name.startswith("one-two-")
    content = json.loads(calibration_file(ONE, "numbers").read_text())
    assert content == {"pair": {"name": "One + two"}, "entries": {"here": "3.5", "there": "5.5"}}


def test_a_damaged_file_is_measured_again_and_says_so(monkeypatch):
    wrong = (b'{"entries": []}', b'{"entries": {"x": []}}', b'{"entries": {"x": "a"}}')
    for damage in (b"{", b"\xff\xfe\x00", b"[]", b"{}", *wrong):
        measured(1.0)
        calibration_file(ONE, "numbers").write_bytes(damage)
        monkeypatch.setattr(measuring, "_known", {})
        with pytest.warns(UserWarning, match="cannot be read; it is re-measured"):
            assert measured(2.0) == (2.0, True), damage
        monkeypatch.setattr(measuring, "_known", {})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert measured(3.0) == (2.0, False), damage


def test_a_folder_that_takes_no_file_is_said_aloud(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot be saved"):
        assert measured(1.0) == (1.0, True)
    assert measured(2.0) == (1.0, False)
