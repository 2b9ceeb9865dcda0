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
    gain,
    method_of,
    search_of,
    table_2,
    table_3,
    table_4,
    ways,
)
from decoding.experiments.estimates import Estimate, estimate, middle
from decoding.papers.judge import EQUAL


def test_an_interval_holds_the_mean_and_narrows_with_prompts():
    numbers = np.random.default_rng(0).normal(3.0, 1.0, 400)
    few, many = estimate(numbers[:20]), estimate(numbers)
    assert few.low < few.value < few.high and few.value == pytest.approx(numbers[:20].mean())
    assert many.high - many.low == pytest.approx(2 * 1.96 / 400**0.5, rel=0.15)
    assert many.high - many.low < few.high - few.low and few.prompts == 20


def reached(values: np.ndarray) -> HeadMeasured:
    """The same in every figure."""
    return HeadMeasured(values, values, values, values, values)


def test_pairs_decide_what_two_intervals_cannot():
    of_prompt = np.random.default_rng(1).normal(3.0, 1.0, 30)
    better, worse = 1.05 * of_prompt, of_prompt
    assert estimate(better).low < estimate(worse).high, "alone they cannot be told apart"
    claims = Claims()
    for pair in ((better, worse), (worse, better), (1.01 * worse, worse), (better[:2], worse[:2])):
        claims.add("a", 0.1, gain(*map(reached, pair), "speed"))
    verdicts = [claim.verdict for claim in claims.made]
    assert verdicts == ["holds", "does not hold", "equal within 3%", "not decided"], "the rule of all claims"
    assert claims.made[0].found.value == pytest.approx(0.05)


def test_a_median_is_not_moved_by_one_slow_call():
    speeds = [2.0, 2.1, 1.9, 2.0, 40.0]
    found = middle(speeds)
    assert found.value == 2.0 and found.low >= 1.9 and estimate(speeds).value > 9


def test_a_figure_is_drawn_over_prompts():
    found = estimate(range(4), lambda chosen: float(np.mean(chosen)), draws=200)
    assert found.value == 1.5 and 0.0 <= found.low < 1.5 < found.high <= 3.0


def test_an_ordering_needs_the_whole_interval():
    claims = Claims()
    claims.add("a", 0.1, Estimate(0.2, 0.1, 0.3, 9))
    for low, high in ((-0.02, 0.02), (0.15, 0.3), (-0.3, -0.15), (-0.05, 0.2)):
        claims.add_same("b", 0.0, Estimate((low + high) / 2, low, high, 9))
    said = ["holds", "holds", "does not hold", "does not hold", "not decided"]
    assert [claim.verdict for claim in claims.made] == said


@pytest.mark.slow
def test_tables_judge_what_the_paper_says(capsys):
    def measured(tokens, speed):
        values = np.linspace(-0.01, 0.01, 8)
        return HeadMeasured(tokens + values, tokens - values, speed + values, np.full(8, 7.0), np.full(8, 60.0))

    claims = Claims()
    figures = table_2({key: measured(tokens, speed) for key, (speed, tokens) in PAPER_2.items()}, claims)
    for claim in claims.made:  # the paper agrees with itself
        assert claim.verdict == ("holds" if claim.paper > EQUAL else "equal within 3%"), claim.words
        assert claim.found.value == pytest.approx(claim.paper, abs=1e-3)
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
    one_way = reached(np.linspace(4.0, 4.1, 8))
    claims = Claims()
    assert set(table_3({("optimal", head): one_way for head in ("hass", "talf")}, claims)) == {"hass", "talf"}
    assert "not there: talf_top1, talf_top2; train them with" in capsys.readouterr().out and not claims.made
    table_3({("optimal", head): one_way for head in WIDTHS}, claims)
    assert [claim.verdict for claim in claims.made] == ["equal within 3%"] * 4 + ["holds"] * 2
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
