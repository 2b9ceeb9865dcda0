"""What a fork's record keeps of how each iteration was made: forced nodes, bias, whose method, which draws."""

from dataclasses import replace

import numpy as np
import pytest

from decoding.analysis.luck import rerolled
from decoding.common.errors import SettingsError
from decoding.methods.methods import METHODS
from decoding.replay.forks import ForkChange, fork, fork_again, go_on
from decoding.replay.recorded_logits import LogitsMissing
from decoding.replay.stored_state import draws_before
from decoding.sampling.draws import GeneratorDraws, Uniforms
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions, interventions_at
from decoding.trace.records import node_paths
from decoding.trace.run_file import load_run, save_run
from tests.helpers.counted import lines_run
from tests.helpers.families import family
from viz.explain.iteration import why_verdict

PATHS = METHODS["iid_paths"].with_settings(paths=3, length=3)
SAMPLED = Sampling(0.9, seed=4)


@pytest.fixture(scope="module")
def session(pair):
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    made = DecodeSession(pair, PATHS, ids, SAMPLED, Limits(40, rows="full"))
    list(made)
    return made


def reopened(run, folder):
    save_run(run, folder / "fork.dscope")
    return load_run(folder / "fork.dscope")


def forced(session, index, kind="accept"):
    """A change that forces the first child of the root in an iteration."""
    return ForkChange(interventions=Interventions(**{kind: (node_paths(session.iterations[index])[1],)}))


@pytest.mark.parametrize("live", family((False, True), False))
def test_a_fork_of_a_biased_fork_stays_biased_and_so_does_its_file(session, tmp_path, live):
    one = fork(session.trace(), session, 2, forced(session, 2), live=live)
    assert "target's distribution" in one.trace.bias
    later = fork_again(go_on(one, 2), 4, ForkChange(PATHS.with_settings(length=2)))
    after = fork_again(one, 3, ForkChange(PATHS.with_settings(length=2)))
    for made in (one, later, after, go_on(later, 1)):
        assert made.trace.bias == one.trace.bias == reopened(made.trace, tmp_path).bias
    before = fork_again(go_on(one, 2), 1, ForkChange(PATHS.with_settings(length=2)))
    assert before.trace.bias == "" and not session.trace().bias
    again = fork(reopened(go_on(one, 2).trace, tmp_path), None, 3, ForkChange())
    assert again.kind == "replayed" and again.trace.bias == one.trace.bias


@pytest.mark.parametrize("live", [False, True])
def test_a_forced_iteration_stays_forced_when_it_is_forked_again(session, tmp_path, live):
    path = node_paths(session.iterations[2])[1]
    one = fork(session.trace(), session, 2, forced(session, 2), live=live)
    two = fork_again(one, 2, ForkChange(PATHS.with_settings(length=2)), live=live)
    opened = fork(reopened(one.trace, tmp_path), None, 2, ForkChange(PATHS.with_settings(length=2)))
    for made in (two, opened, go_on(two, 1)):
        assert interventions_at(made.trace.iterations, 2) == Interventions(accept=(path,)) and made.trace.bias
        assert made.trace.iterations[2].committed_ids[0] == path[0] and made.trace.settings["length"] == 2
    assert "length 3 → 2" in two.words and two.words.endswith("force-accepted") != live
    assert opened.words == "length 3 → 2"
    with pytest.raises(SettingsError, match="cannot be both force-accepted and force-rejected"):
        fork_again(one, 2, ForkChange(interventions=Interventions(reject=(path,))), live=live)


def test_a_rewound_session_forces_again_what_was_forced(session):
    live = fork(session.trace(), session, 2, forced(session, 2, "reject"), live=True)
    again = live.session.rewind(2).step()
    assert again.interventions == live.trace.iterations[2].interventions and again.bias == live.trace.bias
    assert again.committed_ids == live.trace.iterations[2].committed_ids


def test_old_files_have_no_forced_nodes(session, tmp_path):
    run = reopened(session.trace(), tmp_path)
    assert run.own_from == 0 and run.bias == "" and not any(each.interventions for each in run.iterations)


@pytest.mark.parametrize(
    "method",
    [METHODS["linear"].with_settings(sampled=True, verifier="naive"), PATHS.with_settings(verifier="specinfer")],
)
def test_what_a_parent_made_is_not_replayed_as_if_the_fork_had_made_it(session, tmp_path, method):
    made = fork(session.trace(), session, 3, ForkChange(method, replace(SAMPLED, seed=9)), live=True)
    run = reopened(go_on(made, 1).trace, tmp_path)
    assert run.own_from == 3
    with pytest.raises(SettingsError, match=r"Iteration 2 used another method.*choose iteration 4 or a later"):
        fork(run, None, 1, ForkChange())
    for index in (3, 4):
        reported = fork(run, None, index, ForkChange()).trace
        assert (
            reported.iterations[index].committed_ids == run.iterations[index].committed_ids and reported.own_from == 3
        )
    # Of a file that does not say whose iterations are whose, settings and draws tell.
    with pytest.raises(SettingsError, match="Iteration 2 used another method"):
        fork(replace(run, own_from=0), None, 1, ForkChange())


def test_forks_without_another_method_have_made_all_iterations_alike(session):
    made = fork(session.trace(), session, 3, forced(session, 3))
    assert made.trace.own_from == 0 == go_on(made, 2).trace.own_from
    narrow = fork(session.trace(), session, 3, ForkChange(PATHS.with_settings(length=2)))
    assert narrow.trace.own_from == 3 == go_on(narrow, 2).trace.own_from


def test_live_and_replayed_forks_agree_on_what_their_own_method_made(session):
    """A fork before the place where its parent parted is the grandparent's method throughout."""
    parent = go_on(fork(session.trace(), session, 4, ForkChange(PATHS.with_settings(length=2)), live=True), 1)
    edit = forced(session, 2)
    for index in (2, 4):
        replayed = fork_again(parent, index, edit if index == 2 else ForkChange(), live=False).trace.own_from
        assert replayed == fork_again(parent, index, edit if index == 2 else ForkChange(), live=True).trace.own_from
        assert replayed == (0 if index == 2 else 4)


def test_a_forced_verdict_is_said_of_the_nodes_it_decided(session):
    first = node_paths(session.iterations[2])[1]
    iteration = fork(session.trace(), session, 2, forced(session, 2)).trace.iterations[2]
    tested = {node.node_id for node in iteration.nodes if node.verdict in ("accepted", "rejected")}
    beside = {node.node_id for node in iteration.nodes if node.node_id and node.parent_id == 0}
    assert iteration.forced_verdicts == tested & beside and node_paths(iteration).index(first) in tested
    for node in iteration.forced_verdicts:
        assert iteration.nodes[node].reason in ("forced_pass", "sibling_forced_pass")
        assert "the verifier saw" in why_verdict(iteration, node)
    assert not session.iterations[2].forced_verdicts


def test_what_a_forced_verdict_decided_is_not_rerolled(session):
    run = fork(session.trace(), session, 2, forced(session, 2)).trace
    with pytest.raises(SettingsError, match="was forced"):
        rerolled(run, 2, 10)


def test_a_peek_makes_the_changes_that_are_pending(session):
    """The verdicts of a forced iteration that is looked at again are those of its changes."""
    made = fork(session.trace(), session, 2, forced(session, 2), live=True)
    path = node_paths(session.iterations[2])[1]
    _, target = made.session.rewind(2).peek()
    assert target.probs(0).argmax() == path[0] and float(target.probs(0)[path[0]]) == 1.0


def test_draws_are_found_in_one_pass(session, monkeypatch):
    run = session.trace()
    many = tuple(replace(run.iterations[0], index=place) for place in range(2_000))
    count = len(many[0].draws)
    read, taken = Uniforms.read, []
    monkeypatch.setattr(Uniforms, "read", lambda self, place, number: taken.append(number) or read(self, place, number))

    def search(length: int) -> None:
        wrong = replace(many[length - 1], draws=(replace(many[0].draws[0], uniform=2.0),))
        with pytest.raises(SettingsError, match="another method, settings or seed"):
            draws_before(replace(run, iterations=(*many[: length - 1], wrong)), length - 1)

    assert lines_run(lambda: search(2_000)) < 12 * lines_run(lambda: search(200))
    assert sum(taken) == count * (1_999 + 199) + 2, "each number is read once"
    ahead = GeneratorDraws(SAMPLED.seed).ahead(3 * count + 1)
    right = replace(many[3], draws=(replace(many[3].draws[0], uniform=ahead[-1]),))
    assert draws_before(replace(run, iterations=(*many[:3], right)), 3).ahead(1) == ahead[-1:]


@pytest.mark.slow
def test_a_method_that_is_not_measured_yet_runs_live(session, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("decoding.costs.measuring._known", {})
    change = ForkChange(METHODS["sequoia"].with_settings(node_budget=8))

    def no_pass(*_args, **_more):
        raise AssertionError("a model ran in a replay")

    with monkeypatch.context() as patch:
        patch.setattr("decoding.costs.measured_pair.tree_forward", no_pass)
        for given in (session, None):
            with pytest.raises(LogitsMissing, match="Sequoia needs measurements with its pair first: give acceptance"):
                fork(session.trace(), given, 2, change, live=False)
    made = fork(session.trace(), session, 2, change)
    assert made.kind == "live" and made.trace.iterations[2].timed


def test_the_same_tree_shares_its_rows_and_another_one_has_its_own(session):
    run = session.trace()
    recorded = run.iterations[3]
    same = fork(run, session, 3, forced(session, 3), live=False).trace.iterations[3]
    assert same.draft_logits is recorded.draft_logits and same.target_logits is recorded.target_logits
    leaf = next(node.node_id for node in recorded.nodes[1:] if not recorded.children(node.node_id))
    out = ForkChange(interventions=Interventions(force_out=(node_paths(recorded)[leaf],)))
    cut, live = (fork(run, session, 3, out, live=way).trace.iterations[3] for way in (False, True))
    assert cut.target_logits is not recorded.target_logits
    for side in ("draft_logits", "target_logits"):
        assert np.allclose(getattr(cut, side), getattr(live, side), atol=1e-3, equal_nan=True)
    assert np.isnan(cut.target_logits[leaf]).all() and np.isfinite(recorded.target_logits[leaf]).all()
