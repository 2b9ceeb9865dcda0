"""What is known of an iteration: as much work per node in a large tree as in a small one."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from decoding.trace import records
from decoding.trace.records import InterventionTrace, IterationTrace, VerificationStep, node_paths
from tests.helpers import traces
from tests.helpers.counted import lines_run
from viz.explain.draft_rule import Places
from viz.explain.expansion import why_not_expanded, why_pruned
from viz.explain.iteration import why_verdict
from viz.explain.known import Known
from viz.scope.data import frame_data
from viz.scope.outline import outline_text, tree_outline

SMALL, LARGE = 200, 800


def wide(count: int) -> IterationTrace:
    """A tree of `count` nodes whose tokens competed by chance: some left out, the others tested, matched, forced."""
    tree = traces.big(count)
    changed = []
    for node in tree.nodes:
        if node.node_id % 4 == 3:
            node = replace(node, verdict="not_verified", reason="outranked", pruned=True, flat_index=None)
        elif node.node_id % 4 == 2 and node.stop_reason != "expanded":
            node = replace(node, stop_reason="beam")
        changed.append(node)
    order = tuple(node.node_id for node in changed if not node.pruned)
    steps = []
    for node in order[1:]:
        above, token = changed[node].parent_id, changed[node].token_id
        beside = VerificationStep(above, node, token, 0.3, 0.2, False, kind="match", rival_id=above)
        steps += [beside, VerificationStep(above, node, token, 0.3, 0.6, False)]
    paths = node_paths(tree)
    forced = (
        InterventionTrace("force_out", paths[3]),
        InterventionTrace("reject", paths[-1]),
        InterventionTrace("accept", paths[-2]),
    )
    rule = replace(tree.rule, value="chance", factors=(2.0, 1.5))
    return replace(
        tree, nodes=tuple(changed), flatten_order=order, steps=tuple(steps), interventions=forced, rule=rule,
        verified=len(order) - 1,
    )  # fmt: skip


def every_sentence(iteration: IterationTrace) -> None:
    known = Known(iteration)
    for node in range(len(iteration.nodes)):
        why_verdict(iteration, node, known)
        why_not_expanded(iteration, node, known)


def cut(iteration: IterationTrace) -> IterationTrace:
    """The iteration, ended by the end of the text before its first accepted node."""
    return replace(
        iteration, accepted=iteration.accepted[:1], committed_ids=iteration.committed_ids[:1],
        committed_texts=iteration.committed_texts[:1], final_kind="none",
    )  # fmt: skip


@pytest.mark.parametrize("work", [every_sentence, outline_text, lambda trace: outline_text(cut(trace)), Places])
def test_four_times_the_nodes_are_four_times_the_work(work: Callable):
    small, large = (lines_run(partial(work, wide(count))) for count in (SMALL, LARGE))
    assert large < 6 * small


@pytest.mark.slow
def test_paths_and_places_are_made_once_for_all_sentences(monkeypatch):
    made = []
    paths, places = node_paths, Places.__init__
    monkeypatch.setattr(records, "node_paths", lambda iteration: made.append("paths") or paths(iteration))
    monkeypatch.setattr(Places, "__init__", lambda self, iteration: made.append("places") or places(self, iteration))
    trace = wide(2000)
    tree_outline(trace)
    assert made.count("paths") <= 1 and made.count("places") <= 1
    made.clear()
    frame_data(trace, scene_id="s")  # the tree's phases, its overview and its cards ask on their own
    assert made.count("paths") <= 3 and made.count("places") <= 1


def test_who_was_forced_out_is_found_in_one_walk_down_the_tree():
    tree = traces.big(SMALL)
    paths = node_paths(tree)

    def asked(count: int) -> int:
        out = replace(tree, interventions=tuple(InterventionTrace("force_out", path) for path in paths[-count:]))
        return lines_run(lambda: out.forced_out)

    assert asked(100) < 2 * asked(1)


def test_what_is_shared_says_the_same_as_what_is_asked_alone():
    for trace in (wide(60), cut(wide(60)), traces.sampled_recovered(), traces.ended(), traces.pruned()):
        known = Known(trace)
        for node in range(len(trace.nodes)):
            assert why_verdict(trace, node, known) == why_verdict(trace, node)
            assert why_not_expanded(trace, node, known) == why_not_expanded(trace, node)
            assert why_pruned(trace, node, known) == why_pruned(trace, node)


def test_chances_of_paths_are_products_along_them():
    trace = wide(60)
    values, (first, others) = Places(trace).node_values, trace.rule.factors
    for node in trace.nodes:
        product = 1.0
        for below in trace.path(node.node_id)[1:]:
            child, parent = trace.nodes[below], trace.nodes[trace.nodes[below].parent_id]
            factor = others if child.draft_probability < parent.confidence else first
            raised = factor * child.draft_probability
            product *= raised / (1 - child.draft_probability + raised)
        assert values[node.node_id] == pytest.approx(product)


def test_the_place_on_a_level_counts_the_tokens_that_are_worth_more():
    trace = wide(60)
    places = Places(trace)
    for node in trace.nodes[1:]:
        above = [n for n in trace.nodes if n.stop_reason == "expanded" and n.depth == node.depth - 1]
        scored = [
            places.value(n.node_id, rank, p)
            for n in above
            for rank, (_, _, p) in enumerate(trace.draft_top(n.node_id), 1)
        ]
        better = sum(value > places.node_values[node.node_id] * (1 + 1e-9) for value in scored)
        assert places.rank_on_level(node.node_id) == 1 + better
