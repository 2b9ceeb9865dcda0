"""Tokens that were not drafted: each rule's reason with its numbers; ranks are checked by drafting with that budget."""

from dataclasses import replace

import pytest

from decoding.common.formats import plural
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair
from decoding.session.session import DecodeSession, Limits
from decoding.trace.older import TELLING, rule_of, upgraded
from decoding.trace.records import RuleTrace
from tests.helpers import traces
from viz.explain.expansion import why_absent, why_in_tree, why_not_expanded, why_pruned
from viz.explain.known import Known
from viz.scope.cards import cards, distributions
from viz.scope.phases import FINAL_ID, PhaseNode, phases_of
from viz.scope.scene import build_scene

DYNA = traces.SETTINGS | {"adaptive_breadth": True, "dynamic_depth": True, "branch_first_level": True}


def why(trace, parent, text):
    return why_absent(trace, parent, traces._token_id(text))


def reported(settings, parent, text, draft_sampling="deterministic", **more):
    """Why of the hand-written tree, read as that of an older record with these settings."""
    trace = replace(traces.dynatree_recovered(), settings=settings, draft_sampling=draft_sampling, **more)
    return why(upgraded(traces.run_of([trace])).iterations[0], parent, text)


def test_a_rank_below_the_breadth_that_the_confidence_allows():
    said = reported(DYNA | {"prune_probability": 0.05}, 3, "No")
    assert said.startswith(
        "The draft's 5th choice here at 0.050; confidence 0.798 between τ_l 0.3 and τ_h 0.8 allows 2 children."
    )
    assert said.endswith("Its path probability 0.021 is also below Pruning (τ) 0.05.")
    assert "0.67 between τ_l 0.3 and τ_h 0.8 allows 1 child" in reported(DYNA, 8, " What")


def test_the_first_level_may_be_one_token():
    assert "“First level may branch” is off" in reported(DYNA | {"branch_first_level": False}, 0, " What")


def test_a_rank_that_was_allowed_fell_to_the_budget():
    trace = traces.dynatree_recovered()
    wide = replace(trace.nodes[3], branching=9)
    nodes = (*trace.nodes[:3], wide, *trace.nodes[4:])
    said = reported(DYNA, 3, "No", nodes=nodes)
    assert "it was one of 9, but the node budget of 64 was used up before its turn" in said


def test_nothing_below_a_node_that_was_not_expanded():
    assert why(traces.dynatree_recovered(), 4, "x").startswith(
        "Nothing was drafted after ‘·Tom’: path probability 0.005 < Early stop (ρ_stop) 0.02"
    )
    assert why(traces.autoregressive(), 0, "x") == "This method drafts nothing: the target writes every token itself."


def test_chains_and_fixed_trees_tell_their_width():
    assert reported({"length": 8, "sampled": False}, 0, " What").endswith("a chain takes only the first choice.")
    fixed = {"max_depth": 8, "branching": 2, "prune_probability": 0.0, "node_budget": 99, "branch_first_level": True}
    assert reported(fixed, 0, " What").endswith(
        "every node gets the draft's best 2 children (“Children per node (B)”)."
    )


def test_independent_draws_tell_their_chance():
    trace = traces.dynatree_recovered()
    probability = next(p for _, text, p in trace.draft_top(0) if text == " What")
    said = reported({"paths": 4, "length": 4}, 0, " What", draft_sampling="iid")
    assert f"Not drawn in 2 draws here: each takes it with probability {probability:.2f}" in said
    assert f"so at least one does with probability {1 - (1 - probability) ** 2:.2f}" in said


def test_draws_without_replacement_tell_each_chance_and_why_they_ended():
    settings = {"threshold": 0.1, "node_budget": 64, "max_depth": 8}
    trace = traces.dynatree_recovered()
    probability = next(p for _, text, p in trace.draft_top(0) if text == " What")
    said = reported(settings, 0, " What", draft_sampling="without_replacement")
    assert f"its probability was {probability:.2f} and {probability / (1 - 0.5):.2f} in turn" in said
    assert said.endswith("One more draw had the value 0.070, below Threshold (θ) 0.1.")


def test_places_go_to_the_highest_values():
    settings = {"node_budget": 13, "batch": 4, "max_depth": 7, "children": 0, "decay": 1.0}
    said = reported(settings, 0, " What")
    assert "and the 13 places went at 0.005 or more" in said
    assert "its path probability 0.035 is" in said and "of all scored tokens" in said
    capped = reported(settings | {"children": 2}, 0, " What")
    assert capped.endswith("only the first 2 children of a node are scored (“Maximum children”).")


def test_a_search_that_stopped_early_says_so():
    settings = {"node_budget": 60, "batch": 10, "gain_threshold": 0.6, "top_up": False, "max_depth": 32}
    assert reported(settings, 0, " What").endswith(
        "the next batch was expected to add less than Gain threshold (th) 0.6."
    )


MEASURED = {"hardware_aware": {"odds": "2.5 1.3"}}


def test_older_records_tell_every_drafter_by_its_settings_as_it_tells_itself():
    from decoding.drafters import DRAFTERS

    # Those of the time when a record did not say which drafter made it.
    for name in {rule.drafter for _, rule in TELLING} | {"dyspec", "none"}:
        drafter = DRAFTERS[name](**MEASURED.get(name, {}))
        told = rule_of(drafter.settings())
        assert told == drafter.rule(drafter.settings()) and told.drafter == name
    assert rule_of({"dynamic_depth": False, "base_depth": 3}).depth_setting == "base_depth"


def test_a_drafter_with_a_threshold_is_not_reported_as_another_one_that_has_one():
    """The record names its drafter: of one that this program does not know only what the record says is reported."""
    settings = {"threshold": 0.1, "node_budget": 64, "max_depth": 8}
    trace = traces.dynatree_recovered()
    nodes = (replace(trace.nodes[0], breadth="ranked"), *trace.nodes[1:])
    trace = replace(
        trace, settings=settings, rule=RuleTrace("SurpriseDrafter"), draft_sampling="without_replacement", nodes=nodes
    )
    said = why(trace, 0, " What")
    assert said.startswith("Not drawn in 2 draws here") and said.endswith("in turn.") and "value" not in said
    low = replace(trace, nodes=(*nodes[:5], replace(nodes[5], stop_reason="below_threshold"), *nodes[6:]))
    assert why(low, 5, "x").endswith("is below the threshold.")
    named = replace(low, rule=RuleTrace("SurpriseDrafter", threshold_setting="surprise"), settings={"surprise": 0.3})
    assert why(named, 5, "x").endswith("is below surprise 0.3.")


def beam_run(pair, node_budget):
    """One iteration of the beam of EAGLE-2, really decoded."""
    from decoding.methods.methods import METHODS
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession, Limits

    method = METHODS["eagle2"].with_settings(node_budget=node_budget, beam_width=4, max_depth=3, verifier="greedy")
    session = DecodeSession(pair, method, pair.vocabulary.encode("One day a dog"), Sampling(), Limits(8, rows="full"))
    session.step()
    return session.trace()


@pytest.fixture(scope="module")
def beam(pair):
    return beam_run(pair, 12)


def test_the_rank_of_a_token_is_the_budget_with_which_it_has_a_place(beam):
    from decoding.analysis.smallest_change import change_search, keeps

    iteration, search, checked = beam.iterations[0], change_search(beam, 0), 0
    for node in iteration.nodes:
        if node.stop_reason != "expanded":
            continue
        drafted = {other.token_id for other in iteration.nodes if other.parent_id == node.node_id}
        for token, _, _ in iteration.draft_top(node.node_id)[:4]:
            if token in drafted:
                continue
            said = why_absent(iteration, node.node_id, token)
            rank = int(said.split(" is ")[1].split(" of all scored tokens")[0].rstrip("stndrh"))
            path = (*(iteration.nodes[n].token_id for n in iteration.path(node.node_id)[1:]), token)
            with_it, _ = search.draft(search.drafter.with_settings(node_budget=rank))
            without, _ = search.draft(search.drafter.with_settings(node_budget=rank - 1))
            assert keeps(with_it, path) and not keeps(without, path)
            checked += 1
    assert checked > 5


def test_a_beam_says_how_many_children_were_scored_how_many_won_and_which_settings_say_so(pair, beam):
    iteration = beam_run(pair, 4).iterations[0]
    assert iteration.drafted > iteration.verified == 4
    for parent in (node for node in iteration.nodes if node.stop_reason == "expanded"):
        children = [iteration.nodes[child] for child in iteration.children(parent.node_id)]
        won = sum(child.flat_index is not None for child in children)
        rule = (
            f"4 children of a node are scored (“Beam width (k)”); {won} of them {'has' if won == 1 else 'have'} a "
            "place among the 4 nodes of highest path probability (“Node budget (N_max)”)"
        )
        assert why_not_expanded(iteration, parent.node_id) == f"expanded: {rule}"
        assert all(why_in_tree(iteration, child.node_id).endswith(f"; {rule}.") for child in children)
    pruned = next(node.node_id for node in iteration.nodes if node.pruned)
    assert "among the 4 nodes of highest path probability (“Node budget (N_max)”)" in why_pruned(iteration, pruned)
    phases = {phase.key: phase.caption for phase in phases_of(Known(iteration), [PhaseNode((0,), "root")])}
    assert phases["prune"].endswith(
        "removed before verification: verified are the 4 nodes of highest path probability (“Node budget (N_max)”)."
    )
    wider = beam.iterations[0]
    leaf = next(node.node_id for node in wider.nodes if node.stop_reason == "beam")
    assert "the beam expands the 4 best nodes of a level (“Beam width (k)”)" in why_not_expanded(wider, leaf)


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("sequoia", {"acceptance": "0.5,0.2,0.1"}, ", the best for “Acceptance by rank (P)”, has {} here"),
        ("dyspec", {}, ", until draws elsewhere in the tree had higher values"),
        ("dyspec_threshold", {"threshold": 0.1}, ", until one more had a value below Threshold (θ) 0.1"),
        ("token_recycling", {"verifier": "nss"}, "the fixed shape of the tree has {} here"),
        (
            "opt_tree",
            {"verifier": "nss", "node_budget": 9},
            "here have a place among the 9 nodes of highest path probability",
        ),
    ],
)
def test_every_rule_says_what_gave_a_node_its_children(pair, method, settings, words):
    from decoding.methods.methods import METHODS
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession, Limits

    prompt = pair.vocabulary.encode("One day a dog saw a dog. One day a dog")
    with_them = METHODS[method].with_settings(**settings)
    session = DecodeSession(pair, with_them, prompt, Sampling(1.0, seed=1), Limits(40))
    nodes = [(trace, node) for trace in session for node in trace.nodes if node.stop_reason == "expanded"]
    said = [
        words.format(plural(len(trace.children(node.node_id)), "child", "children"))
        in why_not_expanded(trace, node.node_id)
        for trace, node in nodes
    ]
    assert any(said), [why_not_expanded(trace, node.node_id) for trace, node in nodes]
    assert method not in ("sequoia", "token_recycling") or all(said)


def test_as_many_children_are_scored_as_the_hardware_aware_search_scores():
    from decoding.drafters import HardwareAwareDrafter
    from decoding.drafters.hardware_aware import MOST_CHILDREN

    assert HardwareAwareDrafter().rule({"odds": "1 1"}).children == MOST_CHILDREN


def test_rows_of_the_distributions_name_their_node_or_say_why_there_is_none():
    trace = traces.dynatree_recovered()
    scene = build_scene(trace, scene_id="s")
    rows = {row["text"]: row for row in distributions(trace, scene)["3"]["rows"]}
    assert rows["Yes"]["node"] == 8 and rows["Yes"]["absent"] == ""
    assert rows["No"]["node"] == FINAL_ID and "5th choice" in rows["No"]["absent"]
    others = [row for row in rows.values() if row["node"] is None]
    assert others and all(row["absent"].endswith(".") for row in others)


def test_the_card_of_the_final_token_says_why_it_was_not_drafted_and_what_was_left():
    trace = traces.sampled_recovered()
    card = cards(trace, build_scene(trace, scene_id="s"))[str(FINAL_ID)]
    assert any(name == "not drafted" and "5th choice" in value for name, value in card["facts"])
    assert card["residuals"][0]["rows"][0] == ["No", 0.83]


@pytest.mark.slow
def test_a_budget_that_cuts_a_node_short_is_named():
    settings = {"node_budget": 4, "max_depth": 3, "branching": 3, "branch_first_level": True, "prune_probability": 0.0}
    method = METHODS["fixed_tree"].with_settings(**settings)
    session = DecodeSession(embedded_pair(), method, embedded_pair().vocabulary.encode("Once"), limits=Limits(8))
    iteration = session.step()
    said = {node: why_not_expanded(iteration, node) for node in (0, 1, 2)}
    assert len(iteration.nodes) == 5 and said[0].endswith("→ 3 children")
    assert said[1].endswith("→ 3 children, but the node budget of 4 left room for 1")
    assert said[2].endswith("→ 3 children, but the node budget of 4 left room for none")
