"""What passes cost, in the dialog of the pair: how to get it, the curves, when and how they were measured."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from decoding.common.cost_model import CostCurve, CostModel, CostPoint, kept_costs
from decoding.costs import measuring
from decoding.models.presets import PairSettings, pair_name
from pages.ui.app.pair_dialog import cost_line, measured_words, papers_words, pass_words, times_table
from pages.ui.common import models

CURVE = CostCurve((CostPoint(1, 0.002, 0.0019, 0.0025), CostPoint(4, 0.005, 0.005, 0.006)))
COSTS = CostModel(CURVE, CURVE, 0.0005, 0.00025, 40, 256, "2026-01-02T03:04:05Z", "A machine, 2 threads")


def view() -> None:
    from pages.ui.app.pair_dialog import draw_costs

    draw_costs()


@pytest.fixture
def manager(monkeypatch, tmp_path):
    """A manager of this test alone; what it keeps goes to a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "_known", {})
    fresh = models.ModelManager()
    monkeypatch.setattr("pages.ui.app.pair_dialog.manager", lambda: fresh)
    return fresh


@pytest.mark.slow
def test_without_a_pair_it_says_what_to_do_and_does_it(manager, monkeypatch):
    measured = []
    monkeypatch.setattr(measuring, "measure_costs", lambda pair, _: measured.append(pair) or COSTS)
    at = AppTest.from_function(view, default_timeout=60).run()
    assert any("measured when it is loaded" in each.value for each in at.caption) and not at.get("plotly_chart")
    at.button[0].click().run()
    assert not at.exception and len(at.get("plotly_chart")) == 1
    assert manager.loaded and manager.costs == COSTS and len(measured) == 1
    at.button[0].click().run()
    assert len(measured) == 2 and len(at.get("plotly_chart")) == 1


def test_the_curve_is_drawn_in_milliseconds():
    line = cost_line(CURVE)
    assert line.sizes == (1, 4) and line.medians == (2.0, 5.0) and line.lows == (1.9, 5.0) and line.highs == (2.5, 6.0)
    assert np.allclose(line.line, (2.0, 3.0, 4.0, 5.0))


def test_the_words_say_when_where_and_how():
    words = measured_words(COSTS)
    for part in ("2026-01-02 at 03:04 UTC", "256 tokens", "quartiles", "A machine, 2 threads", "40 real iterations"):
        assert part in words
    slow = CostModel(CURVE, CURVE, 0.0, 0.0, 0, 16, COSTS.measured, COSTS.machine)
    assert "the time outside them is negligible" in measured_words(slow)


def test_the_choice_shows_times_of_its_own_precision_and_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen = PairSettings(target="embedded", draft="embedded")
    assert "Load this pair measures them" in pass_words(chosen)
    folder = tmp_path / "draftscope" / "calibration"
    folder.mkdir(parents=True)

    def kept(place: str, seconds: float, day: int) -> dict:
        passes = CostCurve((CostPoint(1, seconds, seconds, seconds),))
        machine, when = f"A machine, {place}, 2 threads, torch 2", f"2026-01-{day:02}T03:04:05Z"
        return replace(COSTS, target=passes, machine=machine, measured=when).as_json()

    entries = [
        kept("cpu float32 packed sdpa", 0.004, 2),
        kept("cpu bfloat16 packed sdpa", 0.003, 3),
        kept("cuda:0 bfloat16 cuda_graph sdpa", 0.001, 4),
        kept("cpu bfloat16 packed sdpa", 0.009, 1),
    ]
    identity = {"name": pair_name(chosen), "target": {"weights": "0.021"}, "draft": {"weights": "0.034"}}
    content = {"pair": identity, "entries": dict(enumerate(entries))}
    (folder / "embedded-pair-costs.json").write_text(json.dumps(content))
    head = {**identity, "draft": {"weights": "0123456789ab"}}
    content = {"pair": head, "entries": {"here": kept("cpu float32 packed sdpa", 0.5, 9)}}
    (folder / "embedded-pair-head-costs.json").write_text(json.dumps(content))
    (folder / "damaged-costs.json").write_text("{")
    assert {each.placement: each.measured[8:10] for _, each in kept_costs()} == {
        "cpu float32 packed sdpa": "02", "cpu bfloat16 packed sdpa": "03", "cuda:0 bfloat16 cuda_graph sdpa": "04",
    }  # fmt: skip
    assert "2026-01-04" in pass_words(chosen), "the newest where all is left to the program"
    assert "2026-01-03 (cpu bfloat16 packed sdpa)" in pass_words(replace(chosen, device="cpu", dtype="bfloat16"))
    assert "2026-01-02" in pass_words(replace(chosen, dtype="float32"))
    assert "2026-01-04" in pass_words(replace(chosen, device="cuda"))
    assert "Load this pair measures them" in pass_words(replace(chosen, dtype="float16"))


def test_every_choice_stands_in_the_table_beside_the_papers_ratios():
    table = times_table([("Embedded pair", COSTS), ("my target + my draft", COSTS)])
    rows = {row.partition("</th>")[0].rpartition(">")[2]: row for row in table.split("<tr>")[2:]}
    for name in ("Embedded pair", "my target + my draft"):
        assert [f">{words}" in rows[name] for words in ("2.0 ms<", "17.0 ms<", "100.0%<", "2026-01-02, ")] == [True] * 4
    for name in ("Embedded pair, target 4× as wide", "Pythia 2.8B + 70M"):
        assert ">not yet<" in rows[name] and ">–<" in rows[name]
    assert ">2.5%<" in rows["Pythia 2.8B + 70M"] and ">1.6%<" in rows["Embedded pair, target 4× as wide"]
    assert ">0.5%<" in rows["Llama-2 7B + 70B, offloaded"] and ">5 s<" in rows["Llama-2 7B + 70B, offloaded"]
    assert "0.5% (DySpec, section 5.3: " in papers_words() and "2.5% (DynaTree: " in papers_words()


@pytest.mark.slow
def test_costs_that_a_run_does_not_fit_are_mended(manager, monkeypatch):
    monkeypatch.setattr(measuring, "measure_costs", lambda *_: COSTS)
    pair = manager.pair()
    manager.mend_costs()
    assert manager.costs == COSTS, "nothing is doubted"
    times = SimpleNamespace(mask_s=0.0, verify_s=1.0)
    measuring.doubt(pair, [SimpleNamespace(times=times, verified=0, timed=True)] * 5)
    monkeypatch.setattr(measuring, "disagreement", lambda *_: "the machine has changed")
    manager.mend_costs()
    assert manager.costs == replace(COSTS, corrected="the machine has changed")


@pytest.mark.slow
def test_a_pair_that_goes_takes_its_costs_along(manager, monkeypatch):
    monkeypatch.setattr(measuring, "measure_costs", lambda *_: COSTS)
    manager.pair()
    assert manager.costs == COSTS
    manager._release()
    assert manager.costs is None
