"""Verdicts on the papers' claims, and why a claim is not reproduced, from rows made by hand."""

import numpy as np
import pandas as pd
import pytest

from decoding.experiments.estimates import Estimate, ratio_gain
from decoding.experiments.rows import LOOP_FREE
from decoding.papers import PAPER_RESULTS
from decoding.papers.causes import of_time
from decoding.papers.judge import EQUAL, grid_name, judge, verdict, words_of
from tests.helpers.papers import BY_KEY, DYNATREE, FIXED, LINEAR, frame, of_shape, row, rows, store
from tests.helpers.without_torch import run_without_torch


def test_orderings_are_judged_by_pairs_on_the_same_prompts():
    outcome = judge(BY_KEY["dynatree/table-1"], rows())
    assert outcome.run and outcome.runs[DYNATREE, None] == 6
    assert outcome.where == ("Embedded pair on a test, 2030-01-02",)
    assert outcome.ours[(DYNATREE, None), "speedup"].value == pytest.approx(1.8)
    verdicts = {(each.ordering.better, each.ordering.worse): each for each in outcome.judged}
    held = verdicts[DYNATREE, FIXED]
    assert held.verdict == "holds" and held.gain.value == pytest.approx(180 / 140 - 1) and held.reason == ""
    assert held.paper == pytest.approx(219.5 / 200.7 - 1)
    lost = verdicts[FIXED, LINEAR]
    assert lost.verdict == "does not hold" and lost.gain.value < 0
    assert "commits about as many tokens per pass as" in lost.reason and "passes take 7% longer" in lost.reason
    assert "a draft forward takes 12% of the time of a verification" in lost.reason


def test_lower_is_better_where_a_table_says_so():
    outcome = judge(BY_KEY["dynatree/table-2"], rows())
    by_name = {(e.ordering.better, e.ordering.worse, e.ordering.figure.column): e for e in outcome.judged}
    assert by_name[DYNATREE, FIXED, "tpot_s"].verdict == "holds"
    assert by_name[DYNATREE, FIXED, "tpot_s"].paper == pytest.approx(1 - 4.59 / 5.30)
    assert by_name[DYNATREE, "Autoregressive", "ttft_s"].verdict == "equal within 3%"
    assert outcome.ours[(DYNATREE, None), "tpot_s"].value == pytest.approx(1000 / 180, rel=0.05)


@pytest.mark.parametrize(
    ("low", "high", "prompts", "said"),
    [  # the rule of docs/experiments.md, at its edges
        (0.031, 0.5, 3, "holds"), (0.001, 0.031, 3, "holds"), (0.031, 0.5, 2, "not decided"),
        (-0.5, -0.031, 9, "does not hold"), (-0.031, -0.001, 9, "does not hold"),
        (-0.029, 0.029, 3, "equal within 3%"), (0.001, 0.029, 3, "equal within 3%"),
        (-0.029, -0.001, 3, "equal within 3%"), (-0.029, 0.029, 2, "not decided"),
        (-0.031, 0.029, 9, "not decided"), (-0.001, 0.5, 9, "not decided"), (-0.03, 0.03, 9, "not decided"),
        (0.0, 0.0, 3, "equal within 3%"),
    ],
)  # fmt: skip
def test_the_rule_of_verdicts(low, high, prompts, said):
    assert verdict(Estimate((low + high) / 2, low, high, prompts)) == said and EQUAL == 0.03


def test_a_verdict_computed_by_hand():
    """Gains of 8, 10 and 12% over 100: mean 0.10, deviation 0.02, 0.10 +- 4.3027 * 0.02 / sqrt(3) is .0503 to .1497."""
    gain = ratio_gain(np.array([108.0, 110.0, 112.0]), np.full(3, 100.0))
    assert (gain.low, gain.high) == pytest.approx((0.0503, 0.1497), abs=1e-4) and verdict(gain) == "holds"
    assert verdict(ratio_gain(np.array([98.0, 110.0, 112.0]), np.full(3, 100.0))) == "not decided"
    assert verdict(ratio_gain(np.array([100.0, 101.0, 102.0]), np.full(3, 100.0))) == "not decided"
    assert verdict(ratio_gain(np.array([101.0, 101.0, 101.5]), np.full(3, 100.0))) == "equal within 3%"


def test_whole_and_loop_free_texts_are_two_views_of_the_same_rows():
    frame = rows()
    frame["loop_free_new_tokens"], frame["loop_free_throughput"] = 40, 2.0 * frame["throughput"]
    drafts = frame["line"] == "dynatree"
    frame.loc[drafts, "loop_free_throughput"] = 0.5 * frame["throughput"][drafts]
    whole, free = (judge(BY_KEY["dynatree/table-1"], frame, way) for way in ("whole", "loop_free"))
    assert (whole.units[DYNATREE, None], free.units[DYNATREE, None]) == (100, 40)
    found = [next(each for each in way.judged if each.ordering.better == DYNATREE).verdict for way in (whole, free)]
    assert found == ["holds", "does not hold"]
    frame.loc[frame["prompt"] == "p0", [name for name in frame if name.startswith(LOOP_FREE)]] = None
    assert judge(BY_KEY["dynatree/table-1"], frame).one_way == 0
    some = judge(BY_KEY["dynatree/table-1"], frame, "loop_free")
    assert some.one_way == 4 and some.runs[DYNATREE, None] == 5, "one prompt holds whole texts only"


def test_a_claim_on_trees_that_fails_says_what_was_best_and_what_it_takes(results):
    made = [of_shape(verifier, p, paths, tokens + 0.1 * (paths == 2) + 0.02 * n)
            for verifier, tokens in (("naive", 3.0), ("block", 2.0)) for n, p in enumerate("abcd")
            for paths in (1, 2)]  # fmt: skip
    store(results, "verifier_grid", made)
    lost = next(each for each in judge(BY_KEY["delayed/table-3"], frame()).judged if each.ordering.better == "Block")
    assert lost.verdict == "does not hold"
    assert lost.reason == (
        "In an iteration Block (mostly K 2, L 2) commits 2.13 tokens in 25.0 ms, "
        "Naive (mostly K 2, L 2) commits 3.13 tokens in 25.0 ms."
    )


def test_reasons_come_from_the_rows():
    slow, fast = rows({"dynatree": 80.0}), rows({"linear": 100.0})
    slow["draft_s"] = 1.0
    said = of_time(slow, fast, "DynaTree", "Linear")
    assert said.startswith("DynaTree commits about as many tokens per pass as Linear and its passes take 25% longer")
    assert "most of the difference is drafting (40.00 ms against 10.00 ms)" in said
    fast["tokens_per_iteration"] = 5.0
    assert "commits 20% fewer tokens" in of_time(slow, fast, "DynaTree", "Linear")


def test_of_tokens_per_pass_is_reported_what_was_drafted_and_accepted():
    paper_result = BY_KEY["dyspec/table-1-t0.6"]
    more = {"experiment": grid_name(paper_result.grid), "temperature": 0.6, "draft_temperature": 0.6}
    made = []
    for name, per_pass, accepted in (("dyspec", 2.0, 25), ("sequoia", 3.0, 50)):
        line = next(way.line for way in paper_result.ways if way.line.startswith(name))
        figures = {"tokens_per_iteration": per_pass, "accepted": accepted}
        figures |= {LOOP_FREE + column: value for column, value in figures.items()}
        made += [row(line, f"p{n}", 100.0, **more, **figures) for n in range(4)]
    lost = next(each for each in judge(paper_result, pd.DataFrame(made)).judged if each.ordering.worse == "Sequoia")
    assert lost.verdict == "does not hold"
    assert lost.reason == (
        "Tokens drafted per pass: DySpec 8.0, of which 1.00 are accepted (12.5%); "
        "Sequoia 8.0, of which 2.00 are accepted (25.0%)."
    )


def test_few_prompts_are_reported_instead_of_an_interval():
    figure = BY_KEY["dynatree/table-1"].figures[1]
    assert words_of(figure, Estimate(1.5, 1.5, 1.5, 1)) == "1.5 (n = 1)"
    assert words_of(figure, Estimate(1.5, 1.2, 1.8, 3)) == "1.5 (1.2 to 1.8)"


def test_what_was_never_run_says_so():
    for nothing in (rows()[:0], rows(experiment="another grid")):
        outcome = judge(BY_KEY["dynatree/table-1"], nothing)
        assert not outcome.run and {each.verdict for each in outcome.judged} == {"not run"}
    some = judge(BY_KEY["dynatree/table-1"], rows({"autoregressive": 100.0, "linear": 150.0}))
    assert [each.verdict for each in some.judged] == ["holds", "not run", "not run"]
    assert words_of(BY_KEY["dynatree/table-1"].figures[0], None) == "not run"


@pytest.mark.slow
def test_a_claim_that_the_papers_own_numbers_deny_is_turned_round():
    paper_result = BY_KEY["delayed/table-2"]
    assert {("Naive", "Block")} <= {
        (each.ordering.better, each.ordering.worse) for each in judge(paper_result, rows()[:0]).judged
    }


@pytest.mark.slow
def test_papers_are_judged_without_torch(tmp_path):
    code = "from decoding.papers import PAPER_RESULTS; from decoding.papers.judge import judge; "
    code += "from decoding.experiments.rows import all_rows; import sys; "
    code += "of_views = {each.view: each for each in PAPER_RESULTS}; "
    code += "print(len([judge(each, all_rows([])) for each in of_views.values()]), 'torch' in sys.modules)"
    assert run_without_torch(tmp_path, "-c", code).split() == [str(len({each.view for each in PAPER_RESULTS})), "False"]


def test_a_gain_over_what_may_be_nothing_is_a_number():
    found = ratio_gain(np.array([2.0, 4.0, 6.0]), np.array([0.0, 0.0, 3.0]))
    assert found.value == pytest.approx(3.0) and np.isfinite([found.low, found.high]).all()


def test_no_claim_is_denied_by_the_papers_own_numbers(monkeypatch):
    monkeypatch.setattr("decoding.papers.judge.stored_records", lambda _name: pd.DataFrame())
    for each in PAPER_RESULTS:
        assert all(judged.paper is None or judged.paper >= 0 for judged in judge(each, rows()[:0]).judged), each.key


def test_the_paper_of_dyspec_is_behind_where_its_own_numbers_say_so():
    small, warm = (BY_KEY[f"dyspec/table-4-t{temperature}"].orderings for temperature in ("0", "0.6"))
    assert [(each.better, each.worse) for each in small[:2]] == [("DySpec", "Sequoia"), ("DySpec", "SpecInfer")]
    assert (warm[0].better, warm[0].worse, warm[2].better, warm[2].higher) == ("Sequoia", "DySpec", "Sequoia", False)
