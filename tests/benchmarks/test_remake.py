"""Remaking what hangs on the embedded pair: part by part, and on from where it was stopped."""

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import remake as module
from benchmarks.remake import kept, main, noted, parts_of, remake
from decoding.common.errors import DraftscopeError
from decoding.common.files import write_whole
from decoding.experiments.experiment import RESULTS, SHIPPED
from decoding.experiments.rows import RowStore
from decoding.recorded import recorded_runs
from decoding.recorded.__main__ import FIND, RECORD


def test_every_recording_is_a_part_and_comes_between_what_is_trained_and_what_shows_it():
    parts = list(parts_of(Path("texts"), Path("folder")))
    recordings = [name for name in parts if name in {*FIND, *RECORD}]
    assert set(recordings) == {*FIND, *RECORD} and {name for name in recorded_runs() if name in FIND} <= set(parts)
    first, last = parts.index(recordings[0]), parts.index(recordings[-1])
    assert parts[:first] == [
        "heads",
        "heads of equal time",
        "heads on the same windows",
        "example of training data",
        "selectors",
    ]
    assert parts[-4:] == ["papers", "tables", "pictures", "golden"]
    assert last < parts.index("sweep action_times") < parts.index("action_times") < parts.index("papers")


def test_whatever_is_stored_of_the_pair_is_made_by_a_part():
    made = {" ".join(words[2:]) for words in parts_of(None, Path("folder")).values()}
    of_the_pair = []
    for file in RESULTS.glob("*.json"):
        record = json.loads(file.read_text())
        text = json.dumps(record)
        named = record.get("weights") or "Embedded pair" in text or "widen" in record["command"]
        if named and "gpu" not in record["hardware"] and record["benchmark"] != "remake":
            of_the_pair.append(record["benchmark"])
            wide = "--widen 4" in record["command"]
            found = [each for each in made if each.startswith(f"benchmarks.{record['benchmark']} ")]
            assert any(("--widen 4" in each) == wide for each in found), file.name
    assert {"methods", "batch", "scaling", "offload", "verifier_grid", "embedded_pair"} <= set(of_the_pair)
    for folder in SHIPPED.iterdir():
        found = [each for each in made if f"/{folder.name}.toml" in each]
        assert len(found) == RowStore(folder).frame()["pair"].nunique(), folder.name


def test_a_stored_command_is_taken_without_what_is_for_other_weights():
    words = "--corpus texts --python-source --against before --again --tokens 256 --save --manifest m.json"
    assert " ".join(kept(words.split())) == "--corpus TEXTS --python-source --tokens 256"
    parts = parts_of(Path("/texts"), Path("folder")).values()
    assert {words[words.index("--corpus") + 1] for words in parts if "--corpus" in words} == {"/texts"}


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


def test_other_weights_begin_anew_and_the_times_of_a_whole_run_are_stored(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    monkeypatch.setattr(module, "user_folder", lambda content: tmp_path / content)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "parts_of", lambda *_: {"one": ("touch", str(one)), "two": ("touch", str(two))})
    monkeypatch.setattr("sys.argv", ["remake"])
    write_whole(tmp_path / "remake" / "old-weights" / "done.json", b'{"one": 5.0}')
    write_whole(tmp_path / "remake" / "new-weights" / "done.json", b'{"two": 7.0}')
    monkeypatch.setattr(module, "embedded_weights", lambda: "new weights")
    assert main() == 0 and one.exists() and not two.exists()
    stored = json.loads((tmp_path / "remake-cpu.json").read_text())
    assert list(stored["parts"]) == ["one", "two"] and stored["took_s"] >= 7 and stored["weights"] == "new weights"
    assert noted(tmp_path / "remake" / "old-weights" / "done.json") == {"one": 5.0}
