"""The benchmark of draft heads: intervals, verdicts and tables against values found by hand."""

import numpy as np
import pytest

from benchmarks.talf import (
    LOSSES,
    PAPER_2,
    PAPER_3,
    SEARCHES,
    THRESHOLDS,
    WIDTHS,
    Claims,
    HeadMeasured,
    method_of,
    search_of,
    table_2,
    table_3,
    table_4,
    ways,
)
from decoding.experiments.estimates import Estimate, difference, estimate, middle, verdict


def test_an_interval_holds_the_mean_and_narrows_with_prompts():
    numbers = np.random.default_rng(0).normal(3.0, 1.0, 400)
    few, many = estimate(numbers[:20]), estimate(numbers)
    assert few.low < few.value < few.high and few.value == pytest.approx(numbers[:20].mean())
    assert many.high - many.low == pytest.approx(2 * 1.96 / 400**0.5, rel=0.15)
    assert many.high - many.low < few.high - few.low and few.prompts == 20


def test_pairs_decide_what_two_intervals_cannot():
    of_prompt = np.random.default_rng(1).normal(3.0, 1.0, 30)
    better, worse = of_prompt + 0.1, of_prompt
    assert estimate(better).low < estimate(worse).high, "alone they cannot be told apart"
    assert verdict(difference(better, worse)) == "holds" and verdict(difference(worse, better)) == "does not hold"
    assert verdict(Estimate(0.1, -0.1, 0.3, 5)) == "not decided here"


def test_a_median_is_not_moved_by_one_slow_call():
    speeds = [2.0, 2.1, 1.9, 2.0, 40.0]
    found = middle(speeds)
    assert found.value == 2.0 and found.low >= 1.9 and estimate(speeds).value > 9
    assert difference(speeds, [1.0, 1.1, 0.9, 1.0, 1.0], middle).value == 1.0


def test_a_figure_is_drawn_over_prompts():
    found = estimate(range(4), lambda chosen: float(np.mean(chosen)), draws=200)
    assert found.value == 1.5 and 0.0 <= found.low < 1.5 < found.high <= 3.0


def test_an_ordering_needs_the_whole_interval():
    claims = Claims()
    claims.add("a", "+1", Estimate(0.2, 0.1, 0.3, 9))
    for low, high in ((-0.05, 0.05), (0.15, 0.3), (-0.05, 0.2)):
        claims.add_same("b", "0", Estimate((low + high) / 2, low, high, 9), 0.1)
    assert [claim.verdict for claim in claims.made] == ["holds", "holds", "does not hold", "not decided here"]


@pytest.mark.slow
def test_tables_judge_what_the_paper_says(capsys):
    def measured(tokens, speed):
        values = np.linspace(-0.01, 0.01, 8)
        return HeadMeasured(tokens + values, tokens - values, speed + values, np.full(8, 7.0), np.full(8, 60.0))

    claims = Claims()
    figures = table_2({key: measured(tokens, speed) for key, (speed, tokens) in PAPER_2.items()}, claims)
    assert {claim.verdict for claim in claims.made} == {"holds"}, "the paper agrees with itself"
    assert len(claims.made) == len(SEARCHES) * 3 * 3 + len(LOSSES) * 7
    assert figures["salf talf"]["paper"] == (2.47, 3.73) and figures["salf talf"]["tokens"]["value"] == pytest.approx(
        3.73
    )
    claims = Claims()
    table_4({threshold: measured(tokens, speed) for threshold, (speed, tokens) in THRESHOLDS.items()}, claims)
    assert [claim.verdict for claim in claims.made] == ["holds"] * 4
    said = capsys.readouterr().out
    assert "Beam search, TALF" in said and "fastest here: threshold 0.5; in the paper: 0.5" in said


def test_table_3_does_without_heads_that_are_not_there(capsys):
    values = np.linspace(4.0, 4.1, 8)
    one_way = HeadMeasured(values, values, values, values, values)
    claims = Claims()
    assert set(table_3({("optimal", head): one_way for head in ("hass", "talf")}, claims)) == {"hass", "talf"}
    assert "not there: talf_top1, talf_top2; train them with" in capsys.readouterr().out and not claims.made
    table_3({("optimal", head): one_way for head in WIDTHS}, claims)
    assert [claim.verdict for claim in claims.made] == ["not decided here"] * 4 + ["holds"] * 2
    assert ("optimal", "talf_top1") not in ways(quick=False, heads={"hass", "talf"})


def test_the_ways_are_those_of_the_paper():
    asked = ways(quick=False)
    assert len(asked) == len(set(asked)) == 9 + 2 + 8
    assert {("optimal", head) for head in WIDTHS} <= set(asked) and PAPER_3.keys() == WIDTHS.keys()
    beam, salf, half = (method_of(search, "talf", 60) for search in ("beam", "salf", search_of(0.5)))
    assert beam.settings()["beam_width"] == 10 and beam.settings()["max_depth"] == 7
    assert (salf.settings()["gain_threshold"], half.settings()["gain_threshold"]) == (0.6, 0.5)
    assert method_of("optimal", "talf", 60).settings()["gain_threshold"] == 0.0
    assert all(way.draft_head == "talf" and way.verifier.name == "greedy" for way in (beam, salf, half))
    assert ways(quick=True) == [(search, loss) for search in SEARCHES for loss in LOSSES]
