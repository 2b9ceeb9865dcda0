"""Remaking what hangs on the embedded pair: part by part, and on from where it was stopped."""

import subprocess
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.remake import main, noted, parts_of, remake
from decoding.common.errors import DraftscopeError
from decoding.recorded import recorded_runs
from decoding.recorded.__main__ import FIND, RECORD


def test_every_recording_is_a_part_and_comes_between_what_is_trained_and_what_shows_it():
    parts = list(parts_of(Path("texts"), Path("folder")))
    recordings = [name for name in parts if name in {*FIND, *RECORD}]
    assert set(recordings) == {*FIND, *RECORD} and {name for name in recorded_runs() if name in FIND} <= set(parts)
    first, last = parts.index(recordings[0]), parts.index(recordings[-1])
    assert parts[:first] == ["heads", "heads on the same windows", "example of training data", "selectors"]
    assert {"grid of verifiers", "tables", "pictures", "golden"} <= set(parts[last:])


def test_every_command_is_there_with_its_grid():
    for command in parts_of(None, Path("folder")).values():
        assert command[1] != "-m" or find_spec(command[2]), command
        assert all(Path(part).is_file() for part in command if part.endswith(".toml")), command


@pytest.mark.parametrize("part", ["selectors", "heads on the same windows"])
def test_what_is_made_from_text_needs_it(monkeypatch, capsys, part):
    monkeypatch.setattr("sys.argv", ["remake", part])
    assert main() == 2 and "--corpus" in capsys.readouterr().err


def test_it_goes_on_where_it_was_stopped_and_then_begins_anew(tmp_path, monkeypatch, capsys):
    made, broken = [], ["race"]

    def run(words, **_):
        part = words[-1]
        if part not in broken:
            made.append(part)
        return SimpleNamespace(returncode=int(part in broken))

    monkeypatch.setattr(subprocess, "run", run)
    notes, parts = tmp_path / "notes" / "done.json", parts_of(None, tmp_path)
    with pytest.raises(DraftscopeError, match="race"):
        remake(["home", "race", "sampled"], parts, notes)
    assert made == ["home"] and list(noted(notes)) == ["home"]
    broken.clear()
    remake(["home", "race", "sampled"], parts, notes)
    assert made == ["home", "race", "sampled"] and noted(notes) == {}
    assert capsys.readouterr().out.count("done in") == 3
    remake(["home"], parts, notes)
    assert made[-1] == "home"
