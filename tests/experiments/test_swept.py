"""What varies in a sweep, and means over prompts for what does."""

import pandas as pd
import pytest

from decoding.experiments.rows import with_settings
from decoding.experiments.swept import axes, cells, swept
from tests.experiments.made import made_row, made_rows


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
