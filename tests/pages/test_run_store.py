"""Runs are kept by their ids, within bounds, in memory and on a disk that may be full or damaged."""

import errno
import gc
import os
from dataclasses import replace

import numpy as np
import pytest

import decoding
from decoding.common import files
from decoding.common.errors import TraceFileError
from decoding.trace.run_file import load_run
from pages.ui.common import run_store, state
from pages.ui.common.run_store import RunNotes, RunStore
from pages.ui.common.state import PromptChoice, Run, RunRequest
from tests.helpers.traces import bonus, fallback, run_of
from tests.pages.apptest import finish, open_page, sentences

TRACE = run_of([bonus(), fallback()])


def never(_write) -> None:
    """Hands nothing over: the test writes when it wants to."""


def a_store(folder) -> RunStore:
    return RunStore(folder, never)


def put(store: RunStore, count: int) -> list[Run]:
    runs = [Run(TRACE, "decoded") for _ in range(count)]
    for run in runs:
        store.put(run)
    return runs


def reported_by(trace) -> tuple:
    return trace.method, trace.output_ids, trace.totals, [each.times for each in trace.iterations]


def ids_on_disk(folder) -> set[str]:
    return {file.stem for file in folder.glob("*.dscope")}


@pytest.mark.slow
def test_memory_holds_the_latest_runs_and_whatever_a_session_shows(tmp_path, monkeypatch):
    monkeypatch.setattr(run_store, "MOST_HELD", 3)
    store = a_store(None)
    shown = put(store, 1)[0]
    others = [run.id for run in put(store, 4)]
    gc.collect()
    assert store.find(shown.id) is shown
    assert [store.find(run_id) is not None for run_id in others] == [False, False, True, True]
    monkeypatch.setattr(run_store, "HELD_BYTES", 0)
    latest = put(store, 1)[0].id
    gc.collect()
    assert store.find(latest) is not None and store.find(others[-1]) is None, "the one in use is held, however large"


def test_a_file_brings_back_the_run_and_what_was_asked(tmp_path, monkeypatch):
    store = a_store(tmp_path / "runs")
    monkeypatch.setattr(state, "store", lambda: store)
    method = decoding.METHODS["linear"].with_settings(length=3)
    trace = replace(TRACE, method="linear")
    asked = RunRequest(PromptChoice("own text", "Once upon"), method, state_sampling(trace), trace.max_new_tokens)
    run = Run(trace, asked=asked, origin="A sentence.")
    store.put(run)
    store.write_due()
    assert (tmp_path / "runs").stat().st_mode & 0o077 == 0, "others on this machine cannot list it"
    other = a_store(tmp_path / "runs")
    monkeypatch.setattr(state, "store", lambda: other)
    found = state.known_run(run.id)
    assert found is not run and reported_by(found.trace) == reported_by(trace) and not found.can_continue
    assert (found.id, found.source, found.origin, found.asked) == (run.id, "decoded", "A sentence.", asked)
    before = sorted(file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir())
    other.flush()
    assert sorted(file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir()) == before, "not written again"
    (tmp_path / "runs" / f"{run.id}.json").write_bytes(b"[")
    assert other.read(run.id)[1] == RunNotes(), "the record is there without the notes"


def state_sampling(trace):
    from decoding.replay.stored_state import sampling_of

    return sampling_of(trace)


@pytest.mark.parametrize("run_id", ["", "../" + "a" * 19, "a" * 21, "a" * 22 + "\n", "/etc/passwd"])
def test_only_an_id_opens_a_file(tmp_path, run_id):
    assert a_store(tmp_path).read(run_id) is None


def test_the_disk_keeps_those_used_last(tmp_path, monkeypatch):
    store = a_store(tmp_path)
    for run in (runs := put(store, 4)):
        store.write_due()
        os.utime(tmp_path / f"{run.id}.dscope", (1000 + runs.index(run),) * 2)
    store.read(runs[0].id)  # used again
    (tmp_path / "other.txt").write_text("a file of someone else")
    killed = tmp_path / ".x.dscope.1-1.part"
    killed.write_bytes(b"left by a server that was killed")
    os.utime(killed, (1000, 1000))
    one = (tmp_path / f"{runs[0].id}.dscope").stat().st_size
    monkeypatch.setattr(run_store, "DISK_BYTES", int(3.8 * one))
    last = put(store, 1)[0]
    store.write_due()
    assert ids_on_disk(tmp_path) == {runs[0].id, runs[3].id, last.id}
    assert {file.stem for file in tmp_path.glob("*.json")} == ids_on_disk(tmp_path)
    assert (tmp_path / "other.txt").is_file() and not killed.exists()


def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path, monkeypatch):
    store = a_store(tmp_path)
    before = put(store, 1)[0]
    store.write_due()

    def refuse(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(files.os, "fsync", refuse)
        run = put(store, 1)[0]
        store.write_due()
    assert "could not be kept on the disk (No space left on device)" in run.unkept
    assert store.find(run.id) is run and ids_on_disk(tmp_path) == {before.id}
    assert not list(tmp_path.glob(".*"))
    at = open_page("pages/step_through.py")
    at.session_state["run"] = run
    assert any("could not be kept" in each.value for each in at.run().warning)
    store.flush()
    assert run.unkept == "" and reported_by(load_run(tmp_path / f"{run.id}.dscope")) == reported_by(TRACE)


def test_a_run_is_written_once_it_rests_and_gives_way_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(run_store, "QUIET_S", 0.0)
    handed = []
    store = RunStore(tmp_path, handed.append)
    run = put(store, 1)[0]
    store._timer.join()
    assert handed == [store.write_due] and ids_on_disk(tmp_path) == set(), "not by whoever put it there"
    turns = []
    handed[0](lambda: turns.append(1))
    assert turns and ids_on_disk(tmp_path) == {run.id}
    store.changed(run)
    assert not store._due, "nothing has changed"
    run.trace = run_of([bonus()])
    store.changed(run)
    assert list(store._due) == [run.id]
    store.forget(run)
    store.write_due()
    store.changed(run)
    store.flush()
    assert list(tmp_path.iterdir()) == []
    gone, run = run.id, None
    gc.collect()
    assert store.find(gone) is None, "a run that is not to be kept goes with who shows it"


def test_a_run_forgotten_while_it_is_written_is_not_there_afterwards(tmp_path):
    store = a_store(tmp_path)
    run = put(store, 1)[0]
    store.write_due(lambda: store.forget(run))
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_the_logits_of_the_latest_iterations(monkeypatch):
    rows = np.zeros((2, 4), np.float32)
    trace = run_of([replace(bonus(), draft_logits=rows, target_logits=rows) for _ in range(3)])
    monkeypatch.setattr(run_store, "LOGITS_BYTES", 2 * trace.iterations[0].logits_bytes)
    kept = run_store._with_latest_logits(trace).iterations
    assert [each.target_logits is not None for each in kept] == [False, True, True]


def test_the_switch_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_RUNS", "off")
    store = run_store.store.__wrapped__()
    run = put(store, 1)[0]
    store.flush()
    assert store.folder is None and store.find(run.id) is run and store.read(run.id) is None
    monkeypatch.setenv("DRAFTSCOPE_RUNS", str(tmp_path))
    assert run_store.store.__wrapped__().folder == tmp_path


@pytest.mark.slow
def test_a_damaged_file_is_one_sentence_and_the_run_is_decoded_again(tmp_path, monkeypatch):
    store = a_store(tmp_path)
    run = put(store, 1)[0]
    store.write_due()
    file = tmp_path / f"{run.id}.dscope"
    file.write_bytes(file.read_bytes()[:500])
    other = a_store(tmp_path)
    with pytest.raises(TraceFileError, match="damaged"):
        other.read(run.id)
    monkeypatch.setattr(state, "store", lambda: other)
    at = open_page()
    at.switch_page("pages/step_through.py")
    asked = {"run": f"{run.id}.3", "method": "Linear chain", "max_new_tokens": "24", "iteration": "2"}
    for name, value in asked.items():
        at.query_params[name] = value
    at = finish(at.run(), "step")
    assert sentences(at) == []
    (reported,) = (each.value.replace("\\", "") for each in at.warning)
    assert "damaged" in reported and reported.endswith("so it is decoded again from the link, 3 iterations.")
    again = at.session_state["run"]
    assert len(again.trace.iterations) == 3 and at.session_state["iteration"] == 1
    assert again.id != run.id and other.find(again.id) is again
    other.flush()
    assert f"run={again.id}.3" in at.code[0].value


@pytest.mark.slow
def test_a_session_that_keeps_no_runs_keeps_none_of_the_next(monkeypatch):
    store = a_store(None)
    monkeypatch.setattr(state, "store", lambda: store)
    at = open_page("pages/step_through.py")
    at.session_state[state.ON_DISK] = False
    at.session_state["max_new_tokens"] = 8
    at.button(key="start").click().run()
    finish(at, "step")
    run = at.session_state["run"]
    assert run.source == "decoded" and not run.on_disk
    fresh = open_page()
    fresh.switch_page("pages/step_through.py")
    fresh.query_params["run"] = run.id
    fresh.run()
    assert fresh.session_state["run"] is run and fresh.session_state[state.ON_DISK] is False, "nor after a reload"
