"""What benchmarks have stored, judged as rows are."""

import gzip
import json
import math

import pytest

from benchmarks import papers
from decoding.common.errors import ExperimentError
from decoding.experiments.rows import LOOP_FREE
from decoding.papers import PAPER_RESULTS
from decoding.papers.judge import claim_words, judge
from decoding.papers.paper_result import compared, protocol_here
from decoding.papers.rows import wanted
from decoding.papers.stored import stored_records
from decoding.trace.metrics import COUNTINGS
from tests.helpers.papers import BY_KEY, HARDWARE, PROMPTS, frame, of_shape, store


def test_a_sweep_whose_figure_was_never_measured_has_no_best(results):
    store(results, "verifier_grid", [of_shape("nss", "a", paths, math.nan) for paths in (1, 2)])
    assert not judge(BY_KEY["delayed/table-2"], frame()).run


def test_a_prompt_counts_with_its_mean_over_samplings_and_the_median_of_repeats(results):
    speeds = {0.2: (100.0, 100.0, 9.0), 0.4: (200.0, 200.0, 200.0), 1.0: (600.0, 600.0, 600.0)}
    made = [
        of_shape(verifier, prompt, 1, 2.0, throughput=speed, temperature=temperature, repeat=repeat)
        for verifier in ("nss", "spectr")
        for prompt in "abc"
        for temperature, found in speeds.items()
        for repeat, speed in enumerate(found)
    ]
    store(results, "verifier_grid", made)
    outcome = judge(BY_KEY["delayed/table-3"], frame())
    assert outcome.ours[("NSS", None), "throughput"].value == pytest.approx(300.0)


def test_verifiers_are_reported_by_sampling_each_with_its_best_shape(results):
    made = []
    for prompt in PROMPTS:
        for temperature, top_p in ((0.6, 1.0), (1.0, 0.9)):
            for verifier, gain in (("traversal_wor", 1.0), ("spectr", 0.0)):
                for paths, length in ((1, 2), (4, 8)):
                    figures = {"tokens_per_iteration": 2.0 + gain + 0.1 * paths, "throughput": 9.0}
                    if prompt != "c":  # whose text repeats itself from the start
                        figures |= {LOOP_FREE + name: 1.0 for name in figures}
                    made.append({
                        "line": f"iid_paths:verifier={verifier}", "sample": prompt, "prompt_set": "samples",
                        "kind": "code", "method": "iid_paths", "settings.verifier": verifier, "settings.paths": paths,
                        "settings.length": length, "temperature": temperature, "top_p": top_p, **figures,
                    })  # fmt: skip
    store(results, "verifier_grid", made)
    outcome = judge(BY_KEY["delayed/table-11"], frame())
    assert outcome.values == ("T = 0.6", "top-p = 0.9")
    assert outcome.ours[("Traversal", "T = 0.6"), "tokens_per_iteration"].value == pytest.approx(3.4)
    held = {(each.ordering.worse, each.value): each for each in outcome.judged if each.ordering.better == "Traversal"}
    assert held["SpecTr", "top-p = 0.9"].verdict == "holds"
    assert held["SpecTr", "T = 0.6"].paper == pytest.approx((5.40 + 3.83 + 6.86) / (5.28 + 1.94 + 6.60) - 1, abs=0.005)
    assert held["SpecInfer", "T = 0.6"].verdict == "not run"
    free = judge(BY_KEY["delayed/table-11"], frame(), "loop_free")
    assert (
        free.ours[("Traversal", "T = 0.6"), "tokens_per_iteration"].value == 1.0 and free.runs["SpecTr", "T = 0.6"] == 2
    )


def depths(falls: bool = True, samples=PROMPTS) -> list[dict]:
    return [
        {"line": "spectr", "sample": sample, "depth": depth, "accepted_of_4": 0.8 - 0.05 * depth * falls,
         "accepted_of_3": 0.7, "accepted_of_2": 0.6, "accepted_of_1": 0.5}
        for sample in samples for depth in range(8)
    ]  # fmt: skip


def test_stored_records_are_judged_as_rows_are(results):
    paper_result = BY_KEY["delayed/figure-1b"]
    nothing = judge(paper_result, frame())
    assert not nothing.run and {each.verdict for each in nothing.judged} == {"not run"}
    store(results, "depth_divergence", depths())
    outcome = judge(paper_result, frame())
    assert outcome.run and outcome.values == tuple(range(8)) and outcome.runs["SpecTr", 3] == 3
    assert outcome.where == ("Embedded pair on A processor, cpu, torch 9.9, 2030-01-02",)
    assert outcome.ours[("SpecTr", 2), "accepted_of_4"].value == pytest.approx(70.0)
    held = next(each for each in outcome.judged if each.ordering.better == "SpecTr")
    assert held.verdict == "holds" and held.value == "0 against 7" and held.reason == ""
    assert claim_words(held) == "SpecTr at 0 over the same at 7, acceptance at 4 draws, %"
    store(results, "depth_divergence", depths(falls=False))
    flat = next(each for each in judge(paper_result, frame()).judged if each.ordering.better == "SpecTr")
    assert flat.verdict == "equal within 3%"
    assert flat.reason == "Acceptance at 4 draws, %: 80.0 for SpecTr at 0, 80.0 for SpecTr at 7."


def test_fewer_than_three_samples_decide_nothing(results):
    store(results, "depth_divergence", depths(samples=("a", "b")))
    judged = judge(BY_KEY["delayed/figure-1b"], frame()).judged
    found = next(each for each in judged if each.ordering.better == "SpecTr")
    assert (found.verdict, found.reason) == ("not decided", "Measured on only 2 samples.")


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


@pytest.mark.parametrize("counting", COUNTINGS)
def test_stored_records_say_what_they_count(results, capsys, counting):
    masks = [{"part": "random", "line": line, "sample": f"random {n}", "nodes": 256, "prefix": 0, "blocks": 9 + n}
             for line in ("as made", "depth") for n in range(4)]  # fmt: skip
    store(results, "mask_order", masks)
    figures = {"counted": 9, "pass_ms": 9.0, "of_measured": 1.0}
    acted = [{"line": line, "sample": p, "nodes": 5, **figures, **{LOOP_FREE + name: 5.0 for name in figures}}
             for line in ("measured", "rows") for p in PROMPTS]  # fmt: skip
    store(results, "action_times", acted)
    for key, said in (("dyspec/table-5", "exact counts of the masks"),
                      ("delayed/equation-11", f"{COUNTINGS[counting]}; measured and modelled times")):  # fmt: skip
        papers.show({way: judge(BY_KEY[key], frame(), way) for way in COUNTINGS}, counting)
        assert capsys.readouterr().out.splitlines()[4].startswith(f"  {said}"), key


def test_stored_records_of_earlier_weights_are_of_another_pair(results):
    store(results, "depth_divergence", depths(), weights="others")
    outcome = judge(BY_KEY["delayed/figure-1b"], frame())
    assert outcome.where == ("Embedded pair, earlier weights on A processor, cpu, torch 9.9, 2030-01-02",)
    assert outcome.here.pair == "Embedded pair, earlier weights"
    store(results, "depth_divergence", depths(), device="cuda", created="2030-02-01T00:00:00Z")
    outcome = judge(BY_KEY["delayed/figure-1b"], frame())
    assert outcome.here.pair == "Embedded pair" and outcome.elsewhere == ()


def test_records_without_text_outside_loops_are_left_out_there_and_figures_of_other_lines_stay(results):
    both = [each | {LOOP_FREE + "accepted_of_4": 0.9, "counted": 3, LOOP_FREE + "counted": 2} for each in depths()]
    apart = [{"line": "laws", "sample": p, "depth": d, "l1_distance": 0.1 + d, LOOP_FREE + "l1_distance": 0.2,
              "counted": 3, LOOP_FREE + "counted": 2} for p in PROMPTS for d in range(8)]  # fmt: skip
    lost = [each | {"sample": "lost", "counted": 3} for each in depths(samples=PROMPTS[:1])]
    store(results, "depth_divergence", [*both, *apart, *lost])
    whole, free = (judge(BY_KEY["delayed/figure-1b"], frame(), way) for way in ("whole", "loop_free"))
    assert (whole.runs["SpecTr", 0], free.runs["SpecTr", 0]) == (4, 3)
    assert (whole.units["SpecTr", 0], free.units["SpecTr", 0]) == (3, 2)
    assert free.ours[("SpecTr", 7), "accepted_of_4"].value == pytest.approx(90.0)
    distance = judge(BY_KEY["delayed/figure-1a"], frame(), "loop_free")
    assert distance.run and distance.ours[("Target and draft", 7), "l1_distance"].value == pytest.approx(0.2)


def test_no_claim_of_equation_3_is_between_two_models_and_trees_have_their_true_size(results):
    """Both models multiply the same draft pass: which is above says only which number is."""
    drafting = [
        {"line": line, "sample": p, "nodes": 64, "draft_ms": ms, "forwards": 9.0, "drafted": drafted}
        for line, ms, drafted in (("greedy", 9.0, 64), ("threshold", 5.0, 91), ("threshold model", 4.0, 91))
        for p in PROMPTS
    ]
    store(results, "tree_times", drafting)
    outcome = judge(BY_KEY["dyspec/equation-3"], frame())
    assert [claim_words(each) for each in outcome.judged] == [
        "Threshold, measured below Greedy, measured at 64, drafting per pass, ms"
    ]
    assert outcome.ours[("Threshold, measured", 64), "drafted"].value == 91
    store(results, "tree_times", [{name: each[name] for name in each if name != "drafted"} for each in drafting])
    older = judge(BY_KEY["dyspec/equation-3"], frame())
    assert older.run and {column for _, column in older.ours} == {"draft_ms", "forwards"}


def test_records_of_whole_texts_only_have_nothing_to_say_of_others(results):
    store(results, "depth_divergence", depths())
    assert not judge(BY_KEY["delayed/figure-1b"], frame(), "loop_free").run


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


def test_records_say_how_they_were_measured_by_their_part(results):
    masks = [{"part": part, "line": line, "sample": f"{n}", "nodes": 256, "prefix": 0, "blocks": 9 + n}
             for part in ("random", "real") for line in ("as made", "depth") for n in range(3)]  # fmt: skip
    said = {"random": {"pair": "", "setup": "blocks of 32 x 32"}, "real": {"sampling": "T = 0.6"}}
    store(results, "mask_order", masks, protocol=said)
    random, real = (judge(BY_KEY[key], frame()).here for key in ("dyspec/table-5", "dyspec/figure-9"))
    assert (random.pair, random.setup, random.sampling) == ("", "blocks of 32 x 32", "")
    assert (real.pair, real.setup, real.sampling) == ("Embedded pair", "", "T = 0.6")
    store(results, "mask_order", masks)
    assert judge(BY_KEY["dyspec/table-5"], frame()).here.setup == ""


def test_stored_results_are_beside_a_whole_protocol():
    for paper_result in PAPER_RESULTS:
        if paper_result.stored not in ("", "verifier_grid"):
            rows = stored_records(paper_result.stored)
            here = protocol_here(rows[wanted(rows, paper_result.only, known=True)])
            found = compared(paper_result.protocol, here, by_name=False)
            assert len(found) > 3 and "not in our records" not in {each.said for each in found}, paper_result.key
            assert next(each for each in found if each.name == "hardware").paper, paper_result.key
