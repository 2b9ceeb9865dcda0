"""Definitions of the figures, on hand-written iterations, and on one real comparison."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.tiny_checkpoints import write_pair
from decoding.common.errors import PromptError, SettingsError
from decoding.compare.comparison import compare, measured_call, trees_on_prefix
from decoding.compare.contestants import Contestant
from decoding.compare.identity import MarginJudge, explain_difference, first_difference
from decoding.methods.methods import METHODS
from decoding.models.pair import load_pair
from decoding.models.presets import PairSettings
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import (
    NGRAM,
    LoopDetector,
    Timeline,
    measure_run,
    measure_timeline,
    node_agreement,
    spread,
    tokens_before_loop,
)
from tests.helpers import traces
from tests.helpers.traces import run_autoregressive, run_mixed, run_of, run_replayed


def test_timeline_metrics_by_hand():
    metrics = measure_timeline(Timeline((0.5, 0.7, 1.0), (1, 3, 5)), None)
    assert metrics.new_tokens == 5 and metrics.iterations == 3
    assert metrics.throughput == 5.0 and metrics.ttft_s == 0.5
    assert metrics.tpot_s == pytest.approx(0.5 / 4)
    assert metrics.tokens_per_iteration == pytest.approx(5 / 3)
    assert metrics.accepted is None and metrics.phase_s is None and metrics.acceptance_drafted is None
    assert measure_timeline(Timeline((), ()), None) is None


def test_timeline_cut_keeps_whole_iterations():
    assert Timeline((1.0, 2.0, 3.0), (2, 5, 6)).until(5) == Timeline((1.0, 2.0), (2, 5))
    assert Timeline((1.0,), (4,)).until(3).tokens == ()


def test_totals_of_a_file_that_contradict_its_iterations_divide_nothing_by_zero():
    run = run_mixed()
    whole = replace(run, totals=replace(run.totals, prefill_s=run.iterations[-1].ended_s))
    assert measure_run(whole).decode_throughput is None


def test_a_prefill_that_commits_takes_its_tokens_out_of_the_speed_without_prefill():
    plain = run_autoregressive(8)
    speed, first, last = measure_run(plain).decode_throughput, plain.iterations[0], plain.iterations[-1]
    assert speed == pytest.approx(7 / (last.ended_s - first.ended_s)) == pytest.approx(1 / measure_run(plain).tpot_s)
    assert measure_run(run_autoregressive(1)).decode_throughput is None
    run = run_of([traces.bonus(), traces.bonus()])
    tokens, seconds = len(run.output_ids), run.iterations[-1].ended_s
    assert measure_run(run).decode_throughput == pytest.approx(tokens / (seconds - run.totals.prefill_s))
    lookup = replace(run, iterations=tuple(replace(each, kv_draft=None) for each in run.iterations))
    assert measure_run(lookup).decode_throughput == pytest.approx(tokens / 2 / (seconds - run.iterations[0].ended_s))


def test_nodes_agree_where_their_token_is_the_targets_after_their_parent():
    trace = traces.dynatree_recovered()
    by_hand = [node.node_id for node in trace.nodes[1:] if trace.nodes[node.parent_id].target_argmax == node.token_id]
    agreeing, known = node_agreement([trace, trace])
    assert agreeing == 2 * len(by_hand) and 0 < len(by_hand) < known // 2 == len(trace.nodes) - 1
    assert node_agreement([traces.summary()]) is None


@pytest.mark.parametrize("method", ["dynatree", "linear"])
def test_nodes_agree_alike_whether_the_trees_are_recorded_or_not(embedded, method):
    ids = embedded.vocabulary.encode("Once upon a time there was a little boy who")
    session = DecodeSession(embedded, METHODS[method], ids, limits=Limits(max_new_tokens=30))
    for iteration in session:
        assert session.last.agreement() == (node_agreement([iteration]) or (0, 0))
    counted = measured_call(embedded, Contestant("x", METHODS[method]), ids, Limits(30, record="summary")).metrics
    assert (counted.agreeing, counted.compared) == node_agreement(session.iterations)


def test_run_metrics_count_drafted_tokens_only(embedded):
    ids = embedded.vocabulary.encode("Once upon a time there was a little boy who")
    session = DecodeSession(embedded, METHODS["dynatree"], ids, limits=Limits(max_new_tokens=30))
    iterations = list(session)
    metrics = measure_run(session.trace())
    assert metrics.accepted == sum(len(i.accepted) for i in iterations)
    assert metrics.new_tokens == metrics.accepted + sum(i.final_kind != "none" for i in iterations) == 30
    assert metrics.acceptance_drafted == metrics.accepted / sum(len(i.nodes) - 1 for i in iterations) <= 1
    assert metrics.acceptance_verified == metrics.accepted / sum(len(i.flatten_order) - 1 for i in iterations)
    assert metrics.tokens_per_iteration == 30 / len(iterations)
    agreeing, known = node_agreement(iterations)
    assert metrics.accepted <= agreeing < known == sum(i.drafted for i in iterations)
    assert metrics.ttft_s == pytest.approx(iterations[0].ended_s)
    for drafted in (i for i in iterations if len(i.nodes) > 1):
        assert sum(drafted.phase_s.values()) == pytest.approx(drafted.times.total_s, abs=1e-9)
    whole_s = sum(i.times.total_s for i in iterations)
    loose_s = sum(i.times.total_s for i in iterations if len(i.nodes) == 1)  # without a draft, a little belongs to none
    assert whole_s - loose_s - 1e-5 < sum(metrics.phase_s.values()) <= whole_s + 1e-9


def test_autoregressive_run_has_no_acceptance(embedded):
    session = DecodeSession(
        embedded, METHODS["autoregressive"], embedded.vocabulary.encode("A day"), limits=Limits(max_new_tokens=5)
    )
    list(session)
    metrics = measure_run(session.trace())
    assert metrics.accepted is None and metrics.acceptance_verified is None and metrics.tokens_per_iteration == 1
    assert not any(metrics.phase_s[phase] for phase in ("draft", "prune", "mask", "adapt"))
    whole = metrics.prefill_s + sum(metrics.phase_s.values())  # the pass that reads the prompt is counted once
    assert 0 < metrics.phase_s["verify"] < whole <= sum(i.times.total_s for i in session.iterations)


@pytest.mark.parametrize("count", [1, 3])
def test_a_run_with_a_replayed_iteration_has_no_rates(count):
    run = run_replayed(count)
    metrics = measure_run(replace(run, totals=replace(run.totals, prefill_s=run.totals.wall_s)))
    assert metrics.throughput is metrics.decode_throughput is metrics.tpot_s is None
    assert metrics.tokens_per_iteration == 3
    assert (measure_run(run, 3).throughput is None) == (count == 1), "what comes before it was measured"


def test_spread_is_median_and_quartiles():
    assert spread([5.0, 1.0, 2.0, 3.0, 4.0]).__dict__ == {"median": 3.0, "low": 2.0, "high": 4.0, "count": 5}


def test_loops_begin_at_the_first_repeated_ngram():
    once, again = list(range(100, 130)), list(range(100, 130))
    assert tokens_before_loop(once) == 30
    assert tokens_before_loop(once + again) == 30 + NGRAM - 1
    assert tokens_before_loop([7] * 40) == NGRAM
    detector = LoopDetector()
    detector.push(tuple(once))
    copy = detector.copy()
    detector.push(tuple(again))
    assert detector.in_loop and not copy.in_loop
    detector.push((999,))
    assert not detector.in_loop


@pytest.mark.slow
def test_looping_iterations_are_flagged(tmp_path):
    target, draft = write_pair(tmp_path, "gpt_neox", max_position_embeddings=256)
    weights = load_file(target / "model.safetensors")
    head = next(name for name in weights if name.endswith(("lm_head.weight", "embed_out.weight")))
    save_file(weights | {head: torch.zeros_like(weights[head])}, target / "model.safetensors", {"format": "pt"})
    pair = load_pair(PairSettings(str(target), str(draft), device="cpu", context_length=256))
    ids = pair.vocabulary.encode("The city of")
    session = DecodeSession(
        pair, METHODS["dynatree"], ids, limits=Limits(max_new_tokens=200, ignore_end_of_text=True, record="summary")
    )
    iterations = list(session)
    start = tokens_before_loop(session.tokens[len(ids) :])
    total = 0
    assert start < 200
    for iteration in iterations:
        if total <= start:
            assert not iteration.in_loop or total == start
        total += len(iteration.committed_ids)
    assert any(i.in_loop for i in iterations)


def test_first_difference():
    assert first_difference((1, 2, 3), (1, 2, 3)) is None
    assert first_difference((1, 9, 3), (1, 2, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == 2


def test_a_difference_is_explained_by_its_margin(embedded):
    ids = embedded.vocabulary.encode("Once upon a time there was a little boy who")
    session = DecodeSession(embedded, METHODS["autoregressive"], ids, limits=Limits(max_new_tokens=6))
    list(session)
    right = session.trace().output_ids
    wrong = (*right[:3], right[3] + 1, *right[4:])
    judge = MarginJudge(embedded.target)
    difference = explain_difference(embedded, ids, wrong, right, judge)
    assert difference.position == 3 and not difference.near_tie and difference.exact
    assert "Token 4" in difference.explanation and "not a tie" in difference.explanation
    assert judge.margin([*ids, *right[:3]]) == pytest.approx(difference.margin)
    assert explain_difference(embedded, ids, right, right, judge) is None


def test_comparison_interleaves_and_checks_identity(embedded):
    contestants = [
        Contestant("HF generate", baseline="hf_generate"),
        Contestant("HF assisted", baseline="hf_assisted"),
        Contestant("AR", METHODS["autoregressive"]),
        Contestant("DynaTree", METHODS["dynatree"]),
    ]
    ids = embedded.vocabulary.encode("Once upon a time there was a little boy who")
    seen = []
    comparison = compare(
        embedded, contestants, [("one", ids)], max_new_tokens=12, repeats=2, warmup=1,
        progress=lambda done, total, text: seen.append((done, total, text)),
    )  # fmt: skip
    assert [(r.repeat, r.contestant) for r in comparison.results] == [(r, c) for r in range(2) for c in range(4)]
    assert comparison.reference == 2 and comparison.differences == ()
    assert len({r.output_ids for r in comparison.results}) == 1
    assert seen[0][1] == 12 and "warm-up" in seen[0][2]
    assert comparison.of(3)[0].run.label == "DynaTree"
    assert comparison.of(0)[0].metrics.phase_s is None


def test_cancelling_keeps_what_was_measured(embedded):
    ids = embedded.vocabulary.encode("Once upon a time")
    calls = []

    def cancelled():
        calls.append(1)
        return len(calls) > 30

    comparison = compare(
        embedded,
        [Contestant("AR", METHODS["autoregressive"])],
        [("one", ids)],
        max_new_tokens=10,
        repeats=50,
        warmup=0,
        cancelled=cancelled,
    )
    assert 1 <= len(comparison.results) < 50


def test_cancelling_reaches_into_generate(embedded):
    ids = embedded.vocabulary.encode("Once upon a time")
    comparison = compare(
        embedded, [Contestant("HF", baseline="hf_generate")], [("one", ids)], max_new_tokens=10, cancelled=lambda: True
    )
    assert comparison.results == ()


def test_bad_contestants_and_prompts(embedded):
    with pytest.raises(SettingsError, match="either a method or a baseline"):
        Contestant("nothing")
    with pytest.raises(SettingsError, match="unknown baseline"):
        Contestant("x", baseline="vllm")
    with pytest.raises(PromptError, match="empty"):
        compare(embedded, [Contestant("AR", METHODS["autoregressive"])], [("none", [])])


def test_trees_on_one_prefix(embedded):
    ids = embedded.vocabulary.encode("Once upon a time there was a little boy who")
    traces = trees_on_prefix(embedded, [METHODS["linear"], METHODS["fixed_tree"], METHODS["dynatree"]], ids)
    assert {trace.prefix_length for trace in traces} == {len(ids)}
    assert len({trace.committed_ids[0] for trace in traces}) == 1


@pytest.mark.parametrize("error", [RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError()])
def test_one_contestant_out_of_memory_costs_the_others_nothing(embedded, monkeypatch, error):
    import decoding.compare.comparison as module

    real = module._call

    def call(pair, contestant, *rest):
        if contestant.label == "large":
            raise error
        return real(pair, contestant, *rest)

    monkeypatch.setattr(module, "_call", call)
    contestants = [Contestant("AR", METHODS["autoregressive"]), Contestant("large", METHODS["dynatree"])]
    ids = embedded.vocabulary.encode("Once upon a time")
    comparison = compare(embedded, contestants, [("one", ids)], max_new_tokens=4, repeats=1, warmup=0)
    assert comparison.of(0)[0].metrics.new_tokens == 4
    assert comparison.of(1)[0].metrics is None and "node_budget" in comparison.of(1)[0].failure


def test_only_what_was_asked_for_ends_a_comparison_early(embedded, monkeypatch):
    import decoding.compare.comparison as module

    def gone(*_args, **_options):
        raise module.CancelledError

    monkeypatch.setattr(module, "_call", gone)
    args = (embedded, [Contestant("AR", METHODS["autoregressive"])], [("one", [5, 6])], 4)
    assert compare(*args, cancelled=lambda: True).results == ()
    for cancelled in (None, lambda: False):
        with pytest.raises(module.CancelledError):
            compare(*args, cancelled=cancelled)


def test_other_errors_are_not_taken_for_a_full_device(embedded, monkeypatch):
    import decoding.compare.comparison as module

    def call(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(module, "_call", call)
    with pytest.raises(RuntimeError, match="shapes"):
        compare(embedded, [Contestant("AR", METHODS["autoregressive"])], [("one", [5, 6])], max_new_tokens=4)
