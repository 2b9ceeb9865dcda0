"""Run files spoiled in every way: each opens as a run that draws and saves, or is refused in one sentence."""

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks import trace_fuzz
from benchmarks.trace_fuzz import KINDS, Saved, outcome, spoiled
from decoding.common.errors import TraceFileError
from tests.helpers.families import family
from tests.helpers.traces import Spec, iteration_of, run_autoregressive, run_mixed
from tests.trace.test_run_file import full_run
from viz.scope.panels import mask_figure

RUNS = [Saved.of(run) for run in (run_mixed(), run_autoregressive(3), full_run())]
EXAMPLES = {
    "large trees": 2,
    "filled to the limit": 4,
    "bombs": 6,
    "values exchanged": 10,
    "bytes": 30,
    "junk values": 30,
}


@pytest.mark.parametrize("kind", family(KINDS, "values exchanged", "bytes", "junk values"))
@pytest.mark.parametrize("times", [0.2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_spoiled_file_opens_or_is_refused_in_a_sentence(kind: str, times: float):
    examples = max(1, round(times * EXAMPLES.get(kind, 12)))

    @settings(max_examples=examples, derandomize=True, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(spoiled(kind, RUNS))
    def holds(drawn: tuple[Saved, bytes]) -> None:
        outcome(kind, *drawn)

    holds()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        TraceFileError("Two lines.\nof text."),
        TraceFileError("No full stop"),
        TraceFileError("a" * 400),
    ],
)
def test_a_wrong_refusal_is_noticed(monkeypatch: pytest.MonkeyPatch, error: Exception):
    def broken(_: object) -> None:
        raise error

    monkeypatch.setattr(trace_fuzz, "load_run", broken)
    with pytest.raises((AssertionError, ValueError)):
        outcome("bytes", RUNS[0], RUNS[0].data)


def test_what_opens_must_draw_and_stay_small_and_the_same(monkeypatch: pytest.MonkeyPatch):
    assert outcome("bytes", RUNS[0], RUNS[0].data) == outcome("junk values", RUNS[0], RUNS[0].data) == ""
    with pytest.raises(AssertionError, match="another run"):
        outcome("bytes", RUNS[0], RUNS[1].data)
    broken = ("draw_everything", lambda run, beside: run.nothing, "nothing")
    for name, wrong, says in (("MOST_BYTES", 1000, "MB"), ("MOST_SECONDS", -1.0, " s"), broken):
        with monkeypatch.context() as patch, pytest.raises((AssertionError, AttributeError), match=says):
            patch.setattr(trace_fuzz, name, wrong)
            outcome("junk values", RUNS[0], RUNS[0].data)


def test_a_mask_of_very_many_cells_stays_drawable():
    """One point per allowed cell would be half a million in a file with a chain of a thousand nodes."""
    chain = [Spec(node, " a", 0.9, 0.9, "not_reached") for node in range(300)]
    iteration = iteration_of(chain, final=(0, " b", 0.5), final_kind="fallback")
    assert len(mask_figure(iteration).data[0].x) == 301
    assert len(mask_figure(iteration_of(chain[:20], final=(0, " b", 0.5), final_kind="fallback")).data[0].x) == 231
