"""Experiments that are followed: only what has come is read, and one damaged file hides no row of another."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from decoding.experiments import experiment as following
from decoding.experiments.experiment import Experiment, ExperimentWatcher, experiments
from decoding.experiments.rows import SCHEMA, RowStore
from tests.helpers.experiments import made_experiment, made_rows


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DRAFTSCOPE_EXPERIMENTS", str(tmp_path / "home"))
    monkeypatch.setattr(following, "SHIPPED", tmp_path / "shipped")
    return tmp_path / "home"


def look_at(experiment: Experiment) -> ExperimentWatcher:
    followed = ExperimentWatcher(experiment)
    followed.look()
    return followed


def test_the_newest_is_first_and_what_came_with_the_program_last(home, tmp_path):
    assert experiments() == []
    for number, name in enumerate(("old", "new")):
        folder = made_experiment(home, name)
        os.utime(folder / "grid.json", (1000 + number, 1000 + number))
    for name in ("old", "more", "less"):  # a checkout gives files any time
        made_experiment(tmp_path / "shipped", name)
    found = [look_at(each) for each in experiments()]
    assert [each.key for each in found] == ["new", "old", "results/less", "results/more", "results/old"]
    assert [each.name for each in found[:2]] == ["Made new", "Made old"]
    assert [each.shipped for each in found] == [False, False, True, True, True]


def test_rows_are_read_as_they_come(home, monkeypatch):
    rows, read = made_rows(), []
    followed = look_at(Experiment(made_experiment(home, "one", rows[:5])))
    real = following.read_part
    monkeypatch.setattr(following, "read_part", lambda file, names: read.append(file) or real(file, names))
    first = followed.rows()
    assert len(first) == 5 and first is followed.rows() and len(read) == 1
    assert "settings.max_depth" in first and "output_ids" not in first
    store = RowStore(followed.folder)
    store.append(rows[3:9])
    assert len(followed.rows()) == 9 and len(read) == 2, "each run once, each file once"
    store.append(rows[9:])
    store.compact()
    assert len(followed.rows()) == 20 and len(read) == 3


def test_a_file_that_cannot_be_read_is_reported_and_the_rest_is_there(home):
    followed = look_at(Experiment(made_experiment(home, "one")))
    other = SCHEMA.with_metadata({"draftscope_rows": "0"}).empty_table()
    pq.write_table(other, followed.folder / "rows" / "part-000007-1.parquet")
    (followed.folder / "rows" / "part-000008-1.parquet").write_bytes(b"no parquet")
    pq.write_table(pa.table({"a": [1]}), followed.folder / "rows" / "part-000009-1.parquet")
    assert len(followed.rows()) == 20
    said = " ".join(followed.troubles)
    assert len(followed.troubles) == 3 and "has results of version 0, and this is version" in said
    assert "is damaged" in said and "has results of another program" in said
    for number in (7, 8, 9):
        (followed.folder / "rows" / f"part-00000{number}-1.parquet").unlink()
    assert len(followed.rows()) == 20 and followed.troubles == ()


def test_a_file_that_goes_while_it_is_read_is_no_trouble(home, monkeypatch):
    followed = look_at(Experiment(made_experiment(home, "one")))
    (part,) = (followed.folder / "rows").glob("part-*.parquet")
    real = following.read_part

    def gone(file, names):
        file.rename(file.with_name("part-000009-1.parquet"))
        monkeypatch.setattr(following, "read_part", real)
        return real(part, names)

    monkeypatch.setattr(following, "read_part", gone)
    followed.rows()
    assert followed.troubles == () and len(followed.rows()) == 20


def test_without_rows_and_grid_there_is_nothing_to_show(home):
    (home / "empty").mkdir(parents=True)
    (home / "empty" / "launch.json").write_text("{}")
    followed = look_at(experiments()[0])
    assert (followed.name, followed.asked, len(followed.rows())) == ("empty", {}, 0)
    for other in ("[]", "{}", "{"):
        (followed.folder / "grid.json").write_text(other)
        followed.look()
        assert followed.asked == {}
