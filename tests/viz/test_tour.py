"""The tour's stops: where they lead, that their numbers are those of the trace, and what is left out."""

from dataclasses import replace

import pytest

from decoding.trace.records import HistoryTrace
from tests.helpers.traces import autoregressive, dynatree_recovered, pruned, run_of
from viz.learn.tour import ADAPTING, COMPARE, COMPARED, STEP_THROUGH, STORY, WHAT_IF, Story, tour_steps

ALL_PAGES = (STEP_THROUGH, WHAT_IF, COMPARE)


@pytest.fixture
def steps():
    return stops()


def stops(pages=ALL_PAGES, iteration=None) -> dict:
    iteration = iteration or dynatree_recovered(2)
    history = HistoryTrace("accepted_over_depth", (0.9, 1.0), 0.95, 0.7, 0.1, {"base_depth": 5}, {"base_depth": 6},
                           "bolder")  # fmt: skip
    adapting = run_of([replace(pruned(0), history=history)])
    plain = run_of([autoregressive(0), autoregressive(1)], method="autoregressive", label="Autoregressive")
    runs = {STORY: run_of([iteration]), ADAPTING: adapting, COMPARED: run_of([iteration])}
    reported = tour_steps(runs, Story(iteration, rejected=2, accepted=1), {"chain": adapting, "plain": plain}, pages)
    return {step.key: step for step in reported}


def test_the_stops_and_their_order(steps):
    assert list(steps) == [
        "draft", "tree", "mask", "verify", "accept", "why", "rollback", "adapt", "what_if", "compare",
    ]  # fmt: skip
    assert {step.page for step in steps.values()} == set(ALL_PAGES)
    phases = [step.phase for step in steps.values()]
    assert phases[2:] == ["mask", "verify", "select", "select", "commit", "history", "select", None]
    assert phases[0].startswith("draft")
    assert phases[0] == phases[1], "nothing was pruned: the tree is complete after the last forward"


def test_a_page_that_is_not_there_has_no_stop():
    assert "what_if" not in stops((STEP_THROUGH, COMPARE))
    assert set(stops((STEP_THROUGH,))) == set(stops()) - {"what_if", "compare"}


def test_stops_lead_into_the_story(steps):
    reported = [step for step in steps.values() if step.recording == STORY]
    assert {step.iteration for step in reported} == {2}
    assert (steps["accept"].node, steps["why"].node) == (1, 2)


def test_numbers_are_those_of_the_trace(steps):
    iteration = dynatree_recovered(2)
    cache = iteration.kv_target
    assert f"drafted {iteration.drafted} nodes" in steps["draft"].words
    assert f"into {len(iteration.flatten_order)} mask rows" in steps["mask"].words
    assert f"{cache.slots_written} slots" in steps["rollback"].words
    assert f"other {cache.slots_freed} freed" in steps["rollback"].words
    assert f"commits {len(iteration.committed_ids)} tokens" in steps["accept"].words
    assert "Base depth (D_0) 5 → 6" in steps["adapt"].words
    assert "0.95 of the verified tree's depth" in steps["adapt"].words


def test_a_tree_that_branches_alike_everywhere_is_not_called_wider():
    iteration = dynatree_recovered(2)
    alike = replace(iteration, nodes=tuple(replace(n, branching=2 if n.branching else None) for n in iteration.nodes))
    assert "and gets" not in stops(iteration=alike)["tree"].words


def test_words_are_short_enough_for_the_bar(steps):
    assert max(len(step.words) for step in steps.values()) < 300
