"""Random runs: a few of them hold, they cover what they say, and what is wrong is noticed and can be repeated."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import decoding.session.cached_models as models_module
from benchmarks import random_runs
from benchmarks.random_player import PAIRS, Player, draw_case
from benchmarks.random_runs import grouped, in_parts, outcomes_of, report, run_numbers, summary
from benchmarks.tiny_models import NAMES, PairPlan
from decoding.common.errors import SettingsError
from decoding.methods.methods import METHODS
from decoding.models.pair import tree_forward
from decoding.verifiers import VERIFIERS


def of_pair(number: int, count: int) -> list[int]:
    """Numbers of runs that share a pair."""
    return list(range(number, number + count * PAIRS, PAIRS))


def assert_well(outcomes, count):
    line, good = summary(outcomes, count)
    assert good and "not tried" not in line, [o for o in outcomes if o.words]
    assert not any(o.verdict == "refused" for o in outcomes)


@pytest.mark.slow
def test_a_few_runs_hold():
    outcomes = run_numbers(of_pair(0, 6))
    assert_well(outcomes, 6)
    assert sum(outcome.outputs for outcome in outcomes) > 6, "nothing was forked or rewound"


@pytest.mark.slow
def test_runs_on_every_architecture_hold():
    pairs = range(len(NAMES))
    numbers = [pair + PAIRS * turn for turn in range(2) for pair in pairs]
    outcomes = list(outcomes_of(numbers, workers=1))
    assert_well(outcomes, len(numbers))
    assert {PairPlan.numbered(pair).engine for pair in pairs} >= {"auto", "transformers", "cuda_graph"}
    assert {outcome.architecture for outcome in outcomes} == set(NAMES)
    # Of methods that ask the draft model: random models write little that a lookup finds.
    asks = {name for name, method in METHODS.items() if method.drafter.uses_draft_model}
    drafting = [outcome for outcome in outcomes if outcome.accepted is not None and outcome.method in asks]
    accepted = sum(outcome.accepted for outcome in drafting) / sum(outcome.iterations for outcome in drafting)
    assert 1 < accepted < 3, "a draft that never or always agrees tests nothing"


def test_what_is_drawn_covers_what_there_is_and_none_is_refused():
    cases = [draw_case(number) for number in range(600)]
    assert {case.method.name for case in cases} == set(METHODS)
    assert {case.method.verifier.name for case in cases} == set(VERIFIERS)
    assert {case.method.cache_policy for case in cases} == {"compaction", "rebuild"}
    assert {case.kind for case in cases} == {"greedy", "narrow", "sampled"}
    lengths = {(len(case.prompt_ids), case.plan.context - len(case.prompt_ids)) for case in cases}
    assert min(prompt for prompt, _ in lengths) == 1 and min(room for _, room in lengths) == 1
    full = [case for case in cases if len(case.prompt_ids) + case.limits.max_new_tokens == case.plan.context]
    assert len(full) > len(cases) / 10
    assert str(draw_case(17)) == str(draw_case(17)) != str(draw_case(17 + PAIRS))


@pytest.mark.slow
def test_a_sampled_text_that_is_disturbed_on_the_way_differs(monkeypatch):
    cases = [case for case in map(draw_case, of_pair(0, 100)) if case.kind == "sampled" and case.sampling.top_p == 1]
    case = max(cases, key=lambda case: case.sampling.temperature)
    number = case.number
    monkeypatch.setattr(random_runs, "draw_case", lambda _number: replace(case, restless=1.0))
    (well,) = run_numbers([number])
    assert well.verdict == "repeated"

    def draws_a_number(_player, _action, session, *_others):
        session._draws.choose(torch.ones(2, dtype=torch.float64))

    monkeypatch.setattr(Player, "_act", draws_a_number)
    (spoilt,) = run_numbers([number])
    assert spoilt.verdict == "differs" and "a session left alone" in spoilt.words and spoilt.outputs == 1


def test_pairs_come_in_turn_and_runs_of_one_pair_together():
    assert {PairPlan.numbered(number).architecture for number in range(PAIRS)} == set(NAMES)
    parts = in_parts(range(30 * PAIRS))
    assert sorted(number for part in parts for number in part) == list(range(30 * PAIRS))
    assert all(len({number % PAIRS for number in part}) == 1 for part in parts)
    assert {part[0] for part in parts[:PAIRS]} == set(range(PAIRS))


@pytest.mark.slow
def test_wrong_positions_are_a_difference_and_the_report_says_how_to_repeat_it(monkeypatch, capsys):
    def shifted(model, cache, tokens, positions, mask, keep=0, features=None):
        return tree_forward(model, cache, tokens, cache.length + np.arange(len(tokens)) * 2, mask, keep, features)

    monkeypatch.setattr(models_module, "tree_forward", shifted)
    outcomes = run_numbers(of_pair(2, 6))
    wrong = [outcome for outcome in outcomes if outcome.verdict == "differs"]
    assert wrong and not summary(outcomes, 6)[1]
    report(outcomes)
    assert f"python -m benchmarks.random_runs --only {wrong[0].number}" in capsys.readouterr().out


def test_crashes_and_refusals_are_reported_apart_and_grouped(monkeypatch):
    def fails(number):
        raise (SettingsError(f"{number} is too large.") if number % (2 * PAIRS) else KeyError(number))

    monkeypatch.setattr(random_runs, "draw_case", fails)
    outcomes = run_numbers(of_pair(0, 4))
    assert [outcome.verdict for outcome in outcomes] == ["crash", "refused", "crash", "refused"]
    ((words, group),) = grouped(outcomes, "refused")
    assert words == "# is too large." and [outcome.number for outcome in group] == [PAIRS, 3 * PAIRS]
    line, good = summary(outcomes, 5)
    assert not good and "2 refused (50.0%), 1 not tried" in line
    assert not summary(group, 2)[1], "what is drawn is what should be accepted"


def test_a_time_limit_ends_with_what_there_is(monkeypatch, capsys):
    assert run_numbers(of_pair(0, 3), deadline=0.0) == []
    monkeypatch.setattr(sys, "argv", ["random_runs", "--runs", "3", "--workers", "1", "--minutes", "0"])
    assert random_runs.main() == 1 and "3 not tried" in capsys.readouterr().out
