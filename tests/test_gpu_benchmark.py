"""The GPU benchmark without a GPU: its contestants run, its verdicts follow from the figures, its limits add up."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks import common, gpu, roofline, tuning
from benchmarks.common import encode
from decoding.contestants import parse_contestant
from decoding.errors import PairError
from decoding.methods import METHODS
from decoding.pair import embedded_pair
from decoding.sampling import Sampling

TUNED = {"linear, tuned": "linear:length=2", "tree, tuned": "fixed_tree:max_depth=2,branching=3"}


@pytest.fixture(scope="module")
def pair():
    return embedded_pair(device="cpu")


@pytest.mark.parametrize(
    "sampling",
    [pytest.param(Sampling(), id="greedy"), pytest.param(Sampling(temperature=1.0), id="T=1", marks=pytest.mark.slow)],
)
def test_every_contestant_runs_and_every_goal_is_judged(pair, sampling, capsys, monkeypatch):
    prompts = [("short", encode(pair, "One day")), ("long", encode(pair, "Once upon a time there was a king who"))]
    comparison = gpu.measure(pair, prompts, 12, 1, sampling, TUNED, engine="lean")
    assert comparison.prompts[0] == "long"
    assert not [result.failure for result in comparison.results if result.failure]
    monkeypatch.setattr(gpu, "measure_ceilings", lambda *_: roofline.Ceilings(1e10, 1e11))
    figures = gpu.report(pair, comparison, rows=20)
    assert len(figures["goals"]) == 2 + len(gpu.RATIO_GOALS)
    assert all(line.startswith(("goal reached", "goal MISSED")) for line in figures["goals"])
    assert "autoregressive, captured" in capsys.readouterr().out


def test_verdicts_follow_from_the_figures():
    def figure(label, speed, tokens=2.0, peak=100):
        return {
            "label": label,
            "throughput": {"median": speed},
            "tokens_per_iteration": tokens,
            "peak_memory_bytes": peak,
            "ratio_to_autoregressive": {"median": speed / 100},
            "phase_ms_per_iteration": {"verify": 3.0, "draft": 1.0, "adapt": 0.1},
        }

    figures = [
        figure("autoregressive, captured", 100, 1.0),
        figure("HF generate", 30, 1.0),
        figure("HF assisted", 70),
        figure("fixed tree D5 B2", 150),
        figure("fixed tree D8 B3", 199, peak=106),
        figure("DynaTree (+ history)", 180),
        figure("linear, tuned", 500),
    ]
    speeds = {f["label"]: f["throughput"]["median"] for f in figures}
    lines = gpu.verdicts(figures, 0.61, lambda what, base: speeds[what] / speeds[base])
    assert lines[0].startswith("goal reached") and "61%" in lines[0]
    assert "goal reached: autoregressive, captured 3.33x HF generate" in lines[1]
    assert lines[2].startswith("goal MISSED: fixed tree D8 B3 1.99x autoregressive, captured")  # a chain is no tree
    assert "2.00 tokens in 10.05 ms: verify 3.00, draft 1.00 against 1.00 tokens in 10.00 ms" in lines[2]
    assert [line.split(":")[0] for line in lines[3:]] == ["goal reached"] * 3 + ["goal MISSED"] * 2
    assert "1.060x" in lines[-1] and "fixed tree D8 B3" in lines[-1]


def test_what_a_pass_must_read(pair):
    """The embedded target reads every weight once: its embedding is its output head."""
    weight_bytes, parameters = roofline.streamed_weights(pair.target)
    assert weight_bytes == 4 * parameters == pair.info.target.weight_bytes
    one, many = roofline.pass_cost(pair.target, 1, 100), roofline.pass_cost(pair.target, 16, 100)
    row = 2 * 8 * 4 * 80 * 4
    assert one.bytes == weight_bytes + 102 * row and many.bytes == weight_bytes + 132 * row
    assert one.operations == 2 * parameters + 4 * 8 * 320 * 101
    slow_memory = roofline.Ceilings(copy_bytes_per_s=1.0, product_operations_per_s=1e30)
    assert one.limit_s(slow_memory) == one.bytes


def test_ceilings_and_passes_are_measured(pair, monkeypatch):
    monkeypatch.setattr(roofline, "COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(roofline, "MATRIX_SIZE", {"cpu": 64})
    ceilings = roofline.measure_ceilings(torch.device("cpu"), torch.float32)
    rows = roofline.pass_rows(pair, ceilings, rows=8)
    assert {row["model"] for row in rows} == {"target", "draft"} and all(row["ms"] > 0 for row in rows)
    phases = roofline.phase_rows(pair, METHODS["dynatree"], encode(pair, "One day"), 12, ceilings)
    assert sum(row["share"] for row in phases) == pytest.approx(1, abs=0.02)
    assert {row["phase"] for row in phases if row["limit_ms"]} == {"verify", "draft"}


def test_every_candidate_of_the_tuning_is_a_contestant(monkeypatch):
    for text in (*tuning.chains(), *tuning.trees()):
        assert parse_contestant(text).method is not None
    texts = [*tuning.chains(), *tuning.trees()]
    assert len(set(texts)) == len(texts)


def test_tuning_keeps_the_faster_third(pair, monkeypatch):
    monkeypatch.setattr(tuning, "ROUNDS", ((1.0, 1, 8), (0.5, 1, 8)))
    found = tuning.tune(pair, tuning.chains()[:4], Sampling())
    assert len(found) == 2 and found[0][1] >= found[1][1] > 0
    assert {text for text, _ in found} <= set(tuning.chains()[:4])


def test_without_a_gpu_it_says_what_to_run(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(PairError, match="needs a CUDA GPU; on a CPU run"):
        gpu.main()


def test_at_temperature_0_every_contestant_is_verified_greedily():
    """A verifier that reads laws keeps a tree from being verified on the device."""
    tuned = {"tree, tuned": "eagle2:node_budget=8"}
    greedy = gpu.contestants_for(Sampling(), tuned)
    assert {c.method.verifier.name for c in greedy if c.method} == {"greedy"}
    warm = gpu.contestants_for(Sampling(temperature=1.0), tuned)
    assert "greedy" not in {c.method.verifier.name for c in warm if c.method}


def test_each_sampling_is_saved_by_itself(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    for part in ("greedy", "T=1", None):
        common.save_figures(SimpleNamespace(json=None, save=True), "gpu", {}, torch.device("cpu"), part)
    assert {file.name for file in tmp_path.iterdir()} == {"gpu-cpu-greedy.json", "gpu-cpu-T1.json", "gpu-cpu.json"}
