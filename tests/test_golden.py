"""What the program gave once it gives still: records, run keys, verdicts, addresses, names, files, resumed work."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from decoding.common.settings import is_engine
from decoding.experiments.experiment import Experiment
from decoding.experiments.rows import RowStore
from decoding.trace.run_file import load_run
from decoding.training import embedded
from decoding.training.folder import Training
from tests.golden import data, files, halves, traces
from tests.helpers.process import ended


@pytest.fixture(scope="module")
def kept():
    return files.plain()


def known(before, now):
    """Of what is there now, all that was there before: a new method is no difference, nor is a new field."""
    if isinstance(before, dict):
        return {name: fields(before[name], each) for name, each in now.items() if name in before}
    return [each for each in now if each in before]


def fields(before, now):
    """A record without the fields that it had not before."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {name: fields(before[name], each) for name, each in now.items() if name in before}
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [fields(*pair) for pair in zip(before, now, strict=True)]
    return now


@pytest.mark.slow
@pytest.mark.parametrize("size", ["tiny", "embedded"])
def test_records_are_as_they_were(size):
    before = {name: each for name, each in files.records().items() if name.startswith(size)}
    now = known(before, files.as_kept(dict(traces.records(size))))
    assert len(before) > 100
    wrong = files.differences(before, now)
    assert not wrong, f"{len(wrong)} differences, such as {wrong[:5]}"


@pytest.mark.parametrize(
    "part", [pytest.param(each, marks=[pytest.mark.slow] * (each == "verdicts")) for each in files.PARTS]
)
def test_plain_data_is_as_it_was(kept, part):
    made = data.addresses(kept[part]) if part == "addresses" else getattr(data, part)()
    before, now = kept[part], known(kept[part], files.as_kept(made))
    if part == "names":
        now = {name: known(before[name], each) for name, each in now.items()}
    wrong = files.differences(before, now)
    assert not wrong, f"{len(wrong)} differences, such as {wrong[:5]}"


def test_a_difference_is_found():
    record = {"a": [1, {"b": 0.5}], "c": "x"}
    assert not files.differences(record, {"a": [1, {"b": 0.5001}], "c": "x"})
    for other in ({"a": [1, {"b": 0.6}], "c": "x"}, {"a": [1], "c": "x"}, {"a": [1, {"b": 0.5}]}, {**record, "d": 1}):
        assert files.differences(record, other)
    left = {"residual_ids": [[4]], "residual_probs": [[1.0]], "odds": "1.63 0.9368"}
    assert not files.differences(
        left, {"residual_ids": [[4, 9]], "residual_probs": [[1.0, 1e-14]], "odds": "1.63 0.9369"}
    )
    full = {"residual_ids": [[*range(7), 980]], "residual_probs": [[0.125] * 8]}
    assert not files.differences(full, {**full, "residual_ids": [[*range(7), 1065]]})
    assert files.differences(full, {**full, "residual_ids": [[*range(7), 9]]})
    assert files.differences(full, {**full, "residual_ids": [[1065, *range(1, 7), 980]]})
    assert files.differences(left, {**left, "residual_ids": [[9]]}) and files.differences(
        left, {**left, "odds": "1.6 1"}
    )


def test_files_of_every_version_open(kept):
    runs = sorted(files.FOLDER.glob("version-*.dscope"))
    assert [json.loads(_document(file))["version"] for file in runs] == [1, 2, 3]
    opened = [load_run(file) for file in runs]
    assert all(run.iterations and is_engine(run.pair.target.engine) for run in opened)
    assert b'"lean"' in _document(runs[0]) and opened[0].pair.target.engine == "packed"


def _document(file: Path) -> bytes:
    with ZipFile(file) as archive:
        return archive.read("run.json")


@pytest.fixture
def home(tmp_path):
    halves.unpack(files.HALVES.read_bytes(), tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_half_finished_training_goes_on(home, monkeypatch):
    halves.small_training(monkeypatch)
    folder = Training(home / halves.TRAINING)
    before, log = folder.status(), (folder.path / "log.jsonl").read_text(encoding="utf-8")
    assert before.state == "stopped" and 0 < before.done < before.total
    assert folder.launched() is None and folder.settings().command[1] == "decoding.training.embedded"
    assert embedded.main(["--out", str(folder.path), "--resume"]) == 0
    assert folder.status().state == "finished"
    assert (folder.path / "log.jsonl").read_text(encoding="utf-8").startswith(log)


@pytest.mark.slow
def test_a_half_finished_sweep_goes_on(home):
    experiment = Experiment(home / halves.SWEEP)
    before, status = RowStore(experiment.path).table().to_pylist(), experiment.stand().status
    assert 0 < status.done < status.total
    experiment.resume()
    ended(experiment)
    after = {row["key"]: row for row in RowStore(experiment.path).table().to_pylist()}
    assert experiment.stand().state == "finished" and len(after) == status.total
    assert all(after[row["key"]]["started"] == row["started"] for row in before), "what was kept is not run again"
