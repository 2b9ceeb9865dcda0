"""Explanations: each says what decided, with the numbers of the trace."""

import re
from dataclasses import replace

import pytest

from decoding.common.formats import plural
from decoding.recorded import logits_run
from decoding.trace.older import upgraded
from tests.helpers import traces
from viz.charts.run import tokens_over_time
from viz.explain.expansion import why_not_expanded, why_pruned
from viz.explain.iteration import iteration_summary, why_final, why_not_faster, why_verdict
from viz.explain.known import Known
from viz.scope.phases import phases_of


def test_a_rejected_node_under_greedy_decoding():
    said = why_verdict(traces.dynatree_recovered(), 8)
    assert "prefers ‘No’ at 0.69" in said and "this token has 0.17" in said and "Greedy" in said


def test_a_rejected_node_with_a_draw_says_the_draw():
    said = why_verdict(traces.sampled_recovered(), 8)
    assert said.startswith("Accepted if the draw is below 0.27; it was 0.54: rejected.") and "Greedy" not in said
    assert "The target gives ‘Yes’ 0.17 and its most likely token, ‘No’, 0.69 at temperature 1." in said
    assert "below 0.87; it was 0.31: accepted" in why_verdict(traces.sampled_recovered(), 3)
    assert why_verdict(traces.sampled_recovered(), 1).startswith("Its test passes with certainty.")


def test_a_node_that_was_not_reached_names_the_ancestor_that_stopped_the_walk():
    trace = traces.dynatree_recovered()
    assert "‘Yes’ (node 8)" in why_verdict(trace, 11)
    assert "‘.’ (node 2)" in why_verdict(trace, 5)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (4, "path probability 0.005 < Early stop (ρ_stop) 0.02"),
        (5, "Base depth (D_0) 3"),
        (11, "Maximum depth (D_max) 5, counted from 0"),
        (10, "draft confidence 0.85 ≥ τ_h 0.8 → 3 children"),
        (8, "0.67 between τ_l 0.3 and τ_h 0.8 → 1 child"),
    ],
)
def test_growth_is_reported_with_the_setting_that_decided(node, words):
    assert words in why_not_expanded(traces.dynatree_recovered(), node)


def grown(draft_sampling, breadth, branching, multiplicity=1, setting=""):
    """What is said of an expanded node of the hand-written tree."""
    trace = traces.dynatree_recovered()
    node = replace(trace.nodes[8], breadth=breadth, branching=branching, multiplicity=multiplicity)
    rule = replace(trace.rule, breadth_setting=setting)
    nodes = (*trace.nodes[:8], node, *trace.nodes[9:])
    return why_not_expanded(replace(trace, nodes=nodes, draft_sampling=draft_sampling, rule=rule), 8)


def test_a_width_is_reported_per_draw_of_a_node_and_not_as_children():
    said = grown("iid", "level", 2, multiplicity=2, setting="widths")
    assert said == (
        "expanded: the setting “Widths” gives 1 draw to each draw of a node on this level, and this node was drawn "
        "2 times → 2 draws"
    )
    assert grown("iid", "level", 3) == "expanded: the rule gives 3 draws to a node on this level → 3 draws"
    said = grown("deterministic", "level", 3, setting="widths")
    assert said == "expanded: the setting “Widths” gives 3 children to a node on this level → 3 children"


def test_a_sampled_chain_draws_its_token():
    assert grown("single_path", "chain", 1) == "expanded: a chain samples one token from the draft → 1 child"
    assert grown("deterministic", "chain", 1) == "expanded: a chain takes only the first choice → 1 child"


def test_a_node_of_sampled_widths_gets_the_width_as_often_as_it_was_drawn(pair):
    from decoding.methods.methods import METHODS
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession, Limits

    widths = (3, 2, 1)
    method = METHODS["specinfer"].with_settings(widths=",".join(map(str, widths)))
    session = DecodeSession(pair, method, pair.vocabulary.encode("One day a dog"), Sampling(1.0, seed=1), Limits(16))
    repeated = 0
    for trace in session:
        for node in trace.nodes:
            if node.stop_reason == "expanded":
                given = f"the setting “Widths” gives {plural(widths[node.depth], 'draw')} to "
                assert given in why_not_expanded(trace, node.node_id)
                repeated += node.multiplicity > 1
    assert repeated


def test_every_growth_has_a_sentence():
    from decoding.trace.records import STOP_REASONS

    trace = traces.dynatree_recovered()
    for stop_reason in STOP_REASONS:
        nodes = (*trace.nodes[:5], replace(trace.nodes[5], stop_reason=stop_reason), *trace.nodes[6:])
        for settings in (trace.settings, {}):
            said = why_not_expanded(replace(trace, nodes=nodes, settings=settings), 5)
            assert said.startswith("expanded" if stop_reason == "expanded" else "not expanded: ")


def test_pruning_names_the_threshold():
    assert "0.010 < Pruning (τ) 0.02" in why_pruned(traces.pruned(), 2)
    assert why_verdict(traces.pruned(), 2) == why_pruned(traces.pruned(), 2)
    assert why_pruned(traces.pruned(), 1) == ""


def test_final_tokens():
    assert "leaf" in why_final(traces.bonus()) and "free" in why_final(traces.bonus())
    assert "the text ended, or reached its length limit, with ‘</s>’" in why_final(traces.ended()).lower()
    assert "Nothing was drafted" in why_final(traces.autoregressive())
    assert why_final(traces.fallback()).endswith("is the target's most likely token here.")


def test_a_bonus_token_of_a_record_without_nodes_is_explained():
    assert "free" in why_final(replace(traces.bonus(), nodes=(), steps=()))


def test_a_bonus_token_after_a_leaf_names_the_gate_that_ended_the_tree_there():
    trace = traces.bonus()
    last = trace.nodes[trace.accepted[-1]]
    for gate, words in (
        ("depth_gate", "beyond Base depth (D_0) 3 only paths with at least Depth gate (ρ_deep) 0.1 are extended"),
        ("early_stop", "< Early stop (ρ_stop) 0.02"),
    ):
        leaf = replace(last, stop_reason=gate)
        nodes = tuple(leaf if node is last else node for node in trace.nodes)
        said = why_final(replace(trace, nodes=nodes))
        assert said.startswith("The path ended at a leaf of the verified tree, below which nothing was drafted: ")
        assert words in said and "this token is free" in said


def test_an_iteration_without_a_tree_says_why_nothing_was_drafted():
    assert why_final(traces.autoregressive()).startswith("Nothing was drafted: this is the target's own token")
    trace = traces.autoregressive()
    ended = replace(trace, nodes=(replace(traces.bonus().nodes[0], stop_reason="length_limit"),))
    said = "Nothing was drafted, as “Maximum new tokens” ends the text there"
    assert why_final(ended).startswith(f"{said}: this is the target's own token")
    assert phases_of(Known(ended), ())[-2].caption.startswith(f"{said}: the target's own token")


def test_a_drawn_final_token_names_the_distribution_it_came_from():
    recovered, bonus = (
        next(each for each in logits_run().iterations if each.final_kind == kind) for kind in ("recovered", "bonus")
    )
    residual = "was drawn from the residual of the target's distribution after .+ rejected, at "
    assert re.search(residual, why_final(recovered))
    assert "was drawn from the target's distribution, at " in why_final(bonus)


def test_the_summary_is_one_sentence_with_the_counts():
    said = iteration_summary(traces.dynatree_recovered())
    assert "13 nodes drafted, 13 verified, 2 accepted, recovered token ‘No’; 3 tokens committed" in said


def test_a_replayed_iteration_has_no_times_to_explain():
    run = traces.run_replayed()
    assert "was replayed from recorded logits: its times were not measured" in why_not_faster(run)
    phases = phases_of(Known(run.iterations[-1]), ())
    assert {phase.seconds for phase in phases} == {None}
    assert "ms" not in next(phase.caption for phase in phases if phase.key == "verify")
    assert tokens_over_time([run]).data[0].x[-1] == run.iterations[1].ended_s


def test_why_not_faster_uses_the_measured_phases():
    run, plain = traces.run_of([traces.dynatree_recovered()] * 4), traces.run_autoregressive()
    said = why_not_faster(run, plain)
    assert said.startswith("Draft takes 49% of an iteration (7.9 ms of 16.2 ms, a target pass 6.9 ms).")
    assert "commits 3.00 tokens, 2.00 of them drafted: 5.4 ms per token" in said
    assert "Autoregressive takes 8.7 ms per token" in said and "1.61x as fast" in said and "commit 1.9 tokens" in said
    assert why_not_faster(traces.run_of([])) == "No iteration has been run yet."
    first, *later = plain.iterations
    slow = replace(plain, iterations=(replace(first, times=replace(first.times, total_s=9.0)), *later))
    assert why_not_faster(slow) == why_not_faster(plain), "what reads the prompt is not counted"
    assert why_not_faster(run, slow) == said
    assert why_not_faster(traces.run_autoregressive(1)) == "Only the prompt has been read yet."


def test_the_second_pass_of_a_rebuild_is_reported():
    assert "rollback + rebuild takes 20%" in why_not_faster(traces.run_of([traces.sampled_recovered()]))


def test_a_tree_by_costs_explains_itself_by_tokens_per_second():
    trace = traces.pruned()
    trace = replace(trace, settings={"node_budget": 128, "verify_ms": "1:2.5 8:3", "level_ms": "0.3", "odds": "2 1"})
    trace = upgraded(traces.run_of([trace])).iterations[0]
    assert "more tokens per second" in why_pruned(trace, 2) and why_pruned(trace, 1) == ""
    nodes = (trace.nodes[0], replace(trace.nodes[1], stop_reason="unprofitable"), *trace.nodes[2:])
    assert "was not expected to raise tokens per second" in why_not_expanded(replace(trace, nodes=nodes), 1)
