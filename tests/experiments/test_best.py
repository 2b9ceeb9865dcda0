"""The best way of a sweep, and how sure that is."""

import pandas as pd
import pytest

from decoding.experiments.estimates import best_words, ranked, swept
from decoding.experiments.rows import with_settings
from tests.helpers.experiments import made_row, made_rows


def runs(*more: list[dict]) -> pd.DataFrame:
    return swept(with_settings(pd.DataFrame([row for rows in more or (made_rows(),) for row in rows])))


def test_the_best_is_told_with_how_sure_that_is():
    found = ranked(runs(), "speedup")
    assert [each.label for each in found] == ["D 4 B 3", "D 4 B 2", "D 3 B 3", "D 3 B 2"]
    assert found[0].chance == 1.0 and found[0].figure.prompts == 4 and found[0].way.startswith("fixed_tree:max_depth=4")
    said = best_words(found, "speed-up")
    assert said.startswith("D 4 B 3: speed-up 1.72 (1.70 to 1.73), the best in 100% of 2,000 draws of the 4 prompts")
    assert best_words(found, "%", 100, 1).startswith("D 4 B 3: % 171.5")


def test_lower_is_better_where_a_figure_says_so():
    assert ranked(runs(), "tpot_s", higher=False)[0].label == "D 4 B 3"


def test_what_is_close_is_told_as_such():
    rows = made_rows()
    for row in rows:
        if row["label"] == "D 4 B 2" and row["prompt"] in ("frog_and_boat", "other"):
            row["loop_free_throughput"] += 22
    close = ranked(runs(rows), "throughput")
    assert 0.05 < close[0].chance < 0.95 and "is it in" in best_words(close, "tokens/s")
    assert sum(each.chance for each in close) == pytest.approx(1.0)


def test_ways_that_are_alike_share():
    found = ranked(runs(), "tokens_per_iteration")
    assert [each.chance for each in found] == pytest.approx([0.25] * 4)
    assert "the best in 25%" in best_words(found, "passes") and "and 2 more reach the same" in best_words(found, "x")
    assert "reaches the same" in best_words(found[:2], "x")


def test_few_rows_are_told_honestly():
    one = ranked(runs(made_rows(prompts=1)), "speedup")
    assert "on one prompt, which says nothing about others" in best_words(one, "speed-up")
    alone = ranked(runs(made_rows(depths=(3,), widths=(2,))), "speedup")
    assert "there is no other way to compare it with" in best_words(alone, "speed-up")
    assert ranked(runs()[:0], "speedup") == [] and "Nothing has been measured" in best_words([], "speed-up")


def test_all_are_judged_on_the_same_prompts_and_lengths():
    rows = made_rows()
    slow = [row for row in rows if row["label"] == "D 3 B 2" and row["prompt"] == "other"]
    left = [row for row in rows if row not in slow]
    assert ranked(runs(left), "speedup")[0].figure.prompts == 3, "a prompt that one way lacks counts for none"
    longer = [{**row, "key": f"{row['key']} long", "block": f"{row['block']} long", "asked_tokens": 64} for row in rows]
    only_one = [row for row in longer if row["label"] in ("Autoregressive", "D 3 B 2")]
    for row in only_one:
        row["loop_free_throughput"] *= 9
    both = ranked(runs(rows, only_one), "throughput")
    assert both[-1].label == "D 3 B 2" and both[-1].figure.prompts == 4, (
        "a length that one way alone ran counts for none"
    )


def test_a_verifier_that_fits_a_temperature_is_no_way_of_its_own():
    rows = []
    for temperature, line in ((0.0, "dynatree"), (1.0, "dynatree:verifier=nss")):
        for prompt in ("a", "b"):
            shared = {"temperature": temperature, "block": f"{prompt}{temperature}"}
            rows += [made_row("autoregressive", prompt, 100.0, **shared), made_row(line, prompt, 150.0, **shared)]
            rows.append(made_row("linear", prompt, 120.0, **shared))
    found = ranked(runs(rows), "speedup")
    assert [(each.way, each.label) for each in found] == [("dynatree", "dynatree"), ("linear", "linear")]
    side_by_side = [*rows, made_row("dynatree:verifier=nss", "a", 90.0, block="of another reference")]
    assert set(runs(side_by_side)["way"]) == {"dynatree", "dynatree:verifier=nss", "linear"}


def test_few_prompts_have_neither_an_interval_nor_a_chance():
    for count, said in ((1, "on one prompt, which says nothing"), (2, "on 2 prompts, which say nothing")):
        for depths in ((3,), (3, 4)):
            found = ranked(runs(made_rows(depths, (2,), prompts=count)), "speedup")
            assert said in best_words(found, "speed-up") and "draws" not in best_words(found, "speed-up")
