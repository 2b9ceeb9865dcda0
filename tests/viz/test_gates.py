"""The gates that a node met: in the drafter's order, with its numbers, up to the one that stopped it."""

from dataclasses import replace

import pytest

from decoding.methods.methods import METHODS
from decoding.session.session import DecodeSession, Limits
from tests.helpers import traces
from viz.explain.draft_rule import Gate, gates_met
from viz.scope.cards import cards
from viz.scope.scene import build_scene

SETTINGS = {
    "base_depth": 2, "max_depth": 4, "confidence_high": 0.9, "confidence_low": 0.4, "stop_probability": 0.1,
    "deep_probability": 0.5, "prune_probability": 0.05, "node_budget": 64, "dynamic_depth": True,
}  # fmt: skip


def met(
    depth: int, path: float, stop_reason: str = "expanded", drafter: str = "dynatree", left_out="improbable", **more
):
    """Words of the gates of a node of this depth in the paper's counting."""
    trace = traces.dynatree_recovered()
    node = replace(trace.nodes[1], depth=depth + 1, path_probability=path, stop_reason=stop_reason, **more)
    rule = replace(trace.rule, drafter=drafter, depth_setting="max_depth", left_out=left_out)
    trace = replace(trace, nodes=(trace.nodes[0], node, *trace.nodes[2:]), settings=SETTINGS, rule=rule)
    return [f"{gate.name}: {gate.words}" for gate in gates_met(trace, 1)], [g.outcome for g in gates_met(trace, 1)]


def test_an_expanded_node_has_passed_all_and_got_its_breadth():
    words, outcomes = met(1, 0.7, confidence=0.62, breadth="between", branching=2)
    assert words == [
        "pruning: p 0.700 ≥ τ 0.05", "depth: depth 2 ≤ D_max 4", "early stop: p 0.700 ≥ ρ_stop 0.1",
        "depth gate: depth 2 ≤ D_0 2", "budget: node 1 of N_max 64", "breadth: τ_l 0.4 ≤ c 0.62 < τ_h 0.9: B_mid 2",
    ]  # fmt: skip
    assert outcomes == ["passed"] * 5 + ["breadth"]
    deep, _ = met(3, 0.55, confidence=0.3, breadth="unsure", branching=3)
    assert (
        deep[3] == "deep expansion: depth 4 > D_0 2, p 0.550 ≥ ρ_deep 0.5"
        and deep[-1] == "breadth: c 0.30 < τ_l 0.4: B_max 3"
    )
    assert met(0, 0.9, confidence=0.95, breadth="confident", branching=1)[0][-1] == "breadth: c 0.95 ≥ τ_h 0.9: B_min 1"


@pytest.mark.parametrize(
    ("depth", "path", "stop_reason", "left_out", "last"),
    [
        (1, 0.03, "below_threshold", "improbable", "pruning: p 0.030 < τ 0.05, not verified"),
        (1, 0.03, "below_threshold", None, "pruning: p 0.030 < τ 0.05, verified all the same"),
        (4, 0.9, "max_depth", "improbable", "depth: depth 5 > D_max 4"),
        (1, 0.07, "early_stop", "improbable", "early stop: p 0.070 < ρ_stop 0.1"),
        (2, 0.2, "depth_gate", "improbable", "depth gate: depth 3 > D_0 2, p 0.200 < ρ_deep 0.5"),
        (1, 0.4, "budget", "improbable", "budget: N_max 64 used up"),
        (1, 0.4, "length_limit", "improbable", "length: the text may not become longer"),
    ],
)
def test_the_gate_that_stopped_a_node_is_the_last(depth, path, stop_reason, left_out, last):
    words, outcomes = met(depth, path, stop_reason, left_out=left_out)
    assert words[-1] == last and outcomes == ["passed"] * (len(words) - 1) + ["stopped"]


def test_a_fixed_tree_asks_for_its_depth_first_and_others_have_no_gates():
    words, _ = met(1, 0.03, "below_threshold", "fixed_tree")
    assert words == [
        "depth: depth 2 ≤ D_max 4",
        "budget: node 1 of N_max 64",
        "pruning: p 0.030 < τ 0.05, not verified",
    ]
    assert met(1, 0.5, drafter="dyspec") == ([], [])


@pytest.mark.parametrize("name", ["dynatree", "fixed_tree"])
def test_what_real_nodes_passed_is_true_of_them_and_their_cards_have_it(embedded, name):
    method = METHODS[name].with_settings(branch_first_level=True, prune_probability=0.02)
    ids = embedded.vocabulary.encode("Once upon a time there was a")
    session = DecodeSession(embedded, method, ids, limits=Limits(24))
    kinds = set()
    for iteration in session:
        shown = cards(iteration, build_scene(iteration, scene_id="s"))
        for node in iteration.nodes:
            gates = gates_met(iteration, node.node_id)
            assert gates and (gates[-1].outcome == "breadth") == (node.stop_reason == "expanded")
            assert all(gate.outcome == "passed" for gate in gates[:-1])
            names = {gate.name for gate in gates if gate.outcome == "passed"}
            assert "pruning" not in names or node.path_probability >= 0.02
            assert "early stop" not in names or node.path_probability >= iteration.settings["stop_probability"]
            assert "deep expansion" not in names or node.depth > iteration.settings["base_depth"]
            card = shown.get(str(node.node_id))
            assert card is None or "gates" not in card or [Gate(n, w, o) for o, n, w in card["gates"]] == list(gates)
            kinds.add(gates[-1].name)
    assert {"breadth", "pruning"} <= kinds


def test_nodes_put_in_by_hand_met_no_gates():
    assert met(1, 0.5, breadth="forced") == ([], []) and met(1, 0.5, "not_drafted") == ([], [])
