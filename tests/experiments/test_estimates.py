"""Intervals over prompts, means over what varies in a sweep, and its best way: what they are and how sure that is."""

import numpy as np
import pandas as pd
import pytest

from decoding.experiments.estimates import (
    aggregated,
    axes,
    best_words,
    cells,
    estimate,
    over_repeats,
    ranked,
    ratio_gain,
    sources_of,
)
from decoding.experiments.rows import with_settings
from pages.ui.sweep.view import decided
from tests.helpers.experiments import made_row, made_rows

EXPERIMENTS = 1000


def share_that_holds(count: int, interval, truth: float, seed: int = 0) -> float:
    """Of many experiments with as many prompts, the share whose interval holds the truth."""
    rng = np.random.default_rng(seed)
    found = [interval(rng.normal(10.0, 2.0, count), rng.normal(0.0, 0.5, count)) for _ in range(EXPERIMENTS)]
    return np.mean([each.low <= truth <= each.high for each in found])


@pytest.mark.parametrize("count", [3, 5, 12])
def test_intervals_of_gains_hold_the_truth_however_few_the_prompts(count):
    def gain(speeds, noise):
        return ratio_gain(1.2 * speeds + noise, speeds)

    assert share_that_holds(count, gain, 0.2) == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("count", [8, 20])
def test_intervals_of_means_are_widened_for_few_prompts(count):
    assert share_that_holds(count, lambda speeds, _: estimate(speeds, draws=1000), 10.0) == pytest.approx(
        0.95, abs=0.025
    )


def test_a_figure_is_drawn_over_prompts():
    found = estimate(range(4), lambda chosen: float(np.mean(chosen)), draws=200)
    assert found.value == 1.5 and 0.0 <= found.low < 1.5 < found.high <= 3.0


def test_a_gain_is_that_of_the_means_with_students_t():
    found = ratio_gain(np.array([3.0, 3.0, 6.0]), np.array([2.0, 2.0, 2.0]))
    half = 4.302653 * np.std([1.5, 1.5, 3.0], ddof=1) / np.sqrt(3)
    assert (found.value, found.low, found.high) == pytest.approx((1.0, 1.0 - half, 1.0 + half), abs=1e-5)
    assert found.prompts == 3
    assert ratio_gain(np.array([3.0]), np.array([2.0])).low == pytest.approx(0.5), "one prompt has no interval"


def runs(*more: list[dict]) -> pd.DataFrame:
    return aggregated(with_settings(pd.DataFrame([row for rows in more or (made_rows(),) for row in rows])))


def test_the_best_is_reported_with_how_sure_that_is():
    found = ranked(runs(), "speedup")
    assert [each.label for each in found] == ["D 4 B 3", "D 4 B 2", "D 3 B 3", "D 3 B 2"]
    assert found[0].chance == 1.0 and found[0].figure.prompts == 4 and found[0].way.startswith("fixed_tree:max_depth=4")
    said = best_words(found, "speed-up")
    assert said.startswith(
        "D 4 B 3: speed-up 1.72 (1.70 to 1.73), best in 100% of 2,000 bootstrap resamples of the 4 prompts"
    )
    assert best_words(found, "%", 100, 1).startswith("D 4 B 3: % 171.5")


def test_lower_is_better_where_a_figure_says_so():
    assert ranked(runs(), "tpot_s", higher=False)[0].label == "D 4 B 3"


def test_what_is_close_is_reported_as_such():
    rows = made_rows()
    for row in rows:
        if row["label"] == "D 4 B 2" and row["prompt"] in ("frog_and_boat", "other"):
            row["loop_free_throughput"] += 22
    close = ranked(runs(rows), "throughput")
    assert 0.05 < close[0].chance < 0.95 and "is best in" in best_words(close, "tokens/s")
    assert sum(each.chance for each in close) == pytest.approx(1.0)


def test_ways_that_are_alike_share():
    found = ranked(runs(), "tokens_per_iteration")
    assert [each.chance for each in found] == pytest.approx([0.25] * 4)
    assert "best in 25%" in best_words(found, "passes") and "and 2 more." in best_words(found, "x")
    assert "tied with" in best_words(found[:2], "x")


def test_few_rows_are_reported_honestly():
    one = ranked(runs(made_rows(prompts=1)), "speedup")
    assert "on one prompt, too few for an interval" in best_words(one, "speed-up")
    alone = ranked(runs(made_rows(depths=(3,), widths=(2,))), "speedup")
    assert "there is nothing to compare it with" in best_words(alone, "speed-up")
    assert ranked(runs()[:0], "speedup") == [] and "No prompt has been measured" in best_words([], "speed-up")


def test_a_single_prompt_is_judged_over_its_repeats():
    rows = [row for n in range(3) for row in made_rows(prompts=1, repeat=n, block=f"block {n}", key=f"{n}")]
    for row in rows:  # the machine drifts, which both sides of a ratio share
        for name in ("throughput", "loop_free_throughput"):
            row[name] *= 1 + 0.5 * row["repeat"] + (0.0 if row["reference"] else 0.01 * row["repeat"])
    best, *others = ranked(runs(rows), "speedup")
    assert (best.per, best.figure.prompts, best.figure.value) == ("repeat", 3, pytest.approx(np.median(best.values)))
    logs = np.log(best.values)
    half = 4.302653 * np.std(logs, ddof=1) / np.sqrt(3)
    ends = np.exp(logs.mean() - half), np.exp(logs.mean() + half)
    assert (best.figure.low, best.figure.high) == pytest.approx(ends, rel=1e-5)
    none = over_repeats(np.array([0.0, 0.0, 1.0]))
    assert (none.value, none.high - none.value) == pytest.approx((1 / 3, 4.302653 / 3), rel=1e-5), "counts may be 0"
    assert best.figure.low > max(each.figure.high for each in others)
    assert "of the 3 repeats" in best_words([best, *others], "speed-up")
    line = decided([best, *others], "Autoregressive")
    assert line.verdict == "speculate" and line.best.label == best.label and line.best.figure.per == "repeat"
    assert {each.per for each in ranked(runs(), "speedup")} == {"prompt"}


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
    for count, said in ((1, "on one prompt, too few"), (2, "on 2 prompts, too few")):
        for depths in ((3,), (3, 4)):
            found = ranked(runs(made_rows(depths, (2,), prompts=count)), "speedup")
            assert said in best_words(found, "speed-up") and "draws" not in best_words(found, "speed-up")


def cleaned(rows: list[dict] | None = None) -> pd.DataFrame:
    return aggregated(with_settings(pd.DataFrame(made_rows() if rows is None else rows)))


def test_what_varies_is_found_with_its_values():
    assert axes(cleaned()) == {"settings.max_depth": (3, 4), "settings.branching": (2, 3)}
    long = [*made_rows(), *made_rows(asked_tokens=64)]
    assert axes(cleaned(long))["asked_tokens"] == (32, 64)
    assert axes(cleaned()[:0]) == {}


def test_what_differs_between_methods_only_does_not_vary():
    other = [made_row("linear", "a", 120.0, {"length": 8, "node_budget": 99}), *made_rows()]
    assert axes(cleaned(other)) == {
        "base": ("fixed_tree", "linear"), "settings.max_depth": (3.0, 4.0), "settings.branching": (2.0, 3.0)
    }  # fmt: skip


def test_looping_and_failed_runs_and_references_do_not_count():
    rows = made_rows()
    rows[1]["failure"], rows[2]["loop_free_throughput"] = "no room", None
    assert len(cleaned(rows)) == len(rows) - 4 - 2


def test_cells_are_means_over_prompts_with_intervals():
    found = cells(cleaned(), ["settings.max_depth", "settings.branching"], "speedup")
    assert found["value"].tolist() == pytest.approx([1.215, 1.315, 1.615, 1.715])
    assert (found["low"] < found["value"]).all() and (found["value"] < found["high"]).all()
    assert found["prompts"].tolist() == [4] * 4 and found["runs"].tolist() == [4] * 4
    one = cells(cleaned(), ["settings.max_depth"], "speedup", intervals=False)
    assert one["value"].tolist() == pytest.approx([1.265, 1.665]) and one["low"].isna().all()
    assert one["runs"].tolist() == [8, 8]
    assert not len(cells(cleaned(), ["settings.max_depth"], "peak_memory_bytes")), "nobody measured it"


def test_few_prompts_have_no_interval_and_of_repeats_the_median_counts():
    few = cells(cleaned(made_rows(prompts=2)), ["settings.max_depth"], "speedup")
    assert few["low"].isna().all() and few["prompts"].tolist() == [2, 2]
    again = [*made_rows(), *made_rows(repeat=1), *made_rows(repeat=2)]
    for row in again[-len(made_rows()) :]:
        if not row["reference"]:
            row["loop_free_throughput"] = 1.0  # another process was at work
    found = cells(cleaned(again), ["settings.max_depth", "settings.branching"], "throughput")
    assert (found["value"] > 100).all() and found["runs"].tolist() == [12] * 4


def test_sources_are_reported_the_newest_first():
    rows = pd.DataFrame([*made_rows(), *made_rows(machine="another", started="2031-01-01T00:00:00")])
    assert sources_of(rows) == ["Embedded pair on another", "Embedded pair on a test"] and sources_of(rows[:0]) == []
