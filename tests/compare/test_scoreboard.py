"""Scores of a comparison, from hand-made calls: medians, ratios per repeat, loops, identity, what is missing."""

from dataclasses import replace

import pytest

from decoding.compare.comparison import Comparison, Result, score, without_prefill
from decoding.compare.contestants import Contestant, parse_contestant
from decoding.compare.identity import OutputDifference
from decoding.trace.metrics import Timeline, measure_run, measure_timeline
from tests.helpers.traces import bonus, run_autoregressive, run_of

AR, HF, TREE = (parse_contestant(name) for name in ("autoregressive", "hf_generate", "dynatree"))


def hf_call(repeat: int, seconds: float, tokens: int = 8, free: int = 8) -> Result:
    timeline = Timeline(tuple(seconds * (n + 1) / tokens for n in range(tokens)), tuple(range(1, tokens + 1)))
    metrics = [measure_timeline(line, None) for line in (timeline, timeline.until(free))]
    return Result(1, 0, repeat, tuple(range(tokens)), free, *metrics, None)


def our_call(index: int, repeat: int, run, free: int | None = None, slower: float = 1.0) -> Result:
    iterations = tuple(replace(i, ended_s=i.ended_s * slower) for i in run.iterations)
    run = replace(run, iterations=iterations)
    free = len(run.output_ids) if free is None else free
    return Result(index, 0, repeat, run.output_ids, free, measure_run(run), measure_run(run, free), run)


def comparison(*results: Result, differences=()) -> Comparison:
    return Comparison((AR, HF, TREE), ("one",), results, differences, reference=0)


def test_ratios_are_taken_per_repeat_and_drift_cancels():
    results = [our_call(0, r, run_autoregressive(8), slower=s) for r, s in enumerate((1.0, 9.0, 3.0))]
    # One repeat is missing: a ratio of medians would set calls beside each other that ran at different times.
    results += [hf_call(0, 0.1), hf_call(2, 0.3)]
    plain, outside, _ = score(comparison(*results))
    assert plain.over_autoregressive.median == 1
    assert outside.over_hf.low == outside.over_hf.high == 1
    speeds = [result.metrics.throughput for result in results[:3]]
    ratio = plain.over_hf
    assert ratio.low == pytest.approx(ratio.high) == pytest.approx(speeds[0] * 0.1 / 8)
    assert plain.spread_of("throughput").median == sorted(speeds)[1] == plain.typical.throughput


def test_a_looping_part_is_left_out_and_counted():
    run = run_of([bonus(), bonus(), bonus()])
    tokens = len(bonus().committed_ids)
    result = our_call(2, 0, run, free=tokens + 1)
    free, whole = (score(comparison(result), loop_free=kind)[2] for kind in (True, False))
    assert free.typical.iterations == 1 and len(free.run.iterations) == 1
    assert whole.typical.iterations == 3 and len(whole.run.iterations) == 3
    assert free.loop_tokens == whole.loop_tokens == 3 * tokens - (tokens + 1)
    assert free.new_tokens == 3 * tokens
    assert result.counted("whole") is result.metrics and result.counted("loop_free") is result.loop_free


def test_an_output_that_is_all_loop_has_no_loop_free_figures():
    entry = score(comparison(our_call(2, 0, run_of([bonus()]), free=0)))[2]
    assert not entry.measured and entry.run is None and entry.spread_of("throughput") is None
    assert entry.output_ids


def test_what_was_not_reached_or_failed_has_no_figures():
    failed = Result(1, 0, 0, (), 0, None, None, None, "It refused.")
    plain, outside, tree = score(comparison(our_call(0, 0, run_autoregressive(4)), failed))
    assert plain.measured and not outside.measured and not tree.measured
    assert outside.failure == "It refused." and tree.failure is None
    assert outside.same_output is None and tree.same_output is None and tree.over_autoregressive is None


def test_identity_is_reported_against_the_reference():
    difference = OutputDifference(2, 5, 7, 0.3, True, "Token 3 differs.")
    calls = [our_call(0, 0, run_autoregressive(8)), hf_call(0, 0.1), our_call(2, 0, run_of([bonus()]))]
    plain, outside, tree = score(comparison(*calls, differences=((2, 0, difference),)))
    assert plain.same_output is None
    assert outside.same_output is True and outside.difference is None
    assert tree.same_output is False and tree.difference is difference


def test_speed_without_prefill_needs_the_prefill_of_both():
    calls = [our_call(0, 0, run_autoregressive(8)), hf_call(0, 0.1), our_call(2, 0, run_of([bonus()]))]
    plain, outside, tree = score(comparison(*calls))
    expected = tree.typical.decode_throughput / plain.typical.decode_throughput
    assert without_prefill(tree, plain) == pytest.approx(expected)
    assert without_prefill(outside, plain) is None


def test_contestant_is_method_or_baseline():
    assert isinstance(AR, Contestant) and AR.method and not AR.baseline
    assert HF.baseline and not HF.method
