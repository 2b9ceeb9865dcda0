"""Rows of experiments on disk: each run once, whatever happened between, and files that are refused."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from decoding.common.errors import DiskError, ExperimentError
from decoding.experiments.rows import ADDED, SCHEMA, VERSION, VERSION_KEY, RowStore, all_rows
from decoding.trace.metrics import RunMetrics
from tests.helpers.full_disk import fill_disk


def row(key: str, **more):
    return {"key": key, "method": "dynatree", "settings": '{"max_depth": 4}', "throughput": 10.5, "seed": 3, **more}


def test_rows_come_back_in_their_order_with_settings_in_columns(tmp_path):
    store = RowStore(tmp_path)
    assert store.table(["key"]).num_rows == 0 and len(store.frame()) == 0
    store.append([row("a", accepted_lengths=[1, 2]), row("b", failure="no room")])
    store.append([])
    store.append([row("c", settings='{"branching": 2}')])
    frame = RowStore(tmp_path).frame()
    assert frame["key"].tolist() == ["a", "b", "c"] and frame["failure"].tolist()[1] == "no room"
    assert frame["settings.max_depth"].tolist()[:2] == [4, 4] and frame["settings.branching"][2] == 2
    assert frame["accepted_lengths"][0].tolist() == [1, 2] and frame["wall_s"].isna().all()
    assert store.table(["throughput"]).column_names == ["key", "throughput"]


def test_every_run_is_there_once(tmp_path):
    store = RowStore(tmp_path)
    store.append([row("a", seed=1), row("b")])
    store.append([row("a", seed=2), row("c")])
    assert store.frame()["key"].tolist() == ["a", "b", "c"] and store.frame()["seed"][0] == 1
    parts = sorted(store.folder.iterdir())
    store.compact()
    (whole,) = store.folder.iterdir()
    assert whole not in parts and store.frame()["key"].tolist() == ["a", "b", "c"]
    other = RowStore(tmp_path)
    other.append([row("d")])
    assert len(list(store.folder.iterdir())) == 2 and set(other.frame()["key"]) == {"a", "b", "c", "d"}


def test_figures_are_kept_to_a_few_digits_and_those_before_a_loop_only_where_there_is_one(tmp_path):
    plain = {"wall_s": 0.123456789, "new_tokens": 64, "draft_s": None}
    whole = row("a", loop_free_tokens=64, **plain, loop_free_wall_s=0.123456789, loop_free_new_tokens=64)
    looping = row("b", loop_free_tokens=9, **plain, loop_free_wall_s=0.05, loop_free_new_tokens=9)
    at_once = row("c", loop_free_tokens=0, **plain)
    failed = row("d", failure="no room")
    store = RowStore(tmp_path)
    store.append([whole, looping, at_once, failed])
    (part,) = store.folder.iterdir()
    assert pq.read_table(part)["loop_free_wall_s"].is_null().to_pylist() == [True, False, True, True]
    for _ in range(2):
        frame = RowStore(tmp_path).frame()
        assert frame["wall_s"][0] != 0.123456789 and frame["wall_s"][0] == pytest.approx(0.123456789, rel=1.3e-4)
        assert frame["loop_free_wall_s"][0] == frame["wall_s"][0]
        assert frame["loop_free_wall_s"][1] == pytest.approx(0.05, rel=1.3e-4)
        assert frame["loop_free_new_tokens"].tolist()[:2] == [64, 9] and frame["loop_free_draft_s"].isna().all()
        assert frame["loop_free_wall_s"][2:].isna().all() and frame["wall_s"][2:4].notna().tolist() == [True, False]
        alone = RowStore(tmp_path).table(["loop_free_wall_s"])
        assert alone.column_names == ["key", "loop_free_wall_s"]
        assert alone["loop_free_wall_s"].to_pylist()[:2] == frame["loop_free_wall_s"].tolist()[:2]
        store.append([row("e")])
        store.compact()


def test_parts_that_a_broken_compaction_left_are_read_once(tmp_path, monkeypatch):
    store = RowStore(tmp_path)
    store.append([row("a")])
    store.append([row("b")])
    monkeypatch.setattr(Path, "unlink", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.compact()
    assert len(list(store.folder.glob("*.parquet"))) == 3
    assert sorted(RowStore(tmp_path).frame()["key"]) == ["a", "b"]


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(tmp_path, monkeypatch):
    store = RowStore(tmp_path)
    store.append([row("a")])
    with monkeypatch.context() as patch:
        fill_disk(patch)
        with pytest.raises(DiskError, match=r"The disk of .* is full: .*; nothing is lost"):
            store.append([row("b")])
    assert RowStore(tmp_path).table()["key"].to_pylist() == ["a"] and len(list(store.folder.iterdir())) == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="cannot be written"):
        RowStore(tmp_path / "file").append([row("c")])


def test_files_of_other_versions_and_damaged_ones_are_reported(tmp_path):
    store = RowStore(tmp_path)
    store.append([row("a")])
    (part,) = store.folder.iterdir()
    whole = part.read_bytes()
    for content in (whole[:-20], b"", b"hello", whole[:100] + b"\0" * 50 + whole[150:-8] + b"\xff" * 8):
        part.write_bytes(content)
        with pytest.raises(ExperimentError, match=r"part-000000-\d+.parquet is damaged \(.*\): move it out"):
            RowStore(tmp_path).table(["key"])
    table = pa.table({"key": ["a"]})
    for version, said in (
        (b"1", "results of version 1, and this is version 6"),
        (None, "of another program"),
    ):
        pq.write_table(table.replace_schema_metadata({b"draftscope_rows": version} if version else {}), part)
        with pytest.raises(ExperimentError, match=said):
            store.frame()
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: VERSION}), part)
    with pytest.raises(ExperimentError, match="is damaged"):
        store.frame()


@pytest.mark.parametrize(("former", "added"), [("4", ADDED), ("5", ("weights",))])
def test_rows_of_former_versions_are_read_without_what_they_had_not(tmp_path, former, added):
    store = RowStore(tmp_path)
    store.append([row("a", text_hash="c0ffee", weights="12 34", agreeing=3)])
    (part,) = store.folder.iterdir()
    with pq.ParquetFile(part) as file:
        table = file.read([name for name in SCHEMA.names if name not in added])
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: former}), part)
    found = store.frame().iloc[0]
    assert found["key"] == "a" and found[list(added)].isna().all()
    assert found[[name for name in ("text_hash", "agreeing") if name not in added]].notna().all()
    RowStore(tmp_path).append([row("b", text_hash="c0ffee")])
    assert RowStore(tmp_path).table(["text_hash"]).column("text_hash").to_pylist()[1] == "c0ffee"


def test_every_metric_is_a_column():
    kept = {"timeline", "phase_s", "accepted_lengths"}  # in columns of their own
    for name in set(RunMetrics.__dataclass_fields__) - kept:
        assert name in SCHEMA.names and f"loop_free_{name}" in SCHEMA.names, name


def test_rows_of_several_experiments_stand_below_one_another(tmp_path):
    RowStore(tmp_path / "one").append([row("a")])
    RowStore(tmp_path / "two").append([row("b", settings='{"branching": 3}')])
    frame = all_rows([tmp_path / "one", tmp_path / "two", tmp_path / "none"])
    assert frame["key"].tolist() == ["a", "b"] and frame["settings.branching"].tolist()[1] == 3
    assert len(all_rows([])) == 0
