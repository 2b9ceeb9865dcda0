"""A full or unwritable disk leaves what was there, nothing half written, and one sentence."""

import errno
import os

import pytest
from platformdirs.macos import MacOS

from decoding.common import files
from decoding.common.errors import ExperimentError, TrainingError
from decoding.common.files import new_folder, user_folder, write_whole
from decoding.costs import kept
from decoding.experiments import launch as experiments
from decoding.training import launch as trainings
from decoding.training.common.run_folder import RunFolder, TrainingSettings

SETTINGS = TrainingSettings("head", "one", ("-m", "decoding.training.head"), {}, {}, "2030-01-02T03:04:05")


def left_in(folder):
    """Everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def full_disk(monkeypatch):
    """A disk that is found to be full when bytes reach it, as file systems tell it that allocate late."""

    def refuse(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", refuse)


@pytest.fixture
def sleeper(monkeypatch):
    """Processes that would run a training or a sweep only wait here; those that were started."""
    started = []

    def start(_command, log, error):
        started.append(begin(["-c", "import time; time.sleep(600)"], log, error))
        return started[-1]

    begin = trainings.start_process
    for module in (trainings, experiments):
        monkeypatch.setattr(module, "start_process", start)
    yield started
    for process in started:
        process.kill()


def test_a_file_is_as_it_was_on_a_full_disk(tmp_path, full_disk):
    file = tmp_path / "status.json"
    file.write_bytes(b"before")
    with pytest.raises(TrainingError, match=r"status.json is full: free some space and resume; nothing is lost\.$"):
        write_whole(file, b"after" * 1000)
    assert file.read_bytes() == b"before" and left_in(tmp_path) == ["status.json"]


def test_a_file_system_that_takes_no_file_is_told_as_such(tmp_path, monkeypatch):
    def refuse(*_args, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("open", "unlink"):  # for a name that is not there, too
        monkeypatch.setattr(files.Path, name, refuse)
    with pytest.raises(TrainingError, match="cannot be written"):
        write_whole(tmp_path / "status.json", b"after")


def test_a_calibration_leaves_nothing_on_a_full_disk(tmp_path, full_disk, monkeypatch):
    monkeypatch.setattr(kept, "pair_identity", lambda _pair: {})
    monkeypatch.setattr(kept, "kept_file", lambda *_: tmp_path / "calibration" / "pair.json")
    monkeypatch.setattr(kept, "_known", {})
    with pytest.warns(UserWarning, match="The calibration cannot be kept: The disk of .* is full"):
        assert kept.Kept("", float, float).of(None, "entry", lambda: 0.5) == 0.5
    assert left_in(tmp_path) == ["calibration"]


def test_a_training_that_cannot_begin_leaves_no_folder(tmp_path, full_disk, sleeper):
    with pytest.raises(TrainingError, match="is full"):
        trainings.launch("head", (), "one", tmp_path / "trainings")
    with pytest.raises(TrainingError, match="is full"):
        RunFolder(tmp_path / "trainings" / "two").begin(SETTINGS)
    assert left_in(tmp_path) == ["trainings"] and sleeper[0].wait(10) != 0


def test_a_sweep_that_cannot_begin_leaves_no_folder_but_one_that_was_there(tmp_path, full_disk, sleeper):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "grid.toml").touch()
    for name in ("new", "old"):
        with pytest.raises(ExperimentError, match="is full"):
            experiments.begin(tmp_path / name, ("-m", "benchmarks.sweep"))
    assert left_in(tmp_path) == ["old", "old/grid.toml", "old/output.log"]
    assert [process.wait(10) != 0 for process in sleeper] == [True, True]


def test_a_folder_that_cannot_be_made_says_where(tmp_path):
    (tmp_path / "file").touch()
    said = r"file/inside cannot be written \(Not a directory\): choose another --out\."
    with pytest.raises(TrainingError, match=said), new_folder(tmp_path / "file" / "inside"):
        raise AssertionError("it was not made")


def test_a_users_folders_lie_where_they_always_lay(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_folder("training") == tmp_path / ".cache" / "draftscope" / "training"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert user_folder("training") == tmp_path / "other" / "draftscope" / "training"


def test_on_another_system_the_folder_of_before_goes_on_being_used(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(files, "user_cache_path", lambda name, appauthor: MacOS(name, appauthor).user_cache_path)
    assert user_folder("training") == tmp_path / "Library" / "Caches" / "draftscope" / "training"
    (tmp_path / ".cache" / "draftscope").mkdir(parents=True)
    assert user_folder("training") == tmp_path / ".cache" / "draftscope" / "training"
