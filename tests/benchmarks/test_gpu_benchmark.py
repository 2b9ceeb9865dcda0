"""The GPU benchmark without a GPU: its contestants run, its verdicts follow from the figures, its limits add up."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from benchmarks import roofline, tuning
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import measuring as gpu_measuring
from benchmarks.gpu.report import Budget
from decoding.common.errors import PairError
from decoding.common.interruption import CancelledError
from decoding.compare.comparison import Comparison, Result
from decoding.compare.contestants import parse_contestant
from decoding.device.tree import device_rule
from decoding.engines.cuda_graph import bucket
from decoding.experiments import command
from decoding.methods.methods import METHODS
from decoding.sampling.sampling import Sampling
from decoding.trace.metrics import COUNTINGS, Timeline, measure_timeline

TUNED = {"linear, tuned": "linear:length=2", "tree, tuned": "fixed_tree:max_depth=2,branching=3"}


@pytest.mark.parametrize(
    "sampling",
    [pytest.param(Sampling(), id="greedy"), pytest.param(Sampling(temperature=1.0), id="T=1")],
)
@pytest.mark.slow
def test_every_contestant_runs_and_every_goal_is_judged(pair, sampling, capsys, monkeypatch):
    texts = {"short": "One day", "long": "Once upon a time there was a king who"}
    prompts = [(name, pair.vocabulary.encode(text)) for name, text in texts.items()]
    contestants = gpu_measuring.contestants_for(sampling, TUNED, "packed")
    comparison = gpu_measuring.measure(pair, contestants, prompts, 6, 1, sampling, Budget(600))
    assert comparison.prompts[0] == "long"
    assert not [result.failure for result in comparison.results if result.failure]
    monkeypatch.setattr(gpu_measuring, "measure_ceilings", lambda *_: roofline.Ceilings(1e10, 1e11))
    figures = gpu_measuring.report(pair, comparison, rows=20)
    assert len(figures["goals"]) == 2 + len(gpu_measuring.RATIO_GOALS)
    assert all(line.startswith(("goal reached", "goal MISSED")) for line in figures["goals"])
    assert "autoregressive, captured" in capsys.readouterr().out and len(figures["whole"]) == len(contestants)


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
    lines = gpu_measuring.verdicts(figures, 0.61, lambda what, base: speeds[what] / speeds[base])
    assert lines[0].startswith("goal reached") and "61%" in lines[0]
    assert "goal reached: autoregressive, captured 3.33x HF generate" in lines[1]
    assert lines[2].startswith("goal MISSED: fixed tree D8 B3 1.99x autoregressive, captured")  # a chain is no tree
    assert "2.00 tokens in 10.05 ms: verify 3.00, draft 1.00 against 1.00 tokens in 10.00 ms" in lines[2]
    assert [line.split(":")[0] for line in lines[3:]] == ["goal reached"] * 3 + ["goal MISSED"] * 2
    assert "1.060x" in lines[-1] and "fixed tree D8 B3" in lines[-1]


@pytest.mark.parametrize(("counting", "share", "ratio"), [("whole", "75%", "3.00x"), ("loop_free", "50%", "2.00x")])
def test_a_comparison_is_printed_as_counted_and_kept_both_ways(pair, monkeypatch, capsys, counting, share, ratio):
    labels = {"autoregressive, captured": 3.0, "HF generate": 1.0}
    contestants = [replace(parse_contestant("hf_generate"), label=label) for label in labels]
    results = []
    for index, whole in enumerate(labels.values()):
        line = Timeline((2.0, 8 / whole), (4 - 2 * index, 8))  # two tokens a second before the loop, or one
        both = (measure_timeline(each, None) for each in (line, line.until(7)))
        results.append(Result(index, 0, 0, tuple(range(8)), 7, *both, None))
    comparison = Comparison(tuple(contestants), ("one",), tuple(results), (), reference=0)
    monkeypatch.setattr(gpu_measuring, "_bandwidth_limit", lambda *_: 4.0)
    kept = gpu_measuring.report(pair, comparison, 9, counting)
    said = capsys.readouterr().out
    assert said.startswith(COUNTINGS[counting])
    assert f"loop runs at {share} of the memory-bandwidth limit" in said
    assert f"autoregressive, captured {ratio} HF generate" in said
    assert [kept[name][0]["throughput"]["median"] for name in ("whole", "figures")] == [3.0, 2.0]
    assert kept["bandwidth_share"] == 0.5 and "2.00x HF generate" in kept["goals"][1]


def test_what_a_pass_must_read(pair):
    """The embedded target reads every weight once: its embedding is its output head; float16 holds its matrices."""
    weight_bytes, parameters = roofline.streamed_weights(pair.target.with_engine("transformers"))
    assert weight_bytes == 4 * parameters == pair.info.target.weight_bytes
    whole, share = weight_bytes, 0.5 if torch.backends.quantized.engine in ("x86", "fbgemm") else 1
    weight_bytes = roofline.streamed_weights(pair.target)[0]
    assert share <= weight_bytes / whole < share + 0.01
    one, many = roofline.pass_cost(pair.target, 1, 100), roofline.pass_cost(pair.target, 16, 100)
    row = 2 * 8 * 4 * 80 * 4
    assert one.bytes == weight_bytes + 102 * row and many.bytes == weight_bytes + 132 * row
    assert one.operations == 2 * parameters + 4 * 8 * 320 * 101
    slow_memory = roofline.Ceilings(copy_bytes_per_s=1.0, product_operations_per_s=1e30)
    assert one.limit_s(slow_memory) == one.bytes


@pytest.mark.slow
def test_ceilings_and_passes_are_measured(pair, monkeypatch):
    monkeypatch.setattr(roofline, "COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(roofline, "MATRIX_SIZE", {"cpu": 64})
    before = torch.get_rng_state()
    ceilings = roofline.measure_ceilings(torch.device("cpu"), torch.float32)
    assert torch.equal(torch.get_rng_state(), before), "a failed capture may have spoilt the default generator"
    rows = roofline.pass_rows(pair, ceilings, rows=8)
    assert {row["model"] for row in rows} == {"target", "draft"} and all(row["ms"] > 0 for row in rows)
    phases = roofline.phase_rows(pair, METHODS["dynatree"], pair.vocabulary.encode("One day"), 12, ceilings)
    assert sum(row["share"] for row in phases) == pytest.approx(1, abs=0.02)
    assert {row["phase"] for row in phases if row["limit_ms"]} == {"verify", "draft"}


def test_every_candidate_of_the_tuning_is_a_contestant():
    texts = [*tuning.CHAINS, *tuning.trees(), *tuning.large_trees()]
    for text in texts:
        assert parse_contestant(text).method is not None
    assert len(set(texts)) == len(texts)


def test_large_trees_fill_the_sizes_of_static_passes():
    beams = 0
    for text in tuning.large_trees():
        method = parse_contestant(text).method.with_settings(verifier="greedy")
        rule = device_rule(method.drafter, method.drafter.start([]), 100)
        assert rule.nodes >= rule.node_budget in (63, 95, 127) and bucket(rule.node_budget + 1) == rule.node_budget + 1
        if rule.certain:
            beams += 1
            assert rule.tree_size == rule.node_budget + 1 and 5 <= rule.forwards <= 8
    assert beams == 18


def test_what_cannot_run_is_reported_and_left_out(pair, capsys, monkeypatch):
    """A contestant that fails, one that is refused, and one that there is no time for cost the others nothing."""
    texts = {"fine": "autoregressive", "broken": "hf_generate", "refused": "dynatree@streaming-512", "late": "linear"}
    contestants = [replace(parse_contestant(text), label=label) for label, text in texts.items()]
    budget = Budget(1, clock=lambda: 0.0)

    def run(_pair, contestant, *_others):
        if contestant.label == "broken":
            raise RuntimeError("no kernel image is available\nmore")
        if contestant.label == "late":
            raise CancelledError
        return SimpleNamespace(failure=None)

    monkeypatch.setattr(gpu_measuring, "measured_call", run)
    additive = replace(pair, target=replace(pair.target, mask_kind="additive"))
    failures = {}
    ids = pair.vocabulary.encode("One day")
    found = gpu_measuring.able(additive, contestants, ids, 4, Sampling(), budget, failures)
    assert failures.keys() == {"broken", "refused"}, "what came too late has not failed"
    reported = capsys.readouterr().out
    assert [contestant.label for contestant in found] == ["fine"]
    assert "left out: broken (no kernel image is available)" in reported
    assert "left out: refused (embedded-target is a GPTNeoXForCausalLM with additive masks" in reported
    assert "left out: late (no time was left to try it)" in reported


def test_a_time_that_is_over_ends_the_tuning_with_what_is_known(pair, monkeypatch):
    monkeypatch.setattr(tuning, "ROUNDS", ((1.0, 1, 8), (0.5, 1, 8)))
    assert [name for name, _ in tuning.tune(pair, tuning.CHAINS[:3], Sampling(), cancelled=lambda: True)] == [
        "linear:length=1", "linear:length=2", "linear:length=3"
    ]  # fmt: skip


def test_iterations_of_device_and_host_are_both_measured():
    contestants = gpu_measuring.contestants_for(Sampling(), TUNED)
    engines = {c.label: c.engine for c in contestants if c.method}
    assert engines["tree, tuned"] == "cuda_graph" and engines["tree, tuned, on the host"] == "cuda_graph-host"
    assert not [
        c
        for c in gpu_measuring.contestants_for(Sampling(temperature=1.0), TUNED)
        if c.label.endswith(gpu_measuring.HOST)
    ]
    figures = {label: {} for label in ("tree, tuned", "tree, tuned, on the host")}
    (line,) = gpu_measuring.device_verdicts(figures, lambda _what, _base: 1.29)
    assert line == "goal MISSED: iterations of tree, tuned on the device 1.29x those on the host, goal 1.3x"


def test_device_and_host_are_compared_only_on_graphs(pair):
    """A host whose graphs failed or were just made is slower than it is, and the goal would be reached by that."""
    figures = {label: {"cold_passes": 0} for label in ("tree, tuned", "tree, tuned, on the host")}
    words = "goal not judged: iterations of tree, tuned on the device 1.50x those on the host, as"
    fast = pair.with_engine("cuda_graph")
    host = fast.draft.with_engine("cuda_graph-host").engine.graphs
    assert gpu_measuring.spoilt_graphs(fast) == []
    for name, value, why in (
        ("evicted", 3, "3 graphs of the draft (cuda_graph-host) were given up"),
        ("failure", "no memory", "a graph of the draft (cuda_graph-host) could not be captured"),
    ):
        setattr(host, name, value)
        spoilt = gpu_measuring.spoilt_graphs(fast)
        assert gpu_measuring.device_verdicts(figures, lambda *_: 1.5, spoilt) == [f"{words} {why}"]
    host.evicted, host.failure = 0, ""
    figures["tree, tuned, on the host"]["cold_passes"] = 2
    assert gpu_measuring.device_verdicts(figures, lambda *_: 1.5) == [f"{words} graphs were made meanwhile"]


@pytest.mark.slow
def test_tuning_keeps_the_faster_third(pair, monkeypatch):
    monkeypatch.setattr(tuning, "ROUNDS", ((1.0, 1, 8), (0.5, 1, 8)))
    found = tuning.tune(pair, tuning.CHAINS[:4], Sampling())
    assert len(found) == 2 and found[0][1] >= found[1][1] > 0
    assert {text for text, _ in found} <= set(tuning.CHAINS[:4])


def test_a_part_that_fails_is_reported_and_the_others_are_kept(pair, monkeypatch, tmp_path, capsys):
    written = []

    def fails(*_others):
        if not written:
            raise RuntimeError("CUDA error: no kernel image\nmore")
        return [("found", 1.0)]

    for name, value in {
        "widened_pair": lambda *_: pair,
        "tune": fails,
        "measure": fails,
        "contestants_for": lambda *_, **_named: [],
        "report": lambda *_: {"figures": []},
        "roofline_figures": lambda *_: {"ceilings": {}},
        "save_figures": lambda _args, _name, figures, *_: written.append(sorted(figures)),
    }.items():
        monkeypatch.setattr(gpu_measuring, name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("sys.argv", ["gpu", "--quick"])
    assert gpu.main() == 1
    assert written == [["pair"], ["T=1", "pair"], ["T=1", "ceilings", "pair"]], "kept after each part"
    reported = capsys.readouterr().out
    assert "greedy could not be measured: CUDA error: no kernel image" in reported
    assert "tree, tuned: not tuned (CUDA error: no kernel image)" in reported
    assert "tree, tuned: eagle2:node_budget=63" in reported and "tree, tuned: found" in reported


def test_ceilings_that_cannot_be_measured_cost_no_figures(pair, monkeypatch, tmp_path, capsys):
    written = []

    def fails(*_others):
        raise RuntimeError("Offset increment outside graph capture\nmore")

    for name, value in {
        "widened_pair": lambda *_: pair,
        "tuned_for": lambda *_: {},
        "measure": lambda *_: None,
        "report": lambda *_: {"figures": []},
        "save_figures": lambda _args, _name, figures, *_: written.append(sorted(figures)),
    }.items():
        monkeypatch.setattr(gpu_measuring, name, value)
    for module in (gpu_measuring, roofline):
        monkeypatch.setattr(module, "measure_ceilings", fails)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("sys.argv", ["gpu", "--quick"])
    assert gpu.main() == 1 and written[-1] == ["T=1", "greedy", "pair"]
    assert "bytes and operations could not be measured: Offset increment" in capsys.readouterr().out
    assert gpu_measuring._bandwidth_limit(pair, 10) is None


def test_without_a_gpu_it_says_what_to_run(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(PairError, match="needs a CUDA GPU; on a CPU run"):
        gpu.main()


def test_at_temperature_0_every_contestant_is_verified_greedily():
    """A verifier that reads distributions keeps a tree from being verified on the device."""
    tuned = {"tree, tuned": "eagle2:node_budget=8"}
    greedy = gpu_measuring.contestants_for(Sampling(), tuned)
    assert {c.method.verifier.name for c in greedy if c.method} == {"greedy"}
    warm = gpu_measuring.contestants_for(Sampling(temperature=1.0), tuned)
    assert "greedy" not in {c.method.verifier.name for c in warm if c.method}


def test_each_sampling_is_saved_by_itself(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    for part in ("greedy", "T=1", None):
        command.save_figures(SimpleNamespace(json=None, save=True), "gpu", {}, torch.device("cpu"), part)
    assert {file.name for file in tmp_path.iterdir()} == {"gpu-cpu-greedy.json", "gpu-cpu-T1.json", "gpu-cpu.json"}
