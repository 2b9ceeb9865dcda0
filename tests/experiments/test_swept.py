"""What varies in a sweep, and means over prompts for what does."""

import pandas as pd
import pytest

from decoding.experiments.estimates import axes, cells, sources_of, swept
from decoding.experiments.rows import with_settings
from tests.helpers.experiments import made_row, made_rows


def runs(rows: list[dict] | None = None) -> pd.DataFrame:
    return swept(with_settings(pd.DataFrame(made_rows() if rows is None else rows)))


def test_what_varies_is_found_with_its_values():
    assert axes(runs()) == {"settings.max_depth": (3, 4), "settings.branching": (2, 3)}
    long = [*made_rows(), *made_rows(asked_tokens=64)]
    assert axes(runs(long))["asked_tokens"] == (32, 64)
    assert axes(runs()[:0]) == {}


def test_what_differs_between_methods_only_does_not_vary():
    other = [made_row("linear", "a", 120.0, {"length": 8, "node_budget": 99}), *made_rows()]
    assert axes(runs(other)) == {
        "base": ("fixed_tree", "linear"), "settings.max_depth": (3.0, 4.0), "settings.branching": (2.0, 3.0)
    }  # fmt: skip


def test_looping_and_failed_runs_and_references_do_not_count():
    rows = made_rows()
    rows[1]["failure"], rows[2]["loop_free_throughput"] = "no room", None
    assert len(runs(rows)) == len(rows) - 4 - 2


def test_cells_are_means_over_prompts_with_intervals():
    found = cells(runs(), ["settings.max_depth", "settings.branching"], "speedup")
    assert found["value"].tolist() == pytest.approx([1.215, 1.315, 1.615, 1.715])
    assert (found["low"] < found["value"]).all() and (found["value"] < found["high"]).all()
    assert found["prompts"].tolist() == [4] * 4 and found["runs"].tolist() == [4] * 4
    one = cells(runs(), ["settings.max_depth"], "speedup", intervals=False)
    assert one["value"].tolist() == pytest.approx([1.265, 1.665]) and one["low"].isna().all()
    assert one["runs"].tolist() == [8, 8]
    assert not len(cells(runs(), ["settings.max_depth"], "peak_memory_bytes")), "nobody measured it"


def test_few_prompts_have_no_interval_and_of_repeats_the_median_counts():
    few = cells(runs(made_rows(prompts=2)), ["settings.max_depth"], "speedup")
    assert few["low"].isna().all() and few["prompts"].tolist() == [2, 2]
    again = [*made_rows(), *made_rows(repeat=1), *made_rows(repeat=2)]
    for row in again[-len(made_rows()) :]:
        if not row["reference"]:
            row["loop_free_throughput"] = 1.0  # another process was at work
    found = cells(runs(again), ["settings.max_depth", "settings.branching"], "throughput")
    assert (found["value"] > 100).all() and found["runs"].tolist() == [12] * 4


def test_sources_are_told_the_newest_first():
    rows = pd.DataFrame([*made_rows(), *made_rows(machine="another", started="2031-01-01T00:00:00")])
    assert sources_of(rows) == ["Embedded pair on another", "Embedded pair on a test"] and sources_of(rows[:0]) == []
