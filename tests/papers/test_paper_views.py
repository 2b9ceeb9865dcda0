"""What exhibits are made of beside plain rows: passes, phases, stored records; flat ways, and claims along an axis."""

import gzip
import json
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks import papers
from decoding.common.errors import ExperimentError
from decoding.experiments.estimates import prepared, ratio_gain
from decoding.experiments.rows import SCHEMA, RowStore
from decoding.papers import EXHIBITS, stored
from decoding.papers.dyspec import LARGE
from decoding.papers.judge import STEP, VIEWS, claim_words, judge, passes, phases
from decoding.papers.stored import stored_records
from decoding.trace.records import PHASES
from tests.papers.test_papers import BY_KEY, grid_name, row

HARDWARE = {"processor": "A processor", "device": "cpu", "torch": "9.9"}
PROMPTS = ("a", "b", "c")


def frame(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame(list(rows))


def of(key: str, line: str, prompt: str, speed: float = 100.0, **more) -> dict:
    """A row of an exhibit's grid."""
    block = f"{prompt} {more.get('asked_tokens')} {more.get('cut')} {more.get('temperature')}"
    return row(line, prompt, speed, experiment=grid_name(BY_KEY[key].grid), block=block, **more)


def store(folder, benchmark: str, records: list[dict], **more) -> None:
    content = {"benchmark": benchmark, "pair": "Embedded pair", "created": "2030-01-02T00:00:00Z",
               "hardware": HARDWARE}  # fmt: skip
    folder.mkdir(exist_ok=True)
    file = folder / f"{benchmark}-{more.pop('device', 'cpu')}.json"
    file.write_text(json.dumps(content | more))
    pd.DataFrame(records).to_csv(file.with_suffix(".csv.gz"), index=False)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_passes_stand_where_their_tokens_do_and_end_with_the_loop():
    series = {
        "drafted_nodes": [700, 500, 60, 9],
        "accepted_lengths": [15, 3, 2, 1],
        "committed_tokens": [16, 20, 24, 30],
    }
    made = of("dyspec/figure-5", "dyspec", "p", loop_free_tokens=24, **series)
    other = of("dyspec/figure-5", "autoregressive", "p")  # drafts nothing
    found = passes(prepared(frame(made, other))).set_index("position")
    assert STEP == 16 and found.index.tolist() == [0, 16] and found["line"].tolist() == ["dyspec", "dyspec"]
    assert found["tree_nodes"].tolist() == [700.0, 280.0] and found["accepted_nodes"].tolist() == [15.0, 2.5]
    assert len(passes(prepared(frame(other)))) == 0


def test_tree_sizes_over_a_generation_are_judged_from_passes():
    made = [
        of("dyspec/figure-5", line, prompt, temperature=0.6, loop_free_tokens=40, drafted_nodes=[nodes] * 3,
           accepted_lengths=[2, 2, 2], committed_tokens=[10, 20, 40])
        for prompt in PROMPTS for line, nodes in (("dyspec", 64), (LARGE, 600))
    ]  # fmt: skip
    outcome = judge(BY_KEY["dyspec/figure-5"], frame(*made))
    assert outcome.run and outcome.values == (0, 16)
    assert outcome.ours[("DySpec, 64 nodes", 16), "tree_nodes"].value == 64
    assert outcome.runs["DySpec, threshold 0.001, at most 768 nodes", 0] == 3


def test_phases_are_shares_of_the_time_that_all_took():
    times = {f"{phase}_s": 0.0 for phase in PHASES} | {
        "verify_s": 0.5, "draft_s": 0.3, "mask_s": 0.05, "select_s": 0.1, "commit_s": 0.05}  # fmt: skip
    made = of("dyspec/figure-4", "dyspec", "p", **times, **{f"loop_free_{name}": t for name, t in times.items()},
              draft_passes_s=10.15, loop_free_draft_passes_s=0.25, label="DySpec · tree of 64")  # fmt: skip
    shares = phases(prepared(frame(made))).set_index("line")["time_share"]
    assert shares.to_dict() == pytest.approx(
        {"target": 0.5, "draft": 0.25, "construction": 0.05, "mask": 0.05, "verification": 0.1, "cache": 0.05}
    )
    blind = phases(prepared(frame({**made, "loop_free_draft_passes_s": None}))).set_index("line")["time_share"]
    assert blind[["draft", "construction"]].isna().all() and blind["target"] == 0.5
    outcome = judge(BY_KEY["dyspec/figure-4"], frame(*({**made, "prompt": p, "temperature": 0.6} for p in PROMPTS)))
    assert outcome.values == ("DySpec",) and [each.verdict for each in outcome.judged] == ["holds", "holds"]
    assert (
        claim_words(outcome.judged[0]) == "Passes of the target over Tree construction at DySpec, share of the time, %"
    )


@pytest.mark.parametrize("name", VIEWS)
def test_no_rows_give_no_rows(name):
    assert len(VIEWS[name](prepared(frame(of("dyspec/figure-4", "dyspec", "p"))[:0]))) == 0


def test_prompts_that_are_too_short_say_nothing_about_long_ones():
    made = [
        of("dynatree/figure-8", line, prompt, 50.0 + 50 * (line != "autoregressive"), cut=cut, prompt_tokens=tokens)
        for prompt in PROMPTS
        for line in ("autoregressive", "dynatree", "linear")
        for cut, tokens in ((100, 100), (800, 130))
    ]
    outcome = judge(BY_KEY["dynatree/figure-8"], frame(*made))
    assert outcome.values == (100,) and outcome.ours[("DynaTree", 100), "speedup"].value == pytest.approx(2.0)
    assert "1,000 tokens" in outcome.exhibit.needs and "--prompts" in outcome.exhibit.needs


def sensitivity(high: float, low: float, prompt: str, speed: float) -> dict:
    usual = {"branch_min": 1, "branch_mid": 2, "branch_max": 3, "base_depth": 5, "max_depth": 8}
    settings = usual | {"confidence_high": high, "confidence_low": low}
    line = f"dynatree:confidence_high={high},confidence_low={low}"
    return of("dynatree/figure-6a", line, prompt, speed, **{f"settings.{name}": v for name, v in settings.items()})


def test_a_sweep_of_two_settings_has_lines_and_levels():
    made = [of("dynatree/figure-6a", line, p, speed) for p in PROMPTS
            for line, speed in (("autoregressive", 100.0), ("fixed_tree", 140.0))]  # fmt: skip
    made += [
        sensitivity(high, low, p, 100 * (high + low)) for p in PROMPTS for high in (0.7, 0.9) for low in (0.4, 0.5)
    ]
    made += [{**each, "line": "dynatree:max_depth=10", "settings.max_depth": 10} for each in made[6:7]]
    outcome = judge(BY_KEY["dynatree/figure-6a"], frame(*made))
    assert outcome.values == (0.7, 0.9)
    assert outcome.ours[("tau_l = 0.5", 0.9), "throughput"].value == pytest.approx(140)
    level = "Fixed tree, D = 8, B = 3"
    assert [outcome.ours[(level, high), "throughput"].value for high in (0.7, 0.9)] == [140.0, 140.0]
    assert outcome.runs["tau_l = 0.4", 0.7] == 3, "another depth is not of this panel"
    (claim,) = outcome.judged
    assert claim.ordering.at == (0.9, 0.9) and claim.verdict == "does not hold"
    assert claim_words(claim) == f"tau_l = 0.4 at 0.9 over {level} at 0.9, tokens/s"


def test_the_best_of_the_others_is_found_at_every_depth():
    made = []
    for prompt in PROMPTS:
        made.append(of("pruned/figure-3b", "autoregressive", prompt, asked_tokens=500))
        for depth in (3, 8):
            for branching, prune, speed in ((2, 0.03, 120.0), (3, 0.03, 130.0 + depth), (3, 0.1, 200.0 - depth)):
                settings = {"max_depth": depth, "branching": branching, "prune_probability": prune}
                settings = {f"settings.{name}": value for name, value in settings.items()}
                line = f"fixed_tree:max_depth={depth},branching={branching},prune_probability={prune}"
                made.append(of("pruned/figure-3b", line, prompt, speed, asked_tokens=500, **settings))
    outcome = judge(BY_KEY["pruned/figure-3b"], frame(*made))
    assert outcome.values == (3, 8)
    assert outcome.ours[("B = 3", 8), "throughput"].value == 138.0
    assert outcome.ours[("Best of the other two", 3), "throughput"].value == 197.0
    assert ("B = 4", 3) not in outcome.runs
    assert {each.verdict for each in outcome.judged} == {"holds"}


def test_verifiers_are_told_by_sampling_each_with_its_best_shape():
    made = []
    for prompt in PROMPTS:
        for sampling in ({"temperature": 0.6}, {"temperature": 1.0, "top_p": 0.9}):
            for verifier, gain in (("traversal", 1.0), ("spectr", 0.0)):
                for paths, length in ((1, 2), (4, 8)):
                    settings = {"verifier": verifier, "paths": paths, "length": length}
                    settings = {f"settings.{name}": value for name, value in settings.items()}
                    figures = {"loop_free_tokens_per_iteration": 2.0 + gain + 0.1 * paths}
                    line = f"iid_paths:paths={paths},length={length},verifier={verifier}"
                    made.append(of("delayed/table-11", line, prompt, **sampling, **settings, **figures))
    outcome = judge(BY_KEY["delayed/table-11"], frame(*made))
    assert outcome.values == ("T = 0.6", "top-p = 0.9")
    assert outcome.ours[("Traversal", "T = 0.6"), "tokens_per_iteration"].value == pytest.approx(3.4)
    held = {(each.ordering.worse, each.value): each for each in outcome.judged if each.ordering.better == "Traversal"}
    assert held["SpecTr", "top-p = 0.9"].verdict == "holds"
    assert held["SpecTr", "T = 0.6"].paper == pytest.approx((5.40 + 3.83 + 6.86) / (5.28 + 1.94 + 6.60) - 1, abs=0.005)
    assert held["SpecInfer", "T = 0.6"].verdict == "not run"


def depths(falls: bool = True, samples=PROMPTS) -> list[dict]:
    return [
        {"line": "spectr", "sample": sample, "depth": depth, "accepted_of_4": 0.8 - 0.05 * depth * falls,
         "accepted_of_3": 0.7, "accepted_of_2": 0.6, "accepted_of_1": 0.5}
        for sample in samples for depth in range(8)
    ]  # fmt: skip


def test_stored_records_are_judged_as_rows_are(results):
    exhibit = BY_KEY["delayed/figure-1b"]
    nothing = judge(exhibit, frame())
    assert not nothing.run and {each.verdict for each in nothing.judged} == {"not run"}
    store(results, "depth_divergence", depths())
    outcome = judge(exhibit, frame())
    assert outcome.run and outcome.values == tuple(range(8)) and outcome.runs["SpecTr", 3] == 3
    assert outcome.where == ("Embedded pair on A processor, cpu, torch 9.9, 2030-01-02",)
    assert outcome.ours[("SpecTr", 2), "accepted_of_4"].value == pytest.approx(70.0)
    held = next(each for each in outcome.judged if each.ordering.better == "SpecTr")
    assert held.verdict == "holds" and held.value == "0 against 7" and held.reason == ""
    assert claim_words(held) == "SpecTr at 0 over the same at 7, acceptance at 4 draws, %"
    store(results, "depth_divergence", depths(falls=False))
    flat = next(each for each in judge(exhibit, frame()).judged if each.ordering.better == "SpecTr")
    assert flat.verdict == "not decided here"
    assert flat.reason == "Acceptance at 4 draws, %: 80.0 for SpecTr at 0, 80.0 for SpecTr at 7."


def test_fewer_than_three_samples_decide_nothing(results):
    store(results, "depth_divergence", depths(samples=("a", "b")))
    judged = judge(BY_KEY["delayed/figure-1b"], frame()).judged
    found = next(each for each in judged if each.ordering.better == "SpecTr")
    assert (found.verdict, found.reason) == ("not decided here", "Measured on 2 samples only.")


def test_machines_are_not_mixed_the_newest_counts(results):
    store(results, "depth_divergence", depths())
    newer = {"created": "2030-02-01T00:00:00Z", "hardware": HARDWARE | {"gpu": "A GPU", "device": "cuda"}}
    store(results, "depth_divergence", depths(falls=False), device="cuda", **newer)
    outcome = judge(BY_KEY["delayed/figure-1b"], frame())
    assert outcome.where == ("Embedded pair on A GPU, cuda, torch 9.9, 2030-02-01",)
    assert outcome.elsewhere == ("Embedded pair on A processor, cpu, torch 9.9",)
    assert outcome.ours[("SpecTr", 7), "accepted_of_4"].value == pytest.approx(80.0) and outcome.runs["SpecTr", 7] == 3


def test_orders_of_a_mask_have_fewer_blocks_where_lower_is_better(results):
    blocks = {"as made": 36.0, "breadth": 35.0, "depth": 22.0, "heavy": 21.0}
    records = [{"part": "random", "line": line, "sample": f"random {n}", "nodes": 256, "prefix": 0, "blocks": count + n}
               for line, count in blocks.items() for n in range(4)]  # fmt: skip
    store(results, "mask_order", [*records, {**records[0], "part": "real", "nodes": 768, "blocks": 1.0}])
    outcome = judge(BY_KEY["dyspec/table-5"], frame())
    assert outcome.values == (256,) and outcome.ours[("Depth-first (DFS)", 256), "blocks"].value == 23.5
    assert [each.verdict for each in outcome.judged] == ["holds", "holds"]
    assert outcome.judged[0].paper == pytest.approx(1 - 22.5 / 36)


def test_damaged_results_are_one_sentence_and_old_ones_are_not_run(results):
    results.mkdir()
    (results / "mask_order-cpu.json").write_text(json.dumps({"benchmark": "mask_order", "random": {}}))
    assert len(stored_records("mask_order")) == 0 and not judge(BY_KEY["dyspec/table-5"], frame()).run
    store(results, "mask_order", [{"line": "depth", "nodes": 64}])
    whole = (results / "mask_order-cpu.json").read_text()
    good, empty, no_sample = (gzip.compress(text) for text in (b"line,sample", b"", b"line,nodes\ndepth,64\n"))
    tables = (empty, no_sample, b"line,sample", good[:-4], good[:10] + b"\xff" * 8)  # no gzip, cut off, not inflatable
    for text, table in (("{", good), ("[]", good), *((whole, each) for each in tables)):
        (results / "mask_order-cpu.json").write_text(text)
        (results / "mask_order-cpu.csv.gz").write_bytes(table)
        with pytest.raises(ExperimentError, match=r"mask_order-cpu.json is damaged \(.*\): delete it and run"):
            stored_records("mask_order")


def test_two_experiments_may_share_a_reference(tmp_path, monkeypatch, capsys):
    speeds = {"autoregressive": 100.0, "linear:length=6": 150.0}
    for key in ("dynatree/figure-8", "pruned/table-6"):
        made = [of(key, line, prompt, speed, cut=100, prompt_tokens=100) | {"key": f"{line} {prompt}"}
                for prompt in PROMPTS for line, speed in speeds.items()]  # fmt: skip
        kept = [{name: each[name] for name in SCHEMA.names} for each in made]
        RowStore(tmp_path / key.partition("/")[0]).append(kept)
    words = ["papers", "pruned/table-6", "--rows", str(tmp_path / "dynatree"), str(tmp_path / "pruned")]
    monkeypatch.setattr(sys, "argv", words)
    assert papers.main() == 0
    assert "Linear, K = 6 over Autoregressive at 100, tokens/s: holds +50.0%" in capsys.readouterr().out


def test_a_gain_over_what_may_be_nothing_is_a_number():
    found = ratio_gain(np.array([2.0, 4.0, 6.0]), np.array([0.0, 0.0, 3.0]))
    assert found.value == pytest.approx(3.0) and np.isfinite([found.low, found.high]).all()


def test_every_view_and_record_has_what_its_exhibits_ask_for():
    made = {"passes": {"position", "tree_nodes", "accepted_nodes"}, "phases": {"time_share", "label"}}
    for exhibit in EXHIBITS:
        asked = {figure.column for figure in exhibit.figures} | {exhibit.by} - {""}
        assert asked <= made.get(exhibit.view, asked), exhibit.key
    assert replace(BY_KEY["dyspec/figure-2"], stored="x").command == "python -m benchmarks.x --save"
