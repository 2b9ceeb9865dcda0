"""The recorded runs: they open without torch, are small, and meet what they were chosen for, computed again."""

from dataclasses import replace
from math import isclose, prod

import pytest
import torch

from decoding.analysis.slowdown import DRAFT, REBUILD, TOKENS, VERIFY, phase_means, slowdown
from decoding.models.pair import embedded_pair
from decoding.recorded import (
    CHAIN,
    COMPARED,
    COMPARED_REPEATS,
    PLAIN,
    RECORDINGS,
    Rescue,
    best_rescue,
    logits_run,
    loops,
    recorded_comparison,
    recorded_run,
    recorded_runs,
    recorded_trees,
    rescues,
    rivals,
    speed,
    threshold_moves,
    tokens_per_pass,
)
from decoding.replay.forks import ForkChange, fork
from decoding.replay.replay import replay
from decoding.replay.stored_state import method_of, sampling_of
from decoding.session.session import DecodeSession, Limits
from tests.helpers.process import printed
from tests.helpers.same_traces import differences
from tests.helpers.traces import bonus, run_of

LOST = {"tree_loses": TOKENS, "lost_draft": DRAFT, "lost_verify": VERIFY, "lost_rebuild": REBUILD}


def test_all_are_there_and_small():
    sizes = {name: file.stat().st_size for name, file in recorded_runs().items()}
    assert sizes.pop("full_logits") < 400_000
    assert max(sizes.values()) < 150_000, sizes
    assert sum(sizes.values()) < 1_500_000


def test_they_open_without_torch():
    code = (
        "import sys\n"
        "from decoding.recorded import recorded_run, recorded_runs\n"
        "from decoding.recorded import rescues\n"
        "print(sum(len(rescues(recorded_run(name))) for name in recorded_runs()))\n"
        "assert 'torch' not in sys.modules"
    )
    assert int(printed(code)) > 0


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name != "home"])
def test_no_run_is_flattered_by_loops(name):
    assert not loops(recorded_run(name))


@pytest.mark.parametrize("name", [name for name, others in RECORDINGS.items() if others])
def test_rivals_wrote_the_same_text_on_the_same_prompt(name):
    run = recorded_run(name)
    for other in rivals(name).values():
        assert other.prompt_ids == run.prompt_ids
        assert other.output_ids == run.output_ids


def test_runs_whose_speeds_are_compared_ran_on_the_same_hardware():
    """Learn says so once for all of them."""
    compared = [run for name in RECORDINGS if rivals(name) for run in (recorded_run(name), *rivals(name).values())]
    assert len({(run.hardware["processor"], run.hardware["threads"]) for run in compared}) == 1


def test_the_tree_helps():
    run, others = recorded_run("tree_helps"), rivals("tree_helps")
    assert tokens_per_pass(run) > 1.1 * tokens_per_pass(others[CHAIN])
    assert speed(run) > 1.05 * max(speed(others[CHAIN]), speed(others[PLAIN]))


@pytest.mark.parametrize(("name", "reason"), LOST.items())
def test_the_tree_loses_for_its_reason(name, reason):
    lost = slowdown(recorded_run(name), rivals(name)[CHAIN])
    assert lost.ratio > 1.05
    assert lost.reason == reason
    runner_up = max(factor for other, factor in lost.factors.items() if other != reason)
    assert lost.factors[reason] > 1.05 * runner_up, "another reason is as good an answer"


def test_a_sibling_rescues_an_iteration():
    run = recorded_run("sibling_rescue")
    found = best_rescue(run)
    iteration = run.iterations[found.iteration]
    assert found.below >= 1
    assert iteration.drafted <= 22
    first, second = iteration.nodes[found.rejected], iteration.nodes[found.accepted]
    assert first.parent_id == second.parent_id
    assert first.draft_probability > second.draft_probability
    assert (first.verdict, second.verdict) == ("rejected", "accepted")


def test_history_moves_the_thresholds():
    moves = threshold_moves(recorded_run("history"))
    assert sum(moves.values()) >= 5


def test_a_sampled_sibling_is_accepted_from_the_residual():
    run = recorded_run("sampled")
    found = best_rescue(run, residual=True)
    assert run.sampling.temperature > 0
    iteration = run.iterations[found.iteration]
    failed = [step for step in iteration.steps if step.child_id == found.rejected and not step.accepted]
    assert any(step.residual_ids and step.drawn >= step.acceptance_probability > 0 for step in failed)


def test_a_rescue_needs_a_rejected_first_choice():
    first, second = 2, 1
    iteration = bonus(0)
    assert rescues(run_of([iteration])) == (), "the accepted node is the draft's first choice"
    nodes = list(iteration.nodes)
    nodes[first] = replace(nodes[first], draft_probability=0.9)
    rescued = replace(iteration, nodes=tuple(nodes))
    assert rescues(run_of([rescued])) == (Rescue(0, first, second, below=1, residual=False),)
    # The residual that another child's failed test left is not the first choice's.
    failed = replace(iteration.steps[0], child_id=second, accepted=False, residual_ids=(7,), acceptance_probability=0.5)
    beside = replace(rescued, steps=(failed, *iteration.steps))
    assert not rescues(run_of([beside]))[0].residual
    own = replace(rescued, steps=(replace(failed, child_id=first), *iteration.steps))
    assert rescues(run_of([own]))[0].residual
    nodes[first] = replace(nodes[first], verdict="not_reached")
    assert rescues(run_of([replace(iteration, nodes=tuple(nodes))])) == ()


@pytest.mark.parametrize("name", LOST)
def test_the_factors_multiply_to_the_ratio(name):
    run, chain = recorded_run(name), rivals(name)[CHAIN]
    lost = slowdown(run, chain)
    assert isclose(prod(lost.factors.values()), lost.ratio, rel_tol=1e-9)
    assert isclose(lost.ratio, phase_means(run).token_s / phase_means(chain).token_s)
    back = slowdown(chain, run)
    for reason, factor in lost.factors.items():
        assert isclose(back.factors[reason], 1 / factor, rel_tol=1e-9)


def test_a_run_against_itself_has_no_reason():
    run = recorded_run("tree_loses")
    assert set(slowdown(run, run).factors.values()) == {1.0}


def test_stored_logits_draft_and_verify_every_iteration_again_as_recorded():
    """Trees, tests, verdicts, draws and distributions come out as in the file, which was made with AVX-512: bit for bit
    there, elsewhere to rounding.
    """
    run, near = logits_run(), 0.0 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 1e-5
    for iteration in run.iterations:
        again = fork(run, None, iteration.index, ForkChange(), live=False).trace.iterations[-1]
        assert differences([again], [iteration], near=near) == []


def test_every_verifier_but_greedy_answers_on_every_recorded_tree():
    run = logits_run()
    for iteration in run.iterations:
        reported = replay(iteration, sampling_of(run), rerolls=0)
        assert [each.verifier.name for each in reported if each.refusal] == ["greedy"]


def test_the_models_without_rounding_go_on_from_the_same_trees():
    run = logits_run()
    session = DecodeSession(
        embedded_pair(), method_of(run), list(run.prompt_ids), sampling_of(run), Limits(run.max_new_tokens)
    )
    for iteration in run.iterations:
        made = session.step()
        ours, theirs = ([(n.parent_id, n.token_id, n.verdict) for n in each.nodes] for each in (made, iteration))
        assert ours == theirs
        assert made.committed_ids == iteration.committed_ids
    assert not session.finished, "there is something left to decode"


def test_the_comparison_has_every_call_and_all_wrote_the_same():
    comparison = recorded_comparison()
    calls = [(result.contestant, result.repeat) for result in comparison.results]
    assert sorted(calls) == [(place, repeat) for place in range(len(COMPARED)) for repeat in range(COMPARED_REPEATS)]
    assert len({result.output_ids for result in comparison.results}) == 1
    assert all(result.metrics.throughput > 0 for result in comparison.results)
    assert [result.contestant for result in comparison.results if result.run is None] == [1] * COMPARED_REPEATS


def test_the_comparison_has_a_call_with_its_trees_that_went_the_same_steps():
    runs = {result.contestant: result.run for result in recorded_comparison().results}
    trees = recorded_trees()
    assert set(trees) == {number for number, run in runs.items() if run and any(i.drafted for i in run.iterations)}
    for number, run in trees.items():
        assert [each.committed_ids for each in run.iterations] == [e.committed_ids for e in runs[number].iterations]
        assert all(each.nodes for each in run.iterations)
