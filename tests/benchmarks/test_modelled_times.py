"""The check of modelled times: the model reads the plain run and both targets' passes, the measure is the wide run."""

from dataclasses import replace

import pytest

from benchmarks import modelled_times
from decoding.common.cost_model import read_curve
from tests.helpers.selectors import COSTS


@pytest.mark.slow
def test_every_run_is_modelled_from_the_plain_pair_and_measured_with_the_wide_one(embedded, monkeypatch):
    """Where passes of the second pair, here the same one, are said to take a second, every modelled token does."""
    wide = replace(embedded)
    free, slow = (replace(COSTS, target=read_curve(f"1:{ms} 256:{ms}", "target")) for ms in (0.001, 1000))
    monkeypatch.setattr(modelled_times, "cost_model", lambda pair, decoder: COSTS)
    monkeypatch.setattr(
        modelled_times, "measure_batches", lambda pair, alone, batches: {1: slow if pair is wide else free}
    )
    what = replace(modelled_times.grid(1, 6), samplings=modelled_times.SAMPLINGS[:1])
    rows = list(modelled_times.compared_runs(what, embedded, wide))
    names = ["autoregressive", *(line.partition(":")[0] for line in modelled_times.METHODS[:-1]), "specinfer"]
    assert [row["method"] for row in rows] == names
    assert rows[0]["modelled_ms"] == pytest.approx(1000, rel=0.2), "six tokens, prefill included, in six passes"
    assert all(row[f"loop_free_{name}_ms"] == row[f"{name}_ms"] for row in rows for name in ("measured", "modelled"))
    assert all(0 < row["measured_ms"] < row["modelled_ms"] and row["modelled_ms"] > 150 for row in rows)
