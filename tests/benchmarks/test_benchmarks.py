"""The benchmarks on a few tokens: they run, write what they say, and notice what they are there to notice."""

import importlib
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import decoding.session.cached_models as models_module
from benchmarks import batch, block_efficiency, identity, kinds_of_text, methods, recording
from benchmarks.forks import full_tree, goal_ms, verdicts
from decoding.compare.hf_generate import SINGLE_ROWS, single_row_words
from decoding.experiments.command import arguments, choose_prompts, parse_amounts
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair, tree_forward
from decoding.models.presets import PairSettings
from decoding.trace.metrics import COUNTINGS
from tests.helpers.traces import bonus, run_of


def run(monkeypatch, module, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
    return module.main()


@pytest.mark.slow
def test_methods_writes_what_it_measured(monkeypatch, tmp_path, capsys):
    path = tmp_path / "methods.json"
    names = ["autoregressive", "hf_generate", "hf_assisted", "dynatree:branch_first_level=true"]
    assert run(monkeypatch, methods, "--methods", *names, "--prompt", "Once upon a time there was", "--repeats", "1",
               "--max-new-tokens", "12", "--json", str(path)) == 0  # fmt: skip
    printed, written = capsys.readouterr().out, json.loads(path.read_text())
    assert "goal" in printed and "all outputs are identical" in printed
    assert {"hardware", "commit", "figures"} <= written.keys()
    tree = written["figures"][3]
    assert tree["contestant"] == names[3] and tree["throughput"]["median"] > 0
    assert 0 < tree["acceptance_verified"] <= 1 and tree["tokens_per_iteration"] > 1
    assert tree["ratio_to_hf_generate"]["count"] == 1


def test_the_standard_contestants_are_well_formed():
    contestants = methods.contestants_from(None)
    assert len(contestants) == len(methods.PUBLISHED) + len(methods.TUNED)
    assert {c.baseline for c in contestants} == {None, "hf_generate", "hf_assisted"}


def figures(label, contestant, ratio, **ms):
    ratios = {f"ratio_to_{base}": {"median": ratio} for base in ("hf_generate", "hf_assisted", "autoregressive")}
    return {"label": label, "contestant": contestant, "throughput": {}, "tokens_per_iteration": 2.5,
            "draft_forwards_per_iteration": 2.0, "phase_ms_per_iteration": ms, **ratios}  # fmt: skip


def test_goals_are_judged_both_ways():
    bases = {"autoregressive": 0, "hf_generate": 1, "hf_assisted": 2}
    ours = [figures("AR", "autoregressive", 1.2, draft=0.0, verify=4.0), figures("HF generate", "hf_generate", 1.0),
            figures("a", "hf_assisted", 1.0)]  # fmt: skip
    chain = figures("chain", "linear:length=2", 3.0)
    tree, slow = figures("tree", "dynatree", 1.9, draft=1.0, verify=8.0, select=1.0), figures("slow", "eagle2", 1.1)
    assert methods.goals([*ours, chain, slow, tree], bases, 1) == [
        "goal MISSED: AR 1.20x HF generate, goal 1.3x",
        "goal reached: tree 1.90x AR, goal 1.6x",  # a chain is no tree
        "goal MISSED: tree 1.90x HF generate, goal 2.1x",
        "goal reached: tree 1.90x a, goal 1.8x",
    ]
    own, over, *_, share = methods.goals([*ours, tree], bases, 4)
    assert own == "goal reached: AR 1.20x HF generate, goal 1.1x"
    assert over.startswith("goal MISSED: tree 1.90x AR, goal 2.3x; measured cause: 2.50 tokens per pass, and an iter")
    assert "takes 2.50 times as long, 10.00 ms (draft 1.00, verify 8.00) instead of 4.00" in over
    assert share.startswith("goal MISSED: tree drafts for 10.0% of an iteration, goal at most 5%; 2.00 draft forwards")
    assert methods.goals([*ours, tree], {"autoregressive": 0}, 1) == methods.goals([*ours, tree], bases, 2) == []


@pytest.mark.parametrize(
    ("target", "widen", "dtype", "part"),
    [
        ("embedded", 1, "float32", ""),
        ("embedded", 4, "float32", "widened-4x"),
        ("embedded", 4, "bfloat16", "widened-4x-bfloat16"),
        ("models/wide", 1, "bfloat16", "wide-bfloat16"),
    ],
)
def test_no_pair_takes_the_file_of_another(target, widen, dtype, part):
    info = SimpleNamespace(name=target.rpartition("/")[2], dtype=dtype)
    pair = SimpleNamespace(settings=PairSettings(target, widen=widen), target=SimpleNamespace(info=info))
    assert methods.part_of(pair) == part


def test_ratios_to_generate_say_where_its_single_rows_may_be_slow():
    found = {kind: [{"ratio_to_hf_generate": {"median": 2.5}}] for kind in ("stories", "editing")}
    assert kinds_of_text.over_generate(found, "cpu", "float32") == [
        "Autoregressive over Hugging Face generate: stories 2.50x, editing 2.50x."
    ]
    (line,) = kinds_of_text.over_generate(found, "cpu", "bfloat16")
    assert line.endswith(SINGLE_ROWS) and not single_row_words("cuda:0", "bfloat16")
    assert kinds_of_text.over_generate({"stories": [{"label": "Autoregressive"}]}, "cpu", "bfloat16") == []


@pytest.mark.slow
def test_a_token_far_below_the_best_logit_is_a_failure_in_half_precision(monkeypatch):
    half = embedded_pair(dtype="bfloat16")
    ids = [half.vocabulary.encode(choose_prompts(None, 1)[0].text)]
    plain = {"AR": METHODS["autoregressive"]}
    (row,) = identity.check_pair("half", half, ids, 16, plain)
    assert row.shortfall is not None and not row.failures
    monkeypatch.setattr(identity, "HALF_PRECISION_MARGIN", -1.0)
    (row,) = identity.check_pair("half", half, ids, 16, plain)
    assert "below the best logit" in row.failures[0]


@pytest.mark.slow
def test_identity_passes_and_notices_wrong_positions(embedded, monkeypatch):
    ids = [embedded.vocabulary.encode(choose_prompts(None, 1)[0].text)]
    rows = identity.check_pair("embedded", embedded, ids, 16, identity.methods_to_check(quick=True))
    assert len(rows) == 2 * len(identity.methods_to_check(quick=True)) - 1 and not any(row.failures for row in rows)
    assert all(row.tokens == 16 for row in rows)

    def consecutive(model, cache, tokens, positions, mask, keep=0, features=None):
        return tree_forward(model, cache, tokens, cache.length + np.arange(len(tokens)) * 3, mask, keep, features)

    monkeypatch.setattr(models_module, "tree_forward", consecutive)
    rows = identity.check_pair("embedded", embedded, ids, 16, identity.methods_to_check(quick=True), rebuild=False)
    assert any(row.failures for row in rows)


def test_recording_measures_all_of_them_in_both_ways(embedded, monkeypatch):
    ids = embedded.vocabulary.encode("Once upon a time")
    for record in recording.RECORDS:
        speeds = recording.tokens_per_second(embedded, ids, record, 6)
        assert speeds["whole"] == speeds["loop_free"] > 0
    monkeypatch.setattr(recording, "tokens_before_loop", lambda ids: 0)
    speeds = recording.tokens_per_second(embedded, ids, "none", 6)
    assert speeds["whole"] > 0 and speeds["loop_free"] is None


def test_the_cost_of_recording_is_that_of_the_texts_that_count():
    calls = {"none": [(100.0, 50.0), (100.0, None)], "full": [(90.0, 40.0), (80.0, 60.0)]}
    measured = {name: [{"whole": whole, "loop_free": free} for whole, free in each] for name, each in calls.items()}
    whole, free = (recording.figures_of(measured, way)["full"]["cost"] for way in COUNTINGS)
    assert (whole["median"], whole["count"]) == (pytest.approx(0.15), 2)
    assert (free["median"], free["count"]) == (pytest.approx(0.2), 1)


@pytest.mark.parametrize(("counting", "speed"), [("whole", "50.0"), ("loop_free", "40.0")])
def test_recording_shows_what_it_was_asked_to_count_and_keeps_both(
    counting, speed, embedded, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(recording, "pair_from", lambda args: embedded)
    monkeypatch.setattr(recording, "tokens_per_second", lambda *_: {"whole": 50.0, "loop_free": 40.0})
    assert run(monkeypatch, recording, "--quick", "--counted", counting, "--json", str(tmp_path / "x.json")) == 0
    said, kept = capsys.readouterr().out, json.loads((tmp_path / "x.json").read_text())
    assert COUNTINGS[counting] in said and f"none         {speed}" in said
    assert [each["full"]["tokens_per_second"]["median"] for each in (kept, kept["loop_free"])] == [50.0, 40.0]


def test_roots_and_iterations_in_loops_count_where_whole_texts_do(monkeypatch):
    found = block_efficiency.BlockEfficiency("T=0", "stories/x")
    found.values["roots",], found.loops["roots",], found.loops["lost",] = [1.0, 2.0], [6.0], [9.0]
    means = {way: block_efficiency.mean_over([found], ("roots",), ("T=0",), way).value for way in COUNTINGS}
    assert means == {"whole": 3.0, "loop_free": 1.5}
    assert block_efficiency.mean_over([found], ("lost",), ("T=0",), "loop_free") is None
    run = [SimpleNamespace(in_loop=in_loop, committed_ids=ids) for in_loop, ids in ((False, (1, 2, 3)), (True, (4,)))]
    monkeypatch.setattr(block_efficiency, "DecodeSession", lambda *_: run)
    job = ("T=0", "DynaTree", "a text", 16, 8)
    assert block_efficiency.decode_for_real((*job, "whole"))[2:] == (2, 4, 1)
    assert block_efficiency.decode_for_real((*job, "loop_free"))[2:] == (1, 3, 1)


def test_acceptance_by_batch_is_that_of_the_texts_that_count(embedded, monkeypatch):
    run = run_of([bonus(), replace(bonus(), in_loop=True)])

    class Session(list):
        def trace(self):
            return run

    monkeypatch.setattr(batch, "DecodeSession", lambda *_, **__: Session())
    for counting, kept in (("whole", 2), ("loop_free", 1)):
        (counted,) = batch.decoded(embedded, "dynatree", [("x", [1])], 4, counting)
        assert len(counted.iterations) == kept


COUNTED = {
    "whole": "papers action_times verifier_grid depth_divergence draft_acceptance draft_ranks tree_times batch "
    "recording modelled_times",
    "loop_free": "sweep selector kinds_of_text talf offload methods tuning block_efficiency gpu.__main__",
}


@pytest.mark.parametrize(("default", "name"), [(way, name) for way in COUNTED for name in COUNTED[way].split()])
def test_what_counts_is_an_argument_of_every_benchmark_that_counts_texts(default, name, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, importlib.import_module(f"benchmarks.{name}"), "--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "--counted {whole,loop_free}" in said and f"(default: {default})" in said


def test_recording_is_judged_without_reading_which_is_told():
    said = recording.verdicts({"none": 0.0, "summary": 0.06, "full": 0.02, "full, read": 0.14})
    assert ["MISSED" in line for line in said] == [True, False, False] and "14.0%" in said[2] and "goal" in said[2]


def test_prompts_are_taken_in_turn_from_each_kind(tmp_path):
    assert len({p.kind for p in choose_prompts(None, 4)}) == 4
    (tmp_path / "own.txt").write_text("My own text.")
    assert [p.text for p in choose_prompts(tmp_path, 5)] == ["My own text."]


@pytest.mark.parametrize(
    ("typed", "amounts"), [([], (24, 3)), (["--quick"], (2, 1)), (["--quick", "--new-roots", "5"], (2, 5))]
)
def test_an_amount_is_what_was_typed_or_that_of_such_a_run(monkeypatch, typed, amounts):
    monkeypatch.setattr(sys, "argv", ["benchmark", *typed])
    args = parse_amounts(arguments("x"), count=(24, 2, "prompts"), new_roots=(3, 1, "roots"))
    assert (args.count, args.new_roots) == amounts


def test_answer_times_are_judged_at_every_size_that_has_a_goal():
    slow = {"replayed fork, 256 nodes": 301.0, "replayed fork, 1024 nodes": 299.0, "live fork, 256 nodes": 900.0,
            "live fork, 64 nodes": 500.0, "hover, 1024 nodes": 50.1, "page switch": 900.0}  # fmt: skip
    said = list(verdicts(slow))
    assert [("MISSED" in line, line.split(": ")[1].split(", median")[0]) for line in said] == [
        (True, "replayed fork, 256 nodes"),
        (False, "replayed fork, 1024 nodes"),
        (False, "live fork, 64 nodes"),
        (True, "hover, 1024 nodes"),
    ]
    assert goal_ms("slider, 256 nodes") is goal_ms("page switch") is None
    assert full_tree(256).drafter.node_budget == 256
