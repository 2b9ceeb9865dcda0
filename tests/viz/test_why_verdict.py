"""Verdicts under every kind of verifier: the sentence follows from the recorded tests, and is true."""

import re
from dataclasses import replace

import numpy as np
import pytest

from decoding.trace.records import VerificationStep
from tests.helpers import traces
from viz.explain.iteration import residuals, why_verdict
from viz.scope.cards import cards, distributions
from viz.scope.phases import FINAL_ID
from viz.scope.scene import build_scene
from viz.tokens import visible


def sampled(steps, verdicts, accepted=(), untested=None):
    """The hand-written tree with other tests and verdicts; `untested` is the reason of the nodes not reached."""
    trace = traces.sampled_recovered()
    nodes = tuple(
        replace(node, verdict=verdicts.get(node.node_id, node.verdict if not node.node_id else "not_reached"))
        for node in trace.nodes
    )
    nodes = tuple(replace(node, reason=untested) if node.verdict == "not_reached" else node for node in nodes)
    return replace(trace, nodes=nodes, steps=tuple(steps), accepted=accepted)


def step(trace, child, probability, drawn, accepted, **more):
    node = trace.nodes[child]
    return VerificationStep(node.parent_id, child, node.token_id, probability, drawn, accepted, **more)


TREE = traces.sampled_recovered()


def final(place, token_text, probability):
    return VerificationStep(place, None, traces._token_id(token_text), probability, 0.4, True, kind="choice")


def test_a_token_drawn_from_the_law_instead_of_another_is_reported():
    drawn = VerificationStep(0, 2, TREE.nodes[2].token_id, 0.41, 0.3, True, kind="choice")
    trace = sampled([drawn, final(2, "\n", 0.31)], {1: "rejected", 2: "accepted"}, (2,))
    assert why_verdict(trace, 1).startswith("Not drawn: ‘.’ was drawn from the target's distribution, at 0.41.")
    assert why_verdict(trace, 2).startswith("Drawn from the target's distribution, at 0.41.")


def test_what_a_rejection_left_is_named():
    steps = [
        step(TREE, 1, 0.2, 0.9, False),
        VerificationStep(0, 2, TREE.nodes[2].token_id, 0.6, 0.3, True, kind="choice"),
    ]
    trace = sampled(steps, {1: "rejected", 2: "accepted"}, (2,))
    assert "the residual of the target's distribution after ‘,’ was rejected, at 0.60" in why_verdict(trace, 2)


def test_a_verifier_that_sees_only_the_first_path_may_draw_the_token_of_a_sibling():
    trace = sampled([step(TREE, 1, 0.2, 0.9, False), final(0, ".", 0.5)], {1: "rejected", 2: "rejected"})
    assert "looks only at the first path" in why_verdict(trace, 2)


def test_a_node_drawn_twice_is_tested_twice():
    steps = [step(TREE, 1, 0.07, 0.26, False), step(TREE, 1, 0.07, 0.68, False), final(0, ".", 0.5)]
    said = why_verdict(sampled(steps, {1: "rejected"}), 1)
    assert "Tested 2 times" in said and "below 0.07; the draws were 0.26 and 0.68: rejected" in said


def test_a_test_that_cannot_pass_needs_no_draw():
    trace = sampled([step(TREE, 1, 0.0, 0.9, False), final(0, ".", 0.5)], {1: "rejected"})
    assert why_verdict(trace, 1).startswith("Rejected: its test passes with probability 0.")


def test_bottom_up_verifiers_keep_paths():
    steps = [step(TREE, 8, 0.3, 0.8, False, weight=0.3), step(TREE, 3, 0.9, 0.1, True, weight=0.9), final(3, "No", 0.8)]
    trace = sampled(steps, {1: "accepted", 3: "accepted", 8: "rejected"}, (1, 3))
    assert why_verdict(trace, 8).startswith(
        "Its path is accepted down to this node if the draw is below 0.30; it was 0.80: not accepted"
    )
    assert "the path ends with it" in why_verdict(trace, 3)
    assert why_verdict(trace, 1).startswith('‘·"’ (node 3) below it passed its test')


def test_what_a_bottom_up_verifier_left_out_is_not_put_on_an_ancestor():
    """It tests a node before its ancestors: an earlier test had passed, or the node is not on the first path."""
    passed = [step(TREE, 8, 0.3, 0.8, False, weight=0.3), step(TREE, 3, 0.9, 0.1, True, weight=0.9), final(3, "No", 1)]
    verdicts = {1: "accepted", 3: "accepted", 8: "rejected"}
    settled, first_only = (sampled(passed, verdicts, (1, 3), code) for code in ("path_settled", "first_path_only"))
    for node in (5, 10):  # below a sibling of the path, and below a node that failed
        said = why_verdict(settled, node)
        assert said.startswith('Not tested: ‘·"’ (node 3) had already passed its test') and "ncestor" not in said
        # No test could have led a verifier there that does not look at other paths: what passed is not why.
        only_first = "Not tested: this verifier looks only at the first path drawn."
        assert why_verdict(first_only, node) == only_first
    failed = [step(TREE, node, 0.3, 0.8, False, weight=0.3) for node in (3, 1)] + [final(0, ".", 0.5)]
    trace = sampled(failed, {1: "rejected", 2: "rejected", 3: "rejected"}, untested="first_path_only")
    assert why_verdict(trace, 5) == only_first


@pytest.mark.parametrize("verifier", ["block", "traversal"])
def test_every_untested_node_of_a_bottom_up_verifier_is_reported_by_its_reason(pair, verifier):
    from decoding.methods.methods import METHODS
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession, Limits

    method = METHODS["iid_paths"].with_settings(paths=4, length=4, verifier=verifier)
    session = DecodeSession(pair, method, pair.vocabulary.encode("One day a dog"), Sampling(1.0, seed=1), Limits(16))
    reported = [
        (iteration, node.reason, why_verdict(iteration, node.node_id))
        for iteration in session
        for node in iteration.nodes
        if node.verdict == "not_reached" and iteration.final_kind != "none"
    ]
    for iteration, reason, said in reported:
        passed = next((s.child_id for s in iteration.steps if s.kind == "test" and s.accepted), None)
        settled = f"(node {passed}) had already passed its test"
        assert {"path_settled": settled, "first_path_only": "looks only at the first path"}[reason] in said
    assert reported


def test_a_tournament_names_the_winner():
    match = step(TREE, 1, 0.38, 0.5, False, kind="match", rival_id=2)
    trace = sampled(
        [match, step(TREE, 2, 0.7, 0.1, True), final(2, "\n", 0.3)], {1: "not_reached", 2: "accepted"}, (2,)
    )
    assert "lost the tournament to ‘.’ (node 2), against which it wins with probability 0.38" in why_verdict(trace, 1)
    assert why_verdict(trace, 2).startswith("It won the tournament against ‘,’ (probability 0.62). Accepted if")


def test_a_small_limit_is_not_reported_as_0():
    trace = sampled([step(TREE, 1, 0.004, 0.97, False), final(0, ".", 0.5)], {1: "rejected"})
    assert "Accepted if the draw is below 0.004; it was 0.97: rejected." in why_verdict(trace, 1)


def test_numbers_that_would_read_alike_are_reported_apart():
    trace = sampled([step(TREE, 1, 0.6212, 0.6231, False), final(0, ".", 0.5)], {1: "rejected"})
    assert "below 0.621; it was 0.623" in why_verdict(trace, 1)


def test_a_path_cut_by_the_end_of_the_text_was_not_rejected():
    trace = traces.ended()
    nodes = (*trace.nodes[:2], replace(trace.nodes[2], verdict="not_reached"))
    steps = (VerificationStep(2, None, 1, 1.0, None, True, kind="choice"),)
    cut = replace(trace, nodes=nodes, accepted=(1,), steps=steps)
    assert "it was not committed: the text ended, or reached its length limit, with ‘</s>’ before it" in why_verdict(
        cut, 2
    )


def test_residuals_follow_the_rejections_of_a_place():
    reported = residuals(TREE, 3)
    assert reported == [
        {
            "after": "residual of the target's distribution after ‘Yes’ was rejected",
            "rows": [["No", 0.83], [" What", 0.06]],
        }
    ]
    assert residuals(TREE, 0) == []


def rejections(count: int, gone_at: int):
    """A node's siblings rejected one after the other; the rejection `gone_at` leaves nothing of the last one."""
    specs = tuple(traces.Spec(0, f" t{place}", 0.09, 0.05, "rejected") for place in range(count))
    trace = traces.iteration_of(specs, final=(0, " z", 0.4), final_kind="fallback", index=0, steps=())
    last, other = trace.nodes[count].token_id, trace.committed_ids[-1]
    steps = [
        VerificationStep(
            0, node.node_id, node.token_id, 0.3, 0.9, False,
            residual_ids=(other, last)[: 1 + (place < gone_at)], residual_probs=(0.7, 0.2)[: 1 + (place < gone_at)],
        )
        for place, node in enumerate(trace.nodes[1:])
    ]  # fmt: skip
    return replace(trace, steps=tuple(steps)), last


def test_a_rejected_token_keeps_nothing_of_the_residual_from_its_rejection_on():
    trace, _ = rejections(3, gone_at=0)
    steps = [replace(s, residual_ids=tuple(range(5000, 5008)), residual_probs=(0.1,) * 8) for s in trace.steps]
    second = trace.nodes[2].token_id
    assert [each["own"] for each in residuals(replace(trace, steps=tuple(steps)), 0, 3, token=second)] == [
        "<0.1000", "0", "0",
    ]  # fmt: skip
    # SpecTr subtracts after its last test only.
    late = (*(replace(s, residual_ids=(), residual_probs=()) for s in steps[:2]), steps[2])
    assert [each["own"] for each in residuals(replace(trace, steps=late), 0, 3, token=second)][1:] != ["0", "0"]
    assert residuals(replace(trace, steps=late), 0, 3, token=second)[2]["own"] == "0"
    # A weight of 1 above a rejected node leaves it a share of what is left.
    weighted = tuple(replace(s, weight=0.5) for s in steps)
    assert {each["own"] for each in residuals(replace(trace, steps=weighted), 0, 3, token=second)} == {"<0.1000"}


def test_every_rejection_is_listed_with_what_it_left_of_the_token():
    trace, last = rejections(10, gone_at=4)
    reported = residuals(trace, 0, 3, token=last)
    assert len(reported) == 10 and len({each["after"] for each in reported}) == 10
    assert [each["own"] for each in reported] == ["0.2000"] * 4 + ["0"] * 6
    # What is gone stays gone, though a longer record would no longer say so.
    many = replace(trace.steps[9], residual_ids=tuple(range(5000, 5008)), residual_probs=(0.1,) * 8)
    reported = residuals(replace(trace, steps=(*trace.steps[:9], many)), 0, 3, token=last)
    assert [each["own"] for each in reported][8:] == ["0", "0"]
    first = replace(many, child_id=1, token_id=trace.nodes[1].token_id)
    reported = residuals(replace(trace, steps=(first, *trace.steps[1:])), 0, 3, token=last)
    assert reported[0]["own"] == "<0.1000"
    # A rejection that changed nothing repeats what was left before it.
    same = replace(trace.steps[6], residual_ids=(), residual_probs=())
    reported = residuals(replace(trace, steps=(*trace.steps[:6], same, *trace.steps[7:])), 0, 3, token=last)
    assert len(reported) == 10 and reported[6]["rows"] == reported[5]["rows"]


def test_a_card_shows_the_rejection_that_left_nothing_and_counts_those_it_leaves_out():
    trace, _ = rejections(10, gone_at=4)
    card = cards(trace, build_scene(trace, scene_id="s"))["10"]
    reported = residuals(trace, 0, 3)
    assert [each["after"] for each in card["residuals"][:3]] == [reported[place]["after"] for place in (0, 4, 9)]
    assert card["residuals"][1]["rows"][-1] == [visible(trace.nodes[10].text), 0.0]
    assert "7 more" in card["residuals"][3]["after"]


def test_a_drawn_token_outside_the_top_tokens_is_in_its_own_chart():
    specs = tuple(traces.Spec(0, f" t{place}", 0.09, 0.05, "rejected") for place in range(10))
    trace = traces.iteration_of(specs, final=(0, " rare", 0.0001), final_kind="fallback", index=0, steps=())
    drawn = trace.committed_ids[-1]
    trace = replace(trace, target_top_ids=np.where(trace.target_top_ids == drawn, -1, trace.target_top_ids))
    scene = build_scene(trace, scene_id="s")
    card = cards(trace, scene)[str(FINAL_ID)]
    rows = {row["token_id"]: row for row in distributions(trace, scene)[str(card["probs"])]["rows"]}
    assert len(rows) > 10 and rows[card["token_id"]]["node"] == FINAL_ID
    assert rows[card["token_id"]]["text"] == "·rare" and rows[card["token_id"]]["target"] is None


@pytest.mark.parametrize("target", [0.3121, 0.30])
def test_two_probabilities_that_read_the_same_get_more_digits(target):
    trace = traces.dynatree_recovered()
    rejected = next(node.node_id for node in trace.nodes if node.verdict == "rejected")
    node = replace(trace.nodes[rejected], target_probability=target - 0.0004)
    parent = replace(trace.nodes[node.parent_id], target_argmax_probability=target)
    nodes = {node.node_id: node, parent.node_id: parent}
    trace = replace(trace, nodes=tuple(nodes.get(each.node_id, each) for each in trace.nodes))
    best, given = re.findall(r"0\.\d+", why_verdict(trace, rejected))[:2]
    assert float(best) > float(given)


@pytest.mark.parametrize("make", [traces.dynatree_recovered, traces.sampled_recovered, traces.bonus, traces.fallback])
def test_every_node_has_a_sentence(make):
    trace = make()
    for node in trace.nodes:
        said = why_verdict(trace, node.node_id)
        assert said.endswith(".") and "  " not in said and "None" not in said
