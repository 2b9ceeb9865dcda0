"""Modelled beside published: errors are of speed, fitted rows are not judged, what is stored is what the model says."""

import json

import pytest

from benchmarks.roofline_published import Beside, passes, speculation, summary
from decoding.experiments.experiment import RESULTS


def test_errors_are_of_speed_and_fitted_rows_left_out():
    slow = Beside("a", "ms", 4.0, 2.0, "one")
    fast = Beside("b", "tokens/s", 100.0, 150.0, "one")
    fitted = Beside("c", "x", 2.0, 1.0, "one", fitted=True)
    assert slow.error == 1.0 and fast.error == 0.5 and fitted.error == -0.5
    assert summary([slow, fast, fitted]) == [
        {"source": "one", "of": "pass", "figures": 2, "median": 0.75, "largest": 1.0}
    ]


def test_what_is_stored_is_what_the_model_says():
    stored = json.loads((RESULTS / "roofline_published-cpu.json").read_text(encoding="utf-8"))["figures"]
    rows = [*passes(), *speculation()]
    assert [row["what"] for row in stored] == [row.what for row in rows]
    for row, kept in zip(rows, stored, strict=True):
        assert row.source and kept["published"] == pytest.approx(row.published, rel=1e-5)
        assert kept["modelled"] == pytest.approx(row.modelled, rel=1e-4), row.what


def test_plain_passes_of_recent_engines_are_close():
    near = [row for row in passes() if ("batch" in row.what and "fp8" in row.what) or row.what == "Llama-3.1-8B, H100"]
    assert len(near) == 5 and all(abs(row.error) < 0.15 for row in near)
