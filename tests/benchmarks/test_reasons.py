"""Reasons in the record are true: a short form of `benchmarks.reasons`, that it sees false ones, and older files."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import reasons
from benchmarks.reasons import FalseReason, check, check_run
from decoding.common.errors import TraceFileError
from decoding.drafters import DRAFTERS, DynaTreeDrafter, HardwareAwareDrafter
from decoding.drafters.base import Drafter
from decoding.drafters.candidates import CandidateTree
from decoding.recorded import FOLDER
from decoding.session.recorder import write_iteration
from decoding.trace import run_file
from decoding.trace.interventions import Verdicts
from decoding.trace.records import FORMAT_VERSION, InterventionTrace, VerificationStep, node_paths
from decoding.trace.run_file import load_run, save_run
from tests.helpers.traces import Spec, autoregressive, bonus, iteration_of, run_mixed, run_of
from tests.trace.test_run_file import document_of, loaded, rezipped, saved
from viz.explain.expansion import why_not_expanded
from viz.explain.iteration import why_final, why_verdict
from viz.scope.cards import cards
from viz.scope.scene import build_scene


def test_every_reason_of_random_runs_of_all_drafters_is_true():
    found = check(runs=3, seed=10_000)
    assert not found.wrong, found.wrong[:5]
    assert set(found.nodes) == set(DRAFTERS) and found.nodes.total() > 1000 and len(found.codes) > 25


def wrong_of(name: str, runs: int = 8) -> list[str]:
    found = FalseReason()
    for seed in range(runs):
        check_run(name, seed, found)
    return found.wrong


def last_place(tree, candidates):
    return float(np.inf)


def no_history(self, state, outcome):
    return replace(state, log_odds=state.log_odds + 0.5), None


@pytest.mark.parametrize(
    ("name", "place", "broken"),
    [
        ("dynatree", (DynaTreeDrafter, "breadths"), Drafter.breadths),
        pytest.param("fixed_tree", (DRAFTERS["fixed_tree"], "breadths"), Drafter.breadths, marks=pytest.mark.slow),
        pytest.param("salf", (CandidateTree, "bar"), last_place, marks=pytest.mark.slow),
        ("hardware_aware", (HardwareAwareDrafter, "observe"), no_history),
        pytest.param(
            "sequoia", "decoding.drafters.sequoia.note_stop_reason", lambda tree, *_: None, marks=pytest.mark.slow
        ),
        ("linear", "decoding.session.recorder.Verdicts.of", lambda *_: ("rejected", "not_favourite")),
    ],
)
def test_a_rule_or_a_reason_that_is_broken_is_seen(monkeypatch, name, place, broken):
    assert not wrong_of(name)
    monkeypatch.setattr(*((place,) if isinstance(place, str) else place), broken)
    assert wrong_of(name)


@pytest.mark.parametrize(
    ("verifier", "place"),
    [
        pytest.param("naive", "decoding.verifiers.naive.NaiveSolver.acceptance", marks=pytest.mark.slow),
        pytest.param("specinfer", "decoding.verifiers.specinfer.SpecInferSolver.acceptance", marks=pytest.mark.slow),
        ("specinfer_wor", "decoding.verifiers.specinfer_wor.WithoutReplacementSolver.acceptance"),
    ],
)
def test_chances_that_do_not_follow_from_the_distributions_are_seen(monkeypatch, verifier, place):
    monkeypatch.setattr(reasons, "fitting", lambda *_: [verifier])
    assert not wrong_of("iid_paths")
    monkeypatch.setattr(place, lambda *_: 0.5)
    assert all("passes by 0.5, true is" in each for each in wrong_of("iid_paths")) and wrong_of("iid_paths")


def test_a_record_that_contradicts_itself_is_false_and_ends_nothing(monkeypatch):
    def elsewhere(*args, **named):
        trace = write_iteration(*args, **named)
        return replace(trace, steps=tuple(replace(step, node_id=step.node_id + 1) for step in trace.steps))

    monkeypatch.setattr(reasons, "write_iteration", elsewhere)
    found = check(runs=1)
    assert set(found.runs) == set(DRAFTERS) and any("a decision at node" in each for each in found.wrong)


def test_the_root_of_a_dynatree_says_that_the_first_level_does_not_branch():
    run = load_run(FOLDER / "tree_loses.dscope")  # a file of format 1
    assert "branch_first_level" in run.settings and not run.settings["branch_first_level"]
    for iteration in run.iterations:
        card = cards(iteration, build_scene(iteration, scene_id="s"))["0"]
        stop_reason = next(value for name, value in card["facts"] if name == "expansion")
        assert stop_reason.endswith(
            "the first level takes only the draft's first choice (“First level may branch” is off) → 1 child"
        )


LEAF = [Spec(0, " a", 0.6, 0.6, "accepted"), Spec(1, " b", 0.3, None, "not_verified", "below_threshold", True)]


def test_a_final_token_that_was_drafted_and_pruned_is_reported_as_a_loss():
    lost = iteration_of(LEAF, final=(1, " b", 0.7), final_kind="bonus")
    said = why_final(lost)
    assert "(node 2) and was removed before verification: a loss" in said and "would have been" in said
    assert "free" not in said
    other = why_final(iteration_of(LEAF, final=(1, " c", 0.7), final_kind="bonus"))
    assert other.endswith("this token is free.") and "pruned" in other and "loss" not in other
    fallback = [replace(LEAF[0], verdict="rejected"), Spec(0, " b", 0.1, None, "not_verified", "expanded", True)]
    said = why_final(iteration_of(fallback, final=(0, " b", 0.7), final_kind="fallback"))
    assert said.startswith("Nothing drafted was accepted, but this same token had been drafted there (node 2)")


def older(document: dict) -> None:
    """A document as format 1 had it: sentences for reasons, and no drafter."""
    document["version"] = document["run"]["format_version"] = 1
    document["run"]["iterations"].pop("rule")
    for table in document["run"]["iterations"]["nodes"]:
        for name in table.keys() & {"breadth", "reason"}:
            table[name] = ["The target prefers 'x'."] * len(table["node_id"])
        table.pop("breadth", None)


def test_a_file_with_sentences_opens_with_codes_and_keeps_them():
    run = loaded(rezipped(saved(run_mixed()), older))
    for iteration in run.iterations:
        assert not iteration.drafted or iteration.rule.drafter == "dynatree"
        assert all(node.reason for node in iteration.nodes if node.verdict in ("root", "accepted", "rejected"))
    again = loaded(saved(run))
    assert [it.nodes for it in again.iterations] == [it.nodes for it in run.iterations]
    assert document_of(saved(run))["version"] == FORMAT_VERSION


def test_an_older_file_keeps_what_was_forced():
    first = bonus()
    path = node_paths(first)[first.accepted[0]]
    forced = replace(
        first, interventions=(InterventionTrace("accept", path), InterventionTrace("force_in", node_paths(first)[2]))
    )
    read = loaded(rezipped(saved(run_of([forced])), older)).iterations[0]
    assert read.nodes[first.accepted[0]].reason == "forced_pass"
    assert read.nodes[read.nodes[2].parent_id].breadth == "forced"
    contrary = replace(first, interventions=(InterventionTrace("accept", path), InterventionTrace("reject", path)))
    with pytest.raises(TraceFileError, match="cannot be both force-accepted and force-rejected"):
        loaded(rezipped(saved(run_of([contrary])), older))


@pytest.mark.slow
def test_an_older_file_may_hold_packed_empty_rows(monkeypatch):
    """Format 1 packed the draft's rows of a method without a draft, which are nan throughout."""
    monkeypatch.setattr(run_file, "_packs_too_well", lambda pieces: False)
    random, width = np.random.default_rng(0), 2**20
    rows = random.normal(size=(1, width)).astype(np.float32)
    data = saved(run_of([replace(autoregressive(), target_logits=rows, draft_logits=np.full_like(rows, np.nan))]))
    with pytest.raises(TraceFileError, match="of repetitions"):
        loaded(data)
    assert loaded(rezipped(data, older)).iterations[0].draft_logits.shape == (1, width)
    monkeypatch.setattr(run_file, "OLD_FREE_BYTES", run_file.FREE_BYTES)
    with pytest.raises(TraceFileError, match="of repetitions"):
        loaded(rezipped(data, older))


@pytest.mark.parametrize(("first_path", "reason"), [(False, "path_settled"), (True, "first_path_only")])
def test_nodes_off_the_first_path_are_not_said_to_have_waited_for_it(first_path, reason):
    """Nodes 1 > 2 were drawn first, 3 beside 1; the test of 2 passed and settled its path."""
    passed = VerificationStep(1, 2, 7, 0.9, 0.1, True, weight=0.8)
    verdicts = Verdicts([passed], (0, 1, 2, 3), (1, 2), (1, 2), None, first_path)
    assert verdicts.of(3, 0, 9) == ("not_reached", reason)


@pytest.mark.parametrize(
    "spoil", [lambda t: t.update(reason=3), lambda t: t.update(reason=[None]), lambda t: t.clear()]
)
def test_an_older_file_with_a_damaged_table_is_refused_or_opens(spoil):
    def change(document):
        older(document)
        spoil(document["run"]["iterations"]["nodes"][0])

    with suppress(TraceFileError):
        loaded(rezipped(saved(run_mixed()), change))


@pytest.mark.parametrize("name", ["reason", "breadth", "stop_reason"])
def test_a_code_that_no_one_knows_is_refused(name):
    def change(document):
        document["run"]["iterations"]["nodes"][0][name][1] = "A sentence."

    with pytest.raises(TraceFileError, match=rf"{name}\[1\]: .A sentence.. is invalid"):
        loaded(rezipped(saved(run_mixed()), change))


def test_every_node_of_the_recorded_files_is_reported_without_gaps(tmp_path):
    """They are of format 1; what is said of them is what is said of them saved anew."""
    for name in ("home", "sampled", "tree_helps_chain"):
        run = load_run(FOLDER / f"{name}.dscope")
        save_run(run, tmp_path / "again.dscope")
        again = load_run(tmp_path / "again.dscope")
        for first, second in zip(run.iterations, again.iterations, strict=True):
            assert first.rule == second.rule and first.rule.drafter
            for node in first.nodes:
                reported = [
                    (why_not_expanded(each, node.node_id), why_verdict(each, node.node_id)) for each in (first, second)
                ]
                assert reported[0] == reported[1] and all(reported[0]) and "None" not in json.dumps(reported)


def test_hand_written_runs_are_saved_with_their_codes():
    run = run_of([iteration_of(LEAF, final=(1, " b", 0.7), final_kind="bonus")])
    assert loaded(saved(run)).iterations[0].nodes == run.iterations[0].nodes
