"""Scenes: what is drawn, in which state, what is folded, and that nothing moves between phases."""

import json
import re
from dataclasses import replace

import pytest

from decoding.trace.records import InterventionTrace, node_paths
from tests.helpers import traces
from viz.explain.expansion import children_words
from viz.explain.known import Known
from viz.scope.cards import cards
from viz.scope.phases import FINAL_ID
from viz.scope.scene import LABEL_COLUMNS, build_scene, fold_id, fold_parent, overview_data, scene_to_json
from viz.tokens import columns

ALL = {
    "recovered": traces.dynatree_recovered,
    "sampled": traces.sampled_recovered,
    "bonus": traces.bonus,
    "fallback": traces.fallback,
    "pruned": traces.pruned,
    "autoregressive": traces.autoregressive,
    "ended": traces.ended,
    "summary": traces.summary,
    "big": lambda: traces.big(400),
}


def _by_id(scene):
    return {node.node_id: node for node in scene.nodes}


def _keys(scene):
    return [phase.key for phase in scene.phases]


@pytest.mark.parametrize("name", ALL)
def test_every_phase_has_a_state_for_every_node_and_the_scene_is_plain_json(name):
    scene = build_scene(ALL[name](), scene_id="s")
    assert all(len(phase.states) == len(scene.nodes) for phase in scene.phases)
    assert all(phase.caption.endswith(".") for phase in scene.phases)
    assert json.loads(json.dumps(scene_to_json(scene), allow_nan=False))["scene_id"] == "s"


def test_the_final_token_is_a_node_of_its_own_below_the_last_accepted_one():
    for build, state, parent in ((ALL["recovered"], "recovered", 3), (ALL["bonus"], "bonus", 3)):
        final = _by_id(build_scene(build(), scene_id="s"))[FINAL_ID]
        assert (final.state, final.parent_id) == (state, parent)
    assert _by_id(build_scene(traces.fallback(), scene_id="s"))[FINAL_ID].parent_id == 0
    assert FINAL_ID not in _by_id(build_scene(traces.ended(), scene_id="s"))


def test_the_final_token_has_a_row_of_its_own():
    scene = build_scene(traces.dynatree_recovered(), scene_id="s")
    final = _by_id(scene)[FINAL_ID]
    others = [node.row for node in scene.nodes if node.depth == final.depth and node.node_id != FINAL_ID]
    assert all(abs(row - final.row) >= 1 for row in others)


def test_the_final_token_stays_hidden_until_the_verifier_has_chosen():
    scene = build_scene(traces.dynatree_recovered(), scene_id="s")
    place = next(i for i, node in enumerate(scene.nodes) if node.node_id == FINAL_ID)
    states = {phase.key: phase.states[place] for phase in scene.phases}
    assert {states[key] for key in states if key not in ("select", "commit")} == {"hidden"}
    assert states["select"] == states["commit"] == "recovered"


def test_each_draft_forward_adds_the_children_of_what_it_processed():
    scene = build_scene(traces.dynatree_recovered(), scene_id="s")
    depth = {node.node_id: node.depth for node in scene.nodes}
    for level in range(1, 6):
        phase = next(p for p in scene.phases if p.key == f"draft-{level}")
        new = {n.node_id for n, state in zip(scene.nodes, phase.states, strict=True) if state == "new"}
        assert new == {i for i, d in depth.items() if d == level and i > 0}


def test_only_the_phases_that_a_method_has():
    assert _keys(build_scene(traces.autoregressive(), scene_id="s")) == ["verify", "select", "commit"]
    assert "prune" in _keys(build_scene(traces.pruned(), scene_id="s"))
    assert "prune" not in _keys(build_scene(traces.dynatree_recovered(), scene_id="s"))
    assert _keys(build_scene(traces.bonus(), scene_id="s"))[-1] == "history"


def test_pruned_nodes_are_ghosts_from_the_prune_phase_on():
    scene = build_scene(traces.pruned(), scene_id="s")
    place = next(i for i, node in enumerate(scene.nodes) if node.node_id == 2)
    states = {phase.key: phase.states[place] for phase in scene.phases}
    assert states["draft-1"] == "new" and states["draft-2"] == "drafted"
    assert {states[key] for key in ("prune", "mask", "verify", "select", "commit")} == {"pruned"}


def test_captions_carry_numbers_of_the_trace():
    captions = {p.key: p.caption for p in build_scene(traces.dynatree_recovered(), scene_id="s").phases}
    assert "adds 2 nodes" in captions["draft-1"] and "1.1 ms" in captions["draft-1"]
    assert "14 × 89" in captions["mask"]
    assert captions["verify"].startswith("One target pass over the root and 13 nodes took 6.9 ms.")
    assert " are the target's top token at their position: nodes 1, " in captions["verify"]
    pruned = {p.key: p.caption for p in build_scene(traces.pruned(), scene_id="s").phases}["verify"]
    assert "over the root and 2 of 4 nodes" in pruned and "1 of 2 nodes is the target's top token" in pruned
    assert "at its position: node 1 (" in pruned
    assert captions["select"].startswith("2 of 13 nodes accepted after 4 tests")
    assert "3 of 14 new KV slots kept" in captions["commit"]


def test_up_to_64_nodes_have_every_label_and_up_to_300_only_what_matters():
    assert all(node.labelled for node in build_scene(traces.big(64), scene_id="s").nodes)
    trace = traces.big(300)
    scene = build_scene(trace, scene_id="s", selected=250)
    labelled = {node.node_id for node in scene.nodes if node.labelled}
    path = {0, *trace.accepted}
    siblings = {node.node_id for node in trace.nodes if node.parent_id in path}
    assert labelled == path | siblings | {250, FINAL_ID}
    assert scene.hidden == 0 and scene.unlabelled == 301 - len(labelled - {FINAL_ID})


def test_beyond_300_the_rest_is_folded_and_counted():
    trace = traces.big(1024)
    scene = build_scene(trace, scene_id="s")
    drawn = [node for node in scene.nodes if node.node_id >= 0]
    folds = [node for node in scene.nodes if node.folded]
    assert scene.hidden == 1025 - len(drawn) == sum(node.folded for node in folds)
    assert f"{scene.hidden:,} hidden" in scene.note
    assert set(trace.accepted) <= {node.node_id for node in drawn}
    fold = max(folds, key=lambda node: node.folded)
    assert fold.label == f"+{fold.folded}" and "best path probability" in fold.title
    assert fold.parent_id == fold_parent(fold.node_id)


def test_nothing_is_drawn_without_its_parent():
    for scene in (
        build_scene(traces.big(1024), scene_id="s", selected=1000),
        build_scene(traces.big(400), scene_id="s", unfolded=(3, 40)),
    ):
        ids = set(_by_id(scene))
        assert all(node.parent_id in ids for node in scene.nodes if node.parent_id != -1)


def test_very_many_siblings_of_the_path_are_folded_but_for_the_verified_and_the_likeliest():
    star = [traces.Spec(0, " a", 0.001 * (place % 900), 0.9, "not_reached") for place in range(900)]
    trace = traces.iteration_of(star, final=(0, " b", 0.5), final_kind="fallback")
    scene = build_scene(trace, scene_id="s")
    drawn = [node for node in scene.nodes if node.node_id > 0]
    assert len(drawn) == 300 and scene.hidden == 600
    assert {node.node_id for node in drawn} == set(range(601, 901))


def test_a_fold_opens_and_a_selection_is_never_folded():
    trace = traces.big(1024)
    scene = build_scene(trace, scene_id="s")
    fold = next(node for node in scene.nodes if node.folded)
    opened = build_scene(trace, scene_id="s", unfolded=(fold.parent_id,))
    hidden = {n.node_id for n in trace.nodes if n.parent_id == fold.parent_id} - set(_by_id(scene))
    assert hidden and hidden <= set(_by_id(opened))
    assert _by_id(build_scene(trace, scene_id="s", selected=1024))[1024].labelled


def test_positions_do_not_depend_on_the_selection_below_the_fold_limit():
    for trace, chosen in ((traces.dynatree_recovered(), 13), (traces.big(150), 140)):
        rows = [[n.row for n in build_scene(trace, scene_id="s", selected=i).nodes] for i in (None, 5, chosen)]
        assert rows[0] == rows[1] == rows[2]


def test_labels_show_whitespace_and_are_cut_with_an_ellipsis():
    nodes = _by_id(build_scene(traces.fallback(), scene_id="s"))
    assert (nodes[2].label, nodes[3].label, nodes[FINAL_ID].label) == ("<0xE2>", "··\\t", "\\n\\n")
    assert all(columns(node.label) <= LABEL_COLUMNS for node in nodes.values())


def test_edge_width_is_path_probability_and_numbers_are_draft_and_target():
    node = _by_id(build_scene(traces.dynatree_recovered(), scene_id="s"))[8]
    assert node.width == pytest.approx(0.5 * 0.83 * 0.62)
    assert (node.draft, node.both, node.position) == ("0.62", "0.62 → 0.17", "node 8, row 8")


def test_a_faint_label_is_quoted():
    specs = tuple(traces.Spec(0, text, 0.3, 0.2, "rejected") for text in (".", " ,", " a."))
    trace = traces.iteration_of(specs, final=(0, " z", 0.4), final_kind="fallback")
    assert [node.label for node in build_scene(trace, scene_id="s").nodes[1:4]] == ["‘.’", "‘·,’", "·a."]


def test_the_first_look_goes_to_the_final_token():
    assert build_scene(traces.dynatree_recovered(), scene_id="s").default_selected == FINAL_ID
    assert build_scene(traces.bonus(), scene_id="s").default_selected == FINAL_ID
    assert build_scene(traces.ended(), scene_id="s").default_selected == 2


def test_a_summary_says_that_the_tree_was_not_recorded():
    assert "not recorded" in build_scene(traces.summary(), scene_id="s").note


def test_fold_ids_are_apart_from_nodes_and_the_final_token():
    assert fold_parent(fold_id(0)) == 0 and fold_parent(fold_id(37)) == 37
    assert fold_parent(FINAL_ID) is None and fold_parent(12) is None


def test_many_draft_forwards_are_grouped():
    from dataclasses import replace

    trace = traces.big(60)
    nodes = tuple(replace(node, draft_level=min(node.node_id, 59)) for node in trace.nodes)
    scene = build_scene(replace(trace, nodes=nodes), scene_id="s")
    drafts = [phase for phase in scene.phases if phase.key.startswith("draft")]
    assert 1 < len(drafts) <= 8
    assert all("hidden" not in s for s, n in zip(drafts[-1].states, scene.nodes, strict=True) if n.node_id >= 0)


def test_a_bar_is_as_high_as_its_path_probability_and_lies_in_its_parents():
    trace = traces.dynatree_recovered()
    made = overview_data(trace)
    tops, heights = made["tops"], made["heights"]
    assert heights[8] == pytest.approx(0.5 * 0.83 * 0.62, abs=1e-5)
    for node in trace.nodes[1:]:
        low, high = tops[node.node_id], tops[node.node_id] + heights[node.node_id]
        top = tops[node.parent_id]
        assert top - 2e-5 <= low and high <= top + heights[node.parent_id] + 2e-5


def test_siblings_stand_below_each_other():
    tops = overview_data(traces.dynatree_recovered())["tops"]
    assert tops[1] == 0 and tops[2] == pytest.approx(0.5)
    # The second child of node 1 begins where the first ends.
    assert tops[4] == pytest.approx(0.5 * 0.83, abs=1e-5)


def test_the_data_hold_every_node_with_state_and_text():
    data = overview_data(traces.pruned())
    assert data["states"] == "oaprp" and data["tokens"][1] == "·cat" and data["count"] == 4
    assert data["depths"] == [0, 1, 1, 2, 2]
    forced = replace(traces.pruned(), interventions=(InterventionTrace("force_out", node_paths(traces.pruned())[2]),))
    assert overview_data(forced)["states"] == "oafrp"


def test_select_counts_draws_where_nothing_is_tested_and_commit_names_the_slots_of_dropped_nodes():
    tested = traces.sampled_recovered()
    steps = tuple(replace(step, kind="choice") for step in tested.steps)
    captions = {p.key: p.caption for p in build_scene(replace(tested, steps=steps), scene_id="s").phases}
    assert f"by {len(steps)} draws from the target's distribution" in captions["select"]
    assert "test" not in captions["select"].partition(".")[0]
    trace = traces.dynatree_recovered()
    kv, caption = trace.kv_target, {p.key: p.caption for p in build_scene(trace, scene_id="s").phases}["commit"]
    dropped = set(range(kv.slots_before, kv.slots_before + kv.slots_written)) - set(kv.moved_from)
    named = caption.partition("; dropped: nodes in slots ")[2].partition(";")[0]
    ranges = [each.split(" to ") for each in re.split(", | and ", named)]
    assert {slot for each in ranges for slot in range(int(each[0]), int(each[-1]) + 1)} == dropped
    assert len(dropped) == kv.slots_freed and "freed" not in caption


def test_the_card_of_a_node_names_its_children_and_the_rows_it_attends_to():
    trace = traces.dynatree_recovered()
    known = Known(trace)
    assert "the draft's" in children_words(known, 0) and "likeliest first" in children_words(known, 0)
    leaf = next(node.node_id for node in trace.nodes if not trace.children(node.node_id))
    assert children_words(known, leaf) == ""
    facts = dict(cards(trace, build_scene(trace, scene_id="s"))["2"]["facts"])
    seen = [str(each) for each in trace.path(2)[:-1]]
    assert facts["attends to"].startswith(f"{trace.kv_target.slots_before} prefix tokens, ")
    assert all(each in facts["attends to"] for each in seen) and facts["attends to"].endswith("itself")
