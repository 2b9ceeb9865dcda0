"""Remaking what is recorded: part by part, and on from where it was stopped."""

import subprocess
from types import SimpleNamespace

import pytest

from benchmarks.remake import PARTS, noted, remake
from decoding.common.errors import DraftscopeError
from decoding.recorded import recorded_runs
from decoding.recorded.__main__ import FIND, RECORD


def test_every_recording_and_the_pictures_are_a_part():
    assert set(PARTS) == {*FIND, *RECORD, "pictures"}
    assert {name for name in recorded_runs() if name in FIND} <= set(PARTS)


def test_it_goes_on_where_it_was_stopped_and_then_begins_anew(tmp_path, monkeypatch, capsys):
    made, broken = [], ["race"]

    def run(words, **_):
        part = words[-1]
        if part not in broken:
            made.append(part)
        return SimpleNamespace(returncode=int(part in broken))

    monkeypatch.setattr(subprocess, "run", run)
    notes = tmp_path / "notes" / "done.json"
    with pytest.raises(DraftscopeError, match="race"):
        remake(["home", "race", "sampled"], notes)
    assert made == ["home"] and list(noted(notes)) == ["home"]
    broken.clear()
    remake(["home", "race", "sampled"], notes)
    assert made == ["home", "race", "sampled"] and noted(notes) == {}
    assert capsys.readouterr().out.count("done in") == 3
    remake(["home"], notes)
    assert made[-1] == "home"
