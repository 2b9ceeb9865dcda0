"""The puzzles' logic: what is hidden before the answer, how a guess is judged, which tokens two settings can save."""

import json
from dataclasses import replace

import pytest

from decoding.recorded import RECORDINGS, home_run, recorded_run
from tests.helpers.traces import bonus, dynatree_recovered, fallback, pruned, run_of, summary
from viz.learn.puzzles import _breadth, guessable, has_token, hidden_data, judge, missing_tokens, path_words


def test_what_the_target_said_is_hidden():
    iteration = dynatree_recovered()
    reported = json.dumps(hidden_data(iteration, "x", guess=3))
    for secret in ("accepted", "rejected", "recovered", "not_reached", "0.69"):
        assert secret not in reported
    data = hidden_data(iteration, "x", guess=3)
    assert len(data["scene"]["phases"]) == 1, "a key must not lead to the verdict"
    assert set(data["marks"]) == {"1", "3"}
    assert {node["state"] for node in data["scene"]["nodes"]} == {"root", "drafted"}


def test_pruned_nodes_are_shown_as_such():
    states = {node["node_id"]: node["state"] for node in hidden_data(pruned(), "x", None)["scene"]["nodes"]}
    assert states == {0: "root", 1: "drafted", 2: "pruned", 3: "drafted", 4: "pruned"}


@pytest.mark.parametrize(
    ("guess", "right", "begun", "said"),
    [
        (3, True, "2 tokens accepted", ""),
        (1, False, "The first 1 token of your path was accepted. ", "The path goes on"),
        (8, False, "The first 2 tokens of your path were accepted. ", "was rejected"),
        (0, False, "The path goes on", ""),
        (5, False, "‘.’ was rejected", ""),
    ],
)
def test_a_guess_is_judged_by_the_trace(guess, right, begun, said):
    judged, words = judge(dynatree_recovered(), guess)
    assert judged == right and words.startswith(begun) and said in words


def test_nothing_accepted_can_be_guessed():
    right, words = judge(fallback(), 0)
    assert right and "Nothing was accepted" in words
    assert path_words(fallback(), 0) == "nothing is accepted"


def test_iterations_without_a_choice_are_left_out():
    assert guessable(run_of([dynatree_recovered(0), bonus(1), fallback(2), summary(3)])) == (0,)
    assert guessable(home_run())


def test_pruned_siblings_are_no_choice():
    iteration = dynatree_recovered()
    only = {1, 3, 8, 10, 11}  # one child each is given to the target
    nodes = tuple(replace(node, pruned=bool(node.node_id) and node.node_id not in only) for node in iteration.nodes)
    assert guessable(run_of([replace(iteration, nodes=nodes)])) == ()


def test_children_are_counted_in_proper_english():
    settings = {"confidence_high": 0.9, "confidence_low": 0.3, "branch_min": 2, "branch_mid": 3, "branch_max": 1}
    assert _breadth(0.95, 3, settings)[2].endswith("only 2 children are drafted")
    assert _breadth(0.1, 2, settings)[2].endswith("only 1 child is drafted")


def test_a_right_guess_of_every_recorded_case_is_right():
    for name in RECORDINGS:
        run = recorded_run(name)
        for index in guessable(run):
            iteration = run.iterations[index]
            assert judge(iteration, iteration.accepted[-1])[0]
            assert not judge(iteration, 0)[0]


def test_missing_tokens_are_the_ones_the_target_wanted():
    run = home_run()
    found = missing_tokens(run)
    assert found
    for missing in found:
        iteration = run.iterations[missing.iteration]
        assert missing.token_id == iteration.committed_ids[-1]
        assert iteration.final_kind in ("recovered", "fallback")
        assert has_token(iteration, missing, iteration) is None
        assert len(missing.settings) == 2
        assert set(missing.answer) <= set(missing.settings)
        assert all(iteration.settings[name] != value for name, value in missing.answer.items())


def test_a_token_is_found_by_its_path():
    iteration = dynatree_recovered()
    run = home_run()
    missing = next(m for m in missing_tokens(run) if m.parent)
    base = run.iterations[missing.iteration]
    # The accepted parent stands for a token that is there: its own token below its own parent.
    parent = base.nodes[missing.parent]
    there = replace(missing, parent=parent.parent_id, token_id=parent.token_id)
    assert has_token(base, there, base) == parent.node_id
    assert has_token(iteration, there, base) is None, "another tree does not have it"
