"""A full or unwritable disk leaves what was there, nothing half written, and one sentence."""

import errno
import os

import pytest
from platformdirs.macos import MacOS

from decoding.common import files
from decoding.common.errors import DiskError
from decoding.common.files import new_folder, user_folder, write_whole
from decoding.costs import measuring
from decoding.training.folder import Training, TrainingSettings
from tests.helpers.full_disk import fill_disk

SETTINGS = TrainingSettings("head", "one", ("-m", "decoding.training.head"), {}, {}, "2030-01-02T03:04:05")


def left_in(folder):
    """Everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def full_disk(monkeypatch):
    fill_disk(monkeypatch)


def test_a_file_is_as_it_was_on_a_full_disk(tmp_path, full_disk):
    file = tmp_path / "status.json"
    file.write_bytes(b"before")
    with pytest.raises(DiskError, match=r"status.json is full: free some space and resume; nothing is lost\.$"):
        write_whole(file, b"after" * 1000)
    assert file.read_bytes() == b"before" and left_in(tmp_path) == ["status.json"]


def test_a_file_system_that_takes_no_file_is_reported_as_such(tmp_path, monkeypatch):
    def refuse(*_args, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("open", "unlink"):  # for a name that is not there, too
        monkeypatch.setattr(files.Path, name, refuse)
    with pytest.raises(DiskError, match="cannot be written"):
        write_whole(tmp_path / "status.json", b"after")


def test_a_calibration_leaves_nothing_on_a_full_disk(tmp_path, full_disk, monkeypatch):
    monkeypatch.setattr(measuring, "pair_identity", lambda _pair: {})
    monkeypatch.setattr(measuring, "calibration_file", lambda *_: tmp_path / "calibration" / "pair.json")
    monkeypatch.setattr(measuring, "_known", {})
    with pytest.warns(UserWarning, match="The calibration cannot be saved: The disk of .* is full"):
        assert measuring.CalibrationCache("", float, float).of(None, "entry", lambda: 0.5) == 0.5
    assert left_in(tmp_path) == ["calibration"]


def test_a_training_that_cannot_begin_leaves_no_folder(tmp_path, full_disk):
    with pytest.raises(DiskError, match="is full"):
        Training(tmp_path / "trainings" / "two").begin(SETTINGS)
    assert left_in(tmp_path) == ["trainings"]


def test_a_folder_that_cannot_be_made_says_where(tmp_path):
    (tmp_path / "file").touch()
    said = r"file/inside cannot be written \(Not a directory\): choose another --out\."
    with pytest.raises(DiskError, match=said), new_folder(tmp_path / "file" / "inside"):
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
