"""A drafter that adapts and that nothing else knows of: its runs replay, fork and explain themselves rightly."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from decoding.analysis.smallest_change import change_search, smallest_changes
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, TreeBuilder
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.replay.forks import ForkChange, fork
from decoding.replay.stored_state import state_before
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions
from decoding.trace.records import node_paths
from decoding.trace.run_file import load_run, save_run
from viz.explain.expansion import why_not_expanded
from viz.explain.iteration import why_final, why_verdict


@dataclass(frozen=True)
class Reach:
    """How long the next chain is to be, and how many were drafted."""

    length: int
    drafted: int = 0


@dataclass(frozen=True)
class ReachingDrafter(Drafter):
    """A chain that grows by a token where all of it was accepted, and is halved where nothing was."""

    moving = ("length",)

    length: int = shared.length(3)
    threshold: float = shared.gain_threshold(0.5)

    def start(self, prompt_ids):
        return Reach(self.length)

    def draft(self, state, source, root_token, draws):
        builder, node = TreeBuilder(source, root_token), np.zeros(1, dtype=np.int64)
        for _ in range(min(state.length, source.depth_limit)):
            tokens, probs = builder.expand(node, top=1)
            node = builder.add_best(node, np.ones(1, dtype=np.int64), tokens, probs, room=1)
        builder.tree.set_stop_reason(node, "max_depth" if state.length <= source.depth_limit else "length_limit")
        return builder.finish(self.draft_sampling, state, self.in_force(state))

    def observe(self, state, outcome):
        grown = state.length + 1 if outcome.accepted == outcome.drafted else state.length
        return replace(state, length=max(state.length // 2, 1) if not outcome.accepted else grown), None


@dataclass(frozen=True)
class CountingDrafter(ReachingDrafter):
    """The same, whose every third tree is a single token: drafting changes its state, so it says how that goes on."""

    def draft(self, state, source, root_token, draws):
        third = replace(state, length=1) if state.drafted % 3 == 2 else state
        drafted = super().draft(third, source, root_token, draws)
        return replace(drafted, state=replace(state, drafted=state.drafted + 1))

    def resumed(self, state, iteration):
        return super().resumed(replace(state, drafted=state.drafted + 1), iteration)


def decoded(pair, drafter, monkeypatch, folder):
    """The session of a run of this drafter, and the run as its file has it."""
    method = Method("reaching", "Reaching", "A chain.", "none", drafter)
    monkeypatch.setitem(METHODS, "reaching", method)
    ids = pair.vocabulary.encode("Once upon a time there was a little girl named")
    session = DecodeSession(pair, method, ids, Sampling(), Limits(40, rows="full"))
    list(session)
    save_run(session.trace(), folder / "run.dscope")
    return session, load_run(folder / "run.dscope")


@pytest.mark.parametrize("drafter", [ReachingDrafter(), CountingDrafter()], ids=lambda each: type(each).__name__)
def test_its_state_goes_on_from_the_record_alone(pair, drafter, monkeypatch, tmp_path):
    session, run = decoded(pair, drafter, monkeypatch, tmp_path)
    states = [state_before(run, each.index, METHODS["reaching"]) for each in run.iterations]
    assert states == [session.standing(each.index).state for each in run.iterations]
    assert len({state.length for state in states}) > 2, "a state that never moves tests nothing"
    for recorded in run.iterations:
        again = fork(run, None, recorded.index, ForkChange(), live=False).trace.iterations[recorded.index]
        assert [n.token_id for n in again.nodes] == [n.token_id for n in recorded.nodes]
        assert again.committed_ids == recorded.committed_ids and again.settings == recorded.settings


def test_the_search_for_a_change_starts_from_what_was_in_force(pair, monkeypatch, tmp_path):
    _, run = decoded(pair, ReachingDrafter(), monkeypatch, tmp_path)
    moved = next(each for each in run.iterations if each.settings["length"] not in (ReachingDrafter().length, 1))
    path = node_paths(moved)[-1]
    shorter = change_search(run, moved.index).draft(ReachingDrafter(moved.settings["length"] - 1))[0]
    assert shorter.tree.size == len(moved.nodes) - 1
    longer = change_search(run, moved.index, pair).draft(ReachingDrafter(moved.settings["length"] + 1))[0]
    found = smallest_changes(change_search(run, moved.index, pair), (*path, int(longer.tree.tokens[-1])))
    change = next(change for change in found.changes if change.setting == "length")
    assert (change.before, change.after) == (moved.settings["length"], moved.settings["length"] + 1)


def test_it_learns_from_what_was_really_verified(pair, monkeypatch, tmp_path):
    session, run = decoded(pair, ReachingDrafter(), monkeypatch, tmp_path)
    whole = next(each for each in run.iterations if each.accepted)
    out = ForkChange(interventions=Interventions(force_out=(node_paths(whole)[1],)))
    live, replayed = (
        fork(run, source, whole.index, out, live=way).trace for source, way in ((session, True), (None, False))
    )
    after = [state_before(each, whole.index + 1, METHODS["reaching"]) for each in (live, replayed)]
    assert after[0] == after[1] and after[0].length == max(whole.settings["length"] // 2, 1)


def test_what_is_said_of_it_is_what_its_record_says(pair, monkeypatch, tmp_path):
    _, run = decoded(pair, ReachingDrafter(), monkeypatch, tmp_path)
    for iteration in run.iterations:
        assert iteration.rule.drafter == "ReachingDrafter"
        for node in iteration.nodes:
            said = why_not_expanded(iteration, node.node_id) + why_verdict(iteration, node.node_id)
            assert "threshold" not in said and "draw" not in said
        assert why_final(iteration)
