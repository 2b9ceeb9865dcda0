"""The fuzzer of trace files: a few files of every kind of damage, and that it sees what it is there to see."""

import io
import random

import pytest

from benchmarks import trace_fuzz
from benchmarks.trace_document_mutations import Saved
from benchmarks.trace_fuzz import fuzz, table, try_one
from benchmarks.trace_mutations import KINDS
from decoding.common.errors import TraceFileError
from decoding.trace.archive import save_run
from tests.helpers.traces import Spec, iteration_of, run_autoregressive, run_mixed
from viz.scope.panels import mask_figure


@pytest.fixture
def files() -> list[bytes]:
    made = []
    for run in (run_mixed(), run_autoregressive(3)):
        file = io.BytesIO()
        save_run(run, file)
        made.append(file.getvalue())
    return made


def test_every_kind_of_damage_opens_or_is_refused(files: list[bytes], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trace_fuzz, "_limit_memory", lambda: None)  # this process is the tests' own
    outcomes = list(fuzz(files, len(KINDS), seed=3, processes=1))
    assert [each.words for each in outcomes if each.verdict == "failed"] == []
    verdicts = {each.verdict for each in outcomes}
    assert verdicts == {"opened", "refused"}
    rows = table(outcomes)
    assert rows[-1][:4] == ("all", *(sum(row[place] for row in rows[:-1]) for place in (1, 2, 3)))


def test_a_seed_gives_the_same_files(files: list[bytes]):
    for spoil in KINDS.values():
        first, second, other = (spoil(Saved.of(files[0]), random.Random(seed)) for seed in ("a", "a", "b"))
        assert first == second
        assert isinstance(other, bytes)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("x"), "loading: ValueError"),
        (TraceFileError("Two lines.\nof text."), "not one short sentence"),
        (TraceFileError("No full stop"), "not one short sentence"),
        (TraceFileError("a" * 400 + "."), "not one short sentence"),
    ],
)
def test_a_wrong_refusal_is_a_failure(files: list[bytes], monkeypatch: pytest.MonkeyPatch, error, says: str):
    def broken(_: object) -> None:
        raise error

    monkeypatch.setattr(trace_fuzz, "load_run", broken)
    outcome = try_one("bits flipped", 0, 0, Saved.of(files[0]))
    assert outcome.verdict == "failed"
    assert says in outcome.words


def test_what_opens_must_draw_and_stay_small(files: list[bytes], monkeypatch: pytest.MonkeyPatch):
    saved = Saved.of(files[0])
    monkeypatch.setitem(KINDS, "bits flipped", lambda saved, chance: saved.data)
    assert try_one("bits flipped", 0, 0, saved).verdict == "opened"
    monkeypatch.setattr(trace_fuzz, "MOST_BYTES", 1000)
    assert "MB" in try_one("bits flipped", 0, 0, saved).words
    monkeypatch.undo()
    monkeypatch.setitem(KINDS, "bits flipped", lambda saved, chance: saved.data)
    monkeypatch.setattr(trace_fuzz, "draw_everything", lambda run, beside: run.nothing)
    assert "drawing: AttributeError" in try_one("bits flipped", 0, 0, saved).words
    monkeypatch.setattr(trace_fuzz, "MOST_SECONDS", -1.0)
    assert " s: " in try_one("bits flipped", 0, 0, saved).words


def test_a_mask_of_very_many_cells_stays_drawable():
    """One point per allowed cell would be half a million in a file with a chain of a thousand nodes."""
    chain = [Spec(node, " a", 0.9, 0.9, "not_reached") for node in range(300)]
    iteration = iteration_of(chain, final=(0, " b", 0.5), final_kind="fallback")
    assert len(mask_figure(iteration).data[0].x) == 301
    assert len(mask_figure(iteration_of(chain[:20], final=(0, " b", 0.5), final_kind="fallback")).data[0].x) == 231
